// The shared-memory transport under the conformance suite.
#include "transport/conformance.h"
#include "transport/fake_bootstrap.h"
#include "transport/shm/shm.h"

namespace tutti {
namespace {

std::unique_ptr<TransportSet> connected(int ranks, const ShmOptions& options) {
  const auto bootstraps = fake_bootstraps(ranks);
  return std::make_unique<OwnedTransports>(on_each_rank(bootstraps, [&](int rank) {
    return make_shm(*bootstraps[size_t(rank)], options);
  }));
}

TransportCase shm_case(const std::string& name, size_t slot_bytes, int slots, uint64_t handshakes, bool plain) {
  const auto make = [=](int ranks, int channels) {
    ShmOptions options;
    options.channels = channels;
    options.slot_bytes = slot_bytes;
    options.slots = slots;
    options.membarrier = options.one_process = options.trades = !plain;
    return connected(ranks, options);
  };
  return {.name = name, .make = make, .handshakes = handshakes, .watched = true};
}

}  // namespace

std::vector<TransportCase> transport_cases() {
  return {shm_case("shm", 256 * 1024, 4, 100'000, false), shm_case("shm_smallest", 4096, 3, 10'000, false),
          shm_case("shm_without_favours", 65536, 4, 50'000, true)};
}

}  // namespace tutti
