// A launcher's ranks, for programs that measure the same of Tutti and, compiled with -DRANKS_OF_MPI, of an MPI. What fails ends
// the program.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef RANKS_OF_MPI
#include <mpi.h>
#else
#include "tutti/tutti.h"
#endif

#ifdef RANKS_OF_MPI
class Ranks {
 public:
  Ranks() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~Ranks() { MPI_Finalize(); }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(const float* input, float* output, size_t count) {
    MPI_Allreduce(input, output, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void send(const void* data, size_t bytes, int to) { MPI_Send(data, int(bytes), MPI_BYTE, to, 0, MPI_COMM_WORLD); }
  void receive(void* data, size_t bytes, int from) {
    MPI_Recv(data, int(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  void begin_together() { requests_.clear(); }
  void all_reduce_of_several(const float* input, float* output, size_t count) {
    MPI_Iallreduce(input, output, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests_.emplace_back());
  }
  void end_together() { MPI_Waitall(int(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE); }

  void begin_all_reduce(const float* input, float* output, size_t count) {
    MPI_Iallreduce(input, output, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &begun_);
  }
  bool has_ended() {
    int ended = 0;
    MPI_Test(&begun_, &ended, MPI_STATUS_IGNORE);
    return ended != 0;
  }
  void wait() { MPI_Wait(&begun_, MPI_STATUS_IGNORE); }

 private:
  std::vector<MPI_Request> requests_;
  MPI_Request begun_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 0;
};
#else
class Ranks {
 public:
  Ranks() {
    check(tuttiCommInitEnv(&comm_, nullptr));
    check(tuttiCommUserRank(comm_, &rank_));
    check(tuttiCommCount(comm_, &size_));
  }
  ~Ranks() {
    if (stream_ != nullptr) tuttiStreamDestroy(stream_);
    tuttiCommDestroy(comm_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() { check(tuttiBarrier(comm_, nullptr)); }
  void all_reduce(const float* input, float* output, size_t count) {
    check(tuttiAllReduce(input, output, count, tuttiFloat32, tuttiSum, comm_, nullptr));
  }
  void send(const void* data, size_t bytes, int to) { check(tuttiSend(data, bytes, tuttiUint8, to, comm_, nullptr)); }
  void receive(void* data, size_t bytes, int from) { check(tuttiRecv(data, bytes, tuttiUint8, from, comm_, nullptr)); }

  // Several at once: in a group (of an MPI: begun all, and then waited for).
  void begin_together() { check(tuttiGroupStart()); }
  void all_reduce_of_several(const float* input, float* output, size_t count) { all_reduce(input, output, count); }
  void end_together() { check(tuttiGroupEnd()); }

  // One that goes on beside what this rank does until it waits: on a stream, whose thread runs where this one may when it is made.
  void begin_all_reduce(const float* input, float* output, size_t count) {
    if (stream_ == nullptr) check(tuttiStreamCreate(&stream_));
    check(tuttiAllReduce(input, output, count, tuttiFloat32, tuttiSum, comm_, stream_));
  }
  bool has_ended() {
    const tuttiResult_t result = tuttiStreamQuery(stream_);
    if (result != tuttiInProgress) check(result);
    return result == tuttiSuccess;
  }
  void wait() { check(tuttiStreamSynchronize(stream_)); }

 private:
  static void check(tuttiResult_t result) {
    if (result == tuttiSuccess) return;
    std::fprintf(stderr, "%s\n", tuttiGetLastError(nullptr));
    std::exit(1);
  }

  tuttiComm_t comm_ = nullptr;
  tuttiStream_t stream_ = nullptr;
  int rank_ = 0, size_ = 0;
};
#endif

// The cores are dealt out in turn.
inline void stay_on_own_core(const Ranks& ranks) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(size_t(ranks.rank()) % std::thread::hardware_concurrency(), &core);
  ::sched_setaffinity(0, sizeof core, &core);
}
