// The simulated network: its event queue, links, faults, and the endpoints over them.
#include "transport/simulated/network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "base/error.h"

namespace tutti {

namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

// A slot's message: being written, on its way, or readable.
struct Message {
  std::vector<Line> lines;
  size_t bytes = 0;
  uint64_t signature = 0;
  TimeNs readable_at = 0;
  uint64_t number = 0;    // of the message on its link
  uint64_t checksum = 0;  // of what was sent
  const std::byte* lent = nullptr;  // not null: the message lies there, and is looked at as late as can be
  bool in_outbox = false;           // it lies in memory of the sender's transport, which nobody takes back

  const std::byte* readable() { return lent != nullptr ? lent : data(); }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines.data()); }
  void resize(size_t size) {
    bytes = size;
    lent = nullptr;
    in_outbox = false;
    if (lines.size() * sizeof(Line) < size || lines.empty()) lines.resize(size / sizeof(Line) + 1);
  }
};

constexpr TimeNs never = std::numeric_limits<TimeNs>::max();

// FNV-1a, eight bytes at a time.
uint64_t checksum_of(const std::byte* data, size_t bytes) {
  uint64_t sum = 0xcbf29ce484222325u ^ bytes;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, std::min<size_t>(8, bytes - at));
    sum = (sum ^ word) * 0x100000001b3u;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace

// A message that comes once more.
struct SimulatedNetwork::Duplicate {
  size_t link;
  Message message;
};

struct SimulatedNetwork::Link {
  int from, to;
  size_t index;
  SimulatedLink cost;
  std::vector<Message> slots;
  uint64_t sent = 0;      // messages; the next is written to slot sent % slots
  uint64_t released = 0;  // messages; the next is read from slot released % slots
  uint64_t credited = 0;  // of those, what the sender knows of
  bool lost = false;      // nothing that is sent from now on arrives
  TimeNs closed_at = never;  // when both sides learn that it is cut
  SimulatedNoise noise;
  bool revoked = false;     // what was lent is worth nothing
  bool awaited = false;     // the sender waits for credit though it is not full
  uint64_t lent_until = 0;  // nothing is lent once so many are released
  TimeNs last_readable_at = 0;

  bool returned() const { return credited >= lent_until; }
  bool full() const { return sent - credited >= slots.size(); }
  bool empty() const { return sent == released; }
  Message& writing() { return slots[sent % slots.size()]; }
  Message& reading() { return slots[released % slots.size()]; }
};

class SimulatedEndpoint final : public Endpoint {
 public:
  SimulatedEndpoint(SimulatedNetwork& network, int rank, int peer, int channel, Outbox* outbox)
      : outbox_(outbox),
        network_(network),
        rank_(rank),
        peer_(peer),
        out_(network.link(rank, peer, channel)),
        in_(network.link(peer, rank, channel)) {}

  Status send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override {
    if (!may_send()) return fault_.kind == FaultKind::none ? Status::again : Status::failed;
    Message& message = out_.writing();
    message.resize(bytes);
    const bool stumbles = network_.stumbles(rank_);
    const size_t left = bytes - bytes_done;
    const size_t amount = stumbles ? size_t(network_.random_.below(left + 1)) : left;
    if (amount > 0) std::memcpy(message.data() + bytes_done, data + bytes_done, amount);
    bytes_done += amount;
    if (stumbles && !network_.makes(SimulatedMistake::short_send_as_whole)) return Status::again;
    commit(bytes, signature);
    return Status::done;
  }

  Status lend(const LentRegion&, const std::byte* data, size_t bytes, uint64_t signature,
              size_t& bytes_done) noexcept override {
    if (bytes < network_.options_.lent_bytes_min) return send(data, bytes, signature, bytes_done);
    if (!may_send()) return fault_.kind == FaultKind::none ? Status::again : Status::failed;
    if (network_.stumbles(rank_)) return Status::again;
    out_.writing().lent = data;
    out_.lent_until = out_.sent + 1;
    bytes_done = bytes;
    commit(bytes, signature);
    return Status::done;
  }

  void revoke() noexcept override {
    out_.revoked = true;
    fault_.kind = FaultKind::closed;
  }

  std::byte* reserve(size_t bytes) noexcept override {
    if (!may_send()) return nullptr;
    // Once it was given, a place stays given.
    if (!reserved_ && network_.stumbles(rank_)) return nullptr;
    reserved_ = true;
    out_.writing().resize(bytes);
    return out_.writing().data();
  }

