// A stand-in for the library, for ranks that are threads of one process, which makes the mistake that FAULT names: to
// see that tutti-perf notices. FAULT: wrong_value, beyond_end, input_changed, late_value, refuse, or nothing.
#include <tutti/tutti.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct Meeting {
  explicit Meeting(int n) : ranks(n), barrier(n), send(size_t(n)), calls(size_t(n)), scalars(size_t(n)) {}
  int ranks;
  std::barrier<> barrier;
  std::vector<const void*> send;
  std::vector<int> calls;
  std::vector<float> scalars;  // of a premulsum of float32, the only one
};

struct tuttiComm {
  std::shared_ptr<Meeting> meeting;
  int rank;
};

namespace {

constexpr auto premulsum = tuttiRedOp_t(0xff);

std::mutex mutex;
std::shared_ptr<Meeting> current;

bool fault(const char* name) {
  const char* value = std::getenv("FAULT");
  return value != nullptr && std::string(value) == name;
}

template <typename T>
void reduce(Meeting& meeting, int joined, T* out, size_t count, tuttiRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    const auto operand = [&](int r) {
      const T given = static_cast<const T*>(meeting.send[size_t(r)])[i];
      return op == premulsum ? given * T(meeting.scalars[size_t(r)]) : given;
    };
    T sum = operand(0);
    for (int r = 1; r < joined; ++r) {
      const T other = operand(r);
      if (op == tuttiMax) sum = std::max(sum, other);
      else if (op == tuttiMin) sum = std::min(sum, other);
      else if (op == tuttiProd) sum *= other;
      else sum += other;
    }
    out[i] = op == tuttiAvg ? sum / T(joined) : sum;
  }
}

// Mistakes are made in large operations only: the small ones carry tutti-perf's own results.
void spoil(const tuttiComm& comm, void* recv, const void* send, size_t bytes) {
  if (bytes < 1024 || comm.rank != comm.meeting->ranks - 1) return;
  if (fault("wrong_value")) static_cast<unsigned char*>(recv)[bytes / 2] ^= 1;
  if (fault("beyond_end")) static_cast<unsigned char*>(recv)[bytes] ^= 1;
  if (fault("input_changed") && send != recv) *static_cast<unsigned char*>(const_cast<void*>(send)) ^= 1;
  if (fault("late_value") && comm.meeting->calls[size_t(comm.rank)]++ % 2 == 0)
    static_cast<unsigned char*>(recv)[0] ^= 1;
}

}  // namespace

size_t tuttiTypeSize(tuttiDataType_t type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

tuttiResult_t tuttiMemAlloc(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  return tuttiSuccess;
}

tuttiResult_t tuttiMemFree(void* pointer) {
  std::free(pointer);
  return tuttiSuccess;
}

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId*) {
  current.reset();
  return tuttiSuccess;
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int ranks, tuttiUniqueId, int rank, const tuttiConfig_t*) {
  const std::lock_guard lock(mutex);
  if (!current) current = std::make_shared<Meeting>(ranks);
  *comm = new tuttiComm{current, rank};
  return tuttiSuccess;
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t) {
  comm->meeting->barrier.arrive_and_wait();
  return tuttiSuccess;
}

tuttiResult_t tuttiBarrierWith(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t*) {
  return tuttiBarrier(comm, stream);
}

// recv = op over the inputs of the first `joined` ranks.
static tuttiResult_t reduce_of(int joined, const void* send, void* recv, size_t count, tuttiDataType_t type,
                               tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  const size_t bytes = count * tuttiTypeSize(type);
  if (fault("refuse") && bytes >= 1024) return tuttiTimeout;
  std::vector<std::byte> result(bytes + 1);
  comm->meeting->send[size_t(comm->rank)] = send;
  tuttiBarrier(comm, stream);
  if (type == tuttiFloat32) reduce(*comm->meeting, joined, reinterpret_cast<float*>(result.data()), count, op);
  else if (type == tuttiFloat64) reduce(*comm->meeting, joined, reinterpret_cast<double*>(result.data()), count, op);
  else if (type == tuttiInt32) reduce(*comm->meeting, joined, reinterpret_cast<int32_t*>(result.data()), count, op);
  else return tuttiUnsupported;
  tuttiBarrier(comm, stream);
  std::memcpy(recv, result.data(), bytes);
  spoil(*comm, recv, send, bytes);
  return tuttiSuccess;
}

tuttiResult_t tuttiAllReduce(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                             tuttiComm_t comm, tuttiStream_t stream) {
  return reduce_of(comm->meeting->ranks, send, recv, count, type, op, comm, stream);
}

tuttiResult_t tuttiScan(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                        tuttiComm_t comm, tuttiStream_t stream) {
  return reduce_of(comm->rank + 1, send, recv, count, type, op, comm, stream);
}

// Rank 0, which gets nothing, may have no buffer.
tuttiResult_t tuttiExScan(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                          tuttiComm_t comm, tuttiStream_t stream) {
  std::vector<std::byte> unused(count * tuttiTypeSize(type) + 1);
  return reduce_of(comm->rank, send, comm->rank == 0 ? unused.data() : recv, count, type, op, comm, stream);
}

