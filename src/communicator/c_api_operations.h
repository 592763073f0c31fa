// The bodies of the C interface's collectives and point to point, for the functions with and without options. All throw
// Error where an argument is wrong; `options` may be null.
#pragma once

#include <optional>

#include "base/signature.h"
#include "communicator/c_api.h"
#include "tutti/tutti.h"

namespace tutti {

// A call as its arguments say it, all but operator, root, place and layout.
Request request_of(Collective kind, const void* input, void* output, size_t count, const ElementType& type);
// Elements must fit into a message.
void check_fits(const ElementType& type, const Communicator& communicator);
// Writes what a call asks for beside what it does into its request, whose call is complete. Refuses what the determinism
// of call or communicator cannot keep.
void take_options(Request& request, const Communicator& communicator, const tuttiOptions_t* options);
// Runs a checked request now, on a stream, or at the end of the open group; finds out where its buffers lie.
tuttiResult_t submit(Communicator& communicator, Request& request, tuttiStream_t stream);

// What a collective is called with, beside its buffers and their count and type.
struct Extra {
  std::optional<tuttiRedOp_t> op;
  std::optional<int> root;
  const tuttiOptions_t* options;
};
tuttiResult_t collective(Collective kind, const void* send, void* recv, size_t count, tuttiDataType_t datatype,
                         const Extra& extra, tuttiComm_t comm, tuttiStream_t stream);

tuttiResult_t barrier(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);

tuttiResult_t point_to_point(bool sending, const void* input, void* output, size_t count, tuttiDataType_t datatype,
                             int peer, tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);

struct Sending {
  const void* data;
  size_t count;
  int to;
};
struct Receiving {
  void* data;
  size_t count;
  int from;
};
tuttiResult_t send_recv(const Sending& out, const Receiving& in, tuttiDataType_t datatype, tuttiComm_t comm,
                        tuttiStream_t stream, const tuttiOptions_t* options);

// --- The way of a call that was made before: all that would refuse it, or send it elsewhere, is looked at in a few
// nanoseconds. What may not go it goes the long way, where errors are told.

inline constexpr unsigned narrow = 32;  // types and operators below keep their value in a Call

// A program's buffers are often in no cache when it calls: their first lines come while the call is looked up, one where no more
// elements of four bytes are given. (Xeon 6, 2 ranks, cold: 8 B 0.55 to 0.92 of the time, 128 and 512 B 0.69 to 0.97; hot as before.)
[[gnu::always_inline]] inline void fetch_first_lines(const void* send, const void* recv, size_t count) noexcept {
  constexpr size_t line_bytes = 64, lines = 8;
  __builtin_prefetch(send);
  __builtin_prefetch(recv, 1);
  if (count <= line_bytes / sizeof(float)) return;
  for (size_t line = 1; line < lines; ++line) {  // as numbers: either may be null
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(send) + line * line_bytes));
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(recv) + line * line_bytes), 1);
  }
}

// The call's communicator, if nothing but what the call does can keep it from that way; else null.
[[gnu::always_inline]] inline Communicator* again_on(tuttiComm_t comm, tuttiStream_t stream, tuttiDataType_t datatype,
                                                     tuttiRedOp_t op) noexcept {
  if (comm == nullptr || stream != nullptr || (unsigned(datatype) | unsigned(op)) >= narrow || !comm->is_live() ||
      CallingThread::current().group_depth != 0)
    return nullptr;
  return comm->object.get();
}

// Runs the call that `repeat` holds on these buffers, which it allows. False: it may not go this way now.
[[gnu::always_inline]] inline bool run_again(Communicator& communicator, Repeat& repeat, const void* send, void* recv,
                                             tuttiResult_t& result) noexcept {
  if (!communicator.idle() || communicator.has_left()) return false;
  const Repeat::Buffers buffers = repeat.buffers(send, recv);
  if (communicator.device_side() != nullptr && !repeat.is_of(buffers)) [[unlikely]] return false;
  const Code code = communicator.run_again(repeat, buffers.input, buffers.output);
  result = code == Code::success ? tuttiSuccess : report(code, communicator.failure()->sentence);
  return true;
}

// A large call that was made before; `blocks` of v-forms.
[[gnu::noinline]] bool run_large_again(Communicator& communicator, const Call& call, const void* send, void* recv,
                                       tuttiResult_t& result, const GivenSides* blocks = nullptr) noexcept;

}  // namespace tutti
