// Setting the verbs transport up: which pairs of ports connect whom, rings, and the connections beside the paths.
#include "transport/verbs/verbs.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "transport/verbs/verbs_endpoint.h"
#include "transport/verbs/verbs_routes.h"

namespace tutti {

// --- Endpoints and transports: making and ending.

VerbsEndpoint::VerbsEndpoint(VerbsTransport& transport, int peer, int channel, const VerbsEndpointMemory& memory,
                             size_t message_bytes_max)
    : transport_(transport), peer_(peer), channel_(channel), ring_(memory.ring), staging_(memory.staging),
      ring_bytes_(memory.ring_bytes), message_bytes_max_(message_bytes_max), mask_(memory.lines - 1),
      bulk_(memory.ring_bytes, memory.ring_bytes, memory.lines), sent_table_(memory.lines), arrivals_(memory.lines),
      targets_written_(reinterpret_cast<VerbsTarget*>(memory.targets)),
      own_targets_(targets_written_ + verbs_targets_max) {
  // Told late, so that few messages only give room back; and early enough that a sender who waits for room for its
  // largest message is told of some.
  const size_t largest = message_bytes_max + verbs_unit_bytes;
  untold_bytes_max_ = largest <= ring_bytes_ / 8 ? ring_bytes_ / 2 : ring_bytes_ / 4;
}

void VerbsEndpoint::add_path(std::unique_ptr<VerbsPath> path) {
  path->renumber(int(paths_.size()));
  paths_.push_back(std::move(path));
}

void VerbsEndpoint::bury_path(std::unique_ptr<VerbsPath> path) { graveyard_.push_back(std::move(path)); }

void VerbsEndpoint::begin(Fd socket) {
  stream_ = VerbsStream(std::move(socket), size_t(mask_) + 1 + verbs_credits_max);
  begun_ = true;
}

VerbsTransport::VerbsTransport(int size, const VerbsOptions& options, size_t message_bytes_max, VerbsHardware hardware,
                               Log log, std::vector<std::string> names)
    : size_(size), tcp_(options.tcp), message_bytes_max_(message_bytes_max), log_(std::move(log)),
      names_(std::move(names)), hardware_(std::move(hardware)), regions_(hardware_.devices, counters_),
      endpoints_(size_t(size) * size_t(options.channels)) {
  if (hardware_.devices.empty()) return;
  const VerbsLibrary& library = hardware_.devices.front()->library();
  regions_.set_register_file(options.register_file != nullptr ? options.register_file : library.reg_dmabuf_mr);
}

void VerbsUnmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

// What was sent last may still be under way, and the device forgets it with its queue pairs. A peer that has ended or
// failed is not waited for; one that is slow is, as long as the network may need to bring a packet through.
VerbsTransport::~VerbsTransport() {
  constexpr TimeNs draining_ns_max = 10 * ns_per_s;
  const TimeNs deadline = now_ns() + draining_ns_max;
  armed_ = false;
  for (const auto& endpoint : endpoints_)
    if (endpoint != nullptr) endpoint->say_what_was_consumed();
  while (now_ns() < deadline && news_.valid()) {
    poll();
    look_at_events();
    bool all = true;
    for (const auto& endpoint : endpoints_) {
      if (endpoint == nullptr) continue;
      endpoint->ring_paths();
      if (endpoint->wants_attention()) endpoint->attend();
      all &= endpoint->drained();
    }
    if (all) break;
  }
  log_.debug(
      fmt::format("verbs: {} messages ({} straight to their places, after {} targets) in {} work requests, {} doorbells "
                  "and {} completions; {} arrivals, {} only "
                  "of credit; {} paths failed, {} messages were sent again",
                  counters_.messages, counters_.direct, counters_.targets, counters_.work_requests, counters_.doorbells,
                  counters_.completions,
                  counters_.arrivals, counters_.credits, counters_.paths_failed, counters_.resent));
}

std::byte* VerbsTransport::make_memory(size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(fmt::format("verbs: allocating {} bytes of rings", bytes), errno);
  memory_ = {static_cast<std::byte*>(memory), VerbsUnmap{bytes}};
  ::madvise(memory, bytes, MADV_DONTFORK);  // a child's copies would take the pages that the device knows
  for (const auto& device : hardware_.devices)
    device->rings = VerbsMemory(device->library(), device->pd(), memory, bytes,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, counters_);
  return memory_.get();
}

VerbsEndpoint& VerbsTransport::add(int peer, int channel, const VerbsEndpointMemory& memory) {
  at(peer, channel) = std::make_unique<VerbsEndpoint>(*this, peer, channel, memory, message_bytes_max_);
  return *at(peer, channel);
}

void VerbsTransport::remove(int peer, int channel) noexcept { removed_.push_back(std::move(at(peer, channel))); }

void VerbsTransport::begin() {
  news_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!news_.valid()) throw system_error("verbs: making an epoll set", errno);
  timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) throw system_error("verbs: making a timer", errno);
  const auto watch = [this](int fd, uint64_t data) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = data;
    if (::epoll_ctl(news_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      throw system_error("verbs: adding to an epoll set", errno);
  };
  watch(timer_.get(), news_timer);
  for (size_t i = 0; i < hardware_.devices.size(); ++i) {
    watch(hardware_.devices[i]->channel_fd(), news_completions);
    watch(hardware_.devices[i]->async_fd(), news_device_bit | i);
  }
  for (const auto& endpoint : endpoints_)
    if (endpoint != nullptr) watch(endpoint->stream().socket(), reinterpret_cast<uintptr_t>(endpoint.get()));
}