  void commit(size_t bytes, uint64_t signature) noexcept override {
    reserved_ = false;
    out_.writing().bytes = bytes;
    out_.writing().signature = signature;
    network_.sent(out_);
    network_.interrupt(rank_);
  }

  Outbox* outbox() noexcept override { return outbox_; }

  Status flush() noexcept override {
    if (out_.returned() || network_.makes(SimulatedMistake::lent_returned_early)) return Status::done;
    return may_wait() ? Status::again : Status::failed;
  }
  bool stages() const noexcept override { return false; }
  std::optional<Passed> passed() const noexcept override { return Passed{uint32_t(out_.sent), uint32_t(in_.released)}; }

  Status recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override {
    const Status status = arrived(bytes, signature);
    if (status != Status::done) return status;
    const bool stumbles = network_.stumbles(rank_);
    const size_t left = bytes - bytes_done;
    const size_t amount = stumbles ? size_t(network_.random_.below(left + 1)) : left;
    if (amount > 0) std::memcpy(data + bytes_done, taken().readable() + bytes_done, amount);
    bytes_done += amount;
    if (stumbles) return Status::again;
    return release();
  }

  // The peer may write there at once: what lies there is worth nothing from now on.
  bool expect(const LentRegion&, const ExpectedMessages& messages, uint64_t) noexcept override {
    const uint64_t ahead = in_.released - expected_from_;
    if (expected_.count > 0 && ahead % expected_.every == 0 && ahead / expected_.every < expected_.count) {
      TUTTI_ASSERT(expected_.data + ahead / expected_.every * expected_.stride == messages.data);
      return true;
    }
    if (messages.bytes < network_.options_.lent_bytes_min) return false;
    constexpr int nonsense = 0xdb;
    for (uint32_t k = 0; k < messages.count; ++k)
      std::memset(messages.data + k * messages.stride, nonsense, messages.bytes);
    expected_ = messages;
    expected_from_ = in_.released;
    return true;
  }

  Status view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept override {
    if (!viewed_) {
      const Status status = arrived(bytes, signature);
      if (status != Status::done) return status;
      if (network_.stumbles(rank_)) return Status::again;
      viewed_ = true;
      if (network_.makes(SimulatedMistake::slot_reused_early)) network_.released(in_);
    }
    data = (network_.makes(SimulatedMistake::slot_reused_early) ? last_taken() : taken()).readable();
    network_.interrupt(rank_);
    return Status::done;
  }

  Status release() noexcept override {
    [[maybe_unused]] const bool was_viewed = std::exchange(viewed_, false);
    if (in_.revoked && in_.reading().lent != nullptr && !in_.reading().in_outbox) {
      fault_.kind = FaultKind::closed;
      return Status::failed;
    }
    if (was_viewed && network_.makes(SimulatedMistake::slot_reused_early)) return Status::done;
    taken().readable_at = never;
    network_.released(in_);
    return Status::done;
  }

  const Fault& fault() const noexcept override { return fault_; }

 private:
  friend class SimulatedOutbox;

  bool may_send() noexcept {
    network_.enter(rank_);
    return may_wait() && !out_.full();
  }
  // For the peer to release what was sent to it.
  bool may_wait() noexcept {
    if (fault_.kind == FaultKind::none && closed()) fault_.kind = FaultKind::closed;
    return fault_.kind == FaultKind::none;
  }
  bool closed() const noexcept {
    return network_.state_[size_t(peer_)].closed || out_.closed_at <= network_.now_;
  }

  // The message that is to be read now.
  Message& taken() noexcept {
    if (!network_.makes(SimulatedMistake::reorder_not_handled)) return in_.reading();
    return *std::min_element(in_.slots.begin(), in_.slots.end(),
                             [](const Message& a, const Message& b) { return a.readable_at < b.readable_at; });
  }
  Message& last_taken() noexcept { return in_.slots[(in_.released - 1) % in_.slots.size()]; }

  Status arrived(size_t bytes, uint64_t signature) noexcept {
    network_.enter(rank_);
    if (fault_.kind != FaultKind::none) return Status::failed;
    if (in_.empty() || taken().readable_at > network_.now_) {
      const bool nothing_more = in_.empty() || in_.closed_at <= network_.now_;
      if (!nothing_more || !closed()) return Status::again;
      fault_.kind = FaultKind::closed;
      return Status::failed;
    }
    Message& message = taken();
    if (network_.options_.checksums && message.lent == nullptr && !network_.makes(SimulatedMistake::flip_not_noticed) &&
        checksum_of(message.data(), message.bytes) != message.checksum) {
      fault_ = {FaultKind::system, EBADMSG};
      return Status::failed;
    }
    const bool same = message.signature == signature || network_.makes(SimulatedMistake::signature_not_compared);
    if (message.bytes == bytes && same) return Status::done;
    fault_ = {FaultKind::mismatch, 0, message.signature, message.bytes};
    return Status::failed;
  }

