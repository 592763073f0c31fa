// Where ranks meet first: collects all reports, tells each rank its neighbours, and tells all of a failure.
#include <pthread.h>
#include <signal.h>
#include <sodium.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/doorkeeper.h"
#include "bootstrap/liveness.h"
#include "bootstrap/messages.h"
#include "bootstrap/sockets.h"
#include "bootstrap/system.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace {

// After a failure, late ranks are told of it for so long. A place at an agreed port frees it sooner, since the same key
// and port may be used again at once.
constexpr TimeNs linger_fresh_ns = 30 * ns_per_s;
constexpr TimeNs linger_agreed_ns = ns_per_s;

// Owned by its thread; nobody else sees it.
class MeetingPlace {
 public:
  MeetingPlace(Fd listener, const Key& key, const std::string& interface_names, TimeNs deadline, TimeNs linger_ns,
               System* system)
      : log_("meeting place"),
        doorkeeper_(std::move(listener), Secret{key, 0, protocol_version}, interface_names, log_),
        system_(system), start_ns_(now_ns(system)), deadline_(deadline), linger_ns_(linger_ns) {}

  uint16_t port() const { return doorkeeper_.port(); }

  void run() {
    while (!finished(now_ns(system_))) {
      wait();
      const TimeNs now = now_ns(system_);
      for (Doorkeeper::Guest& guest : doorkeeper_.serve(now)) let_in(std::move(guest));
      for (Guest& guest : guests_) listen_to(guest, now);
      guests_.remove_if([](const Guest& guest) { return !guest.socket.valid(); });
      if (doorkeeper_.accept_error() != 0)
        fail({Code::system_error, -1,
              descriptor_error("the meeting place cannot accept more ranks", doorkeeper_.accept_error()).what()});
      if (now >= deadline_) fail_late(now);
    }
  }

 private:
  struct Guest {
    FramedSocket socket;
    std::string address;
    std::optional<Member> member;
    bool finished = false;  // linked, or told of the failure
  };

  bool finished(TimeNs now) const {
    if (failure_) return now >= deadline_ || (int(told_.size()) >= size_ && size_ > 0 && guests_.empty());
    return welcomed_ && int(linked_.size()) == size_;
  }

  void wait() {
    std::vector<pollfd> fds;
    doorkeeper_.add_poll_fds(fds);
    for (const Guest& guest : guests_)
      fds.push_back({guest.socket.fd(), short(POLLIN | (guest.socket.has_output() ? POLLOUT : 0)), 0});
    poll_until(fds, std::min(deadline_, doorkeeper_.wake_ns(now_ns(system_))), system_);
  }

  void let_in(Doorkeeper::Guest guest) {
    if (guest.version != protocol_version)
      return fail({Code::invalid_usage, -1,
                   version_sentence(protocol_version, guest.version, "a rank that came from " + guest.address)});
    if (guest.hello.purpose != Purpose::join) return;
    guests_.push_back({FramedSocket(std::move(guest.fd)), std::move(guest.address), std::nullopt});
  }

  void listen_to(Guest& guest, TimeNs now) {
    if (!guest.socket.flush()) return lose(guest);
    for (Frame frame;;) {
      const FramedSocket::Received received = guest.socket.receive(frame);
      if (received == FramedSocket::Received::again) return;
      if (received != FramedSocket::Received::frame) return lose(guest);
      try {
        take(guest, frame, now);
      } catch (const Error& error) {
        log_.warn(fmt::format("a connection from {} sent nonsense: {}", guest.address, error.what()));
        return lose(guest);
      }
    }
  }

  void take(Guest& guest, const Frame& frame, TimeNs now) {
    if (frame.type == FrameType::report && !guest.member) {
      const Report report = decode_report(frame.payload);
      guest.member = report.member;
      deadline_ = failure_ ? deadline_ : std::min(deadline_, now + report.left_ns);
      admit(guest);
    } else if (frame.type == FrameType::linked && guest.member && !guest.finished) {
      guest.finished = true;
      linked_.insert(guest.member->rank);
    } else if (frame.type == FrameType::failure) {
      fail(decode_failure(frame.payload));
    }
  }

  // A rank's report: it is the one missing, or contradicts what others said.
  void admit(Guest& guest) {
    if (failure_) return tell(guest);
    const Member& member = *guest.member;
    // It had connected before all others were here, and is no reason to end their job.
    if (welcomed_)
      return turn_away(guest, {Code::invalid_usage, member.rank,
                               fmt::format("{} came when all {} ranks had joined", member.describe(), size_)});
    const auto first = by_rank_.begin();
    if (first != by_rank_.end() && first->second->member->size != member.size) {
      const Member& other = *first->second->member;
      return fail({Code::invalid_usage, -1,
                   fmt::format("ranks disagree on the number of ranks: {} joined as one of {}, {} as one of {}",
                               other.describe(), other.size, member.describe(), member.size)});
    }
    size_ = member.size;
    const auto [entry, is_new] = by_rank_.try_emplace(member.rank, &guest);
    if (!is_new)
      return fail({Code::invalid_usage, member.rank,
                   fmt::format("two callers joined as rank {}: {} and {}", member.rank,
                               entry->second->member->describe(), member.describe())});
    if (int(by_rank_.size()) == size_) welcome();
  }

