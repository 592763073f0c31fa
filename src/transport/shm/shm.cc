// Control path of the shared-memory transport: who shares this host, inboxes and their mappings, sleeping.
#include "transport/shm/shm.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sodium.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/environment.h"
#include "bootstrap/agreement.h"
#include "memory/memory_file.h"
#include "reduce/copy.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_handshake.h"
#include "transport/shm/shm_outbox.h"
#include "transport/shm/shm_peek.h"

namespace tutti {
namespace {

constexpr size_t header_bytes = 4096;
constexpr size_t slot_bytes_floor = 16 * 1024;  // many ranks of a host do not make slots smaller than this

// Lines of a FIFO: every member of a host has one for each other member, and touches all its lines.
constexpr size_t many_lines = 64, few_lines = 8, few_members_max = 16;
// Where no more than so many members share cores: the more calls a rank can make before it hands its core over, the fewer
// hand-overs a call takes.
constexpr size_t crowded_lines = 256, crowded_members_max = 8;

// What a rank's FIFOs to all its peers use again and again together where ranks share cores.
constexpr size_t crowded_lap_bytes = 512 * 1024;
// Its outbox there: the more a rank writes before it hands its core over, the fewer hand-overs a message takes, and
// what is larger soon fills the caches.
constexpr ShmOutbox::Laps crowded_outbox_laps{256 * 1024, 128 * 1024};

// Among more members long laps would take more memory than they are worth.
constexpr size_t long_laps_members_max = 8;

// Laps may take more slots than the options say: no more than so many.
constexpr size_t slots_of_laps_max = 16;

// Large messages of a pair alone take turns in four places. Among more ranks there are many FIFOs, which together shall
// stay in the last cache, so two must do. (Measured: with four, all_reduce of 1 MiB among 8 ranks takes twice as long.)
constexpr size_t lap_messages_of_pair = 4, lap_messages_of_many = 2;

// Of a host where one message can have several receivers. An outbox has room for so many of the largest messages.
constexpr size_t outbox_members_min = 3, outbox_messages_min = 4;

// What every rank tells all at first. Plain bytes, followed by the sentence of what went wrong, if anything did.
struct Hello {
  int32_t channels = 0;
  int32_t slots = 0;
  uint64_t slot_bytes = 0;
  uint32_t membarrier = 0;  // 1: this process answers to others' membarriers
  uint32_t pid = 0;
  uint64_t process = 0;     // random, the same for all ranks of a process and for what it forks
  ShmProof proof;
  ShmToken token{};
  std::array<char, 40> boot_id{};
  uint64_t own_cache_bytes = 0, last_cache_bytes = 0;
  std::array<uint64_t, 16> cores{};  // that it may run on, a bit each; none where there are too many to say
  uint64_t traded_places = 0;
};
static_assert(sizeof(Hello) == 256);

// An inbox: its header's page, then a part for each member of the host's group (its own stays empty), each with the
// FIFOs of all channels and, from the middle of a page, their bulk areas, each with its places that change hands; last the
// owner's outboxes, one for each channel.
struct InboxLayout {
  size_t members, channels, lines, slots, usual_slots, slot_bytes, lap_bytes, long_lap_bytes, outbox_bytes, spread_bytes;
  ShmOutbox::Laps outbox_laps;
  bool crowded;
  uint32_t traded_places;