const VerbsCounters* verbs_counters(const Transport& transport) noexcept {
  const auto* verbs = dynamic_cast<const VerbsTransport*>(&transport);
  return verbs == nullptr ? nullptr : &verbs->counters();
}

bool break_verbs_path(Transport& transport, int peer, int channel, int path) noexcept {
  auto* const verbs = dynamic_cast<VerbsTransport*>(&transport);
  VerbsEndpoint* const endpoint = verbs == nullptr ? nullptr : verbs->at(peer, channel).get();
  if (endpoint == nullptr || size_t(path) >= endpoint->paths().size()) return false;
  VerbsPath& broken = *endpoint->paths()[size_t(path)];
  if (broken.state != VerbsPath::State::alive) return false;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return broken.device().library().modify_qp(broken.queue_pair(), &attributes, IBV_QP_STATE) == 0;
}

// --- Set-up.

namespace {

constexpr size_t page_bytes = 4096;
static_assert(2 * verbs_targets_bytes <= page_bytes && verbs_paths_max <= int(verbs_target_paths_max));
constexpr uint32_t tag_first = 0x7e5b000;  // wishes of this transport; the channel is added
constexpr TimeNs probe_ns_max = 3 * ns_per_s, later_probe_ns_max = ns_per_s;  // in the first round, and the others
constexpr size_t slots_min = 3, slots_max = 64;

// One queue pair, as a rank tells the peer.
struct Offer {
  int32_t to;
  int32_t channel;
  int32_t slot;
  uint32_t queue_pair;
  uint64_t ring_address;
  uint32_t rkey;
  uint32_t unused;
};

struct Result {
  int32_t to;
  int32_t slot;
  int32_t connected;
};

// A pair of ports that a pair of ranks uses, or tries: one path for each channel.
struct Slot {
  VerbsRoute route{};
  bool connected = false;
  std::vector<std::unique_ptr<VerbsPath>> paths;  // by channel; none: not tried yet
};

struct Pair {
  int peer;
  std::vector<VerbsRoute> routes;  // not tried yet, the best first
  std::vector<Slot> slots;
};

class Setup {
 public:
  Setup(Bootstrap& bootstrap, const VerbsOptions& options, const Log& log)
      : bootstrap_(bootstrap), options_(options), log_(log), me_(bootstrap.rank()) {}

  std::unique_ptr<Transport> build() {
    VerbsHello mine{options_.message_bytes_max, options_.memory_bytes_max, uint32_t(options_.paths_max), {}};
    VerbsHardware hardware = open_hardware();
    mine.ports = hardware.ports;
    hellos_ = exchange_verbs_hellos(bootstrap_, mine);
    const auto with_ports =
        std::count_if(hellos_.begin(), hellos_.end(), [](const auto& h) { return !h.ports.empty(); });
    say_who_has_none();
    if (with_ports < 2) return nullptr;
    lay_out(size_t(with_ports));
    make_transport(std::move(hardware));
    for (int round = 0; round < verbs_rounds_max; ++round)
      if (!try_routes(round == 0 ? probe_ns_max : later_probe_ns_max)) break;
    settle();
    return std::move(transport_);
  }

 private:
  // The first that is said counts: routes are tried the best first.
  void say(int peer, const std::string& why_not) {
    if (options_.why_not == nullptr) return;
    std::string& said = (*options_.why_not)[size_t(peer)];
    if (said.empty()) said = why_not;
  }

