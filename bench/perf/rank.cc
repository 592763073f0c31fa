// Calls of the C interface with their errors as exceptions.
#include "bench/perf/rank.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "bench/perf/pattern.h"
#include "schedule/collective.h"

namespace tutti::perf {

void refuse(tuttiResult_t result, const char* call, tuttiComm_t comm) {
  const std::string sentence = tuttiGetLastError(comm);
  throw LibraryError(fmt::format("{}: {}{}{}", call, tuttiGetErrorString(result), sentence.empty() ? "" : ": ",
                                 sentence));
}

namespace {

void check(const Outcome& outcome) {
  if (!outcome.ok()) throw LibraryError(outcome.sentence);
}

}  // namespace

Platform& platform_of(const std::string& kind) {
  ::setenv("TUTTI_DEVICE", kind.c_str(), 0);
  const DeviceModule* const module = tuttiDeviceModule(device_interface_version);
  if (module == nullptr || module->platform == nullptr)
    throw std::runtime_error(fmt::format("--device {}: {}", kind, module == nullptr ? "this library has none" : module->why_not));
  if (module->platform->name() != kind)
    throw std::runtime_error(fmt::format("--device {}: but TUTTI_DEVICE={} gives devices of {}", kind,
                                         std::getenv("TUTTI_DEVICE"), module->platform->name()));
  return *module->platform;
}

Rank::Rank(tuttiComm_t comm, bool with_stream, Device* device, const tuttiConfig_t& settings)
    : given_(comm), comm_(comm), settings_(settings), device_(device) {
  if (device_ != nullptr) {
    DeviceStream stream = nullptr;
    check(device_->create_stream(&stream));
    stream_ = reinterpret_cast<tuttiStream_t>(stream);
  }
  check(tuttiCommUserRank(comm_, &rank_), "tuttiCommUserRank");
  check(tuttiCommCount(comm_, &ranks_), "tuttiCommCount");
  if (with_stream) check(tuttiStreamCreate(&stream_), "tuttiStreamCreate");
}

Rank::~Rank() {
  if (device_ == nullptr) tuttiStreamDestroy(stream_);
  for (const auto& [algorithm, comm] : by_algorithm_) tuttiCommDestroy(comm);
  tuttiCommDestroy(given_);
  if (device_ == nullptr) return;
  (void)device_->destroy_stream(reinterpret_cast<DeviceStream>(stream_));
  for (const auto& [buffer, copy] : copies_) (void)device_->free(copy.there);
}

std::byte* Rank::bring(std::span<std::byte> buffer, std::byte* part) {
  if (device_ == nullptr) return part;
  Copy& copy = copies_[buffer.data()];
  if (copy.bytes < buffer.size()) {
    void* there = nullptr;
    check(device_->free(copy.there));
    copy = {};
    check(device_->allocate(buffer.size(), &there));
    copy = {static_cast<std::byte*>(there), buffer.size()};
  }
  check(device_->copy(reinterpret_cast<DeviceStream>(stream_), copy.there, buffer.data(), buffer.size()));
  synchronize();
  return copy.there + (part - buffer.data());
}

void Rank::fetch(std::span<std::byte> buffer) {
  const auto copy = copies_.find(buffer.data());
  if (copy == copies_.end() || copy->second.bytes < buffer.size()) return;
  check(device_->copy(reinterpret_cast<DeviceStream>(stream_), buffer.data(), copy->second.there, buffer.size()));
  synchronize();
}

void Rank::call(Operation operation, const Case& what, const Place& place) {
  const tuttiDataType_t type = what.type.type;
  switch (operation) {
    case Operation::all_reduce:
      return check(tuttiAllReduce(place.send, place.recv, what.count, type, operator_of(what), comm_, stream_),
                   "tuttiAllReduce", comm_);
    case Operation::broadcast:
      return check(tuttiBroadcast(place.send, place.recv, what.count, type, what.root, comm_, stream_),
                   "tuttiBroadcast", comm_);
    case Operation::reduce:
      return check(tuttiReduce(place.send, place.recv, what.count, type, operator_of(what), what.root, comm_, stream_),
                   "tuttiReduce", comm_);
    case Operation::all_gather:
      return check(tuttiAllGather(place.send, place.recv, what.count, type, comm_, stream_), "tuttiAllGather", comm_);
    case Operation::reduce_scatter:
      return check(tuttiReduceScatter(place.send, place.recv, what.count, type, operator_of(what), comm_, stream_),
                   "tuttiReduceScatter", comm_);
    case Operation::gather:
      return check(tuttiGather(place.send, place.recv, what.count, type, what.root, comm_, stream_), "tuttiGather", comm_);
    case Operation::scatter:
      return check(tuttiScatter(place.send, place.recv, what.count, type, what.root, comm_, stream_), "tuttiScatter",
                   comm_);
    case Operation::alltoall:
      return check(tuttiAlltoAll(place.send, place.recv, what.count, type, comm_, stream_), "tuttiAlltoAll", comm_);
    case Operation::scan:
      return check(tuttiScan(place.send, place.recv, what.count, type, operator_of(what), comm_, stream_), "tuttiScan", comm_);
    case Operation::exscan:
      return check(tuttiExScan(place.send, place.recv, what.count, type, operator_of(what), comm_, stream_), "tuttiExScan",
                   comm_);
    case Operation::barrier: return check(tuttiBarrier(comm_, stream_), "tuttiBarrier", comm_);
    case Operation::pass_round: return pass_round(what, place);
    case Operation::sendrecv: break;
    default: return call_v_form(operation, what, place);
  }
  // To the next rank, from the one before.
  const int next = (rank_ + 1) % ranks_;
  const int before = (rank_ + ranks_ - 1) % ranks_;
  check(tuttiGroupStart(), "tuttiGroupStart");
  check(tuttiSend(place.send, what.count, type, next, comm_, stream_), "tuttiSend", comm_);
  check(tuttiRecv(place.recv, what.count, type, before, comm_, stream_), "tuttiRecv", comm_);
  check(tuttiGroupEnd(), "tuttiGroupEnd", comm_);
}

tuttiRedOp_t Rank::operator_of(const Case& what) {
  if (what.op->op != mul_sum) return what.op->op;
  const auto [held, is_new] = mul_sums_.try_emplace({comm_, what.type.type});
  if (is_new) {
    std::array<std::byte, 16> scalar{};
    encode(what.type, multiplier(rank_), 0, scalar.data());
    check(tuttiRedOpCreatePreMulSum(&held->second, scalar.data(), what.type.type, tuttiScalarHostImmediate, comm_),
          "tuttiRedOpCreatePreMulSum", comm_);
  }
  return held->second;
}

void Rank::pass_round(const Case& what, const Place& place) {
  const int next = (rank_ + 1) % ranks_, before = (rank_ + ranks_ - 1) % ranks_;
  const auto send = [&](const std::byte* data) {
    check(tuttiSend(data, what.count, what.type.type, next, comm_, stream_), "tuttiSend", comm_);
  };
  const auto receive = [&] {
    check(tuttiRecv(place.recv, what.count, what.type.type, before, comm_, stream_), "tuttiRecv", comm_);
  };
  if (ranks_ == 1) check(tuttiGroupStart(), "tuttiGroupStart");
  if (rank_ == 0) send(place.send);
  receive();
  if (rank_ != 0) send(place.recv);
  if (ranks_ == 1) check(tuttiGroupEnd(), "tuttiGroupEnd", comm_);
}

void Rank::call_v_form(Operation operation, const Case& what, const Place& place) {
  const tuttiDataType_t type = what.type.type;
  const size_t* const counts = place.counts.data();
  const size_t* const firsts = place.firsts.data();
  const size_t own = counts[rank_];
  switch (operation) {
    case Operation::all_gather_v:
      return check(tuttiAllGatherV(place.send, own, place.recv, counts, firsts, type, comm_, stream_), "tuttiAllGatherV",
                   comm_);
    case Operation::reduce_scatter_v:
      return check(tuttiReduceScatterV(place.send, counts, firsts, place.recv, own, type, operator_of(what), comm_, stream_),
                   "tuttiReduceScatterV", comm_);
    case Operation::gather_v:
      return check(tuttiGatherV(place.send, own, place.recv, counts, firsts, type, what.root, comm_, stream_),
                   "tuttiGatherV", comm_);
    case Operation::scatter_v:
      return check(tuttiScatterV(place.send, counts, firsts, place.recv, own, type, what.root, comm_, stream_),
                   "tuttiScatterV", comm_);
    default:
      return check(tuttiAlltoAllV(place.send, counts, firsts, place.recv, counts, firsts, type, comm_, stream_),
                   "tuttiAlltoAllV", comm_);
  }
}

void Rank::use(const std::string& algorithm) {
  if (algorithm.empty()) {
    comm_ = given_;
    return;
  }
  tuttiComm_t& held = by_algorithm_[algorithm];
  if (held == nullptr) {
    tuttiConfig_t settings = settings_;
    settings.algorithm = algorithm.c_str();
    check(tuttiCommDup(given_, &held, &settings), "tuttiCommDup", given_);
  }
  comm_ = held;
}

void Rank::begin_group() { check(tuttiGroupStart(), "tuttiGroupStart"); }

void Rank::end_group() { check(tuttiGroupEnd(), "tuttiGroupEnd", comm_); }

void Rank::synchronize() {
  if (device_ != nullptr) {
    check(device_->wait_stream(reinterpret_cast<DeviceStream>(stream_)));
    // The stream goes on also where a call on it has failed.
    tuttiResult_t state = tuttiSuccess;
    check(tuttiCommGetAsyncError(comm_, &state), "tuttiCommGetAsyncError", comm_);
    return check(state, "a call on a device's stream", comm_);
  }
  if (stream_ != nullptr) check(tuttiStreamSynchronize(stream_), "tuttiStreamSynchronize", comm_);
}

void Rank::barrier() { check(tuttiBarrier(given_, nullptr), "tuttiBarrier", given_); }

void Rank::even_barrier() {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "recursive_doubling";
  check(tuttiBarrierWith(given_, nullptr, &options), "tuttiBarrierWith", given_);
}

void Rank::combine(std::vector<double>& values, Over over) {
  const tuttiRedOp_t op = over == Over::sum ? tuttiSum : over == Over::min ? tuttiMin : tuttiMax;
  check(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat64, op, given_, nullptr),
        "tuttiAllReduce of the results", given_);
}