  size_t fifos_bytes() const { return whole_pages(channels * ShmFifo::bytes(lines)) + shm_bulk_page_offset; }
  size_t bulk_bytes() const { return slots * slot_bytes; }
  size_t large_bytes() const { return bulk_bytes() + traded_places * slot_bytes; }
  size_t part_bytes() const { return whole_pages(fifos_bytes() + channels * large_bytes()); }
  size_t part_at(size_t member) const { return whole_pages(header_bytes) + member * part_bytes(); }
  size_t outboxes_at(size_t members) const { return part_at(members); }
  size_t outboxes_bytes() const { return channels * outbox_bytes; }
  size_t total_bytes(size_t members) const { return outboxes_at(members) + outboxes_bytes(); }
  ShmFifo* fifo(std::byte* part, size_t channel) const {
    return reinterpret_cast<ShmFifo*>(part + channel * ShmFifo::bytes(lines));
  }
  std::byte* bulk(std::byte* part, size_t channel) const {
    return part + fifos_bytes() + channel * large_bytes();
  }
};

std::array<uint64_t, 16> cores_allowed() {
  std::array<uint64_t, 16> cores{};
  cpu_set_t set;
  static_assert(sizeof set == sizeof cores);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) std::memcpy(cores.data(), &set, sizeof set);
  return cores;
}

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file.valid() && ::read(file.get(), id.data(), 36) != 36) id = {};
  return id;
}

uint64_t random_number() {
  uint64_t random = 0;
  randombytes_buf(&random, sizeof random);
  return random;
}

uint64_t process_number() {
  static const uint64_t number = random_number();
  return number;
}

// For the sentences of errors.
constexpr const char* about = "shared memory";
constexpr const char* smaller_slots = ", or lower TUTTI_SHM_SLOT_BYTES";
constexpr const char* larger_files = "; raise `ulimit -f`, or lower TUTTI_SHM_SLOT_BYTES";

