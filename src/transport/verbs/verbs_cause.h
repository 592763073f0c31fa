// What devices say of failures, in plain words: each status of a work completion and each asynchronous event.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>

namespace tutti {

struct VerbsCause {
  std::string_view what;    // "the peer's port did not answer (retry count exceeded)"
  std::string_view likely;  // what it usually comes from, and what to look at
  uint8_t code = 0;         // by which the peer is told; 0: of neither a status nor an event
};

VerbsCause cause_of(ibv_wc_status status) noexcept;
VerbsCause cause_of(ibv_event_type event) noexcept;
// What the peer's code says.
VerbsCause cause_of_code(uint8_t code) noexcept;

// Which of what an event belongs to has failed by it; nothing: it is no failure.
enum class VerbsScope : unsigned char { nothing, queue_pair, port, device };
VerbsScope scope_of(ibv_event_type event) noexcept;

}  // namespace tutti
