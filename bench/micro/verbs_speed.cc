// verbs-speed: what the verbs transport takes between two devices of this machine, one thread a rank: half a round trip
// of 8 bytes (median and mean), and one way of messages of 256 KiB: copied, lent and viewed, lent and written straight to
// where the receiver wants them (from when the sender knows). Ranks wait as a communicator's do. To be set
// beside ib_write_lat and ib_write_bw on the same devices. Usage: verbs-speed DEVICE DEVICE [MIB], 0 for
// the round trips alone.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/error.h"
#include "communicator/patience.h"
#include "memory/memory_file.h"
#include "transport/verbs_support.h"

namespace tutti {
namespace {

constexpr int sleep_ms_max = 1000;

using Transports = std::vector<std::unique_ptr<Transport>>;

// Calls `attempt` until it is done, waiting as a rank of a communicator does: it looks, then yields, then sleeps. Whoever
// only looked would take the core that the kernel's soft-RoCE works on.
template <class Attempt>
void await(Transport& transport, Attempt attempt) {
  constexpr TimeNs spin_ns = 50 * ns_per_us;
  const PatiencePolicy policy = patience_policy(false, spin_ns);
  Patience patience(policy);
  Status status = attempt();
  while (status == Status::again) {
    transport.progress();
    if (patience.next() == Patience::Next::sleep) {
      transport.arm();
      transport.progress();
      status = attempt();
      std::array<pollfd, 4> fds{};
      if (status == Status::again) ::poll(fds.data(), nfds_t(transport.poll_fds(fds)), sleep_ms_max);
      transport.disarm();
      patience.woke();
    }
    if (status == Status::again) status = attempt();
  }
  if (status == Status::failed) throw Error(Code::system_error, "a link failed");
}

void ping_pong(Transports& ranks, int rounds) {
  constexpr int warm_up = 200;
  std::vector<double> half_us;
  const auto play = [&](size_t rank) {
    Endpoint& peer = *ranks[rank]->endpoint(int(1 - rank), 0);
    std::vector<std::byte> data(8);
    for (int i = 0; i < rounds + warm_up; ++i) {
      const TimeNs start = now_ns();
      for (const bool sends : {rank == 0, rank != 0}) {
        size_t done = 0;
        await(*ranks[rank], [&] {
          return sends ? peer.send(data.data(), 8, 1, done) : peer.recv(data.data(), 8, 1, done);
        });
      }
      if (rank == 0 && i >= warm_up) half_us.push_back(double(now_ns() - start) / 2e3);
    }
  };
  std::jthread other([&] { play(1); });
  play(0);
  double sum = 0;
  for (const double us : half_us) sum += us;
  std::sort(half_us.begin(), half_us.end());
  std::printf("8 B, half a round trip: median %.2f us, mean %.2f us, least %.2f us\n", half_us[half_us.size() / 2],
              sum / double(half_us.size()), half_us[0]);
}

enum class Way { copied, viewed, direct };
constexpr const char* way_names[] = {"copied", "lent and viewed", "lent and written to its place"};

void one_way(Transports& ranks, size_t mib, Way way) {
  constexpr size_t bytes = 256 * 1024;
  const size_t messages = (mib << 20) / bytes;
  const Fd file = make_memory_file("verbs-speed", bytes * 17, "verbs-speed");
  const Mapping memory(file.get(), 0, bytes * 17, "verbs-speed");
  const LentRegion region{1, memory.data(), memory.bytes(), file.get(), 0, 0, std::make_shared<std::atomic<uint64_t>>(0)};
  std::jthread receiver([&] {
    Endpoint& peer = *ranks[1]->endpoint(0, 0);
    const std::byte* place = nullptr;
    for (size_t i = 0; i < messages; ++i) {
      std::byte* const target = memory.at(16 * bytes);
      size_t done = 0;
      await(*ranks[1], [&] {
        if (way == Way::direct) peer.expect(region, {target, bytes, 0, 1, uint32_t(messages - i)}, 2);
        return way == Way::viewed ? peer.view(bytes, 2, place) : peer.recv(target, bytes, 2, done);
      });
      if (way == Way::viewed) peer.release();
    }
    size_t done = 0;
    const std::byte end{};
    await(*ranks[1], [&] { return peer.send(&end, 1, 3, done); });
  });
  Endpoint& peer = *ranks[0]->endpoint(1, 0);
  const TimeNs start = now_ns();
  for (size_t i = 0; i < messages; ++i) {
    const std::byte* const data = memory.at(i % 16 * bytes);
    size_t done = 0;
    await(*ranks[0], [&] {
      return way == Way::copied ? peer.send(data, bytes, 2, done) : peer.lend(region, data, bytes, 2, done);
    });
  }
  await(*ranks[0], [&] { return peer.flush(); });
  std::byte end{};
  size_t done = 0;
  await(*ranks[0], [&] { return peer.recv(&end, 1, 3, done); });
  const double s = double(now_ns() - start) / 1e9;
  std::printf("%zu MiB one way, %s: %.2f MB/s (2^20)\n", mib, way_names[size_t(way)], double(mib) / s);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: verbs-speed DEVICE DEVICE [MIB]\n");
    return 2;
  }
  try {
    tutti::VerbsOptions options;
    auto ranks =
        tutti::connected_verbs(2, options, [&](tutti::VerbsOptions& o, int rank) { o.devices = argv[1 + rank]; });
    tutti::ping_pong(ranks, 3000);
    const size_t mib = argc > 3 ? size_t(std::atoll(argv[3])) : 100;
    if (mib == 0) return 0;
    for (const auto way : {tutti::Way::copied, tutti::Way::viewed, tutti::Way::direct}) tutti::one_way(ranks, mib, way);
    for (const auto& rank : ranks) {
      const tutti::VerbsCounters& c = *tutti::verbs_counters(*rank);
      std::printf("%lu messages (%lu to their places), %lu work requests (%lu of credit), %lu doorbells, %lu "
                  "completions\n", c.messages, c.direct, c.work_requests, c.credits, c.doorbells, c.completions);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs-speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
