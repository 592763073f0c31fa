// One rank of tutti-perf: a communicator whose errors are exceptions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.h>

#include "bench/perf/library.h"

namespace tutti::perf {

[[noreturn]] void refuse(tuttiResult_t result, const char* call, tuttiComm_t comm);
// Throws LibraryError unless `result` is tuttiSuccess.
inline void check(tuttiResult_t result, const char* call, tuttiComm_t comm = nullptr) {
  if (result != tuttiSuccess) [[unlikely]] refuse(result, call, comm);
}

// Owns a communicator and, where wanted, a stream.
class Rank final : public Library {
 public:
  Rank(tuttiComm_t comm, bool with_stream);
  Rank(Rank&&) = delete;
  ~Rank() override;

  tuttiComm_t comm() const { return comm_; }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void call(Operation operation, const Case& what, const Place& place) override;
  void begin_group() override;
  void end_group() override;
  void synchronize() override;
  void barrier() override;
  // By one algorithm, whatever TUTTI_ALGO says.
  void even_barrier() override;
  using Library::combine;
  void combine(std::vector<double>& values, Over over) override;
  std::string algorithm(Operation operation, const Case& what) override;
  SharedMemory shared_memory() override;

  // Every rank's text, cut to 255 bytes, on every rank.
  std::vector<std::string> gather(std::string_view mine);
  // Ends what the other ranks wait for, before an error leaves this one.
  void abort() noexcept;

 private:
  void call_v_form(Operation operation, const Case& what, const Place& place);

  tuttiComm_t comm_ = nullptr;
  tuttiStream_t stream_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace tutti::perf
