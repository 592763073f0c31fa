// Threads, sockets and ends of simulated processes.
#include "simulation/processes.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

constexpr TimeNs never = std::numeric_limits<TimeNs>::max();
constexpr uint16_t first_port = 30000;

// Looks at descriptors without waiting that take a turn's time.
constexpr uint32_t looks_per_turn = 100;
constexpr TimeNs turn_ns = 10 * ns_per_us;

// 10.h.h.h, as an IPv4 address in IPv6's form.
JobId::Address address_of(int host, uint16_t port) {
  JobId::Address address;
  address.ip[10] = address.ip[11] = 0xff;
  address.ip[12] = 10;
  for (int i = 0; i < 3; ++i) address.ip[size_t(13 + i)] = static_cast<unsigned char>(host >> (8 * (2 - i)));
  address.port = port;
  return address;
}

int host_of(const JobId::Address& address) {
  return int(address.ip[13]) << 16 | int(address.ip[14]) << 8 | int(address.ip[15]);
}

int fails(int error_number) {
  errno = error_number;
  return -1;
}

}  // namespace

Processes::Processes(Surroundings surroundings, const ProcessesOptions& options)
    : around_(std::move(surroundings)), options_(options) {}

Processes::~Processes() = default;

SimulatedProcess& Processes::start(int host, size_t descriptors_max) {
  processes_.emplace_back(new SimulatedProcess(*this, int(processes_.size()), host, descriptors_max));
  return *processes_.back();
}

bool Processes::connected(int host, int other) const {
  return std::ranges::none_of(cut_, [&](const auto& pair) {
    return pair == std::pair(host, other) || pair == std::pair(other, host);
  });
}

// Something goes to the other end of a connection, after all that went there before.
void Processes::carry(const SocketRef& from, std::function<void(const SocketRef& to)> arrive) {
  const TimeNs now = around_.now(), least = options_.latency_ns;
  TimeNs at = now + least + around_.random->between(0, least);
  if (mistake_ != ProcessMistake::bytes_reordered) at = std::max(at, from->last_arrival + 1);
  from->last_arrival = at;
  around_.after(at - now, [this, from, arrive = std::move(arrive)] {
    const SocketRef to = from->peer.lock();
    if (to == nullptr || from->owner->state() == SimulatedProcess::State::lost) return;
    if (to->owner->state() == SimulatedProcess::State::lost || !connected(from->owner->host(), to->owner->host())) return;
    arrive(to);
  });
}

void Processes::begin_connection(const SocketRef& from) {
  const TimeNs least = options_.latency_ns;
  around_.after(least + around_.random->between(0, least), [this, from, least] {
    const int host = host_of(from->remote);
    if (from->closed || from->owner->alone() || !connected(from->owner->host(), host)) return;
    const auto found = listeners_.find({host, from->remote.port});
    const SocketRef listener = found == listeners_.end() ? nullptr : found->second.lock();
    const bool lost = std::ranges::any_of(processes_, [&](const auto& one) {
      return one->host() == host && one->state() == SimulatedProcess::State::lost;
    });
    if (lost || (listener == nullptr && mistake_ == ProcessMistake::refusal_lost)) return;
    if (listener != nullptr) {
      const auto to = std::make_shared<Socket>();
      to->owner = listener->owner;
      to->local = from->remote;
      to->remote = from->local;
      to->peer = from;
      from->peer = to;
      listener->backlog.push_back(to);
      listener->owner->changed(listener);
    }
    around_.after(least, [from, refused = listener == nullptr] {
      from->phase = refused ? Phase::refused : Phase::open;
      from->owner->changed(from);
    });
  });
}

// Where something is left unread, the other side learns at once that this one has gone, whatever is on its way.
void Processes::end_connection(const SocketRef& socket) {
  const bool takes_back = socket->inbox_bytes > 0;
  if (takes_back) socket->last_arrival = 0;
  carry(socket, [this, takes_back](const SocketRef& to) {
    SocketRef told = to;
    if (mistake_ == ProcessMistake::end_misrouted)
      for (const SocketRef& other : to->owner->descriptors_)
        if (other != nullptr && other != to && other->kind == Kind::stream && other->phase == Phase::open) told = other;
    (takes_back ? told->reset : told->ended) = true;
    told->owner->changed(told);
  });
}