void check_inbox(int fd, size_t bytes, const std::string& who) {
  if (!is_memory_file(fd, bytes))
    throw Error(Code::internal_error, fmt::format("shared memory: the inbox of {} is not {} sealed bytes", who, bytes));
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(int size, size_t channels, size_t message_bytes_max, Doorbell* doorbell,
               std::unique_ptr<Doorbell> own_doorbell, Mapping inbox, bool locked, std::unique_ptr<const uint64_t> proof)
      : size_(size), message_bytes_max_(message_bytes_max), doorbell_(doorbell),
        own_doorbell_(std::move(own_doorbell)), locked_(locked), inbox_(std::move(inbox)),
        proof_(std::move(proof)), endpoints_(channels * size_t(size)) {
    header_ = reinterpret_cast<ShmInboxHeader*>(inbox_.at(0));
  }

  std::string_view name() const noexcept override { return "shm"; }
  Endpoint* endpoint(int peer, int channel) noexcept override {
    return endpoints_[size_t(channel) * size_t(size_) + size_t(peer)].get();
  }
  size_t message_bytes_max() const noexcept override { return message_bytes_max_; }
  size_t spread_bytes_max() const noexcept override { return spread_bytes_max_; }
  void set_spread_bytes_max(size_t bytes) { spread_bytes_max_ = bytes; }
  void set_own_cache_bytes(size_t bytes) { own_cache_bytes_ = bytes; }  // before peers are added
  void progress() noexcept override {}
  void say_processor(int processor) noexcept override {
    header_->processor.store(uint32_t(processor) + 1, std::memory_order_relaxed);
  }
  void slot_memory(std::vector<std::span<std::byte>>& memory) noexcept override {
    memory.push_back({inbox_.data(), inbox_.bytes()});
    for (const Peer& peer : peers_)
      for (const Mapping* part : {&peer.part, &peer.outboxes})
        if (part->valid()) memory.push_back({part->data(), part->bytes()});
  }

  // After the barrier, whoever publishes to this rank sees that it sleeps, or this rank sees the message when it looks
  // once more. The barriers run on all cores that run a registered process (global: any; private: this one), so that
  // publishing needs none. Linux's global one may miss a core: one that was idle when the process registered, and that
  // had last run this very process, is not known as running a registered one until it has run another process (its
  // run queue's copy of the process's state is refreshed only where the address space changes; seen with Linux 6.18, a
  // few times in 10^6 tries that aim at it). The private one has no such copy. So threads of one process never miss each
  // other, and processes so rarely that who sleeps looks again by itself (communicator/wait.h).
  void arm() noexcept override {
    header_->sleeping.exchange(1, std::memory_order_acq_rel);  // pairs with ShmEndpoint::look_after_store
    for (const auto& endpoint : endpoints_)
      if (endpoint != nullptr) endpoint->before_sleep();
    if (locked_ || peers_.empty()) return;
    if (!membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) || !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
      doorbell_->ring();  // forbidden since: never sleep
  }
  void disarm() noexcept override {
    header_->sleeping.store(0, std::memory_order_relaxed);
    for (const auto& endpoint : endpoints_)
      if (endpoint != nullptr) endpoint->after_sleep();
    doorbell_->drain();
  }
  size_t poll_fds(std::span<pollfd> space) noexcept override {
    if (space.empty()) return 0;
    space[0] = {doorbell_->fd(), POLLIN, 0};
    return 1;
  }

  // A peer's inbox: its header, the part that this rank writes, and the outboxes that it reads, if there are any.
  struct Peer {
    Mapping header, part, outboxes;
    Fd doorbell;
    std::unique_ptr<ShmLender> lender;
    std::unique_ptr<ShmPeek> peek;  // null: its memory may not be read
    bool same_process;
  };
  void add(int peer, Peer mapped, std::byte* own_part, const InboxLayout& layout) {
    ShmLink link;
    link.peer = peer;
    link.same_process = mapped.same_process;
    link.lender = mapped.lender.get();
    link.borrower = &borrower_;
    link.peek = mapped.peek.get();
    link.peer_header = reinterpret_cast<ShmInboxHeader*>(mapped.header.at(0));
    link.peer_doorbell = mapped.doorbell.get();
    link.lines = uint32_t(layout.lines);
    link.message_bytes_max = layout.slot_bytes;
    link.bulk_bytes = layout.bulk_bytes();
    link.bulk_lap_bytes = layout.lap_bytes;
    link.long_lap_bytes = layout.long_lap_bytes;
    link.usual_bulk_bytes = layout.usual_slots * layout.slot_bytes;
    link.lap_messages_min = layout.members > 2 ? lap_messages_of_many : lap_messages_of_pair;
    link.traded_places = layout.traded_places;
    link.own_cache_bytes = own_cache_bytes_;
    link.locked = locked_;
    for (size_t channel = 0; channel < layout.channels; ++channel) {
      link.out = layout.fifo(mapped.part.at(0), channel);
      link.out_bulk = layout.bulk(mapped.part.at(0), channel);
      link.in = layout.fifo(own_part, channel);
      link.in_bulk = layout.bulk(own_part, channel);
      if (mapped.outboxes.valid()) {
        link.peer_outbox = {mapped.outboxes.at(channel * layout.outbox_bytes), layout.outbox_bytes};
        link.outbox = &outboxes_[channel];
      }
      auto& endpoint = endpoints_[channel * size_t(size_) + size_t(peer)];
      endpoint = std::make_unique<ShmEndpoint>(link);
      if (link.outbox != nullptr) outboxes_[channel].add(peer, *endpoint);
    }
    peers_.push_back(std::move(mapped));
  }
  // The peer may read this rank's own memory.
  void is_peeked_by(int peer) {
    for (size_t at = size_t(peer); at < endpoints_.size(); at += size_t(size_))
      if (endpoints_[at] != nullptr) endpoints_[at]->is_peeked();
  }
  // Before any peer is added. `members`: of this host.
  void make_outboxes(const InboxLayout& layout, size_t members) {
    outboxes_.reserve(layout.channels);
    for (size_t channel = 0; channel < layout.channels; ++channel) {
      std::byte* const memory = inbox_.at(layout.outboxes_at(members) + channel * layout.outbox_bytes);
      outboxes_.emplace_back(std::span(memory, layout.outbox_bytes), layout.outbox_laps, layout.slot_bytes, own_cache_bytes_,
                             size_t(size_), members, layout.crowded);
    }
  }
  std::byte* inbox(size_t at) const { return inbox_.at(at); }
  int mailbox_fd() const { return borrower_.mailbox_fd(); }

 private:
  int size_;
  size_t message_bytes_max_, spread_bytes_max_ = ~size_t{0}, own_cache_bytes_ = 0;
  Doorbell* doorbell_;
  std::unique_ptr<Doorbell> own_doorbell_;
  bool locked_;
  ShmInboxHeader* header_;
  Mapping inbox_;
  std::unique_ptr<const uint64_t> proof_;  // peers read it where it lies
  ShmBorrower borrower_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<ShmEndpoint>> endpoints_;
  std::vector<ShmOutbox> outboxes_;  // by channel
};

