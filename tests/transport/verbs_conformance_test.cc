// The verbs transport under the conformance suite: over devices of this process alone (fake_verbs.h), or for a guest with RDMA devices
// (tests/rdma boots one).
#include "transport/conformance.h"
#include "transport/verbs_support.h"

namespace tutti {
namespace {

TransportCase verbs_case(const std::string& name, const VerbsOptions& options, bool both_devices, bool paths_fail) {
  const auto make = [=](int ranks, int channels) -> std::unique_ptr<TransportSet> {
    VerbsOptions mine = options;
    mine.channels = channels;
    auto transports = connected_verbs(ranks, mine, [&](VerbsOptions& o, int) {
      if (both_devices) o.devices = "";
    });
    for (int rank = 0; rank < ranks && paths_fail; ++rank)
      for (int peer = 0; peer < rank; ++peer)
        for (int channel = 0; channel < channels; ++channel)
          break_verbs_path(*transports[size_t(rank)], peer, channel, 0);
    return std::make_unique<OwnedTransports>(std::move(transports));
  };
  constexpr uint64_t handshakes = 500;
  return {name, make, true, true, handshakes};
}

}  // namespace

std::vector<TransportCase> transport_cases() {
  VerbsOptions usual, small;
  usual.message_bytes_max = 64 * 1024;
  small.message_bytes_max = 4096;
  small.memory_bytes_max = 1;
  small.inline_bytes_max = 0;
  return {verbs_case("verbs", usual, false, false), verbs_case("verbs_smallest", small, false, false),
          verbs_case("verbs_two_paths", usual, true, false), verbs_case("verbs_whose_paths_fail", usual, false, true)};
}

}  // namespace tutti
