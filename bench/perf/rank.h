// One rank of tutti-perf: a communicator whose errors are exceptions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.h>

#include "bench/perf/library.h"
#include "device/device.h"

namespace tutti::perf {

[[noreturn]] void refuse(tuttiResult_t result, const char* call, tuttiComm_t comm);
// Throws LibraryError unless `result` is tuttiSuccess.
inline void check(tuttiResult_t result, const char* call, tuttiComm_t comm = nullptr) {
  if (result != tuttiSuccess) [[unlikely]] refuse(result, call, comm);
}

// The devices of this process. Throws std::runtime_error where they are not of that kind ("cuda", "simulated"). Not before
// a fork.
Platform& platform_of(const std::string& kind);

// Owns a communicator and, where wanted, a stream of the host; or works on a device, with a stream there.
class Rank final : public Library {
 public:
  // settings: the communicator's, for others like it.
  Rank(tuttiComm_t comm, bool with_stream, Device* device = nullptr,
       const tuttiConfig_t& settings = TUTTI_CONFIG_INITIALIZER);
  Rank(Rank&&) = delete;
  ~Rank() override;

  tuttiComm_t comm() const { return given_; }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void call(Operation operation, const Case& what, const Place& place) override;
  void use(const std::string& algorithm) override;
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
  std::byte* bring(std::span<std::byte> buffer, std::byte* part) override;
  void fetch(std::span<std::byte> buffer) override;

  // Every rank's text, cut to 255 bytes, on every rank.
  std::vector<std::string> gather(std::string_view mine);
  // Ends what the other ranks wait for, before an error leaves this one.
  void abort() noexcept;

 private:
  void pass_round(const Case& what, const Place& place);
  void call_v_form(Operation operation, const Case& what, const Place& place);
  // Of the case, or made for it.
  tuttiRedOp_t operator_of(const Case& what);

  tuttiComm_t given_ = nullptr;
  tuttiComm_t comm_ = nullptr;  // what is measured: the same or one of these
  std::map<std::string, tuttiComm_t> by_algorithm_;
  std::map<std::pair<tuttiComm_t, tuttiDataType_t>, tuttiRedOp_t> mul_sums_;
  tuttiConfig_t settings_;
  tuttiStream_t stream_ = nullptr;  // the host's or the device's
  Device* device_ = nullptr;
  struct Copy {
    std::byte* there = nullptr;
    size_t bytes = 0;
  };
  std::map<const std::byte*, Copy> copies_;  // by where the buffer lies
  int rank_ = 0, ranks_ = 1;
};

}  // namespace tutti::perf