  void say_who_has_none() {
    for (int peer = 0; peer < bootstrap_.size(); ++peer) {
      if (peer == me_ || !options_.peers[size_t(peer)]) continue;
      if (hellos_[size_t(me_)].ports.empty()) say(peer, nothing_here_);
      else if (hellos_[size_t(peer)].ports.empty()) say(peer, "it has no device with a port that is up");
    }
  }

  VerbsHardware open_hardware() {
    bool wanted = false;
    for (int peer = 0; peer < bootstrap_.size(); ++peer) wanted |= peer != me_ && options_.peers[size_t(peer)];
    if (!wanted) return {};  // memory reaches all of them
    std::string why_not;
    const VerbsLibrary* const library = options_.library != nullptr ? options_.library : VerbsLibrary::load(why_not);
    if (library == nullptr) {
      nothing_here_ = why_not;
      log_.debug(fmt::format("verbs: not used: {}", nothing_here_));
      return {};
    }
    VerbsHardware hardware = open_verbs_hardware(*library, options_, log_);
    if (hardware.ports.empty()) log_.debug(fmt::format("verbs: not used: {}", nothing_here_));
    return hardware;
  }

  // What all ranks compute alike.
  void lay_out(size_t with_ports) {
    constexpr size_t few = 5, some = 17;
    lines_ = with_ports <= few ? 128 : with_ports <= some ? 64 : 32;
    size_t memory_bytes = ~size_t{0};
    message_bytes_ = ~size_t{0};
    for (const VerbsHello& hello : hellos_) {
      if (hello.ports.empty()) continue;
      memory_bytes = std::min<size_t>(memory_bytes, hello.memory_bytes_max);
      message_bytes_ = std::min<size_t>(message_bytes_, hello.message_bytes_max);
    }
    const size_t rings = 2 * (with_ports - 1) * size_t(options_.channels);
    const size_t slot_bytes = message_bytes_ + verbs_unit_bytes;
    const size_t slots = std::clamp(memory_bytes / rings / slot_bytes, slots_min,
                                    std::min(slots_max, verbs_ring_bytes_limit / 2 / slot_bytes));
    ring_bytes_ = (slots * slot_bytes + page_bytes - 1) / page_bytes * page_bytes;
  }

  // Where something is missing here, this rank goes on without offers.
  void make_transport(VerbsHardware hardware) {
    std::vector<std::string> names;
    for (int r = 0; r < bootstrap_.size(); ++r) names.push_back(bootstrap_.describe(r));
    transport_ = std::make_unique<VerbsTransport>(bootstrap_.size(), options_, message_bytes_, std::move(hardware),
                                                  log_, std::move(names));
    const VerbsHello& mine = hellos_[size_t(me_)];
    for (int peer = 0; peer < bootstrap_.size(); ++peer) {
      const VerbsHello& theirs = hellos_[size_t(peer)];
      if (peer == me_ || !options_.peers[size_t(peer)] || mine.ports.empty() || theirs.ports.empty()) continue;
      Pair pair{peer, verbs_routes(mine.ports, theirs.ports, me_ < peer), {}};
      if (!pair.routes.empty()) pairs_.push_back(std::move(pair));
      else say(peer, "no port and GID here has a counterpart of its kind there");
    }
    try {
      make_endpoints();
    } catch (const Error& error) {
      log_.warn(fmt::format("{}: verbs are not used here", error.what()));
      for (const Pair& pair : pairs_) say(pair.peer, error.what());
      for (const Pair& pair : pairs_)
        for (int c = 0; c < options_.channels; ++c) transport_->at(pair.peer, c).reset();
      usable_ = false;
    }
  }

  void make_endpoints() {
    const size_t n = pairs_.size() * size_t(options_.channels);
    if (n == 0) return;
    std::byte* next = transport_->make_memory(n * endpoint_bytes());
    for (const Pair& pair : pairs_)
      for (int c = 0; c < options_.channels; ++c, next += endpoint_bytes())
        transport_->add(pair.peer, c, {next, next + ring_bytes_, ring_bytes_, lines_, next + 2 * ring_bytes_});
    constexpr size_t completions_per_message = 2;  // in the worst case: of its sending and of another's arrival
    const size_t per_path = completions_per_message * (lines_ + verbs_credits_max + verbs_repost_batch) + slots_max;
    const size_t paths = n * size_t(paths_max()) * 2;  // those that are tried in vain among them
    for (const auto& device : transport_->devices()) device->make_queue(per_path * paths);
  }

  // Of memory: a ring, what is staged, and targets.
  size_t endpoint_bytes() const { return 2 * ring_bytes_ + page_bytes; }

  int paths_max() const {
    uint32_t paths = uint32_t(options_.paths_max);
    for (const VerbsHello& hello : hellos_)
      if (!hello.ports.empty()) paths = std::min(paths, hello.paths_max);
    return int(paths);
  }