  Outbox* const outbox_;
  SimulatedNetwork& network_;
  const int rank_;
  const int peer_;
  SimulatedNetwork::Link& out_;
  SimulatedNetwork::Link& in_;
  Fault fault_;
  ExpectedMessages expected_{};
  uint64_t expected_from_ = 0;  // of what in_ has released
  bool viewed_ = false;
  bool reserved_ = false;
};

// Its messages are looked at where they lie, as what is lent: one that is overwritten too early is a wrong result.
class SimulatedOutbox final : public Outbox {
 public:
  SimulatedOutbox(SimulatedNetwork& network, int rank)
      : network_(network), rank_(rank), endpoints_(size_t(network.options_.n)) {}
  void add(int peer, SimulatedEndpoint& endpoint) { endpoints_[size_t(peer)] = &endpoint; }

  Place reserve(size_t bytes, std::span<const uint32_t> peers) noexcept override {
    forget_read();
    peers_ = peers;
    for (const uint32_t peer : peers) {
      SimulatedEndpoint& endpoint = *endpoints_[peer];
      if (!endpoint.may_wait() || endpoint.reserved_) return {};
      if (!endpoint.may_send()) return wait_for(peer);
    }
    if (network_.stumbles(rank_)) return {};
    if (under_way_.size() == network_.options_.outbox_messages)
      return wait_for(*std::find_if(under_way_[0].peers.begin(), under_way_[0].peers.end(),
                                    [&](uint32_t peer) { return !has_read(under_way_[0], peer); }));
    next_.memory.resize(bytes);
    return {next_.memory.data(), -1};
  }
  void write(const std::byte* data, size_t bytes) noexcept override { std::memcpy(next_.memory.data(), data, bytes); }
  Store store(size_t) const noexcept override { return Store::cached; }
  void commit(size_t bytes, uint64_t signature) noexcept override {
    next_.peers.assign(peers_.begin(), peers_.end());
    next_.numbers.clear();
    for (const uint32_t peer : peers_) {
      SimulatedEndpoint& endpoint = *endpoints_[peer];
      endpoint.out_.writing().resize(0);
      endpoint.out_.writing().lent = next_.memory.data();
      endpoint.out_.writing().in_outbox = true;
      next_.numbers.push_back(endpoint.out_.sent);
      endpoint.commit(bytes, signature);
    }
    under_way_.push_back(std::move(next_));
    next_ = {};
  }

 private:
  struct Shared {
    std::vector<std::byte> memory;
    std::vector<uint32_t> peers;
    std::vector<uint64_t> numbers;  // on each peer's link
  };
  bool has_read(const Shared& message, uint32_t peer) const {
    const size_t i = size_t(std::find(message.peers.begin(), message.peers.end(), peer) - message.peers.begin());
    return endpoints_[peer]->out_.credited > message.numbers[i];
  }
  void forget_read() {
    const auto is_read = [&](const Shared& message) {
      return std::all_of(message.peers.begin(), message.peers.end(), [&](uint32_t peer) { return has_read(message, peer); });
    };
    for (; !under_way_.empty() && is_read(under_way_.front()); under_way_.pop_front()) {
      if (network_.options_.mistake == SimulatedMistake::none) continue;
      // Who looks at it still, by a planted mistake, sees other bytes, as in memory that is used again.
      std::vector<std::byte>& memory = overwritten_.emplace_back(std::move(under_way_.front().memory));
      std::fill(memory.begin(), memory.end(), std::byte{0xa5});
    }
  }
  Place wait_for(uint32_t peer) {
    const auto found = std::find(peers_.begin(), peers_.end(), peer);
    SimulatedNetwork::Link& link = endpoints_[peer]->out_;
    if (found == peers_.end() || link.sent - link.credited < 2) return {};
    link.awaited = true;
    return {nullptr, int(found - peers_.begin())};
  }

