// Parallel non-blocking connects, each with its handshake.
#include "bootstrap/dial.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

constexpr TimeNs retry_ns_min = 20 * ns_per_ms;
constexpr TimeNs retry_ns_max = 500 * ns_per_ms;
constexpr TimeNs stop_interval_ns = 20 * ns_per_ms;
// A connect that the network swallows is begun anew after this.
constexpr TimeNs connect_timeout_ns = 10 * ns_per_s;

enum class Outcome : uint8_t { none, refused, stranger, other };

// One address and what becomes of it.
struct Attempt {
  JobId::Address address;
  Fd connecting;                       // until connected
  std::optional<Handshake> handshake;  // then
  TimeNs since_ns = 0;
  TimeNs retry_at_ns = 0;
  TimeNs retry_ns = retry_ns_min;
  Outcome outcome = Outcome::none;  // of the latest try that ended
  std::string detail = "no answer";
};

std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

void give_up(Attempt& attempt, TimeNs now, Outcome outcome, std::string detail) {
  attempt.connecting.reset();
  attempt.handshake.reset();
  attempt.outcome = outcome;
  attempt.detail = std::move(detail);
  attempt.retry_at_ns = now + attempt.retry_ns;
  attempt.retry_ns = std::min(2 * attempt.retry_ns, retry_ns_max);
}

void fail_connect(Attempt& attempt, TimeNs now, int error) {
  give_up(attempt, now, error == ECONNREFUSED ? Outcome::refused : Outcome::other, reason_of(error));
}

// Moves one attempt on. Returns errno where this process can make no socket at all, else 0.
int advance(Attempt& attempt, const Secret& secret, TimeNs now, System* system) {
  if (!attempt.connecting.valid() && !attempt.handshake) {
    if (now < attempt.retry_at_ns) return 0;
    int error = 0;
    attempt.connecting = start_connect(attempt.address, &error, system);
    attempt.since_ns = now;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) return error;
    if (error != 0) fail_connect(attempt, now, error);
    return 0;
  }
  if (attempt.connecting.valid()) {
    pollfd ready{attempt.connecting.get(), POLLOUT, 0};
    if (poll_until({&ready, 1}, now, system) <= 0) {
      if (now - attempt.since_ns > connect_timeout_ns) fail_connect(attempt, now, ETIMEDOUT);
      return 0;
    }
    if (const int error = connect_result(attempt.connecting); error != 0) {
      fail_connect(attempt, now, error);
      return 0;
    }
    attempt.handshake.emplace(std::move(attempt.connecting), Handshake::Side::connecting, secret, now);
  }
  const Handshake::State state = attempt.handshake->step();
  if (state == Handshake::State::stranger)
    give_up(attempt, now, Outcome::stranger, "answers, but does not know this job's key");
  else if (state == Handshake::State::closed)
    give_up(attempt, now, Outcome::other, "closed the connection");
  else if (state == Handshake::State::working && now - attempt.handshake->since_ns() > handshake_timeout_ns)
    give_up(attempt, now, Outcome::other, "listens, but does not answer");
  return 0;
}

void wait_for_any(std::span<const Attempt> attempts, TimeNs deadline, TimeNs now, System* system) {
  std::vector<pollfd> fds;
  TimeNs wake = std::min(deadline, now + stop_interval_ns);
  for (const Attempt& attempt : attempts) {
    if (attempt.connecting.valid()) fds.push_back({attempt.connecting.get(), POLLOUT, 0});
    else if (attempt.handshake) fds.push_back({attempt.handshake->fd().get(), attempt.handshake->events(), 0});
    else wake = std::min(wake, attempt.retry_at_ns);
  }
  poll_until(fds, wake, system);
}

// Proves itself to the listener that has proven itself. false: it was lost meanwhile.
bool conclude(Attempt& attempt, const Hello& hello, const DialOptions& options, DialResult& result) {
  Handshake& handshake = *attempt.handshake;
  Handshake::State state = handshake.finish(hello);
  while (state == Handshake::State::working && now_ns(options.system) < options.deadline) {
    pollfd wait{handshake.fd().get(), handshake.events(), 0};
    poll_until({&wait, 1}, options.deadline, options.system);
    state = handshake.step();
  }
  result.version = handshake.other_version();
  result.address = describe(attempt.address);
  if (state == Handshake::State::other_version) result.kind = DialResult::Kind::other_version;
  if (state == Handshake::State::done) {
    result.kind = DialResult::Kind::connected;
    result.fd = handshake.take_fd();
  }
  if (state == Handshake::State::done || state == Handshake::State::other_version) return true;
  give_up(attempt, now_ns(options.system), Outcome::other, "closed the connection");
  return false;
}

std::string details(std::span<const Attempt> attempts) {
  std::string text;
  for (const Attempt& attempt : attempts)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", describe(attempt.address), attempt.detail);
  return text;
}

// Every address has answered with no, and none with maybe.
bool hopeless(std::span<const Attempt> attempts) {
  return std::all_of(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
    return attempt.outcome == Outcome::refused || attempt.outcome == Outcome::stranger;
  });
}

}  // namespace

DialResult dial(std::span<const JobId::Address> addresses, const Secret& secret, const Hello& hello,
                const DialOptions& options) {
  const TimeNs start = now_ns(options.system);
  std::vector<Attempt> attempts(addresses.size());
  for (size_t i = 0; i < attempts.size(); ++i) attempts[i].address = addresses[i];
  DialResult result;
  for (TimeNs now = start;; now = now_ns(options.system)) {
    for (Attempt& attempt : attempts) {
      result.error_number = advance(attempt, secret, now, options.system);
      if (result.error_number != 0) {
        result.kind = DialResult::Kind::system;
        return result;
      }
      if (attempt.handshake && attempt.handshake->state() == Handshake::State::peer_proven &&
          conclude(attempt, hello, options, result))
        return result;
    }
    result.detail = details(attempts);
    const bool any_stranger = std::any_of(attempts.begin(), attempts.end(),
                                          [](const Attempt& a) { return a.outcome == Outcome::stranger; });
    const bool tried_enough = any_stranger || now - start >= options.hopeless_ns;
    if (options.hopeless_ns >= 0 && tried_enough && hopeless(attempts)) {
      result.kind = any_stranger ? DialResult::Kind::stranger : DialResult::Kind::refused;
      return result;
    }
    if (now >= options.deadline) return result;
    if (options.stop && options.stop()) {
      result.kind = DialResult::Kind::stopped;
      return result;
    }
    wait_for_any(attempts, options.deadline, now, options.system);
  }
}

}  // namespace tutti
