// Accepts, authenticates, and drops what is too slow or no friend.
#include "bootstrap/doorkeeper.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

// How long a connection may take its time while others wait for its place. A friend's handshake takes one round trip.
constexpr TimeNs eviction_age_ns = 250 * ns_per_ms;
// After an accept that failed for want of descriptors: the connection stays in the queue, so looking again at once
// would spin.
constexpr TimeNs grace_ns = 500 * ns_per_ms;
constexpr TimeNs accept_pause_ns = 100 * ns_per_ms;

const char* reason(Handshake::State state) {
  switch (state) {
    case Handshake::State::stranger: return "does not know the job's key";
    case Handshake::State::closed: return "closed before it had proven the job's key";
    default: return "took too long to prove the job's key";
  }
}

}  // namespace

Doorkeeper::Doorkeeper(Fd listener, const Secret& secret, const std::string& interface_names, const Log& log)
    : system_(system_of(listener)), listener_(std::move(listener)), secret_(secret), log_(log) {
  if (interface_names.empty()) return;
  for (const InterfaceAddress& entry : interface_addresses(interface_names)) allowed_.push_back(entry.address);
}

uint16_t Doorkeeper::port() const { return local_port(listener_); }

bool Doorkeeper::accepting(TimeNs now) const {
  if (!listener_.valid() || now < paused_until_ns_) return false;
  return pending_.size() < pending_max || now - pending_.front().since_ns() >= eviction_age_ns;
}

void Doorkeeper::add_poll_fds(std::vector<pollfd>& fds) const {
  if (accepting(now_ns(system_))) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Handshake& handshake : pending_) fds.push_back({handshake.fd().get(), handshake.events(), 0});
}

TimeNs Doorkeeper::wake_ns(TimeNs now) const {
  TimeNs wake = now + 3600 * ns_per_s;
  if (now < paused_until_ns_) wake = paused_until_ns_;
  if (pending_.empty()) return wake;
  const TimeNs oldest = pending_.front().since_ns();
  wake = std::min(wake, oldest + handshake_timeout_ns);
  if (pending_.size() >= pending_max) wake = std::min(wake, std::max(now, oldest + eviction_age_ns));
  return wake;
}

std::vector<Doorkeeper::Guest> Doorkeeper::serve(TimeNs now) {
  accept_waiting(now);
  std::vector<Guest> guests;
  for (auto it = pending_.begin(); it != pending_.end();) {
    Handshake::State state = it->step();
    // A process that was stopped drops nobody before it has looked again at what waited meanwhile.
    if (state == Handshake::State::working && (now - it->since_ns() < handshake_timeout_ns ||
                                               it->renew_once(now - handshake_timeout_ns + grace_ns))) {
      ++it;
      continue;
    }
    const std::string address = describe(peer_address(it->fd()));
    if (state == Handshake::State::done || state == Handshake::State::other_version)
      guests.push_back({it->take_fd(), it->hello(), it->other_version(), address});
    else if (log_.enabled(LogLevel::debug))
      log_.debug(fmt::format("refused a connection from {}: it {}", address, reason(state)));
    it = pending_.erase(it);
  }
  return guests;
}

bool Doorkeeper::owes_entry() const noexcept {
  return std::ranges::any_of(pending_, [](const Handshake& handshake) { return handshake.answered(); });
}

bool Doorkeeper::make_room(TimeNs now) {
  if (pending_.size() < pending_max) return true;
  if (now - pending_.front().since_ns() < eviction_age_ns) return false;
  log_.debug("dropped the oldest of too many connections that have not proven the job's key");
  pending_.pop_front();
  return true;
}

void Doorkeeper::accept_waiting(TimeNs now) {
  while (accepting(now) && make_room(now)) {
    int error = 0;
    Fd fd = accept_connection(listener_, &error);
    if (!fd.valid()) {
      const bool is_new = error != accept_error_;
      accept_error_ = error == EAGAIN || error == EWOULDBLOCK ? 0 : error;
      if (accept_error_ == 0) return;
      paused_until_ns_ = now + accept_pause_ns;
      if (is_new) log_.warn(descriptor_error("cannot accept a control connection", error).what());
      return;
    }
    accept_error_ = 0;
    const JobId::Address local = local_address(fd);
    const bool allowed = allowed_.empty() || std::any_of(allowed_.begin(), allowed_.end(), [&](const auto& address) {
                           return same_host_address(address, local);
                         });
    if (allowed)
      pending_.emplace_back(std::move(fd), Handshake::Side::listening, secret_, now);
    else
      log_.debug(fmt::format("refused a connection to {}: not an interface that may be used", describe(local)));
  }
}

}  // namespace tutti