  // One round: every pair tries the best routes that it has not tried. False: no rank has more to try.
  bool try_routes(TimeNs patience_ns) {
    for (Pair& pair : pairs_) choose_routes(pair);
    std::vector<Offer> offers;
    if (usable_)
      for (Pair& pair : pairs_) make_paths(pair, offers);
    const auto their_offers = gather_for_me(bootstrap_, offers, me_);
    for (Pair& pair : pairs_) connect(pair, their_offers[size_t(pair.peer)]);
    bootstrap_.barrier();  // so that nobody probes who is not ready
    probe(patience_ns);
    std::vector<Result> results;
    for (const Pair& pair : pairs_)
      for (size_t s = 0; s < pair.slots.size(); ++s)
        if (!pair.slots[s].connected) results.push_back({pair.peer, int32_t(s), works(pair.slots[s])});
    const auto their_results = gather_for_me(bootstrap_, results, me_);
    bool more = false;
    for (Pair& pair : pairs_) more |= conclude(pair, their_results[size_t(pair.peer)]);
    return any_rank(bootstrap_, more);
  }

  // Slots are filled in order, each with ports of its own.
  void choose_routes(Pair& pair) {
    for (size_t i = 0; i < pair.routes.size() && pair.slots.size() < size_t(paths_max());) {
      const VerbsRoute route = pair.routes[i];
      const bool taken = std::any_of(pair.slots.begin(), pair.slots.end(), [&](const Slot& slot) {
        return slot.route.my_port == route.my_port || slot.route.their_port == route.their_port;
      });
      if (taken) {
        ++i;
        continue;
      }
      pair.slots.push_back({route, false, {}});
      pair.routes.erase(pair.routes.begin() + ptrdiff_t(i));
    }
  }

  void make_paths(Pair& pair, std::vector<Offer>& offers) {
    for (size_t s = 0; s < pair.slots.size(); ++s) {
      Slot& slot = pair.slots[s];
      if (slot.connected) continue;
      try {
        const VerbsPort& port = hellos_[size_t(me_)].ports[slot.route.my_port];
        VerbsDevice& device = *transport_->devices()[port.device_index];
        for (int c = 0; c < options_.channels; ++c) {
          VerbsEndpoint& endpoint = *transport_->at(pair.peer, c);
          slot.paths.push_back(std::make_unique<VerbsPath>(endpoint, device, transport_->counters(), int(s), lines_,
                                                           options_.inline_bytes_max));
          VerbsPath& path = *slot.paths.back();
          path.device_index = port.device_index;
          path.to_init(port.number);
          const auto ring = reinterpret_cast<uintptr_t>(endpoint.staging()) - ring_bytes_;
          offers.push_back({pair.peer, c, int32_t(s), path.queue_pair()->qp_num, ring, device.rings.rkey(), 0});
        }
      } catch (const Error& error) {
        log_.warn(error.what());
        say(pair.peer, error.what());
        std::erase_if(offers, [&](const Offer& o) { return o.to == pair.peer && o.slot == int32_t(s); });
        bury(pair, slot);
      }
    }
  }

  void connect(Pair& pair, const std::vector<Offer>& offers) {
    const VerbsHello &mine = hellos_[size_t(me_)], &theirs = hellos_[size_t(pair.peer)];
    for (const Offer& offer : offers) {
      if (size_t(offer.slot) >= pair.slots.size() || size_t(offer.channel) >= size_t(options_.channels)) continue;
      Slot& slot = pair.slots[size_t(offer.slot)];
      if (slot.connected || slot.paths.empty()) continue;
      const VerbsRoute& r = slot.route;
      const VerbsPath::Route route{&mine.ports[r.my_port], &theirs.ports[r.their_port], r.my_gid, r.their_gid,
                                   ibv_mtu(r.mtu)};
      try {
        slot.paths[size_t(offer.channel)]->connect(
            route, offer.queue_pair, {offer.ring_address, offer.rkey, offer.ring_address + 2 * ring_bytes_});
        to_probe_.push_back(slot.paths[size_t(offer.channel)].get());
      } catch (const Error& error) {
        log_.info(error.what());
        say(pair.peer, error.what());
      }
    }
  }

