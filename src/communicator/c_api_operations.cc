// The C interface: collectives, point to point and groups. The small operation's way begins here.
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api_operations.h"
#include "communicator/device_calls.h"
#include "communicator/group.h"
#include "reduce/exact.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

tuttiResult_t run_in_turn(Communicator& communicator, const Request& request) noexcept {
  const uint64_t ticket = communicator.take_ticket();
  communicator.await_turn(ticket);
  const Code code = communicator.run(request);
  communicator.end_turn();
  return tuttiResult_t(code);
}

void check_still_member(const Communicator& communicator) {
  if (communicator.has_left())
    throw Error(Code::invalid_usage, "comm has been finalized: only tuttiCommDestroy may follow");
}

void check_may_have_stream(const CallingThread& thread, const CallStream& stream) {
  if (thread.preparing && !stream.is_none())
    throw Error(Code::invalid_usage, "a call that is prepared takes no stream: tuttiPreparedStart does");
}

// Whether a call is the next one of the group that the thread has kept: then it is noted, and that is all that it needs. False:
// it must go the long way, where errors are told.
[[gnu::always_inline]] inline bool note(CallingThread& thread, const Call& call, const void* send, void* recv,
                                        tuttiComm_t comm, tuttiStream_t stream) noexcept {
  if (thread.preparing || !thread.calls.empty() || comm == nullptr || stream != nullptr ||
      (unsigned(call.type) | unsigned(call.op)) >= narrow || !comm->is_live())
    return false;
  Communicator& communicator = *comm->object;
  if (communicator.has_left() || communicator.device_side() != nullptr) return false;
  return thread.kept.note({&communicator, send, recv, call.count, call.kind, call.type, call.op, call.root});
}
[[gnu::noinline]] bool note_in_group(const Call& call, const void* send, void* recv, tuttiComm_t comm,
                                     tuttiStream_t stream) noexcept {
  CallingThread& thread = CallingThread::current();
  return thread.group_depth > 0 && note(thread, call, send, recv, comm, stream);
}

// A small call that was made before.
[[gnu::always_inline]] inline bool again(Collective kind, const void* send, void* recv, size_t count,
                                         tuttiDataType_t datatype, tuttiRedOp_t op, int root, tuttiComm_t comm,
                                         tuttiStream_t stream, tuttiResult_t& result) noexcept {
  fetch_first_lines(send, recv, count);
  Communicator* const communicator = again_on(comm, stream, datatype, op);
  if (communicator == nullptr) [[unlikely]] {
    result = tuttiSuccess;
    return note_in_group({kind, DataType(datatype), ReduceOp(op), uint32_t(root), count}, send, recv, comm, stream);
  }
  const Call call{kind, DataType(datatype), ReduceOp(op), uint32_t(root), count};
  Repeat& repeat = communicator->repeat_of(call);
  if (repeat.allows(call, send, recv)) [[likely]] return run_again(*communicator, repeat, send, recv, result);
  const Call copy = call;  // so that only this one has to lie in memory
  return run_large_again(*communicator, copy, send, recv, result);
}

// A send or a receive that was made before: of its group, or alone.
[[gnu::always_inline]] inline bool point_to_point_again(bool sending, const void* input, void* output, size_t count,
                                                        tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                                                        tuttiStream_t stream, tuttiResult_t& result) noexcept {
  const uint32_t root = Communicator::root_of_point_to_point(sending, peer);
  CallingThread& thread = CallingThread::current();
  if (thread.group_depth == 0)
    return again(Collective::send_recv, input, output, count, datatype, tuttiSum, int(root), comm, stream, result);
  fetch_first_lines(input, output, count);
  result = tuttiSuccess;
  return note(thread, {Collective::send_recv, DataType(datatype), ReduceOp::sum, root, count}, input, output, comm, stream);
}

InPlace in_place_of(Part input, Part output) {
  if (input == Part::own && output == Part::all) return InPlace::send_is_block_of_recv;
  if (input == Part::all && output == Part::own) return InPlace::recv_is_block_of_send;
  return InPlace::same_start;
}

}  // namespace

