// The control thread: its loop, its links, its verdict.
#include "bootstrap/control.h"

#include <algorithm>
#include <cerrno>
#include <exception>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/dial.h"

namespace tutti {
namespace {

// How long a closing rank waits for its last words to be taken.
constexpr TimeNs farewell_ns_max = ns_per_s;
// Ranks that are asked at once whether they are there; others are waited for.
constexpr auto probes_max = 1024;
constexpr TimeNs probe_interval_ns = 50 * ns_per_ms;

bool nobody_listens(DialResult::Kind kind) {
  return kind == DialResult::Kind::refused || kind == DialResult::Kind::stranger;
}

// Ranks of a part of the tree, with its root.
size_t size_below(int rank, int size) {
  size_t count = 0;
  for (int64_t first = rank, last = rank; first < size; first = 2 * first + 1, last = 2 * last + 2)
    count += size_t(std::min<int64_t>(last, size - 1) - first + 1);
  return count;
}

}  // namespace

std::string within(TimeNs ns) { return fmt::format("within {:.1f} s", double(ns) / double(ns_per_s)); }

Control::Control(int rank, int size, const Secret& secret, const BootstrapOptions& options, const Log& log)
    : rank_(rank), size_(size), secret_(secret), options_(options), system_(options.system), log_(log),
      parent_(Liveness::parent_of(rank)), children_(Liveness::children_of(rank, size)), below_(size_below(rank, size)),
      wakeup_(make_event(options.system)), changed_(options.system),
      doorkeeper_(listen_everywhere(0, nullptr, options.system), secret, options.interface_names, log_),
      liveness_(rank, size, options.silence_ns, now_ns(options.system)), members_(size) {
  liveness_.set_names([this](int one) { return members_.describe(one); });
  port_ = doorkeeper_.port();
  thread_ = Thread(system_, [this] { run(); });
}

Control::~Control() {
  {
    Lock lock(mutex_);
    // Who has the verdict stays until those who lost their way to it have found another; and whoever takes its link to
    // here for made hears a word over it first, or it would take this rank for dead.
    if (liveness_.has_left(rank_) || verdict() != nullptr)
      changed_.wait_for(lock, leave_wait_ns_max, [&] {
        const bool mended = liveness_.repaired() || liveness_.cut_off();
        return !doorkeeper_.owes_entry() && (links_.empty() || (verdict() != nullptr && mended));
      });
    stopping_ = true;
    stop_relink();
  }
  kick();
  thread_.join();
  for (Relink& relink : relinks_) relink.thread.join();
  close_links();
}

// The last words of a rank that left or failed must arrive before its end.
void Control::close_links() noexcept {
  if (!liveness_.has_left(rank_) && verdict() == nullptr) return;
  try {
    while (!links_.empty()) part(links_.begin()->first);
    for (Parting& parting : partings_)
      if (parting.socket.flush_until(parting.deadline, system_)) parting.socket.finish_output();
    for (Parting& parting : partings_) {
      Frame frame;
      while (parting.socket.receive_until(frame, parting.deadline, system_) == FramedSocket::Received::frame) {
      }
    }
  } catch (const std::exception&) {  // out of memory: closed without a farewell
  }
}

void Control::part(int peer) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  partings_.push_back({std::move(link->second), now_ns(system_) + farewell_ns_max});
  links_.erase(link);
}

// No more output after what is queued, then read until the other side has closed too.
void Control::serve_partings(TimeNs now) {
  std::erase_if(partings_, [now](Parting& parting) {
    if (!parting.socket.flush() || now >= parting.deadline) return true;
    if (!parting.socket.has_output()) parting.socket.finish_output();
    Frame frame;
    FramedSocket::Received received = FramedSocket::Received::frame;
    while (received == FramedSocket::Received::frame) received = parting.socket.receive(frame);
    return received != FramedSocket::Received::again;
  });
}

// --- The loop.

void Control::run() noexcept {
  for (;;) {
    try {
      sleep();
      Lock lock(mutex_);
      if (stopping_) return;
      handle(now_ns(system_));
      changed_.notify_all();
      call_wake(lock);
    } catch (const std::exception& error) {
      log_.error(fmt::format("the control thread met an error: {}", error.what()));
      fail({Code::internal_error, rank_, fmt::format("the control thread of rank {} failed: {}", rank_, error.what())});
    }
  }
}