  // A packet of the largest size each way. It fails on the device's word, or is given up.
  void probe(TimeNs patience_ns) {
    for (VerbsPath* path : to_probe_) {
      const size_t bytes = std::min<size_t>(ring_bytes_, size_t{128} << path->mtu);
      if (path->post_probe(path->endpoint().staging(), bytes) != 0) path->stop();
    }
    const TimeNs deadline = now_ns() + patience_ns;
    const auto is_open = [](const VerbsPath* path) {
      return path->state == VerbsPath::State::alive && !(path->probed && path->is_completed(1));
    };
    while (std::any_of(to_probe_.begin(), to_probe_.end(), is_open) && now_ns() < deadline) {
      if (transport_->poll()) continue;
      ::poll(nullptr, 0, 1);
      if (const Verdict* verdict = bootstrap_.verdict()) throw Error(verdict->code, verdict->sentence);
    }
    to_probe_.clear();
  }

  bool works(const Slot& slot) const {
    return !slot.paths.empty() && std::all_of(slot.paths.begin(), slot.paths.end(), [](const auto& path) {
      return path->state == VerbsPath::State::alive && path->probed && path->is_completed(1);
    });
  }

  // True: some slot failed, and there are more routes.
  bool conclude(Pair& pair, const std::vector<Result>& theirs) {
    for (size_t s = 0; s < pair.slots.size(); ++s) {
      Slot& slot = pair.slots[s];
      if (slot.connected) continue;
      const bool peer_agrees = std::any_of(theirs.begin(), theirs.end(), [&](const Result& r) {
        return size_t(r.slot) == s && r.connected != 0;
      });
      slot.connected = works(slot) && peer_agrees;
      if (slot.connected) continue;
      const std::string why = usable_ ? transport_->at(pair.peer, 0)->problem() : "";
      const std::string failed =
          fmt::format("{}: {}", describe(pair, slot), why.empty() ? "its probe did not come through" : why);
      log_.info(fmt::format("verbs: {}", failed));
      say(pair.peer, failed);
      bury(pair, slot);
    }
    const size_t failed = size_t(std::erase_if(pair.slots, [](const Slot& slot) { return !slot.connected; }));
    return failed > 0 && !pair.routes.empty();
  }

  std::string describe(const Pair& pair, const Slot& slot) const {
    const VerbsPort& mine = hellos_[size_t(me_)].ports[slot.route.my_port];
    const VerbsPort& theirs = hellos_[size_t(pair.peer)].ports[slot.route.their_port];
    return fmt::format("{} port {} GID {} to {} port {} GID {} of {}", mine.device.data(), mine.number,
                       mine.gids[slot.route.my_gid].index, theirs.device.data(), theirs.number,
                       theirs.gids[slot.route.their_gid].index, bootstrap_.describe(pair.peer));
  }

  void bury(Pair& pair, Slot& slot) {
    for (size_t c = 0; c < slot.paths.size(); ++c) {
      if (slot.paths[c]->state == VerbsPath::State::alive) slot.paths[c]->stop();
      transport_->at(pair.peer, int(c))->bury_path(std::move(slot.paths[c]));
    }
    slot.paths.clear();
  }

  void settle() {
    std::vector<Bootstrap::Wish> wishes;
    for (Pair& pair : pairs_)
      for (int c = 0; c < options_.channels && usable_; ++c) {
        for (Slot& slot : pair.slots) transport_->at(pair.peer, c)->add_path(std::move(slot.paths[size_t(c)]));
        if (pair.slots.empty()) transport_->remove(pair.peer, c);
        else wishes.push_back({pair.peer, tag_first + uint32_t(c)});
      }
    std::vector<Fd> sockets = bootstrap_.connect(wishes);
    for (size_t i = 0; i < wishes.size(); ++i)
      transport_->at(wishes[i].peer, int(wishes[i].tag - tag_first))->begin(std::move(sockets[i]));
    transport_->begin();
    for (const Pair& pair : pairs_)
      for (const Slot& slot : pair.slots) log_.debug(fmt::format("verbs: {}", describe(pair, slot)));
  }

  Bootstrap& bootstrap_;
  const VerbsOptions& options_;
  const Log& log_;
  int me_;
  std::vector<VerbsHello> hellos_;
  uint32_t lines_ = 0;
  size_t message_bytes_ = 0, ring_bytes_ = 0;
  std::string nothing_here_ = "there is no device here with a port that is up";
  bool usable_ = true;
  std::vector<Pair> pairs_;
  std::vector<VerbsPath*> to_probe_;
  std::unique_ptr<VerbsTransport> transport_;
};

}  // namespace

std::unique_ptr<Transport> make_verbs(Bootstrap& bootstrap, const VerbsOptions& options, const Log& log) {
  check_verbs_options(options);
  TUTTI_ASSERT(options.peers.size() == size_t(bootstrap.size()));
  return Setup(bootstrap, options, log).build();
}

}  // namespace tutti
