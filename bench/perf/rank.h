// One rank of tutti-perf: a communicator whose errors are exceptions, and what all ranks must agree on.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/tutti.h>

namespace tutti::perf {

// The library said no; what() names call, reason and sentence.
struct LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void refuse(tuttiResult_t result, const char* call, tuttiComm_t comm);
// Throws LibraryError unless `result` is tuttiSuccess.
inline void check(tuttiResult_t result, const char* call, tuttiComm_t comm = nullptr) {
  if (result != tuttiSuccess) [[unlikely]] refuse(result, call, comm);
}

// Owns a communicator and, where wanted, a stream. One thread uses it.
class Rank {
 public:
  Rank(tuttiComm_t comm, bool with_stream);
  Rank(Rank&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), stream_(std::exchange(other.stream_, nullptr)),
        rank_(other.rank_), ranks_(other.ranks_) {}
  Rank& operator=(Rank&&) = delete;
  ~Rank();

  tuttiComm_t comm() const { return comm_; }
  tuttiStream_t stream() const { return stream_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // Waits for what is on the stream; nothing without one.
  void synchronize();
  void barrier();
  // By one algorithm, whatever is measured (TUTTI_ALGO), and one that lets all ranks go at about the same time.
  void even_barrier();
  // Element by element over all ranks.
  void reduce(std::vector<double>& values, tuttiRedOp_t op);
  double reduce(double value, tuttiRedOp_t op);
  double from_rank_0(double value);
  // Every rank's text, cut to 255 bytes, on every rank.
  std::vector<std::string> gather(std::string_view mine);
  // Ends what the other ranks wait for, before an error leaves this one.
  void abort() noexcept;

 private:
  tuttiComm_t comm_ = nullptr;
  tuttiStream_t stream_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace tutti::perf