void Control::sleep() {
  std::vector<pollfd> fds;
  TimeNs wake = 0;
  {
    const Lock lock(mutex_);
    if (stopping_) return;
    const TimeNs now = now_ns(system_);
    fds.push_back({wakeup_.get(), POLLIN, 0});
    doorkeeper_.add_poll_fds(fds);
    for (const auto& [peer, link] : links_)
      fds.push_back({link.fd(), short(POLLIN | (link.has_output() ? POLLOUT : 0)), 0});
    for (const Parting& parting : partings_)
      fds.push_back({parting.socket.fd(), short(POLLIN | (parting.socket.has_output() ? POLLOUT : 0)), 0});
    if (meeting_.valid()) fds.push_back({meeting_.fd(), POLLIN, 0});
    wake = std::min(doorkeeper_.wake_ns(now), liveness_.wake_ns(now));
    for (const Parting& parting : partings_) wake = std::min(wake, parting.deadline);
    for (const auto& [sequence, round] : rounds_)
      wake = std::min(wake, parent_ < 0 ? round.first_ns + options_.timeout_ns : round.next_ns);
  }
  poll_until(fds, wake, system_);
}

void Control::handle(TimeNs now) {
  clear(wakeup_);
  for (Doorkeeper::Guest& guest : doorkeeper_.serve(now)) let_in(std::move(guest), now);
  std::vector<int> peers;
  for (auto& [peer, link] : links_) peers.push_back(peer);
  for (const int peer : peers) read_link(peer, now);
  read_meeting(now);
  // After what came is read: a process that was stopped judges nobody by what waited meanwhile.
  liveness_.tick(now);
  check_rounds(now);
  perform();
  serve_partings(now);
}

void Control::let_in(Doorkeeper::Guest guest, TimeNs now) {
  if (guest.version != secret_.version) {
    log_.warn(version_sentence(secret_.version, guest.version, guest.address));
    return;
  }
  const int peer = int(guest.hello.rank);
  if (peer < 0 || peer >= size_ || peer == rank_ || int(guest.hello.size) != size_) return;
  if (guest.hello.purpose == Purpose::tree) {
    links_[peer] = FramedSocket(std::move(guest.fd));
    liveness_.link_opened(peer, now);
    perform();
  } else if (guest.hello.purpose == Purpose::data) {
    if (parked_count_ >= parked_max) {
      log_.warn(fmt::format("refused a data connection of {}: {} others wait already", liveness_.name(peer),
                            parked_count_));
      return;
    }
    parked_[{peer, guest.hello.tag}].push_back(std::move(guest.fd));
    ++parked_count_;
  }
}

void Control::read_link(int peer, TimeNs now) {
  for (;;) {
    const auto link = links_.find(peer);
    if (link == links_.end()) return;
    link->second.flush();
    const uint64_t before = link->second.bytes_received();
    Frame frame;
    FramedSocket::Received received = link->second.receive(frame);
    if (link->second.bytes_received() != before) liveness_.heard(peer, now);
    if (received == FramedSocket::Received::again) return;
    if (received == FramedSocket::Received::frame) {
      try {
        take(peer, std::move(frame), now);
        perform();
        continue;
      } catch (const Error& error) {
        log_.error(fmt::format("{} sent nonsense: {}", liveness_.name(peer), error.what()));
      }
    }
    links_.erase(link);
    liveness_.link_closed(peer, now);
    perform();
    return;
  }
}

void Control::take(int peer, Frame frame, TimeNs now) {
  if (frame.type == FrameType::liveness) {
    liveness_.message(peer, frame.payload, now);
  } else if (frame.type == FrameType::result) {
    const SharedBytes again = make_frame(FrameType::result, frame.payload);
    for (const int child : children_) send(child, again);
    take_result(frame.payload);
  } else if (frame.type == FrameType::gather) {
    ByteReader reader(frame.payload);
    const uint64_t sequence = reader.u64();
    while (!reader.empty()) {
      const int rank = int(reader.u32());
      contribute(sequence, rank, reader.blob(), now);
    }
  }
}