tuttiResult_t tuttiBroadcast(const void* send, void* recv, size_t count, tuttiDataType_t type, int root,
                             tuttiComm_t comm, tuttiStream_t stream) {
  comm->meeting->send[size_t(comm->rank)] = send;
  tuttiBarrier(comm, stream);
  const void* from = comm->meeting->send[size_t(root)];
  if (recv != from) std::memcpy(recv, from, count * tuttiTypeSize(type));
  tuttiBarrier(comm, stream);
  spoil(*comm, recv, send, count * tuttiTypeSize(type));
  return tuttiSuccess;
}

// The collectives of blocks, in which rank r's block of a buffer begins at element r * count.
namespace {

// Gives every rank's send buffer to `deliver`, while they are as they were.
template <class Deliver>
tuttiResult_t exchange(const void* send, void* recv, size_t recv_bytes, tuttiComm_t comm, Deliver deliver) {
  std::vector<unsigned char> result(recv_bytes);
  comm->meeting->send[size_t(comm->rank)] = send;
  tuttiBarrier(comm, nullptr);
  for (size_t r = 0; recv_bytes > 0 && r < size_t(comm->meeting->ranks); ++r)
    deliver(static_cast<const unsigned char*>(comm->meeting->send[r]), r, result.data());
  tuttiBarrier(comm, nullptr);
  if (recv_bytes == 0) return tuttiSuccess;
  std::memcpy(recv, result.data(), recv_bytes);
  spoil(*comm, recv, send, recv_bytes);
  return tuttiSuccess;
}

}  // namespace

tuttiResult_t tuttiReduce(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiRedOp_t op, int root,
                          tuttiComm_t comm, tuttiStream_t stream) {
  std::vector<std::byte> unused(count * tuttiTypeSize(type) + 1);
  return tuttiAllReduce(send, comm->rank == root ? recv : unused.data(), count, type, op, comm, stream);
}

tuttiResult_t tuttiReduceScatter(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                                 tuttiComm_t comm, tuttiStream_t stream) {
  const size_t bytes = count * tuttiTypeSize(type), n = size_t(comm->meeting->ranks);
  std::vector<std::byte> sums(bytes * n + 1);
  const tuttiResult_t result = tuttiAllReduce(send, sums.data(), count * n, type, op, comm, stream);
  std::memcpy(recv, sums.data() + size_t(comm->rank) * bytes, bytes);
  return result;
}

tuttiResult_t tuttiAllGather(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t) {
  const size_t bytes = count * tuttiTypeSize(type);
  return exchange(send, recv, bytes * size_t(comm->meeting->ranks), comm,
                  [&](auto* from, size_t r, auto* to) { std::memcpy(to + r * bytes, from, bytes); });
}

tuttiResult_t tuttiGather(const void* send, void* recv, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm,
                          tuttiStream_t) {
  const size_t bytes = count * tuttiTypeSize(type);
  return exchange(send, recv, comm->rank == root ? bytes * size_t(comm->meeting->ranks) : 0, comm,
                  [&](auto* from, size_t r, auto* to) { std::memcpy(to + r * bytes, from, bytes); });
}

tuttiResult_t tuttiScatter(const void* send, void* recv, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm,
                           tuttiStream_t) {
  const size_t bytes = count * tuttiTypeSize(type), at = size_t(comm->rank) * bytes;
  return exchange(send, recv, bytes, comm, [&](auto* from, size_t r, auto* to) {
    if (int(r) == root) std::memcpy(to, from + at, bytes);
  });
}

tuttiResult_t tuttiAlltoAll(const void* send, void* recv, size_t count, tuttiDataType_t type, tuttiComm_t comm,
                            tuttiStream_t) {
  const size_t bytes = count * tuttiTypeSize(type), at = size_t(comm->rank) * bytes;
  return exchange(send, recv, bytes * size_t(comm->meeting->ranks), comm,
                  [&](auto* from, size_t r, auto* to) { std::memcpy(to + r * bytes, from + at, bytes); });
}

// V-forms, as tutti-perf calls them: with the arrays on every rank, blocks one after the other.
tuttiResult_t tuttiAllGatherV(const void* send, size_t, void* recv, const size_t* counts, const size_t* firsts,
                              tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t) {
  const size_t width = tuttiTypeSize(type), last = size_t(comm->meeting->ranks) - 1;
  return exchange(send, recv, (firsts[last] + counts[last]) * width, comm, [&](auto* from, size_t r, auto* to) {
    std::memcpy(to + firsts[r] * width, from, counts[r] * width);
  });
}

tuttiResult_t tuttiReduceScatterV(const void* send, const size_t* counts, const size_t* firsts, void* recv, size_t own,
                                  tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  const size_t width = tuttiTypeSize(type), last = size_t(comm->meeting->ranks) - 1, me = size_t(comm->rank);
  std::vector<std::byte> sums((firsts[last] + counts[last]) * width + 1);
  const tuttiResult_t result =
      tuttiAllReduce(send, sums.data(), firsts[last] + counts[last], type, op, comm, stream);
  if (own > 0) std::memcpy(recv, sums.data() + firsts[me] * width, own * width);
  return result;
}

