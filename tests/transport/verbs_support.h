// Connected verbs transports in one process, for tests: each rank with devices of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/fake_bootstrap.h"
#include "transport/verbs/verbs.h"

namespace tutti {

// What the test is linked with says where its devices are: fake_verbs.cc or verbs_of_guest.cc. Null: the machine's libibverbs.
const VerbsLibrary* verbs_under_test();
// There are two devices at the ends of one cable: ranks with even numbers use the one, the others the other.
std::string device_of(int rank);

// All ranks, every pair by verbs; `adjust` may change a rank's options. Throws Error where some pair is not reached.
inline std::vector<std::unique_ptr<Transport>> connected_verbs(
    int ranks, const VerbsOptions& options, const std::function<void(VerbsOptions&, int)>& adjust = {}) {
  const auto bootstraps = fake_bootstraps(ranks);
  auto transports = on_each_rank(bootstraps, [&](int rank) {
    VerbsOptions mine = options;
    mine.peers.assign(size_t(ranks), true);
    mine.devices = device_of(rank);
    mine.library = verbs_under_test();
    if (adjust) adjust(mine, rank);
    return make_verbs(*bootstraps[size_t(rank)], mine, Log("rank " + std::to_string(rank)));
  });
  for (int rank = 0; rank < ranks; ++rank)
    for (int peer = 0; peer < ranks; ++peer)
      if (rank != peer &&
          (transports[size_t(rank)] == nullptr || transports[size_t(rank)]->endpoint(peer, 0) == nullptr))
        throw Error(Code::system_error,
                    "no pair of ports connects " + std::to_string(rank) + " and " + std::to_string(peer));
  return transports;
}

// All at once: who ends waits for what is under way, and so for the others.
inline void end_together(std::vector<std::unique_ptr<Transport>>& transports) {
  std::vector<std::jthread> ends;
  for (auto& transport : transports) ends.emplace_back([&transport] { transport.reset(); });
}

}  // namespace tutti
