// The C interface: library, communicators and streams.
#include "communicator/c_api.h"

#include <cstring>
#include <new>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/device_calls.h"
#include "communicator/group.h"
#include "communicator/launcher.h"
#include "device/platform.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

HandleStore<Communicator, tuttiComm>& communicators() { return all_of<HandleStore<Communicator, tuttiComm>>(); }
HandleStore<Stream, tuttiStream>& streams() { return all_of<HandleStore<Stream, tuttiStream>>(); }

JobId id_of(const tuttiUniqueId& id) { return decode(std::span<const char, TUTTI_UNIQUE_ID_BYTES>(id.internal)); }

TimeNs set_up_deadline(int timeout_ms) { return now_ns() + timeout_ms * ns_per_ms; }

// Null stays null.
tuttiComm_t handle_of(std::unique_ptr<Communicator> communicator) {
  return communicator == nullptr ? nullptr : communicators().make(std::move(communicator));
}

GroupJoin joining(const JobId& id, int rank, int size, const CommunicatorOptions& options, tuttiComm_t* result) {
  return {[=] { return Communicator::join(id, rank, size, options); }, result};
}

void check_device(int i, int device) {
  if (device == -1) return;
  const FoundPlatform& found = find_platform();
  if (found.platform == nullptr)
    throw Error(Code::unsupported, fmt::format("devices[{}] is {}: this process has no device: {}", i, device, found.why_not));
  if (device < 0 || device >= found.platform->count())
    throw Error(Code::invalid_argument, fmt::format("devices[{}] is {}, neither -1 nor 0 to {}", i, device,
                                                    found.platform->count() - 1));
}

// Other ranks may still put into what a window opened. After a failure they do not.
void check_no_window(tuttiComm_t comm) {
  const Communicator& communicator = communicator_of(comm);
  const size_t n = communicator.open_windows();
  if (n == 0 || communicator.failure() != nullptr) return;
  throw Error(Code::invalid_usage, fmt::format("comm {} has {} open window{}: call tuttiCommWindowDeregister first, on all "
                                               "ranks", fmt::ptr(comm), n, n == 1 ? "" : "s"));
}

}  // namespace

tuttiResult_t report(Code code, const std::string& sentence) noexcept {
  if (code != Code::success) try {
      CallingThread& thread = CallingThread::current();
      thread.sentence = sentence;
      if (thread.group_depth > 0 && thread.first_refusal == Code::success) thread.first_refusal = code;
    } catch (...) {  // no memory for the sentence: the code must do
    }
  return tuttiResult_t(code);
}

Communicator& communicator_of(tuttiComm_t comm) {
  check_not_null("comm", comm);
  if (!comm->is_live()) refuse_handle("comm", *comm, "not a live communicator: it was destroyed, or never made");
  return *comm->object;
}

Stream& stream_of(tuttiStream_t stream) {
  check_not_null("stream", stream);
  if (process_platform() != nullptr && !streams().has(stream))
    throw Error(Code::invalid_argument, fmt::format("stream {} is not one of tuttiStreamCreate; a device's stream is waited for "
                                                    "and destroyed by the device's own functions", fmt::ptr(stream)));
  if (!stream->is_live()) refuse_handle("stream", *stream, "not a live stream: it was destroyed, or never made");
  return *stream->object;
}

CallStream call_stream(tuttiStream_t stream) {
  if (stream == nullptr) return {};
  Platform* const platform = process_platform();
  if (platform == nullptr || streams().has(stream)) return {&stream_of(stream), nullptr, -1};
  return device_call_stream(reinterpret_cast<DeviceStream>(stream));
}

void join_now(const std::vector<GroupJoin>& joins) {
  std::vector<std::unique_ptr<Communicator>> made = join_together(joins);
  for (size_t i = 0; i < joins.size(); ++i) *joins[i].result = handle_of(std::move(made[i]));
}

tuttiResult_t join_or_defer(GroupJoin join) {
  CallingThread& thread = CallingThread::current();
  if (thread.preparing) throw Error(Code::invalid_usage, "communicators cannot be made between tuttiPrepareStart and End");
  if (thread.group_depth > 0) thread.joins.push_back(std::move(join));
  else *join.result = handle_of(join.make());
  return tuttiSuccess;
}

}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiGetVersion(int* version) {
  return at_the_border([&] {
    check_not_null("version", version);
    *version = TUTTI_VERSION;
    return tuttiSuccess;
  });
}

const char* tuttiGetErrorString(tuttiResult_t result) { return phrase(Code(result)); }

const char* tuttiGetLastError(tuttiComm_t comm) {
  if (comm != nullptr && comm->is_live())
    if (const Verdict* verdict = comm->object->failure()) return verdict->sentence.c_str();
  return CallingThread::current().sentence.c_str();
}