bool run_large_again(Communicator& communicator, const Call& call, const void* send, void* recv, tuttiResult_t& result,
                     const GivenSides* blocks) noexcept {
  Repeat& repeat = communicator.large_repeat_of(call);
  if (!repeat.allows(call, send, recv) || !communicator.idle() || communicator.has_left() ||
      !communicator.may_run_large_again(repeat))
    return false;
  if (blocks != nullptr && !repeat.lies_as(*blocks, size_t(communicator.rank()))) return false;
  const Repeat::Buffers buffers = repeat.buffers(send, recv);
  if (communicator.device_side() != nullptr && !repeat.is_of(buffers)) return false;
  const Code code = communicator.run_large_again(repeat, buffers.input, buffers.output);
  result = code == Code::success ? tuttiSuccess : report(code, communicator.failure()->sentence);
  return true;
}

tuttiResult_t submit(Communicator& communicator, Request& request, tuttiStream_t stream) {
  check_still_member(communicator);
  CallingThread& thread = CallingThread::current();
  const CallStream queue = call_stream(stream);
  if (communicator.device_side() != nullptr) [[unlikely]] place(request, communicator, queue);
  if (thread.group_depth > 0) {
    check_may_have_stream(thread, queue);
    thread.kept.write_down(thread.calls);
    thread.calls.push_back({&communicator, request, queue});
    return tuttiSuccess;
  }
  if (runs_elsewhere(queue)) {
    if (const Verdict* verdict = communicator.failure()) return report(verdict->code, verdict->sentence);
    enqueue({&communicator, request, queue});
    return tuttiSuccess;
  }
  if (request.on_device || queue.is_device()) enter(request, communicator, queue);
  const tuttiResult_t result =
      communicator.idle() ? tuttiResult_t(communicator.run(request)) : run_in_turn(communicator, request);
  if (result != tuttiSuccess) return report(Code(result), communicator.failure()->sentence);
  return tuttiSuccess;
}

Request request_of(Collective kind, const void* input, void* output, size_t count, const ElementType& type) {
  Request request;
  request.call.kind = kind;
  request.call.type = type.type;
  request.call.opaque_bytes = type.type == DataType::opaque ? type.bytes : 0;
  request.call.count = count;
  request.input = static_cast<const std::byte*>(input);
  request.output = static_cast<std::byte*>(output);
  return request;
}

void check_fits(const ElementType& type, const Communicator& communicator) {
  if (type.bytes > communicator.message_bytes_max())
    throw Error(Code::unsupported, fmt::format("datatype has {}, but a message of this communicator holds {} bytes",
                                               describe(type), communicator.message_bytes_max()));
}

namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

void take_algorithm(Request& request, const Communicator& communicator, std::string_view algorithm) {
  if (request.call.kind == Collective::send_recv)
    refuse(fmt::format("options->algorithm is \"{}\", but point to point has none", algorithm));
  try {
    const Planner::Named named = communicator.named_algorithm(algorithm, request);
    request.algorithm = named.algorithm;
    request.terms.algorithm = named.number;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("options->{}", error.what()));
  }
}

// Several vectors of a rank.
void check_inputs(const Request& request, const Communicator& communicator) {
  const Call& call = request.call;
  const size_t inputs = request.terms.inputs, all = inputs * size_t(communicator.size());
  if (!meaning(call.kind).reduces || call.kind == Collective::barrier)
    refuse(fmt::format("options->inputs is {}, but {} has nothing to add", inputs, name(call.kind)));
  const Determinism mode = communicator.determinism_of(request.terms);
  if (mode != Determinism::invariant)
    refuse(fmt::format("options->inputs is {}, which needs determinism invariant, but it is {}", inputs, name(mode)));
  if (!communicator.adds_exactly(request)) return;
  if (all > size_t(exact_inputs_max))
    refuse(fmt::format("options->inputs is {}, which times {} ranks is more than {} vectors", inputs,
                       communicator.size(), exact_inputs_max));
  if (inputs * element_bytes(call) > communicator.message_bytes_max())
    refuse(fmt::format("options->inputs is {}, which times {} bytes of {} is more than a message of this communicator "
                       "holds, {} bytes",
                       inputs, element_bytes(call), name(call.type), communicator.message_bytes_max()));
}

