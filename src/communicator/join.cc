// Joining: from an id to a communicator with links, a cost model and plans. Every rank takes the same steps in the same
// order, because each step gathers from all.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "communicator/communicator.h"
#include "communicator/launcher.h"
#include "communicator/link_speed.h"
#include "communicator/wait.h"
#include "engine/schedule_files.h"
#include "reduce/copy.h"
#include "topology/cost.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_endpoint.h"

namespace tutti {
namespace {

static_assert(shm_inline_bytes == shm_inline_bytes_max, "the cost model and the transport mean the same messages");
static_assert(shm_shared_bytes == outbox_bytes_min);

// A device's work takes its time to begin and to be heard of, and a channel waits for it while others move: so where ranks
// name their devices there are several, if not so many that their slots take much memory.
constexpr int channels_default(int ranks, bool devices) { return !devices ? 1 : ranks <= 4 ? 8 : ranks <= 16 ? 4 : 2; }
constexpr TimeNs spin_ns_default = 50 * ns_per_us, calm_ns_asked = 500 * ns_per_us;

Bytes to_bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

std::string to_text(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Which of a kernel's network namespaces this process is in; a hint too.
std::string network_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

TimeNs silence_ns(int timeout_ms) {
  const int64_t silence_ms = environment_integer("TUTTI_SILENCE_MS").value_or(10000);
  if (silence_ms <= 0)
    throw Error(Code::invalid_usage, fmt::format("environment variable TUTTI_SILENCE_MS={} is not above 0", silence_ms));
  return silence_within(timeout_ms * ns_per_ms, silence_ms * ns_per_ms);
}

// Places with ranks of one kernel counted as of one host, whatever transport connects them: cores are shared there.
std::vector<Place> places_by_machine(std::vector<Place> places, const std::vector<std::string>& machines) {
  for (size_t r = 0; r < places.size(); ++r)
    places[r].host = int(std::find(machines.begin(), machines.end(), machines[r]) - machines.begin());
  return places;
}

LinkKind link_kind(char first_of_name) {
  return first_of_name == 's' ? LinkKind::shm : first_of_name == 'v' ? LinkKind::verbs : LinkKind::tcp;
}

// Ranks of the launcher's that this communicator has not share the cores as well: in PyTorch each group joins for itself. Not known
// where ranks are bound, since nobody says where the others are.
double launched_ranks_per_core(const Host& host) {
  const double cores = double(host.cores_allowed.size());
  if (cores == 0 || host.cores_allowed != host.cores) return 1;
  return double(launched_on_this_host()) / (host.cpu_quota > 0 ? std::min(host.cpu_quota, cores) : cores);
}

// Ranks per core where `rank` runs.
double contention_at(int rank, std::span<const Place> by_machine) {
  std::vector<Place> beside;
  for (const Place& place : by_machine)
    if (place.host == by_machine[size_t(rank)].host) beside.push_back(place);
  return contention_of(beside);
}

}  // namespace

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::unique_ptr<Communicator> Communicator::join(const JobId& id, int rank, int size,
                                                 const CommunicatorOptions& options, const GivesUp& gives_up) {
  Log log(fmt::format("rank {} of {}", rank, size));
  for (const UnknownVariable& variable : unknown_environment())
    log.warn(fmt::format("environment variable {} is unknown to Tutti{}", variable.name,
                         variable.nearest.empty() ? "" : fmt::format("; did you mean {}?", variable.nearest)));
  check_transports(options.transports);
  BootstrapOptions bootstrap_options;
  bootstrap_options.interface_names = options.interface_names;
  bootstrap_options.timeout_ns = options.timeout_ms * ns_per_ms;
  bootstrap_options.silence_ns = silence_ns(options.timeout_ms);
  std::unique_ptr<Bootstrap> bootstrap = Bootstrap::join(id, rank, size, bootstrap_options, log, gives_up);
  std::unique_ptr<Communicator> made(new Communicator(std::move(bootstrap), options, std::move(log)));
  return made;
}

Communicator::Communicator(std::unique_ptr<Bootstrap> bootstrap, const CommunicatorOptions& options, Log log)
    : log_(std::move(log)),
      options_(options),
      bootstrap_(std::move(bootstrap)),
      verdict_(bootstrap_->verdict_cell()),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      timeout_ns_(options.timeout_ms * ns_per_ms) {
  FlightRecorderOptions recorder;
  recorder.rank = rank_;
  recorder.size = size_;
  recorder.host = boot_id();
  recorder.trace_file = environment_text("TUTTI_TRACE").value_or("");
  recorder.record_file = environment_text("TUTTI_RECORD").value_or("");
  recorder_ = std::make_unique<FlightRecorder>(std::move(recorder));
  bootstrap_->on_verdict([this] {
    doorbell_.ring();
    recorder_->write_record_of_failure(failure()->sentence);
  });
  try {
    record_on_signal();
    load_schedules();
    agree_on(options);
    const Host host = discover_host();
    make_transports(options, host);
    make_planner(options, host);
    bootstrap_->barrier();
    compare_calls();
  } catch (const Error& error) {
    if (failure() != nullptr) throw;
    // The others wait for this rank: tell them why it does not come.
    const std::string sentence = fmt::format("{} could not join: {}", bootstrap_->describe(rank_), error.what());
    bootstrap_->fail({error.code(), rank_, sentence});
    throw Error(error.code(), sentence);
  }
}

void Communicator::record_on_signal() {
  const std::optional<std::string> signal = environment_text("TUTTI_RECORD_SIGNAL");
  if (!signal) return;
  if (!environment_text("TUTTI_RECORD"))
    throw Error(Code::invalid_usage,
                fmt::format("environment variable TUTTI_RECORD_SIGNAL={} needs TUTTI_RECORD, the name to write to", *signal));
  on_signal_ = std::make_unique<OnSignal>(signal_number(*signal), [this] {
    const Verdict* verdict = failure();
    recorder_->write_record_on_request(verdict == nullptr ? "" : verdict->sentence);
  });
}

// A user's schedules, or those of the communicator that this one comes from. Those for other numbers of ranks rest.
void Communicator::load_schedules() {
  if (options_.schedules == nullptr)
    options_.schedules =
        std::make_shared<const std::vector<UserSchedule>>(load_user_schedules(options_.schedule_files));
  for (const UserSchedule& schedule : *options_.schedules) {
    const bool fits = schedule.n() == size_;
    const std::string line = fmt::format("{}: {} for {} ranks is proven{}", schedule.source, schedule.full_name(),
                                         schedule.n(), fits ? "" : fmt::format("; not used among {}", size_));
    if (!fits && schedule.name == options_.algorithm) log_.warn(line);
    else log_.info(line);
  }
}

// Settings and schedules that must be alike on all ranks.
void Communicator::agree_on(const CommunicatorOptions& options) {
  shared_path_bytes_min_ = environment_bytes("TUTTI_IN_PLACE_BYTES").value();
  const std::string settings =
      fmt::format("algorithm=\"{}\" transport=\"{}\" channels={} TUTTI_IN_PLACE_BYTES={} determinism={}", options.algorithm,
                  options.transports, options.channels, shared_path_bytes_min_, name(options.determinism));
  std::vector<std::string> schedules;
  std::string first;
  // What may differ: a letter each, of who has it.
  constexpr char with_device = 'd', by_strings = 's';
  std::string traits;
  if (options.device >= 0) traits += with_device;
  if (copies_at_a_stretch()) traits += by_strings;
  const std::string mine = fmt::format("{}\n{}\n{}", settings, traits, identity(*options_.schedules));
  const std::vector<Bytes> all = bootstrap_->all_gather(to_bytes(mine));
  bool devices = false;
  all_copy_at_a_stretch_ = true;
  for (int r = 0; r < size_; ++r) {
    const std::string text = to_text(all[size_t(r)]), theirs = text.substr(0, text.find('\n'));
    const size_t traits_at = theirs.size() + 1, traits_end = text.find('\n', traits_at);
    const std::string their_traits = text.substr(traits_at, traits_end - traits_at);
    devices |= their_traits.find(with_device) != std::string::npos;
    all_copy_at_a_stretch_ &= their_traits.find(by_strings) != std::string::npos;
    schedules.push_back(text.substr(traits_end + 1));
    if (r == 0) first = theirs;
    if (theirs != first)
      throw Error(Code::invalid_usage,
                  fmt::format("ranks have different settings: rank 0 {}, rank {} {}", first, r, theirs));
  }
  const std::string differs = difference(schedules);
  if (!differs.empty()) throw Error(Code::invalid_usage, differs);
  channels_ = options.channels == -1 ? channels_default(size_, devices) : options.channels;
}

void Communicator::make_transports(const CommunicatorOptions& options, const Host& host) {
  links_ = make_links(*bootstrap_, {options.transports, channels_ + 1, timeout_ns_, &log_, &host}, doorbell_);
  message_bytes_max_ = links_.message_bytes_max;
}

// Between hosts, whose first ranks stand in a ring and all send at once. networks[r] names rank r's network. Where every
// rank brought its speed along from the communicator that this one comes from, nothing is measured.
void Communicator::measure_link_speeds(const std::vector<std::string>& networks) {
  std::vector<int> first;  // rank of each network
  for (int r = 0; r < size_; ++r)
    if (std::find(networks.begin(), networks.begin() + r, networks[size_t(r)]) == networks.begin() + r) first.push_back(r);
  if (first.size() < 2) {
    for (Place& place : places_) place.link_bits_per_s = 0;  // no link is used
    return;
  }
  if (std::all_of(places_.begin(), places_.end(), [](const Place& place) { return place.link_bits_per_s != 0; })) return;
  uint64_t speed = 0;
  const auto me = std::find(first.begin(), first.end(), rank_);
  if (me != first.end()) {
    const size_t i = size_t(me - first.begin());
    const int next = first[(i + 1) % first.size()], last = first[(i + first.size() - 1) % first.size()];
    LinkSpeed measuring(*links_.endpoints[size_t(next)], *links_.endpoints[size_t(last)],
                        std::min<size_t>(64 * 1024, message_bytes_max_));
    Communicator* self = this;
    const WaitResult result = drive(std::span(&self, 1), [this] { return timeout_ns_; }, [&] {
      for (const auto& transport : links_.transports) transport->progress();
      return measuring.step();
    }, [&] { return measuring.position(); }, [](Stall) {});
    if (const Verdict* verdict = failure()) throw Error(verdict->code, verdict->sentence);
    if (result != WaitResult::done)
      throw Error(result == WaitResult::expired ? Code::timeout : Code::remote_error,
                  fmt::format("the links to {} and from {} {} while their speed was measured", bootstrap_->describe(next),
                              bootstrap_->describe(last), result == WaitResult::expired ? "stood still" : "broke"));
    speed = measuring.bits_per_s();
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(&speed);
  const std::vector<Bytes> all = bootstrap_->all_gather(Bytes(bytes, bytes + sizeof speed));
  for (int r = 0; r < size_; ++r) {
    const size_t leader = size_t(std::find(networks.begin(), networks.end(), networks[size_t(r)]) - networks.begin());
    TUTTI_ASSERT(all[leader].size() == sizeof speed);
    std::memcpy(&places_[size_t(r)].link_bits_per_s, all[leader].data(), sizeof speed);
  }
  options_.link_bits_per_s = places_[size_t(rank_)].link_bits_per_s;
  log_.info(fmt::format("{} networks; this one takes {:.3g} Gbit/s", first.size(),
                        double(places_[size_t(rank_)].link_bits_per_s) / 1e9));
}

void Communicator::make_planner(const CommunicatorOptions& options, const Host& host) {
  // Gathered at once: the largest message, the link's speed where known, how crowded the cores are known to be, the kernel, which
  // peers share this rank's memory, its device, and the place.
  std::string shared;
  for (const char* name : links_.names) shared += name[0];  // self, shm, verbs or tcp
  const double crowd = std::max(options.ranks_per_core, launched_ranks_per_core(host));
  const std::string head = fmt::format("{} {} {}\n{} {}\n{}\n{}\n", message_bytes_max_, options.link_bits_per_s,
                                       std::llround(1000 * crowd), boot_id(), network_namespace(), shared, device_card());
  Bytes mine = to_bytes(head);
  const std::vector<std::byte> place = encode(place_of(host));
  mine.insert(mine.end(), place.begin(), place.end());
  const std::vector<Bytes> all = bootstrap_->all_gather(mine);

  std::vector<LinkKind> links;
  std::vector<std::string> machines, networks, devices;
  std::string rows;  // of all ranks: how each reaches each
  for (int r = 0; r < size_; ++r) {
    const Bytes& record = all[size_t(r)];
    const std::string text = to_text(record);
    const size_t first = text.find('\n'), second = text.find('\n', first + 1), third = text.find('\n', second + 1);
    const size_t fourth = text.find('\n', third + 1);
    TUTTI_ASSERT(fourth != std::string::npos && third - second - 1 == size_t(size_));
    devices.push_back(text.substr(third + 1, fourth - third - 1));
    const size_t speed_at = text.find(' ') + 1, crowd_at = text.find(' ', speed_at) + 1;
    message_bytes_max_ = std::min<size_t>(message_bytes_max_, std::stoull(text.substr(0, speed_at)));
    networks.push_back(text.substr(first + 1, second - first - 1));
    machines.push_back(networks.back().substr(0, networks.back().find(' ')));
    places_.push_back(decode_place(std::span(record).subspan(fourth + 1)));
    places_.back().link_bits_per_s = std::stoull(text.substr(speed_at, crowd_at - speed_at));
    places_.back().ranks_per_core = double(std::stoull(text.substr(crowd_at, first - crowd_at))) / 1000;
    // The host's number is that of the first rank whose memory this one shares: proven, not named.
    const std::string row = text.substr(second + 1, size_t(size_));
    rows += row;
    places_.back().host = int(row.find('s'));
    for (int peer = 0; peer < size_; ++peer)
      links.push_back(peer == r ? LinkKind::self : link_kind(row[size_t(peer)]));
  }
  if (size_ == 1) message_bytes_max_ = shm_options_from_environment().slot_bytes;

  measure_link_speeds(networks);
  Bytes costs_bytes;
  if (rank_ == 0) costs_bytes = encode(environment_flag("TUTTI_CALIBRATE") ? calibrate(25, &host) : MachineCosts());
  const std::vector<Bytes> costs = bootstrap_->all_gather(costs_bytes);

  const std::vector<Place> by_machine = places_by_machine(places_, machines);
  PlannerOptions planner;
  planner.rank = rank_;
  planner.n = size_;
  planner.costs = cost_model(by_machine, links, decode_machine_costs(costs[0]));
  for (const Place& p : places_) planner.host_of.push_back(p.host);
  planner.message_bytes_max = message_bytes_max_;
  const bool one_host = std::all_of(rows.begin(), rows.end(), [](char kind) { return kind == 's'; });
  if (one_host) planner.spread_bytes_max = links_.spread_bytes_max;  // else ranks might not agree
  const CacheSizes caches = cache_sizes(host);
  // What buffers may fill where the kernel copies nothing. (Xeon, said to have 300 MiB, 12 MiB and not 96: all_reduce of 4 to 16 MiB 0.82
  // to 1.0 of the time. AMD's last caches are of few cores, and measured as they are.)
  const size_t kept_bytes = copies_as_library() ? caches.likely_bytes : caches.last_bytes;
  if (caches.last_bytes > 0) {
    planner.cached_bytes_max = caches.last_bytes / 4 * 3;  // the rest is for what messages lie in, and for others on this machine
    planner.kept_bytes_max = kept_bytes;
    planner.cached_copies_factor = cached_copies_factor();
    turns_bytes_max_ = caches.last_bytes / 4;
  }
  // Measured where copies are made by vectors alone. Ranks of one host have one kind of processor.
  const bool copies_by_turns = !strings_copy_well();
  if (copies_by_turns) turns_bytes_max_ = ~size_t{0};
  planner.forced = options.algorithm;
  planner.log = &log_;
  planner.schedules = *options_.schedules;
  cold_outputs_ = std::make_unique<ColdOutputs>();
  const double ranks_per_core = contention_of(by_machine);
  crowded_ = ranks_per_core > 1;
  two_share_cores_ = crowded_ && ranks_per_core <= 2;
  make_engine(std::move(planner), true, [&](int peer) {
    return copies_by_turns && !crowded_ && std::string_view(transport_to(peer)) == "shm";
  });
  make_device_side();
  make_peer_path(devices);
  if (one_host) make_shared_path(kept_bytes);
  const auto spin_us = environment_integer("TUTTI_SPIN_US");
  options_.ranks_per_core = contention_at(rank_, by_machine);
  lends_private_ = one_host && size_ > 1 &&
                   std::all_of(links_.endpoints.begin(), links_.endpoints.end(), [](const Endpoint* peer) {
                     return peer == nullptr || peer->lends_private();
                   });
  // What is right as a rule is where they begin: what was measured on processors whose copies are the C library's, and on others.
  if (lends_private_) lending_ = std::make_unique<Lending>(rank_ == 0, crowded_ ? Lending::crowded : Lending::lone, copies_as_library());
  for (int r = 0; crowded_ && r < size_; ++r)
    shares_core_with_.push_back(r != rank_ && may_meet(by_machine[size_t(r)], by_machine[size_t(rank_)]));
  const bool are_bound = std::ranges::all_of(by_machine, [](const Place& each) { return each.cores_allowed.size() == 1; });
  if (!are_bound) may_share_core_with_ = shares_core_with_;
  patience_ = patience_policy(crowded_, spin_us ? *spin_us * ns_per_us : spin_ns_default);
  if (spin_us) patience_.calm_ns = std::min(patience_.calm_ns, calm_ns_asked);
  log_.info(fmt::format("joined: {} transports, messages up to {} bytes, {} channels, {}", links_.transports.size(),
                        message_bytes_max_, channels_, patience_.spin_ns == 0 ? "yields while waiting" : "spins while waiting"));
}

void Communicator::make_engine(PlannerOptions planner, bool point_to_point, const std::function<bool(int)>& divides) {
  const size_t cached_bytes_max = planner.cached_bytes_max;
  const double reached_factor = planner.reached_factor();
  planner_ = std::make_unique<Planner>(std::move(planner));
  engine_ = std::make_unique<Engine>(size_, links_.endpoints, message_bytes_max_, cold_outputs_.get());
  for (int peer = 0; point_to_point && peer < size_; ++peer) {
    send_plans_.emplace_back(peer, true, cached_bytes_max, divides(peer), reached_factor);
    recv_plans_.emplace_back(peer, false, cached_bytes_max, divides(peer), reached_factor);
  }
}

std::unique_ptr<Communicator> Communicator::over(std::unique_ptr<Bootstrap> bootstrap, Given given,
                                                 const CommunicatorOptions& options) {
  return std::unique_ptr<Communicator>(new Communicator(std::move(bootstrap), std::move(given), options));
}

Communicator::Communicator(std::unique_ptr<Bootstrap> bootstrap, Given given, const CommunicatorOptions& options)
    : log_(fmt::format("rank {} of {}", bootstrap->rank(), bootstrap->size())),
      options_(options),
      recorder_(std::make_unique<FlightRecorder>(FlightRecorderOptions{})),
      bootstrap_(std::move(bootstrap)),
      verdict_(bootstrap_->verdict_cell()),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      timeout_ns_(options.timeout_ms * ns_per_ms),
      links_(std::move(given.links)),
      channels_(given.channels),
      message_bytes_max_(links_.message_bytes_max),
      patience_(given.patience) {
  bootstrap_->on_verdict([this] { doorbell_.ring(); });
  PlannerOptions planner;
  planner.rank = rank_;
  planner.n = size_;
  planner.costs = std::move(given.costs);
  planner.host_of = std::move(given.host_of);
  planner.message_bytes_max = message_bytes_max_;
  planner.forced = options.algorithm;
  planner.log = &log_;
  make_engine(std::move(planner), given.point_to_point, [](int) { return false; });
  if (given.devices) make_device_side();
  compare_calls();
}

}  // namespace tutti
