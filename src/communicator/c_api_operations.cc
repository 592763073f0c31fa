// The C interface: collectives, point to point and groups. The small operation's way begins here.
#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api.h"
#include "communicator/group.h"

namespace tutti {
namespace {

tuttiResult_t run_in_turn(Communicator& communicator, const Request& request) noexcept {
  const uint64_t ticket = communicator.take_ticket();
  communicator.await_turn(ticket);
  const Code code = communicator.run(request);
  communicator.end_turn();
  return tuttiResult_t(code);
}

// Runs a checked request now, on a stream, or at the end of the open group.
tuttiResult_t submit(Communicator& communicator, const Request& request, tuttiStream_t stream) {
  if (communicator.has_left())
    throw Error(Code::invalid_usage, "comm has been finalized: only tuttiCommDestroy may follow");
  CallingThread& thread = CallingThread::current();
  Stream* const queue = stream == nullptr ? nullptr : &stream_of(stream);
  if (thread.group_depth > 0) {
    thread.calls.push_back({&communicator, request, queue});
    return tuttiSuccess;
  }
  if (queue != nullptr) {
    if (const Verdict* verdict = communicator.failure()) return report(verdict->code, verdict->sentence);
    enqueue({&communicator, request, queue});
    return tuttiSuccess;
  }
  const tuttiResult_t result =
      communicator.idle() ? tuttiResult_t(communicator.run(request)) : run_in_turn(communicator, request);
  if (result != tuttiSuccess) return report(Code(result), communicator.failure()->sentence);
  return tuttiSuccess;
}

Request request_of(Collective kind, const void* input, void* output, size_t count, DataType type) {
  Request request;
  request.call.kind = kind;
  request.call.type = type;
  request.call.count = count;
  request.input = static_cast<const std::byte*>(input);
  request.output = static_cast<std::byte*>(output);
  return request;
}

tuttiResult_t point_to_point(bool sending, const void* input, void* output, size_t count, tuttiDataType_t datatype,
                             int peer, tuttiComm_t comm, tuttiStream_t stream) {
  Communicator& communicator = communicator_of(comm);
  const DataType type = checked_type(datatype);
  check_peer(peer, communicator.size());
  check_count(count, type);
  if (sending) check_buffer("sendbuff", input, count);
  else check_buffer("recvbuff", output, count);
  if (peer == communicator.rank() && CallingThread::current().group_depth == 0)
    throw Error(Code::invalid_argument, fmt::format("peer is {}, the calling rank itself, outside a group: it would "
                                                    "wait for itself", peer));
  Request request = request_of(Collective::send_recv, input, output, count, type);
  request.peer = peer;
  request.sending = sending;
  return submit(communicator, request, stream);
}

}  // namespace
}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                             tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    const DataType type = checked_type(datatype);
    const ReduceOp reduce_op = checked_op(op);
    check_count(count, type);
    check_buffer("sendbuff", sendbuff, count);
    check_buffer("recvbuff", recvbuff, count);
    check_overlap(sendbuff, recvbuff, count * element_bytes(type));
    Request request = request_of(Collective::all_reduce, sendbuff, recvbuff, count, type);
    request.call.op = reduce_op;
    return submit(communicator, request, stream);
  });
}

tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                             tuttiComm_t comm, tuttiStream_t stream) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    const DataType type = checked_type(datatype);
    check_root(root, communicator.size());
    check_count(count, type);
    const bool is_root = root == communicator.rank();
    if (is_root) check_buffer("sendbuff", sendbuff, count);
    check_buffer("recvbuff", recvbuff, count);
    if (is_root) check_overlap(sendbuff, recvbuff, count * element_bytes(type));
    // Elsewhere than on the root the input is not read.
    Request request = request_of(Collective::broadcast, is_root ? sendbuff : recvbuff, recvbuff, count, type);
    request.call.root = uint32_t(root);
    return submit(communicator, request, stream);
  });
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    return submit(communicator, request_of(Collective::barrier, nullptr, nullptr, 0, DataType::int8), stream);
  });
}

tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
  return at_the_border([&] { return point_to_point(true, sendbuff, nullptr, count, datatype, peer, comm, stream); });
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
  return at_the_border([&] { return point_to_point(false, nullptr, recvbuff, count, datatype, peer, comm, stream); });
}

tuttiResult_t tuttiGroupStart(void) {
  ++CallingThread::current().group_depth;
  return tuttiSuccess;
}

tuttiResult_t tuttiGroupEnd(void) {
  return at_the_border([&] {
    CallingThread& thread = CallingThread::current();
    if (thread.group_depth == 0) throw Error(Code::invalid_usage, "tuttiGroupEnd without tuttiGroupStart");
    if (--thread.group_depth > 0) return tuttiSuccess;
    const std::vector<GroupJoin> joins = std::exchange(thread.joins, {});
    std::vector<GroupCall> calls = std::exchange(thread.calls, {});
    const Code refusal = std::exchange(thread.first_refusal, Code::success);
    if (refusal != Code::success) return tuttiResult_t(refusal);  // the sentence is still the refused call's
    if (!joins.empty()) join_now(joins);
    const Outcome outcome = run_group(std::move(calls));
    return report(outcome.code, outcome.sentence);
  });
}

}  // extern "C"