// What depends on the order for all that is done about it: products are rounded, and nobody knows what a caller's
// operator does.
void check_is_invariant(const Request& request, const Communicator& communicator) {
  const ReduceOp op = request.call.op;
  if (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premulsum) return;
  if (!communicator.adds_exactly(request)) return;
  const bool by_call = request.terms.determinism == Determinism::invariant;
  refuse(fmt::format("op is {} on {}, whose result depends on the order of the inputs, but determinism is invariant ({})",
                     name(op), describe(request.call.type, request.call.opaque_bytes),
                     by_call ? "options->determinism" : "of the communicator; options->determinism may ask for less"));
}

}  // namespace

void take_options(Request& request, const Communicator& communicator, const tuttiOptions_t* options) {
  const CheckedOptions checked = options == nullptr ? CheckedOptions{} : checked_call_options(options);
  request.timeout_ns = checked.timeout_ms * ns_per_ms;
  if (checked.determinism != communicator.options().determinism) request.terms.determinism = checked.determinism;
  request.terms.inputs = checked.inputs;
  check_is_invariant(request, communicator);
  if (checked.inputs != 1) check_inputs(request, communicator);
  if (!checked.algorithm.empty()) take_algorithm(request, communicator, checked.algorithm);
}

// Buffers that the rank has no part of are not looked at.
tuttiResult_t collective(Collective kind, const void* send, void* recv, size_t count, tuttiDataType_t datatype,
                         const Extra& extra, tuttiComm_t comm, tuttiStream_t stream) {
  Communicator& communicator = communicator_of(comm);
  const ElementType type = checked_type(datatype);
  check_fits(type, communicator);
  CheckedOp op;
  if (extra.op) op = checked_op(*extra.op, type, communicator.operators(), comm->number);
  const int root = extra.root.value_or(0);
  check_root(root, communicator.size());
  const Meaning& means = meaning(kind);
  const bool is_root = root == communicator.rank();
  const Part input = means.input_of(is_root), output = means.output_of(is_root);
  if (input != Part::none) check_buffer("sendbuff", send, count);
  if (output != Part::none) check_buffer("recvbuff", recv, count);

  Request request = request_of(kind, input == Part::none ? nullptr : send, output == Part::none ? nullptr : recv, count,
                               type);
  request.call.op = op.op;
  request.made = std::move(op.made);
  request.call.root = uint32_t(root);
  take_options(request, communicator, extra.options);
  const size_t inputs = request.terms.inputs;
  const int blocks = means.blocks ? communicator.size() : 1;
  check_count(count, type, blocks, inputs);
  request.vector_stride = count * size_t(blocks);
  if (input != Part::none && output != Part::none) {
    const size_t bytes = count * type.bytes, block_at = size_t(communicator.rank()) * bytes;
    const auto of_part = [&](Part part) { return part == Part::all ? bytes * size_t(blocks) : bytes; };
    const InPlace allowed = in_place_of(input, output);
    request.in_place = check_overlap({send, inputs * of_part(input)}, {recv, of_part(output)}, allowed, block_at);
    if (request.in_place && allowed == InPlace::recv_is_block_of_send) request.output -= block_at;
    if (request.in_place) request.input = request.output;
  }
  return submit(communicator, request, stream);
}

tuttiResult_t barrier(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  Communicator& communicator = communicator_of(comm);
  Request request = request_of(Collective::barrier, nullptr, nullptr, 0, DataType::int8);
  take_options(request, communicator, options);
  return submit(communicator, request, stream);
}