// --- What befalls a process.

void SimulatedProcess::stop() {
  if (state_ == State::runs) state_ = State::stopped;
}

void SimulatedProcess::go_on() {
  if (state_ != State::stopped) return;
  state_ = State::runs;
  for (auto& [number, thread] : threads_)
    if (std::exchange(thread.wants_to_run, false)) resume_later(number, thread.wait, wake_up_delay());
}

void SimulatedProcess::end() {
  if (alone()) return;
  own_time_ = world_.around_.now();
  for (const SocketRef& socket : descriptors_)
    if (socket != nullptr) drop(socket);
  state_ = State::ended;
  for (const auto& [number, thread] : threads_) resume_later(number, thread.wait, 0);
}

void SimulatedProcess::lose_host() {
  if (alone()) return;
  own_time_ = world_.around_.now();
  state_ = State::lost;
  for (const auto& [number, thread] : threads_) resume_later(number, thread.wait, 0);
}

// --- Threads.

TimeNs SimulatedProcess::wake_up_delay() { return world_.around_.random->between(0, world_.options_.wake_up_ns); }

uint64_t SimulatedProcess::start(std::function<void()> body) {
  const uint64_t number = ++last_thread_;
  threads_[number].fiber = std::make_unique<Fiber>(std::move(body));
  resume_later(number, 0, wake_up_delay());
  return number;
}

void SimulatedProcess::resume_later(uint64_t number, uint32_t wait, TimeNs delay) {
  world_.around_.after(delay, [this, number, wait] {
    const auto found = threads_.find(number);
    if (found != threads_.end() && found->second.wait == wait) resume(number);
  });
}

void SimulatedProcess::resume(uint64_t number) {
  Thread& thread = threads_.at(number);
  if (state_ == State::stopped) {
    thread.wants_to_run = true;
    return;
  }
  ++thread.wait;
  thread.condition = nullptr;
  current_ = number;
  thread.fiber->run();
  current_ = 0;
  if (thread.fiber->ended()) reap(number);
}

void SimulatedProcess::reap(uint64_t number) {
  const std::vector<uint64_t> waiting = std::move(threads_.at(number).joined_by);
  threads_.erase(number);
  for (const uint64_t other : waiting)
    if (const auto found = threads_.find(other); found != threads_.end()) resume_later(other, found->second.wait, 0);
}

// Until something resumes this thread. Who is alone gets its turn again, and its time is over.
void SimulatedProcess::block(TimeNs until) {
  TUTTI_ASSERT(current_ != 0);
  const uint64_t self = current_;
  Thread& thread = threads_.at(self);
  if (alone()) {
    if (until != never) own_time_ = std::max(own_time_, until);
    resume_later(self, thread.wait, turn_ns);
  } else if (until != never) {
    resume_later(self, thread.wait, std::max<TimeNs>(0, until - now()) + wake_up_delay());
  }
  thread.fiber->wait();
  current_ = self;
}

TimeNs SimulatedProcess::now() noexcept { return alone() ? own_time_ : world_.around_.now(); }

void SimulatedProcess::sleep_until(TimeNs time) noexcept {
  while (now() < time) block(time);
}

void SimulatedProcess::join(uint64_t number) noexcept {
  for (auto found = threads_.find(number); found != threads_.end(); found = threads_.find(number)) {
    found->second.joined_by.push_back(current_);
    const uint64_t self = current_;
    threads_.at(self).fiber->wait();
    current_ = self;
  }
}

void SimulatedProcess::wait(const void* condition, TimeNs deadline) noexcept {
  threads_.at(current_).condition = condition;
  block(deadline);
}

void SimulatedProcess::wake(const void* condition) noexcept {
  const bool may_miss = world_.mistake_ == ProcessMistake::wake_up_lost && world_.around_.random->chance(0.2);
  for (const auto& [number, thread] : threads_)
    if (thread.condition == condition && !may_miss) resume_later(number, thread.wait, wake_up_delay());
}

// --- Descriptors.

int SimulatedProcess::add(SocketRef socket) noexcept {
  if (open_ >= descriptors_max_) return fails(EMFILE);
  socket->owner = this;
  const auto place = std::ranges::find(descriptors_, nullptr);
  const int fd = int(place - descriptors_.begin());
  if (place == descriptors_.end()) descriptors_.push_back(std::move(socket));
  else *place = std::move(socket);
  ++open_;
  return fd;
}