std::string Rank::algorithm(Operation operation, const Case& what) {
  if (is_point_to_point(operation)) return "-";
  const std::string collective(tutti::name(collective_of(operation)));
  const char* algorithm = nullptr;
  check(tuttiCommAlgorithm(comm_, collective.c_str(), what.bytes, &algorithm), "tuttiCommAlgorithm");
  return algorithm;
}

SharedMemory Rank::shared_memory() {
  return {[](size_t bytes) -> void* {
            void* memory = nullptr;
            return tuttiMemAlloc(&memory, bytes) == tuttiSuccess ? memory : nullptr;
          },
          [](void* memory) { tuttiMemFree(memory); }};
}

std::vector<std::string> Rank::gather(std::string_view mine) {
  std::vector<std::string> all;
  for (int root = 0; root < ranks_; ++root) {
    std::array<char, 256> text{};
    if (root == rank_) std::copy_n(mine.begin(), std::min(mine.size(), text.size() - 1), text.begin());
    check(tuttiBroadcast(text.data(), text.data(), text.size(), tuttiUint8, root, given_, nullptr),
          "tuttiBroadcast of the ranks' places", given_);
    all.emplace_back(text.data());
  }
  return all;
}

void Rank::abort() noexcept {
  for (const auto& [algorithm, comm] : by_algorithm_) tuttiCommAbort(comm);
  tuttiCommAbort(given_);
}

}  // namespace tutti::perf
