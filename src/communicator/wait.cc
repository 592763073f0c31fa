// Sleeping on the descriptors of several communicators.
#include "communicator/wait.h"

namespace tutti {

void sleep_on(std::span<Communicator* const> members, int timeout_ms) noexcept {
  constexpr size_t fds_max = 64;
  std::array<pollfd, fds_max> fds;
  size_t n = 0;
  for (Communicator* member : members) n += member->poll_fds(std::span(fds).subspan(n));
  // More descriptors than fit: sleep briefly, so that none is overlooked for long.
  const bool all_fit = n < fds_max;
  Clock* const clock = members[0]->patience().clock;
  const bool device = std::any_of(members.begin(), members.end(), [](const auto* m) { return m->waits_for_device(); });
  constexpr timespec moment{0, 50'000};
  if (device && clock == nullptr) ::ppoll(fds.data(), nfds_t(n), &moment, nullptr);
  else if (clock == nullptr) ::poll(fds.data(), nfds_t(n), all_fit ? timeout_ms : 1);
  else clock->sleep(fds.data(), n, all_fit ? timeout_ms : 1);
}

}  // namespace tutti