SimulatedProcess::SocketRef SimulatedProcess::find(int fd) const noexcept {
  TUTTI_ASSERT(fd >= 0 && size_t(fd) < descriptors_.size() && descriptors_[size_t(fd)] != nullptr);
  return descriptors_[size_t(fd)];
}

void SimulatedProcess::close(int fd) noexcept {
  const SocketRef socket = find(fd);
  descriptors_[size_t(fd)] = nullptr;
  if (world_.mistake_ != ProcessMistake::descriptor_kept) --open_;
  if (!alone()) drop(socket);
}

void SimulatedProcess::drop(const SocketRef& socket) {
  if (std::exchange(socket->closed, true)) return;
  if (socket->kind == Processes::Kind::listener) {
    world_.listeners_.erase({host_, socket->local.port});
    for (const SocketRef& waiting : socket->backlog) world_.end_connection(waiting);
  } else if (socket->kind == Processes::Kind::stream && socket->phase == Processes::Phase::open) {
    world_.end_connection(socket);
  }
}

// Those who wait for it look again.
void SimulatedProcess::changed(const SocketRef& socket) {
  for (const auto& [thread, wait] : std::exchange(socket->watchers, {})) resume_later(thread, wait, wake_up_delay());
}

std::string SimulatedProcess::host_name() { return fmt::format("h{}", host_); }

std::vector<JobId::Address> SimulatedProcess::addresses() { return {address_of(host_, 0)}; }

std::vector<JobId::Address> SimulatedProcess::listeners_of(int host) const {
  std::vector<JobId::Address> found;
  for (const auto& [place, listener] : world_.listeners_)
    if (place.first == host) found.push_back(address_of(host, place.second));
  return found;
}

int SimulatedProcess::listen(uint16_t port) noexcept {
  uint16_t& next = world_.next_port_.try_emplace(host_, first_port).first->second;
  if (port == 0) port = next++;
  if (world_.listeners_.contains({host_, port})) return fails(EADDRINUSE);
  auto socket = std::make_shared<Socket>();
  socket->kind = Processes::Kind::listener;
  socket->local = address_of(host_, port);
  const int fd = add(socket);
  if (fd >= 0 && !alone()) world_.listeners_[{host_, port}] = socket;
  return fd;
}

int SimulatedProcess::accept(int listener) noexcept {
  const SocketRef door = find(listener);
  if (door->backlog.empty() || alone()) return fails(EAGAIN);
  const int fd = add(door->backlog.front());
  if (fd >= 0) door->backlog.pop_front();
  return fd;
}

int SimulatedProcess::connect(const JobId::Address& address) noexcept {
  if (alone()) return fails(ECONNREFUSED);
  auto socket = std::make_shared<Socket>();
  socket->phase = Processes::Phase::connecting;
  socket->local = address_of(host_, world_.next_port_.try_emplace(host_, first_port).first->second++);
  socket->remote = address;
  const int fd = add(socket);
  if (fd >= 0) world_.begin_connection(socket);
  return fd;
}

int SimulatedProcess::connect_result(int fd) noexcept {
  return find(fd)->phase == Processes::Phase::open ? 0 : ECONNREFUSED;
}

ssize_t SimulatedProcess::send(int fd, const std::byte* data, size_t bytes) noexcept {
  const SocketRef socket = find(fd);
  if (alone() || socket->reset || socket->output_ended) return fails(EPIPE);
  const size_t taken = std::min(bytes, world_.options_.buffer_bytes - socket->on_the_way_bytes);
  if (taken == 0) return fails(EAGAIN);
  socket->on_the_way_bytes += taken;
  ++messages_sent_;
  auto chunk = std::make_shared<std::vector<std::byte>>(data, data + taken);
  world_.carry(socket, [chunk, from = std::weak_ptr<Socket>(socket)](const SocketRef& to) {
    if (to->reset) return;
    if (to->closed) {
      if (const SocketRef sender = from.lock()) sender->reset = true, sender->owner->changed(sender);
      return;
    }
    ++to->owner->messages_received_;
    to->inbox_bytes += chunk->size();
    to->inbox.push_back({std::move(*chunk), 0});
    to->owner->changed(to);
  });
  return ssize_t(taken);
}