namespace {

// A checked half of point to point.
Request half(bool sending, const void* input, void* output, size_t count, tuttiDataType_t datatype, int peer,
             const Communicator& communicator, const tuttiOptions_t* options) {
  const ElementType type = checked_type(datatype);
  check_fits(type, communicator);
  check_peer(peer, communicator.size());
  check_count(count, type);
  if (sending) check_buffer("sendbuff", input, count);
  else check_buffer("recvbuff", output, count);
  Request request = request_of(Collective::send_recv, input, output, count, type);
  request.peer = peer;
  request.sending = sending;
  take_options(request, communicator, options);
  return request;
}

}  // namespace

tuttiResult_t point_to_point(bool sending, const void* input, void* output, size_t count, tuttiDataType_t datatype,
                             int peer, tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  Communicator& communicator = communicator_of(comm);
  Request request = half(sending, input, output, count, datatype, peer, communicator, options);
  if (peer == communicator.rank() && CallingThread::current().group_depth == 0)
    throw Error(Code::invalid_argument, fmt::format("peer is {}, the calling rank itself, outside a group: it would "
                                                    "wait for itself", peer));
  return submit(communicator, request, stream);
}

namespace {

// Whether the two are the whole group that the thread has kept, and their areas disjoint: then they are noted.
bool note_both(CallingThread& thread, const Sending& out, const Receiving& in, tuttiDataType_t datatype, tuttiComm_t comm,
               tuttiStream_t stream) noexcept {
  if (thread.group_depth != 0) return false;
  const auto call = [&](bool sending, int peer, size_t count) {
    return Call{Collective::send_recv, DataType(datatype), ReduceOp::sum, Communicator::root_of_point_to_point(sending, peer), count};
  };
  if (note(thread, call(true, out.to, out.count), out.data, nullptr, comm, stream) &&
      note(thread, call(false, in.from, in.count), nullptr, in.data, comm, stream) && thread.kept.has_noted_all()) {
    const size_t bytes = element_bytes(DataType(datatype));
    const auto a = reinterpret_cast<uintptr_t>(out.data), b = reinterpret_cast<uintptr_t>(in.data);
    if (a - b >= in.count * bytes && b - a >= out.count * bytes) return true;
  }
  thread.kept.forget_noted();
  return false;
}

}  // namespace