void check_options(const ShmOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw Error(Code::invalid_argument, "shared memory: " + what);
  };
  if (options.channels < 1) refuse(fmt::format("{} channels; at least 1 is needed", options.channels));
  if (options.slots < shm_slots_min || options.slots > shm_slots_max)
    refuse(fmt::format("{} slots; {} to {} are needed", options.slots, shm_slots_min, shm_slots_max));
  if (options.slot_bytes < shm_slot_bytes_min || options.slot_bytes > shm_slot_bytes_max ||
      options.slot_bytes % shm_slot_bytes_min != 0)
    refuse(fmt::format("slots of {} bytes (TUTTI_SHM_SLOT_BYTES); a multiple of 4096 up to {} is needed",
                       options.slot_bytes, shm_slot_bytes_max));
}

// The steps of make_shm. What goes wrong on one rank is told to all, so that all throw the same.
class Builder {
 public:
  Builder(Bootstrap& bootstrap, const ShmOptions& options)
      : bootstrap_(bootstrap), options_(options), deadline_(now_ns() + options.timeout_ns),
        agreement_(bootstrap, "shared memory", [this] { listener_.fd.reset(); }) {}

  std::unique_ptr<Transport> build() {
    say_hello();
    agree_on_layout();
    std::vector<unsigned char> reached(size_t(bootstrap_.size()), 0);
    agreement_.attempt([&] { meet_peers(reached); });
    const std::vector<Bytes> all = agreement_.gather(std::as_bytes(std::span(reached)));
    std::vector<unsigned char> peeks(size_t(bootstrap_.size()), 0);
    agreement_.attempt([&] {
      for (size_t i = 0; i < group_.size(); ++i)
        if (reached[size_t(group_[i])] != 0 && all[size_t(group_[i])][size_t(bootstrap_.rank())] != std::byte{0})
          peeks[size_t(group_[i])] = map_peer(i) ? 1 : 0;
    });
    const std::vector<Bytes> by_whom = agreement_.gather(std::as_bytes(std::span(peeks)));
    const bool may_be_read = options_.lends && options_.lends_private;
    for (int rank = 0; may_be_read && rank < bootstrap_.size(); ++rank)
      if (by_whom[size_t(rank)][size_t(bootstrap_.rank())] != std::byte{0}) transport_->is_peeked_by(rank);
    if (options_.why_not != nullptr) tell_why_not(*options_.why_not);
    return std::move(transport_);
  }

 private:
  void tell_why_not(WhyNotReached& why_not) {
    const Hello& mine = hellos_[size_t(bootstrap_.rank())];
    for (int rank = 0; rank < bootstrap_.size(); ++rank) {
      if (rank == bootstrap_.rank() || transport_->endpoint(rank, 0) != nullptr) continue;
      why_not[size_t(rank)] = hellos_[size_t(rank)].boot_id == mine.boot_id
                                  ? "it is on this host, but in another network namespace"
                                  : "it is on another host";
    }
  }