  SimulatedNetwork& network_;
  const int rank_;
  std::vector<SimulatedEndpoint*> endpoints_;
  std::deque<Shared> under_way_;
  std::vector<std::vector<std::byte>> overwritten_;
  Shared next_;
  std::span<const uint32_t> peers_;
};

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, int rank)
      : network_(network), rank_(rank), endpoints_(size_t(network.options_.n * network.options_.channels)) {
    if (network.options_.outbox_messages == 0) return;
    for (int channel = 0; channel < network.options_.channels; ++channel)
      outboxes_.push_back(std::make_unique<SimulatedOutbox>(network, rank));
  }

  std::string_view name() const noexcept override { return "simulated"; }
  Endpoint* endpoint(int peer, int channel) noexcept override {
    if (peer == rank_) return nullptr;
    std::unique_ptr<SimulatedEndpoint>& endpoint = endpoints_[size_t(channel * network_.options_.n + peer)];
    if (endpoint != nullptr) return endpoint.get();
    SimulatedOutbox* const outbox = outboxes_.empty() ? nullptr : outboxes_[size_t(channel)].get();
    endpoint = std::make_unique<SimulatedEndpoint>(network_, rank_, peer, channel, outbox);
    if (outbox != nullptr) outbox->add(peer, *endpoint);
    return endpoint.get();
  }
  size_t message_bytes_max() const noexcept override { return network_.options_.message_bytes_max; }

  void progress() noexcept override {}
  void arm() noexcept override {
    network_.state_[size_t(rank_)].armed = true;
    network_.interrupt(rank_);
  }
  void disarm() noexcept override { network_.state_[size_t(rank_)].armed = false; }
  size_t poll_fds(std::span<pollfd>) noexcept override { return 0; }

 private:
  SimulatedNetwork& network_;
  const int rank_;
  std::vector<std::unique_ptr<SimulatedEndpoint>> endpoints_;
  std::vector<std::unique_ptr<SimulatedOutbox>> outboxes_;  // by channel, if there are any
};

SimulatedNetwork::SimulatedNetwork(const SimulatedOptions& options)
    : options_(options),
      random_(options.seed),
      state_(size_t(options.n)),
      links_(size_t(options.n) * size_t(options.n) * size_t(options.channels)) {
  TUTTI_ASSERT(options.n >= 1 && options.channels >= 1 && options.slots >= 1);
  for (int rank = 0; rank < options.n; ++rank) {
    transports_.push_back(std::make_unique<SimulatedTransport>(*this, rank));
  }
}

SimulatedNetwork::~SimulatedNetwork() = default;

Transport& SimulatedNetwork::transport(int rank) { return *transports_[size_t(rank)]; }

std::optional<SimulatedEvent> SimulatedNetwork::next() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    if (event.kind == EventKind::driver) return SimulatedEvent{now_, -1, event.argument};
    if (event.kind == EventKind::duplicate) {
      repeat(duplicates_[event.argument]);
      continue;
    }
    if (event.kind == EventKind::credit) {
      Link& link = link_at(event.argument);
      const bool was_awaited = link.full() || !link.returned() || std::exchange(link.awaited, false);
      ++link.credited;
      if (!was_awaited) continue;
    }
    RankState& state = state_[size_t(event.rank)];
    if (event.kind == EventKind::closed) {
      state.closed = true;
      for (int rank = 0; rank < options_.n; ++rank) wake(rank, now_);
      continue;
    }
    if (state.dead || state.stopped) continue;
    if (state.busy_until > now_) {
      if (state.postponed_to != state.busy_until) push(EventKind::wake, event.rank, 0, state.busy_until);
      state.postponed_to = state.busy_until;
      continue;
    }
    return SimulatedEvent{now_, event.rank, 0};
  }
  return std::nullopt;
}

void SimulatedNetwork::wake(int rank, TimeNs at) {
  const TimeNs late_max = state_[size_t(rank)].late_max;
  push(EventKind::wake, rank, 0, at + (late_max > 0 ? random_.between(0, late_max) : 0));
}

void SimulatedNetwork::call(uint64_t argument, TimeNs at) { push(EventKind::driver, -1, argument, at); }

void SimulatedNetwork::kill(int rank, TimeNs close_after) {
  state_[size_t(rank)].dead = true;
  if (close_after >= 0) push(EventKind::closed, rank, 0, now_ + close_after);
}

void SimulatedNetwork::stop(int rank) { state_[size_t(rank)].stopped = true; }

void SimulatedNetwork::resume(int rank) {
  state_[size_t(rank)].stopped = false;
  wake(rank, now_);
}

SimulatedNetwork::Link& SimulatedNetwork::link(int from, int to, int channel) {
  const size_t index = index_of(from, to, channel);
  std::unique_ptr<Link>& place = links_[index];
  if (place == nullptr) {
    const SimulatedLink cost = options_.link_of ? options_.link_of(from, to) : options_.link;
    place = std::make_unique<Link>(Link{from, to, index, cost, std::vector<Message>(size_t(options_.slots))});
    for (Message& message : place->slots) message.readable_at = never;
  }
  return *place;
}