void Control::read_meeting(TimeNs now) {
  if (!meeting_.valid()) return;
  for (Frame frame;;) {
    const FramedSocket::Received received = meeting_.receive(frame);
    if (received == FramedSocket::Received::again) return;
    // Its end alone is no failure: its process is a rank like others, whose death the tree reports.
    if (received != FramedSocket::Received::frame) return meeting_.close();
    if (frame.type != FrameType::failure) continue;
    Failure failure = decode_failure(frame.payload);
    liveness_.fail({failure.code, failure.rank, std::move(failure.sentence)}, now);
    perform();
  }
}

void Control::call_wake(Lock& lock) {
  if (verdict() == nullptr || !wake_ || woken_) return;
  woken_ = true;
  const std::function<void()> wake = wake_;
  lock.unlock();
  wake();
}

// --- What liveness wants done.

void Control::perform() {
  for (auto actions = liveness_.take_actions(); !actions.empty(); actions = liveness_.take_actions()) {
    for (const Liveness::Action& action : actions) {
      using Kind = Liveness::Action::Kind;
      if (action.kind == Kind::send) {
        // A peer that takes nothing needs no second sign of life in its queue.
        const auto link = links_.find(action.peer);
        if (link == links_.end() || (Liveness::is_alive(action.message) && link->second.has_output())) continue;
        send(action.peer, make_frame(FrameType::liveness, action.message));
      } else if (action.kind == Kind::close) {
        part(action.peer);
      } else if (action.kind == Kind::dial) {
        relink(action.peer);
      } else if (action.kind == Kind::probe) {
        probe(action.peer);
      } else {
        publish();
      }
    }
  }
}

void Control::publish() {
  verdict_.store(liveness_.verdict(), std::memory_order_release);  // pairs with the load in verdict()
  log_.info("failed: " + liveness_.verdict()->sentence);
  changed_.notify_all();
  kick();
}

// A broken link shows when it is read, after what came before its end.
void Control::send(int peer, const SharedBytes& frame) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  link->second.queue(frame);
  link->second.flush();
}

// Children may be ready before this rank is linked to its own parent.
void Control::send_up(const SharedBytes& frame) {
  if (parent_linked_)
    send(parent_, frame);
  else
    early_.push_back(frame);
}

void Control::stop_relink() {
  for (Relink& relink : relinks_)
    if (!relink.probes || stopping_) relink.stop->store(true, std::memory_order_relaxed);  // pairs with dial's stop
}

// A parent has gone: connects to the next. Others may have joined and left before this rank's joining thread has told of
// their addresses: then know() comes back to it.
void Control::relink(int peer) {
  stop_relink();
  unknown_parent_ = members_.knows(peer) ? -1 : peer;
  if (unknown_parent_ >= 0) return liveness_.link_unknown(peer);
  start_dial(peer, Purpose::tree);
}

void Control::probe(int peer) {
  const auto probes = std::ranges::count_if(relinks_, [](const Relink& relink) { return relink.probes; });
  if (probes < probes_max && members_.knows(peer)) start_dial(peer, Purpose::probe);
}

// On a thread of its own, since trying addresses takes its time.
void Control::start_dial(int peer, Purpose purpose) {
  auto stop = std::make_shared<std::atomic<bool>>(false);
  const Member member = members_.at(peer);
  const Secret secret{secret_.key, member.identity, secret_.version};
  const Hello hello{purpose, uint32_t(rank_), uint32_t(size_), 0};
  auto body = [this, stop, secret, hello, peer, addresses = member.addresses] {
    for (bool again = true; again;) {
      DialOptions dialling;
      dialling.deadline = now_ns(system_) + options_.silence_ns;
      dialling.hopeless_ns = 0;
      dialling.system = system_;
      dialling.stop = [stop] { return stop->load(std::memory_order_relaxed); };
      DialResult result = dial(addresses, secret, hello, dialling);
      Lock lock(mutex_);
      if (stop->load(std::memory_order_relaxed) || stopping_) return;
      if (hello.purpose == Purpose::tree) relinked(peer, std::move(result.fd), int(result.kind), result.error_number);
      else if (nobody_listens(result.kind)) liveness_.link_refused(peer, now_ns(system_));
      else if (result.kind == DialResult::Kind::connected) liveness_.answered(peer, now_ns(system_));
      perform();
      kick();
      // Who answered may end before it links.
      const auto waits_no_more = [&] { return stopping_ || !liveness_.expects(peer); };
      again = hello.purpose == Purpose::probe &&
              !changed_.wait_for(lock, probe_interval_ns, waits_no_more);
    }
  };
  relinks_.push_back({stop, purpose == Purpose::probe, Thread(system_, std::move(body))});
}