  void say_hello() {
    Hello hello;
    agreement_.attempt([&] {
      check_options(options_);
      listener_ = open_shm_listener();
      proof_ = std::make_unique<const uint64_t>(random_number());
      hello.proof = {*proof_, uint64_t(reinterpret_cast<uintptr_t>(proof_.get()))};
      if (options_.doorbell == nullptr) own_doorbell_ = std::make_unique<Doorbell>();
      hello.boot_id = boot_id();
      hello.cores = cores_allowed();
      hello.membarrier = options_.membarrier && membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
                         membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    });
    hello.channels = options_.channels;
    hello.slots = options_.slots;
    hello.slot_bytes = options_.slot_bytes;
    hello.own_cache_bytes = options_.own_cache_bytes;
    hello.last_cache_bytes = options_.last_cache_bytes;
    hello.traded_places = options_.trades ? shm_traded_places : 0;
    hello.token = listener_.token;
    hello.pid = uint32_t(::getpid());
    hello.process = process_number();
    hellos_ = agreement_.gather_values(hello);
  }

  // From what all ranks said, so all find the same.
  void agree_on_layout() {
    size_t members_max = 0;
    layout_ = {};
    layout_.channels = size_t(options_.channels);
    layout_.slots = size_t(options_.slots);
    layout_.slot_bytes = options_.slot_bytes;
    layout_.spread_bytes = ~size_t{0};
    layout_.traded_places = shm_traded_places;
    const Hello& mine = hellos_[size_t(bootstrap_.rank())];
    for (int rank = 0; rank < bootstrap_.size(); ++rank) {
      const Hello& theirs = hellos_[size_t(rank)];
      if (theirs.channels != hellos_[0].channels)
        throw Error(Code::invalid_usage,
                    fmt::format("{} has {} channels and {} has {}: TUTTI_CHANNELS and tuttiConfig_t::channels must "
                                "be the same on all ranks", bootstrap_.describe(0), hellos_[0].channels,
                                bootstrap_.describe(rank), theirs.channels));
      layout_.slots = std::min(layout_.slots, size_t(theirs.slots));
      layout_.slot_bytes = std::min(layout_.slot_bytes, size_t(theirs.slot_bytes));
      layout_.traded_places = std::min(layout_.traded_places, uint32_t(theirs.traded_places));
      locked_ = locked_ || theirs.membarrier == 0;
      members_max = std::max(members_max, size_t(std::count_if(hellos_.begin(), hellos_.end(), [&](const Hello& h) {
        return h.boot_id == theirs.boot_id;
      })));
      if (theirs.boot_id == mine.boot_id) group_.push_back(rank);
    }
    layout_.members = members_max;
    const size_t fifos = members_max * (members_max - 1) * layout_.channels;
    const auto too_much = [&] { return fifos * layout_.large_bytes() > shm_host_bytes_max; };
    if (too_much()) layout_.traded_places = std::min(layout_.traded_places, 2u);
    if (too_much()) layout_.slots = shm_slots_min;
    if (too_much()) layout_.traded_places = std::min(layout_.traded_places, 1u);
    layout_.lines = members_max > few_members_max ? few_lines : many_lines;
    while (too_much() && layout_.slot_bytes / 2 >= slot_bytes_floor)
      layout_.slot_bytes = layout_.slot_bytes / 2 / shm_slot_bytes_min * shm_slot_bytes_min;
    make_room_for_laps();
  }