  // All are here. The door closes first: whoever comes now means the next job of this key.
  void welcome() {
    doorkeeper_.close_listener();
    welcomed_ = true;
    for (const auto& [rank, guest] : by_rank_) {
      std::vector<Member> neighbours;
      if (const int parent = Liveness::parent_of(rank); parent >= 0) neighbours.push_back(member_of(parent));
      for (const int child : Liveness::children_of(rank, size_)) neighbours.push_back(member_of(child));
      guest->socket.queue(make_frame(FrameType::welcome, encode(neighbours)));
      guest->socket.flush();
    }
  }

  const Member& member_of(int rank) const { return *by_rank_.at(rank)->member; }

  void lose(Guest& guest) {
    guest.socket.close();
    if (!guest.member) return;
    const auto entry = by_rank_.find(guest.member->rank);
    if (entry == by_rank_.end() || entry->second != &guest) return;
    by_rank_.erase(entry);
    if (guest.finished) return;
    fail({Code::remote_error, guest.member->rank,
          fmt::format("{} died while joining: its connection to the meeting place closed", guest.member->describe())});
  }

  // The first failure is everybody's.
  void fail(Failure failure) {
    if (failure_) return;
    failure_ = std::move(failure);
    log_.debug("joining failed: " + failure_->sentence);
    deadline_ = now_ns(system_) + linger_ns_;
    by_rank_.clear();
    for (Guest& guest : guests_)
      if (guest.member && guest.socket.valid()) tell(guest);
  }

  void tell(Guest& guest) {
    turn_away(guest, *failure_);
    told_.insert(guest.member->rank);
  }

  static void turn_away(Guest& guest, const Failure& failure) {
    guest.finished = true;
    guest.socket.queue(make_frame(FrameType::failure, encode(failure)));
    guest.socket.flush();
  }

  void fail_late(TimeNs now) {
    if (failure_) return;
    std::vector<int> missing;
    for (int rank = 0; rank < size_; ++rank)
      if (welcomed_ ? !linked_.contains(rank) : !by_rank_.contains(rank)) missing.push_back(rank);
    const double seconds = double(now - start_ns_) / double(ns_per_s);
    const std::string who = missing.empty() ? "all ranks" : fmt::format("{} of {}", rank_list(missing), size_);
    fail({Code::timeout, missing.size() == 1 ? missing.front() : -1,
          fmt::format("{} did not {} within {:.1f} s", who, welcomed_ ? "link to the others" : "join", seconds)});
  }

  Log log_;
  Doorkeeper doorkeeper_;
  System* const system_;
  const TimeNs start_ns_;
  TimeNs deadline_;  // of joining; after a failure, of lingering
  const TimeNs linger_ns_;
  std::list<Guest> guests_;
  std::map<int, Guest*> by_rank_;  // of those whose connections are open
  int size_ = 0;                   // 0: nobody has reported
  std::set<int> linked_;
  std::set<int> told_;  // ranks that know of the failure: two callers may be one rank
  bool welcomed_ = false;
  std::optional<Failure> failure_;
};

uint16_t start(Fd listener, const Key& key, const std::string& interface_names, TimeNs deadline, TimeNs linger_ns) {
  System* const system = system_of(listener);
  auto place = std::make_shared<MeetingPlace>(std::move(listener), key, interface_names, deadline, linger_ns, system);
  const uint16_t port = place->port();
  Thread(system, [place = std::move(place)] { place->run(); }).detach();
  return port;
}

}  // namespace

JobId open_meeting_place(const std::string& interface_names, TimeNs deadline, System* system) {
  if (::sodium_init() < 0) throw Error(Code::system_error, "libsodium cannot start: no source of randomness");
  JobId id;
  ::randombytes_buf(id.key.data(), id.key.size());
  Fd listener = listen_everywhere(0, nullptr, system);
  id.addresses = reachable_addresses(interface_names, local_port(listener), JobId::address_max, system);
  start(std::move(listener), id.key, interface_names, deadline, linger_fresh_ns);
  return id;
}

void open_meeting_place_at(const std::string& address, uint16_t port, const Key& key, TimeNs deadline,
                           System* system) {
  if (::sodium_init() < 0) throw Error(Code::system_error, "libsodium cannot start: no source of randomness");
  for (int i = 0; i < meeting_ports && port + i <= 65535; ++i) {
    bool in_use = false;
    Fd listener = listen_everywhere(uint16_t(port + i), &in_use, system);
    if (in_use) continue;
    start(std::move(listener), key, "", deadline, linger_agreed_ns);
    return;
  }
  throw Error(Code::system_error,
              fmt::format("no port for the meeting place at {}: other programs hold all of {} to {}", address, port,
                          std::min(port + meeting_ports - 1, 65535)));
}

}  // namespace tutti