void Control::relinked(int peer, Fd fd, int kind, int error_number) {
  const TimeNs now = now_ns(system_);
  switch (DialResult::Kind(kind)) {
    case DialResult::Kind::connected:
      links_[peer] = FramedSocket(std::move(fd));
      liveness_.link_opened(peer, now);
      break;
    case DialResult::Kind::refused:
    case DialResult::Kind::stranger: liveness_.link_refused(peer, now); break;
    case DialResult::Kind::system:
      liveness_.fail({Code::system_error, rank_,
                      fmt::format("{} cannot connect to {}: {}", liveness_.name(rank_), liveness_.name(peer),
                                  descriptor_error("no socket", error_number).what())},
                     now);
      break;
    default: liveness_.link_unreachable(peer, now);
  }
}

// --- Calls of other threads.

void Control::know(int rank, std::span<const std::byte> member) {
  const Lock lock(mutex_);
  members_.put(rank, member);
  if (members_.complete()) liveness_.all_known();
  if (rank == unknown_parent_ && liveness_.lives(rank) && !liveness_.linked(rank)) relink(rank);
}

Member Control::member(int rank) const {
  const Lock lock(mutex_);
  return members_.at(rank);
}

std::string Control::describe(int rank) const {
  const Lock lock(mutex_);
  return members_.describe(rank);
}

void Control::adopt_link(int peer, Fd fd) {
  const Lock lock(mutex_);
  links_[peer] = FramedSocket(std::move(fd));
  liveness_.link_opened(peer, now_ns(system_));
  perform();
  if (peer == parent_) {
    parent_linked_ = true;
    for (const SharedBytes& frame : std::exchange(early_, {})) send(parent_, frame);
  }
  kick();
}

void Control::adopt_meeting(FramedSocket meeting) {
  const Lock lock(mutex_);
  meeting_ = std::move(meeting);
  kick();
}

bool Control::meets() const {
  const Lock lock(mutex_);
  return meeting_.valid();
}

void Control::finish_meeting(FrameType last_word, const Bytes& payload) {
  const Lock lock(mutex_);
  if (!meeting_.valid()) return;
  meeting_.queue(make_frame(last_word, payload));
  meeting_.flush();
  meeting_.close();
}

Presence Control::presence(int rank) const noexcept {
  const Lock lock(mutex_);
  return liveness_.lives(rank) ? Presence::here : liveness_.dead(rank) ? Presence::died : Presence::left;
}

void Control::fail(Verdict verdict) noexcept {
  try {
    Lock lock(mutex_);
    liveness_.fail(std::move(verdict), now_ns(system_));
    perform();
    changed_.wait_for(lock, options_.timeout_ns / 2, [this] { return !liveness_.waits_for_decision(); });
    liveness_.decide_alone();
    perform();
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Control::compare_calls(OwnCalls own) noexcept {
  try {
    const Lock lock(mutex_);
    liveness_.compare_calls(std::move(own), now_ns(system_));
    perform();
    kick();
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Control::tell_waiting(uint64_t number, uint64_t signature) noexcept {
  try {
    const Lock lock(mutex_);
    liveness_.wait_in(number, signature, now_ns(system_));
    perform();
    kick();
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Control::tell_stuck(StuckCall call, std::vector<uint32_t> sent) noexcept {
  try {
    const Lock lock(mutex_);
    liveness_.stick_in(std::move(call), std::move(sent), now_ns(system_));
    perform();
    kick();
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Control::leave() noexcept {
  try {
    const Lock lock(mutex_);
    liveness_.leave(now_ns(system_));
    stop_relink();
    perform();
    kick();
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Control::after_fork(bool in_child) noexcept {
  if (in_child) {
    for (auto& [peer, link] : links_) link.close();
    for (Parting& parting : partings_) parting.socket.close();
    meeting_.close();
  }
  mutex_.unlock();
}

void Control::on_verdict(std::function<void()> wake) {
  const Lock lock(mutex_);
  wake_ = std::move(wake);
  kick();
}

}  // namespace tutti