  // Of this host's ranks alone: nobody else sees their FIFOs.
  void make_room_for_laps() {
    ShmOptions caches = options_;
    std::array<uint64_t, 16> cores{};
    for (const int rank : group_) {
      const Hello& theirs = hellos_[size_t(rank)];
      caches.own_cache_bytes = std::min<size_t>(caches.own_cache_bytes, theirs.own_cache_bytes);
      caches.last_cache_bytes = std::min<size_t>(caches.last_cache_bytes, theirs.last_cache_bytes);
      for (size_t i = 0; i < cores.size(); ++i) cores[i] |= theirs.cores[i];
    }
    size_t n_cores = 0;
    for (const uint64_t bits : cores) n_cores += size_t(std::popcount(bits));
    const bool crowded = layout_.crowded = n_cores < group_.size();
    if (crowded && group_.size() <= crowded_members_max) layout_.lines = crowded_lines;
    layout_.lap_bytes = shm_lap_bytes(group_.size(), crowded, caches);
    layout_.long_lap_bytes = shm_long_lap_bytes(group_.size(), crowded, caches);
    const auto slots_for = [&](size_t lap_bytes) {
      const size_t needed = (lap_bytes + layout_.slot_bytes - 1) / layout_.slot_bytes;
      return std::max(layout_.slots, std::min(needed, slots_of_laps_max));
    };
    layout_.usual_slots = slots_for(layout_.lap_bytes);
    layout_.slots = slots_for(layout_.long_lap_bytes);
    if (group_.size() == size_t(bootstrap_.size())) layout_.spread_bytes = shm_spread_bytes_max(group_.size(), caches);
    if (group_.size() < outbox_members_min) return;
    const size_t lap = layout_.lap_bytes * (group_.size() - 1);
    layout_.outbox_laps = crowded ? crowded_outbox_laps : ShmOutbox::Laps{lap, lap};
    layout_.outbox_bytes = whole_pages(std::max(outbox_messages_min * layout_.slot_bytes, layout_.outbox_laps.bytes));
  }

  void meet_peers(std::vector<unsigned char>& reached) {
    const size_t inbox_bytes = layout_.total_bytes(group_.size());
    const Fd inbox = make_memory_file("tutti-inbox", inbox_bytes, about, larger_files);
    Mapping mapping(inbox.get(), 0, inbox_bytes, about, smaller_slots);
    std::vector<ShmCandidate> candidates;
    mapping.touch(0, header_bytes);
    for (size_t i = 0; i < group_.size(); ++i) {
      const int rank = group_[i];
      if (rank == bootstrap_.rank()) {
        my_member_ = i;
        continue;
      }
      mapping.touch(layout_.part_at(i), layout_.fifos_bytes());
      candidates.push_back({rank, hellos_[size_t(rank)].token});
    }
    Doorbell* doorbell = own_doorbell_ ? own_doorbell_.get() : options_.doorbell;
    transport_ = std::make_unique<ShmTransport>(bootstrap_.size(), layout_.channels, layout_.slot_bytes, doorbell,
                                                std::move(own_doorbell_), std::move(mapping), locked_, std::move(proof_));
    transport_->set_spread_bytes_max(layout_.spread_bytes);
    transport_->set_own_cache_bytes(options_.own_cache_bytes);
    if (layout_.outbox_bytes > 0) transport_->make_outboxes(layout_, group_.size());
    const std::array<int, 3> gift = {inbox.get(), doorbell->fd(), transport_->mailbox_fd()};
    const auto check = [this] {
      if (const Verdict* verdict = bootstrap_.verdict()) throw Error(verdict->code, verdict->sentence);
    };
    const ShmHandshake handshake{bootstrap_.key(), bootstrap_.rank(), gift, deadline_, check};
    std::vector<ShmGift> gifts = exchange_gifts(std::move(listener_), candidates, handshake);
    gifts_.resize(group_.size());
    for (size_t i = 0, next = 0; i < group_.size(); ++i) {
      if (i == my_member_) continue;
      gifts_[i] = std::move(gifts[next++]);
      reached[size_t(group_[i])] = gifts_[i].empty() ? 0 : 1;
    }
  }

  // Whether this rank may read the peer's own memory.
  bool map_peer(size_t member) {
    ShmGift gift = std::move(gifts_[member]);
    const int inbox = gift.at(0).get();
    check_inbox(inbox, layout_.total_bytes(group_.size()), bootstrap_.describe(group_[member]));
    ShmTransport::Peer peer{Mapping(inbox, 0, header_bytes, about, smaller_slots),
                            Mapping(inbox, layout_.part_at(my_member_), layout_.part_bytes(), about, smaller_slots),
                            outboxes_of(inbox), std::move(gift.at(1)), lender_to(std::move(gift.at(2))),
                            peek_of(group_[member]), same_process(group_[member])};
    const bool peeks = peer.peek != nullptr;
    peer.part.touch(0, layout_.fifos_bytes());
    transport_->add(group_[member], std::move(peer), transport_->inbox(layout_.part_at(member)), layout_);
    return peeks;
  }

