// Clocks, bootstraps and communicators of simulated sessions.
#include "simulation/session.h"

#include <algorithm>

#include "base/error.h"
#include "simulation/world.h"

namespace tutti {
namespace {

// The network's transport as one session sees it. Passes everything on.
class SessionTransport final : public Transport {
 public:
  SessionTransport(Transport& transport, const std::vector<int>& processes, int first_channel)
      : transport_(transport), processes_(processes), first_channel_(first_channel) {}
  std::string_view name() const noexcept override { return transport_.name(); }
  Endpoint* endpoint(int peer, int channel) noexcept override {
    return transport_.endpoint(processes_[size_t(peer)], first_channel_ + channel);
  }
  size_t message_bytes_max() const noexcept override { return transport_.message_bytes_max(); }
  void progress() noexcept override { transport_.progress(); }
  void arm() noexcept override { transport_.arm(); }
  void disarm() noexcept override { transport_.disarm(); }
  size_t poll_fds(std::span<pollfd> space) noexcept override { return transport_.poll_fds(space); }

 private:
  Transport& transport_;
  const std::vector<int> processes_;
  const int first_channel_;
};

}  // namespace

TimeNs ProcessClock::now() noexcept {
  world_.spin(process_);
  return world_.now();
}

void ProcessClock::sleep(pollfd* fds, size_t n, int timeout_ms) noexcept { world_.sleep(process_, fds, n, timeout_ms); }

void RankBootstrap::publish(const Verdict* verdict, bool rings) {
  verdict_.store(verdict, std::memory_order_release);
  if (rings && wake_) wake_();
}

void RankBootstrap::refuse() { throw Error(Code::internal_error, "not simulated"); }

std::unique_ptr<Communicator> session_communicator(const Scene& scene, int session, const std::vector<int>& members,
                                                   Transport& transport, Clock& clock,
                                                   std::unique_ptr<RankBootstrap> bootstrap) {
  const int n = int(members.size()), first_channel = session * (scene.channels + 1);
  Communicator::Given given;
  given.channels = scene.channels;
  given.patience = patience_policy(scene.crowded, 20 * ns_per_us);
  given.patience.clock = &clock;
  given.patience.calm_ns = 20 * ns_per_us;
  given.patience.tell_ns = WorldTimes::tell_ns;
  given.patience.stuck_ns = WorldTimes::stuck_ns;
  given.point_to_point = n <= 64;
  given.links.clock = &clock;
  given.links.grace_ns = std::min(given.links.grace_ns, WorldTimes::timeout_ns / 2);
  given.links.message_bytes_max = scene.message_bytes_max;
  given.links.names.assign(size_t(n), "simulated");
  given.links.transports.push_back(
      std::make_unique<SessionTransport>(transport, members, first_channel));
  for (int channel = 0; channel <= scene.channels; ++channel)
    for (int peer = 0; peer < n; ++peer)
      given.links.endpoints.push_back(given.links.transports[0]->endpoint(peer, channel));
  for (int peer = 0; peer < n; ++peer) given.host_of.push_back(peer / 3);
  for (int peer = 0; peer < n; ++peer) given.costs.core_of.push_back(peer / 2 * 2);
  given.costs.n = n;
  given.costs.classes.resize(1);
  given.costs.link_class.assign(size_t(n) * size_t(n), 0);
  CommunicatorOptions options;
  options.timeout_ms = WorldTimes::timeout_ms;
  return Communicator::over(std::move(bootstrap), std::move(given), options);
}

}  // namespace tutti