void SimulatedNetwork::cut(int from, int to, bool both, TimeNs close_after) {
  for (int channel = 0; channel < options_.channels; ++channel) {
    Link &there = link(from, to, channel), &back = link(to, from, channel);
    there.lost = true;
    back.lost |= both;
    if (close_after >= 0) there.closed_at = back.closed_at = now_ + close_after;
  }
  if (close_after < 0) return;
  wake(from, now_ + close_after);
  wake(to, now_ + close_after);
}

void SimulatedNetwork::disturb(int from, int to, const SimulatedNoise& noise) {
  for (int channel = 0; channel < options_.channels; ++channel) link(from, to, channel).noise = noise;
}

size_t SimulatedNetwork::messages_left() const {
  size_t left = 0;
  for (const std::unique_ptr<Link>& link : links_)
    if (link != nullptr) left += link->sent - link->released;
  return left;
}

// Real transports know by its number that it has been there; a mistaken one writes it where it once belonged.
void SimulatedNetwork::repeat(const Duplicate& duplicate) {
  Link& link = link_at(duplicate.link);
  if (!makes(SimulatedMistake::duplicate_not_dropped)) return;
  Message& slot = link.slots[duplicate.message.number % link.slots.size()];
  slot = duplicate.message;
  slot.readable_at = now_;
  wake(link.to, now_);
}

void SimulatedNetwork::push(EventKind kind, int rank, uint64_t argument, TimeNs at) {
  events_.push({std::max(at, now_), random_.next(), argument, rank, kind});
}

void SimulatedNetwork::sent(Link& link) {
  RankState& sender = state_[size_t(link.from)];
  Message& message = link.writing();
  const TimeNs begins = std::max(sender.busy_until, now_) + TimeNs(link.cost.message_ns);
  sender.busy_until = begins + TimeNs(double(message.bytes) * link.cost.byte_ns);
  const TimeNs delay_ns_max = std::max(options_.delay_ns_max, link.noise.delay_ns_max);
  const TimeNs delay = delay_ns_max > 0 ? random_.between(0, delay_ns_max) : 0;
  const TimeNs left = sender.busy_until;
  const TimeNs there = options_.cross ? options_.cross(link.from, link.to, message.bytes, begins, left) : left;
  const TimeNs on_its_own = there + TimeNs(link.cost.latency_ns) + delay;
  // In order: a message never overtakes the one before it, unless the link is disturbed.
  const bool overtakes = link.noise.reorder > 0 && random_.chance(link.noise.reorder);
  message.readable_at = overtakes ? on_its_own : std::max(link.last_readable_at, on_its_own);
  link.last_readable_at = std::max(link.last_readable_at, message.readable_at);
  message.number = link.sent++;
  if (options_.checksums && message.lent == nullptr) message.checksum = checksum_of(message.data(), message.bytes);
  if (link.noise.flip > 0 && message.lent == nullptr && message.bytes > 0 && random_.chance(link.noise.flip))
    message.data()[random_.below(message.bytes)] ^= std::byte(1u << random_.below(8));
  if (link.lost) {
    message.readable_at = never;
    return;
  }
  if (link.noise.duplicate > 0 && message.lent == nullptr && random_.chance(link.noise.duplicate)) {
    duplicates_.push_back({link.index, message});
    push(EventKind::duplicate, -1, duplicates_.size() - 1, message.readable_at + 1 + TimeNs(random_.below(20'000)));
  }
  wake(link.to, message.readable_at);
  // Who overtook is there already when its turn comes.
  if (overtakes) wake(link.to, link.last_readable_at);
}

void SimulatedNetwork::released(Link& link) {
  ++link.released;
  // The way back is cut: the sender never learns of it.
  const int channel = int(link.index / (size_t(options_.n) * size_t(options_.n)));
  const Link* const back = links_[index_of(link.to, link.from, channel)].get();
  if (back != nullptr && back->lost) return;
  push(EventKind::credit, link.from, link.index, now_ + TimeNs(link.cost.latency_ns));
}

bool SimulatedNetwork::stumbles(int rank) {
  if (options_.short_probability <= 0 || !random_.chance(options_.short_probability)) return false;
  wake(rank, now_ + 1 + TimeNs(random_.below(100)));
  return true;
}

}  // namespace tutti