  Mapping outboxes_of(int inbox) const {
    if (layout_.outbox_bytes == 0) return {};
    return Mapping(inbox, layout_.outboxes_at(group_.size()), layout_.outboxes_bytes(), about, smaller_slots);
  }
  std::unique_ptr<ShmLender> lender_to(Fd mailbox) const {
    return options_.lends ? std::make_unique<ShmLender>(std::move(mailbox), bootstrap_.rank()) : nullptr;
  }
  std::unique_ptr<ShmPeek> peek_of(int rank) const {
    const Hello& theirs = hellos_[size_t(rank)];
    auto peek = std::make_unique<ShmPeek>(pid_t(theirs.pid), theirs.proof);
    return peek->works() ? std::move(peek) : nullptr;
  }
  bool same_process(int rank) const {
    const Hello &mine = hellos_[size_t(bootstrap_.rank())], &theirs = hellos_[size_t(rank)];
#ifdef __SANITIZE_THREAD__
    return false;  // it sees no order that goes through two mappings of an inbox, and would take reading for a race
#endif
    return options_.one_process && mine.process == theirs.process && mine.pid == theirs.pid;
  }

  Bootstrap& bootstrap_;
  const ShmOptions& options_;
  TimeNs deadline_;
  Agreement agreement_;
  ShmListener listener_;
  std::unique_ptr<Doorbell> own_doorbell_;
  std::unique_ptr<const uint64_t> proof_;
  std::vector<Hello> hellos_;
  std::vector<int> group_;  // ranks with this rank's boot id, itself among them
  size_t my_member_ = 0;
  InboxLayout layout_{};
  bool locked_ = false;
  std::vector<ShmGift> gifts_;
  std::unique_ptr<ShmTransport> transport_;
};

}  // namespace

size_t shm_spread_bytes_max(size_t members, const ShmOptions& options) noexcept {
  constexpr size_t share = 4, least = 32 * 1024;
  const size_t fifos = std::max<size_t>(members * (members - 1), 1);
  return std::bit_floor(std::max(options.last_cache_bytes / share / (fifos * lap_messages_of_many), least));
}

size_t shm_lap_bytes(size_t members, bool crowded, const ShmOptions& options) noexcept {
  const size_t least = crowded_lap_bytes / std::max<size_t>(members, 1);
  if (crowded || members < 2) return least;
  return std::max(least, std::min(2 * options.own_cache_bytes, options.last_cache_bytes / 2 / members) / (members - 1));
}

size_t shm_long_lap_bytes(size_t members, bool crowded, const ShmOptions& options) noexcept {
  const size_t lap = shm_lap_bytes(members, crowded, options);
  if (members < 2 || members > long_laps_members_max) return lap;
  return std::max(lap, std::min(2 * options.own_cache_bytes, options.last_cache_bytes / 2 / members));
}

ShmOptions shm_options_from_environment() {
  ShmOptions options;
  const bool is_asked = environment_text("TUTTI_LEND").has_value();
  options.lends = !is_asked || environment_flag("TUTTI_LEND");
  options.lends_private = is_asked ? options.lends : strings_copy_well();
  if (const auto bytes = environment_bytes("TUTTI_SHM_SLOT_BYTES")) options.slot_bytes = *bytes;
  try {
    check_options(options);
  } catch (const Error& error) {
    throw Error(Code::invalid_usage, error.what());
  }
  return options;
}

std::unique_ptr<Transport> make_shm(Bootstrap& bootstrap, const ShmOptions& options) {
  return Builder(bootstrap, options).build();
}

}  // namespace tutti