tuttiResult_t tuttiGatherV(const void* send, size_t own, void* recv, const size_t* counts, const size_t* firsts,
                           tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t stream) {
  std::vector<std::byte> unused;
  if (comm->rank != root) {
    const size_t last = size_t(comm->meeting->ranks) - 1;
    unused.resize((firsts[last] + counts[last]) * tuttiTypeSize(type) + 1);
  }
  return tuttiAllGatherV(send, own, comm->rank == root ? recv : unused.data(), counts, firsts, type, comm, stream);
}

tuttiResult_t tuttiScatterV(const void* send, const size_t*, const size_t* firsts, void* recv, size_t own,
                            tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t) {
  const size_t width = tuttiTypeSize(type), at = firsts[comm->rank] * width;
  return exchange(send, recv, own * width, comm, [&](auto* from, size_t r, auto* to) {
    if (int(r) == root) std::memcpy(to, from + at, own * width);
  });
}

// What ranks i and j give each other has the size of rank 0's block (i + j) modulo n.
tuttiResult_t tuttiAlltoAllV(const void* send, const size_t* counts, const size_t* firsts, void* recv, const size_t*,
                             const size_t*, tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t) {
  const size_t width = tuttiTypeSize(type), n = size_t(comm->meeting->ranks), me = size_t(comm->rank);
  const auto size = [&](size_t i, size_t j) { return counts[(i + j + n - me) % n]; };
  return exchange(send, recv, (firsts[n - 1] + counts[n - 1]) * width, comm, [&](auto* from, size_t r, auto* to) {
    size_t at = 0;
    for (size_t j = 0; j < me; ++j) at += size(r, j);
    std::memcpy(to + firsts[r] * width, from + at * width, counts[r] * width);
  });
}

tuttiResult_t tuttiSend(const void* send, size_t, tuttiDataType_t, int, tuttiComm_t comm, tuttiStream_t) {
  comm->meeting->send[size_t(comm->rank)] = send;
  return tuttiSuccess;
}

tuttiResult_t tuttiRecv(void* recv, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm, tuttiStream_t s) {
  tuttiBarrier(comm, s);
  std::memcpy(recv, comm->meeting->send[size_t(peer)], count * tuttiTypeSize(type));
  tuttiBarrier(comm, s);
  spoil(*comm, recv, comm->meeting->send[size_t(comm->rank)], count * tuttiTypeSize(type));
  return tuttiSuccess;
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  delete comm;
  return tuttiSuccess;
}
tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank) { return *rank = comm->rank, tuttiSuccess; }
tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count) { return *count = comm->meeting->ranks, tuttiSuccess; }
tuttiResult_t tuttiCommTransport(tuttiComm_t, int, const char** name) { return *name = "threads", tuttiSuccess; }
tuttiResult_t tuttiCommAlgorithm(tuttiComm_t, const char*, size_t, const char** name) {
  return *name = "naive", tuttiSuccess;
}
tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, const void* scalar, tuttiDataType_t type, tuttiScalarResidence_t,
                                        tuttiComm_t comm) {
  if (type != tuttiFloat32) return tuttiUnsupported;
  std::memcpy(&comm->meeting->scalars[size_t(comm->rank)], scalar, sizeof(float));
  return *op = premulsum, tuttiSuccess;
}
tuttiResult_t tuttiCommDup(tuttiComm_t, tuttiComm_t*, const tuttiConfig_t*) { return tuttiUnsupported; }
tuttiResult_t tuttiGetVersion(int* version) { return *version = TUTTI_VERSION, tuttiSuccess; }
const char* tuttiGetErrorString(tuttiResult_t) { return "the phrase"; }
const char* tuttiGetLastError(tuttiComm_t) { return "the sentence"; }
tuttiResult_t tuttiCommAbort(tuttiComm_t) { return tuttiSuccess; }
tuttiResult_t tuttiCommInitEnv(tuttiComm_t*, const tuttiConfig_t*) { return tuttiUnsupported; }
tuttiResult_t tuttiCommDevice(tuttiComm_t, int*) { return tuttiUnsupported; }
tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t, tuttiResult_t*) { return tuttiUnsupported; }
extern "C" const void* tuttiDeviceModule(uint32_t) { return nullptr; }
tuttiResult_t tuttiEnvRank(int*, int*, int*) { return tuttiInvalidUsage; }
tuttiResult_t tuttiGroupStart() { return tuttiSuccess; }
tuttiResult_t tuttiGroupEnd() { return tuttiSuccess; }
tuttiResult_t tuttiStreamCreate(tuttiStream_t*) { return tuttiUnsupported; }
tuttiResult_t tuttiStreamSynchronize(tuttiStream_t) { return tuttiUnsupported; }
tuttiResult_t tuttiStreamDestroy(tuttiStream_t) { return tuttiSuccess; }