size_t tuttiTypeSize(tuttiDataType_t type) {
  if (const size_t bytes = opaque_type_bytes(type)) return bytes;
  return int(type) >= 0 && int(type) < tuttiNumTypes ? element_bytes(DataType(type)) : 0;
}

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id) {
  return at_the_border([&] {
    check_not_null("id", id);
    const CommunicatorOptions options = checked_options(nullptr);
    const JobId job = open_meeting_place(options.interface_names, set_up_deadline(options.timeout_ms));
    encode(job, std::span<char, TUTTI_UNIQUE_ID_BYTES>(id->internal));
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank) {
  return tuttiCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                      const tuttiConfig_t* config) {
  return at_the_border([&] {
    check_not_null("comm", comm);
    *comm = nullptr;
    check_rank(rank, nranks);
    return join_or_defer(joining(id_of(id), rank, nranks, checked_options(config), comm));
  });
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int ndev, const int* devices) {
  return at_the_border([&] {
    check_not_null("comms", comms);
    if (ndev < 1) throw Error(Code::invalid_argument, fmt::format("ndev is {}, below 1", ndev));
    std::fill(comms, comms + ndev, nullptr);
    for (int i = 0; devices != nullptr && i < ndev; ++i)
      check_device(i, devices[i]);
    CommunicatorOptions options = checked_options(nullptr);
    const JobId id = open_meeting_place(options.interface_names, set_up_deadline(options.timeout_ms));
    std::vector<GroupJoin> joins;
    joins.reserve(size_t(ndev));
    for (int rank = 0; rank < ndev; ++rank) {
      options.device = devices == nullptr ? -1 : devices[rank];
      joins.push_back(joining(id, rank, ndev, options, &comms[rank]));
    }
    join_now(joins);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config) {
  return at_the_border([&] {
    check_not_null("comm", comm);
    *comm = nullptr;
    const LaunchedRank launched = launched_rank();
    const CommunicatorOptions options = checked_options(config);
    const Key key = job_key(launched);
    if (launched.rank == 0)
      open_meeting_place_at(launched.master_address, launched.master_port, key, set_up_deadline(options.timeout_ms));
    const JobId id = agreed_meeting_place(launched.master_address, launched.master_port, key);
    return join_or_defer(joining(id, launched.rank, launched.size, options, comm));
  });
}

tuttiResult_t tuttiEnvRank(int* rank, int* nranks, int* local_rank) {
  return at_the_border([&] {
    const LaunchedRank launched = launched_rank_only();
    if (rank != nullptr) *rank = launched.rank;
    if (nranks != nullptr) *nranks = launched.size;
    if (local_rank != nullptr) *local_rank = launched.local_rank;
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count) {
  return at_the_border([&] {
    const Communicator& communicator = communicator_of(comm);
    check_not_null("count", count);
    *count = communicator.size();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank) {
  return at_the_border([&] {
    const Communicator& communicator = communicator_of(comm);
    check_not_null("rank", rank);
    *rank = communicator.rank();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    check_not_null("device", device);
    *device = communicator.device_side() == nullptr ? -1 : communicator.device_side()->number();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommTransport(tuttiComm_t comm, int peer, const char** name) {
  return at_the_border([&] {
    const Communicator& communicator = communicator_of(comm);
    check_peer(peer, communicator.size());
    check_not_null("name", name);
    *name = communicator.transport_to(peer);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommAlgorithm(tuttiComm_t comm, const char* collective, size_t bytes, const char** name) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    check_not_null("collective", collective);
    check_not_null("name", name);
    const auto kind = collective_named(collective);
    std::vector<std::string_view> names = {"barrier"};
    for (const Collective known : planned_collectives) names.push_back(tutti::name(known));
    for (size_t i = 0; i < collective_names.size(); ++i)
      if (is_v_form(Collective(i))) names.push_back(collective_names[i]);
    if (!kind || *kind == Collective::send_recv)
      throw Error(Code::invalid_argument,
                  fmt::format("collective is \"{}\", not one of {}", collective, fmt::join(names, ", ")));
    *name = communicator.algorithm_for(*kind, bytes).data();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    check_no_window(comm);
    communicator.leave();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  return at_the_border([&] {
    if (comm == nullptr) return tuttiSuccess;
    check_no_window(comm);
    communicators().take(comm).reset();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm) {
  return at_the_border([&] {
    communicator_of(comm).abort();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* state) {
  return at_the_border([&] {
    const Communicator& communicator = communicator_of(comm);
    check_not_null("state", state);
    const Verdict* verdict = communicator.failure();
    *state = verdict == nullptr ? tuttiSuccess : tuttiResult_t(verdict->code);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommWriteRecord(tuttiComm_t comm, const char* file) {
  return at_the_border([&] {
    const Communicator& communicator = communicator_of(comm);
    check_not_null("file", file);
    const Verdict* verdict = communicator.failure();
    communicator.recorder().write_record(file, verdict == nullptr ? "" : verdict->sentence);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream) {
  return at_the_border([&] {
    check_not_null("stream", stream);
    *stream = nullptr;
    *stream = streams().make(std::make_unique<Stream>());
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream) {
  return at_the_border([&] {
    check_not_null("stream", stream);
    const CallStream which = call_stream(stream);
    const Outcome outcome = which.is_device() ? process_platform()->device(which.device_number).wait_stream(which.device)
                                              : which.host->synchronize();  // NOLINT(clang-analyzer-core.CallAndMessage): it is one
    return report(outcome.code, outcome.sentence);
  });
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream) {
  return at_the_border([&] {
    check_not_null("stream", stream);
    const CallStream which = call_stream(stream);
    const Outcome outcome = which.is_device() ? process_platform()->device(which.device_number).query_stream(which.device)
                                              : which.host->query();  // NOLINT(clang-analyzer-core.CallAndMessage): it is one
    return report(outcome.code, outcome.sentence);
  });
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream) {
  return at_the_border([&] {
    if (stream == nullptr) return tuttiSuccess;
    stream_of(stream);
    streams().take(stream).reset();
    return tuttiSuccess;
  });
}

}  // extern "C"
