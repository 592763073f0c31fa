// What devices say of failures, in plain words: each status of a work completion and each asynchronous event.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace tutti {

struct VerbsCause {
  std::string_view what;    // "the peer's port did not answer (retry count exceeded)"
  std::string_view likely;  // what it usually comes from, and what to look at
};

VerbsCause cause_of(ibv_wc_status status) noexcept;
VerbsCause cause_of(ibv_event_type event) noexcept;

// Which of what an event belongs to has failed by it; nothing: it is no failure.
enum class VerbsScope : unsigned char { nothing, queue_pair, port, device };
VerbsScope scope_of(ibv_event_type event) noexcept;

}  // namespace tutti