tuttiResult_t send_recv(const Sending& out, const Receiving& in, tuttiDataType_t datatype, tuttiComm_t comm,
                        tuttiStream_t stream, const tuttiOptions_t* options) {
  Communicator& communicator = communicator_of(comm);
  Request send = half(true, out.data, nullptr, out.count, datatype, out.to, communicator, options);
  Request recv = half(false, nullptr, in.data, in.count, datatype, in.from, communicator, options);
  const size_t bytes = checked_type(datatype).bytes;
  check_overlap({out.data, out.count * bytes}, {in.data, in.count * bytes}, InPlace::refused);
  check_still_member(communicator);
  const CallStream queue = call_stream(stream);
  if (communicator.device_side() != nullptr)
    for (Request* part : {&send, &recv}) place(*part, communicator, queue);
  CallingThread& thread = CallingThread::current();
  if (thread.group_depth > 0) check_may_have_stream(thread, queue);
  thread.kept.write_down(thread.calls);
  for (Request* part : {&send, &recv}) thread.calls.push_back({&communicator, std::move(*part), queue});
  if (thread.group_depth > 0) return tuttiSuccess;
  const Outcome outcome = thread.run_calls();
  return report(outcome.code, outcome.sentence);
}

}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                             tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::all_reduce, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::all_reduce, sendbuff, recvbuff, count, datatype, {op, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                             int root, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::broadcast, sendbuff, recvbuff, count, datatype, tuttiSum, root, comm, stream, result))
    return result;
  return at_the_border([&] {
    return collective(Collective::broadcast, sendbuff, recvbuff, count, datatype, {{}, root, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                          tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::reduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::reduce, sendbuff, recvbuff, count, datatype, {op, root, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiScan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
                        tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::scan, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::scan, sendbuff, recvbuff, count, datatype, {op, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiExScan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
                          tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::exscan, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::exscan, sendbuff, recvbuff, count, datatype, {op, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                             tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::all_gather, sendbuff, recvbuff, count, datatype, tuttiSum, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::all_gather, sendbuff, recvbuff, count, datatype, {{}, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                 tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::reduce_scatter, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::reduce_scatter, sendbuff, recvbuff, count, datatype, {op, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                          int root, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::gather, sendbuff, recvbuff, count, datatype, tuttiSum, root, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::gather, sendbuff, recvbuff, count, datatype, {{}, root, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                           int root, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::scatter, sendbuff, recvbuff, count, datatype, tuttiSum, root, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::scatter, sendbuff, recvbuff, count, datatype, {{}, root, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                            tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::all_to_all, sendbuff, recvbuff, count, datatype, tuttiSum, 0, comm, stream, result)) return result;
  return at_the_border([&] {
    return collective(Collective::all_to_all, sendbuff, recvbuff, count, datatype, {{}, {}, nullptr}, comm, stream);
  });
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  if (again(Collective::barrier, nullptr, nullptr, 0, tuttiInt8, tuttiSum, 0, comm, stream, result)) return result;
  return at_the_border([&] { return barrier(comm, stream, nullptr); });
}

tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
  tuttiResult_t result;
  if (point_to_point_again(true, sendbuff, nullptr, count, datatype, peer, comm, stream, result)) return result;
  return at_the_border([&] {
    return point_to_point(true, sendbuff, nullptr, count, datatype, peer, comm, stream, nullptr);
  });
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
  tuttiResult_t result;
  if (point_to_point_again(false, nullptr, recvbuff, count, datatype, peer, comm, stream, result)) return result;
  return at_the_border([&] {
    return point_to_point(false, nullptr, recvbuff, count, datatype, peer, comm, stream, nullptr);
  });
}

tuttiResult_t tuttiSendRecv(const void* sendbuff, size_t sendcount, int to, void* recvbuff, size_t recvcount, int from,
                            tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream) {
  fetch_first_lines(sendbuff, recvbuff, std::max(sendcount, recvcount));
  return at_the_border([&] {
    const Sending out{sendbuff, sendcount, to};
    const Receiving in{recvbuff, recvcount, from};
    CallingThread& thread = CallingThread::current();
    if (!note_both(thread, out, in, datatype, comm, stream)) return send_recv(out, in, datatype, comm, stream, nullptr);
    const Outcome outcome = thread.kept.run_noted();
    return report(outcome.code, outcome.sentence);
  });
}

tuttiResult_t tuttiGroupStart(void) {
  ++CallingThread::current().group_depth;
  return tuttiSuccess;
}

tuttiResult_t tuttiGroupEnd(void) {
  return at_the_border([&] {
    CallingThread& thread = CallingThread::current();
    if (thread.group_depth == 0) throw Error(Code::invalid_usage, "tuttiGroupEnd without tuttiGroupStart");
    if (thread.preparing && thread.group_depth == 1)
      throw Error(Code::invalid_usage, "tuttiGroupEnd without tuttiGroupStart: tuttiPrepareEnd ends tuttiPrepareStart");
    if (--thread.group_depth > 0) return tuttiSuccess;
    const std::vector<GroupJoin> joins = std::exchange(thread.joins, {});
    const Code refusal = std::exchange(thread.first_refusal, Code::success);
    if (refusal != Code::success) {
      thread.calls.clear();
      thread.kept.forget_noted();
      return tuttiResult_t(refusal);  // the sentence is still the refused call's
    }
    if (!joins.empty()) {
      thread.kept.write_down(thread.calls);
      std::vector<GroupCall> calls = std::exchange(thread.calls, {});  // lost where a join fails
      join_now(joins);
      thread.calls = std::move(calls);
    }
    const Outcome outcome = thread.run_calls();
    return report(outcome.code, outcome.sentence);
  });
}

}  // extern "C"