ssize_t SimulatedProcess::recv(int fd, std::byte* data, size_t bytes) noexcept {
  const SocketRef socket = find(fd);
  if (alone()) return 0;
  size_t done = 0;
  while (done < bytes && !socket->inbox.empty()) {
    Processes::Chunk& chunk = socket->inbox.front();
    const size_t part = std::min(bytes - done, chunk.bytes.size() - chunk.done);
    std::copy_n(chunk.bytes.data() + chunk.done, part, data + done);
    chunk.done += part;
    done += part;
    if (chunk.done == chunk.bytes.size()) socket->inbox.pop_front();
  }
  if (done == 0 && socket->reset) return fails(ECONNRESET);
  if (done == 0) return socket->ended ? 0 : fails(EAGAIN);
  socket->inbox_bytes -= done;
  socket->bytes_read += done;
  if (const SocketRef peer = socket->peer.lock()) {
    const bool was_full = peer->on_the_way_bytes == world_.options_.buffer_bytes;
    peer->on_the_way_bytes -= done;
    peer->owner->read_by_others_max_ = std::max(peer->owner->read_by_others_max_, socket->bytes_read);
    if (was_full) peer->owner->changed(peer);
  }
  return ssize_t(done);
}

void SimulatedProcess::finish_output(int fd) noexcept {
  const SocketRef socket = find(fd);
  if (alone() || std::exchange(socket->output_ended, true)) return;
  world_.carry(socket, [](const SocketRef& to) {
    to->ended = true;
    to->owner->changed(to);
  });
}

JobId::Address SimulatedProcess::local_address(int fd) noexcept { return find(fd)->local; }
JobId::Address SimulatedProcess::peer_address(int fd) noexcept { return find(fd)->remote; }

int SimulatedProcess::make_event() noexcept {
  auto socket = std::make_shared<Socket>();
  socket->kind = Processes::Kind::event;
  return add(std::move(socket));
}

void SimulatedProcess::ring(int event) noexcept {
  const SocketRef socket = find(event);
  socket->rung = true;
  changed(socket);
}

void SimulatedProcess::clear(int event) noexcept { find(event)->rung = false; }

short SimulatedProcess::ready(const Socket& socket) {
  using Kind = Processes::Kind;
  using Phase = Processes::Phase;
  if (socket.kind == Kind::listener) return socket.backlog.empty() ? 0 : POLLIN;
  if (socket.kind == Kind::event) return socket.rung ? POLLIN : 0;
  if (socket.phase == Phase::connecting) return 0;
  if (socket.phase == Phase::refused || socket.reset) return POLLIN | POLLOUT | POLLERR | POLLHUP;
  const short in = socket.inbox_bytes > 0 || socket.ended ? POLLIN : 0;
  return short(in | POLLOUT);
}

int SimulatedProcess::poll(std::span<pollfd> fds, TimeNs deadline) noexcept {
  // Another thread may close some of them meanwhile.
  std::vector<SocketRef> sockets;
  for (const pollfd& one : fds) sockets.push_back(find(one.fd));
  const auto look = [&] {
    int count = 0;
    for (size_t i = 0; i < fds.size(); ++i) {
      pollfd& one = fds[i];
      const SocketRef& socket = sockets[i];
      short events = ready(*socket);
      if (socket->on_the_way_bytes >= world_.options_.buffer_bytes && (events & POLLERR) == 0) events &= ~POLLOUT;
      one.revents = short(events & (one.events | POLLERR | POLLHUP));
      count += one.revents != 0;
    }
    return count;
  };
  // Who looks again and again without waiting uses time too.
  if (now() >= deadline && (alone() || ++looks_ % looks_per_turn == 0)) block(now() + turn_ns);
  for (;;) {
    const int count = alone() ? 0 : look();
    if (count > 0 || now() >= deadline) return count;
    for (const SocketRef& socket : sockets) {
      auto& watchers = socket->watchers;
      const auto mine = std::ranges::find(watchers, current_, [](const auto& watcher) { return watcher.first; });
      const std::pair watcher(current_, threads_.at(current_).wait);
      if (mine == watchers.end()) watchers.push_back(watcher);
      else *mine = watcher;
    }
    block(deadline);
  }
}

}  // namespace tutti
