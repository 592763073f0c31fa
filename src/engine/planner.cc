// The planner: candidates and their prices, thresholds by size class, and the plans made so far.
#include "engine/planner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

constexpr std::array pipelines = {1, 4, 16, 64};

// Prices are taken at these sizes, in bytes, and interpolated linearly between and beyond: a schedule's time is close
// to piecewise linear in its size.
constexpr std::array<double, 10> priced_bytes = {0,         256,        2048,        8192,        32768,
                                                 131072.0, 524288.0, 2097152.0, 8388608.0, 33554432.0};

// A size's class is the width of its number of bytes; larger sizes share the last one.
constexpr size_t size_classes = 48;
size_t size_class(size_t bytes) { return std::min<size_t>(size_t(std::bit_width(bytes)), size_classes - 1); }
double smallest_of_class(size_t size_class) { return size_class == 0 ? 0 : std::ldexp(1.0, int(size_class) - 1); }

// Prices that differ by less say nothing: of such rows the one that is listed first is taken, which is the simpler one.
constexpr double saying_nothing = 0.01;

// Running all ranks' plans on virtual clocks costs n² messages for some algorithms: larger groups are estimated.
constexpr int priced_ranks_max = 64;

// An algorithm with its number of chunks in flight, or a user's schedule.
struct Row {
  const Algorithm* algorithm = nullptr;
  int pipeline = 1;
  const UserSchedule* user = nullptr;

  std::string_view name() const { return user != nullptr ? std::string_view(user->name) : algorithm->name; }
  Collective collective() const { return user != nullptr ? user->collective : algorithm->collective; }
  Shape shape(const Group& group) const { return user != nullptr ? user->shape : algorithm->shape(group); }
  Claim claim(const Group& group) const { return user != nullptr ? user->claim : algorithm->claim(group); }
  Schedule record(const Group& group) const {
    return user != nullptr ? user->ranks[size_t(group.rank)] : tutti::record(*algorithm, group);
  }
  Plan plan(const Group& group, bool in_place) const { return lower(record(group), shape(group), name(), in_place); }
  std::vector<Plan> plans(Group group) const {
    std::vector<Plan> all;
    for (group.rank = 0; group.rank < group.n; ++group.rank) all.push_back(plan(group, false));
    return all;
  }
};

// Of a choice that holds for every root.
constexpr int any_root = -1;

std::string all_names(std::span<const UserSchedule> schedules) {
  std::string names;
  for (const Collective collective : planned_collectives)
    names += fmt::format("; {} has {}", name(collective), algorithm_names(collective));
  for (const UserSchedule& schedule : schedules)
    names += fmt::format("; {} is {}, for {} ranks", schedule.source, schedule.full_name(), schedule.n());
  return names;
}

// Closed form for large groups: rounds of latency, the busiest rank's messages and bytes, over the slowest link class.
double estimate(const Row& row, Group group, const CostModel& costs, double bytes) {
  LinkCost worst;
  for (const LinkCost& link : costs.classes) {
    worst.latency_ns = std::max(worst.latency_ns, link.latency_ns);
    worst.message_ns = std::max(worst.message_ns, link.message_ns);
    worst.byte_ns = std::max(worst.byte_ns, link.byte_ns);
    worst.receive_ns = std::max(worst.receive_ns, link.receive_ns + link.bulk_ns);
  }
  size_t messages = 0;
  for (const int rank : {0, 1, group.n / 2, group.n - 1}) {
    group.rank = rank;
    const Schedule schedule = row.record(group);
    const auto is_send = [](const Step& step) { return step.verb == Verb::send; };
    messages = std::max(messages, size_t(std::count_if(schedule.begin(), schedule.end(), is_send)));
  }
  const Claim claim = row.claim(group);
  return claim.rounds * worst.latency_ns +
         costs.contention * (double(messages) * (worst.message_ns + worst.receive_ns + costs.step_ns) +
                             claim.bytes_sent * bytes * (worst.byte_ns + costs.reduce_byte_ns));
}

// Every block in one message of its own from whose input it is to whose output. (A user's schedule may also do so, but
// nothing proves that it sends no other blocks beside.)
bool goes_straight(const Row& row, const Group& group) {
  const Shape shape = row.shape(group);
  return row.user == nullptr && shape.message == 1 && shape.scratch == 0 && row.claim(group).rounds <= 1;
}

// Whether a rank sends each other rank a message of its own.
bool spreads(const Plan& plan, int n) {
  std::vector<bool> sent_to(size_t(n), false);
  for (const Fold& fold : plan.steps)
    if (fold.n_to == 1) sent_to[plan.to(fold)[0]] = true;
  return std::count(sent_to.begin(), sent_to.end(), true) == n - 1;
}

// The bound of a plan's messages. All ranks look at the same two plans, of the root of a rooted collective and another.
size_t message_bytes_max(const PlannerOptions& options, const Plan& of_first, const Plan& of_second) {
  const bool by_all = spreads(of_first, options.n) && spreads(of_second, options.n);
  return by_all ? std::min(options.message_bytes_max, options.spread_bytes_max) : options.message_bytes_max;
}

double interpolate(const std::array<double, priced_bytes.size()>& times, double bytes) {
  size_t i = 1;
  while (i + 1 < priced_bytes.size() && priced_bytes[i] < bytes) ++i;
  const double slope = (times[i] - times[i - 1]) / (priced_bytes[i] - priced_bytes[i - 1]);
  return times[i] + slope * (bytes - priced_bytes[i]);
}

}  // namespace

struct Planner::Table {
  // [(demand × 2 + in_place) × size_classes + size class]
  using Slots = std::array<const Plan*, Demand::count * 2 * size_classes>;
  using Key = std::tuple<std::string_view, Collective, int, int, bool>;

  // By collective, a demand's number, where a user's schedule serves one root only that root, else any_root, and the name
  // that a call asks for, or "".
  using ChoiceKey = std::tuple<Collective, size_t, int, std::string_view>;
  std::map<ChoiceKey, std::array<Row, size_classes>> choice;
  std::vector<std::unique_ptr<Slots>> slots;  // [slots_index()]
  std::map<Key, std::unique_ptr<Plan>> plans;

  // One place for each kind without a root, then one for each kind and root.
  static size_t slots_index(Collective collective, int root) {
    const size_t kind = size_t(collective), kinds = collective_names.size();
    return meaning(collective).rooted ? kinds + size_t(root) * kinds + kind : kind;
  }
  static Group group(const PlannerOptions& options, int root, int pipeline) {
    return {options.rank, options.n, root, pipeline, options.host_of, options.costs.core_of};
  }
  static bool serves(const PlannerOptions& options, const UserSchedule& schedule, Collective collective, int root);
  static int choice_root(const PlannerOptions& options, Collective collective, int root);
  static bool meets(const PlannerOptions& options, const Row& row, Demand demand);
  static std::vector<Row> candidates(const PlannerOptions& options, Collective collective, int root, Demand demand,
                                     std::string_view forced);
  static bool has(const PlannerOptions& options, Collective collective, int root, Demand demand, std::string_view name);
  static std::vector<std::string_view> names(const PlannerOptions& options, Collective collective);
  static double time_ns(const PlannerOptions& options, const Row& row, int root, double bytes,
                        std::span<const Plan> plans);
  static std::array<Row, size_classes> choose(const PlannerOptions& options, Collective collective, int choice_root,
                                              Demand demand, std::string_view forced);
  const Row& chosen(const PlannerOptions& options, Collective collective, size_t bytes, int root, Demand demand,
                    std::string_view asked);
  const Plan* make(const PlannerOptions& options, const Row& row, int root, bool in_place);
};

bool Planner::Table::serves(const PlannerOptions& options, const UserSchedule& schedule, Collective collective,
                            int root) {
  return schedule.collective == collective && schedule.n() == options.n && schedule.root == root;
}

int Planner::Table::choice_root(const PlannerOptions& options, Collective collective, int root) {
  const bool has_own = std::any_of(options.schedules.begin(), options.schedules.end(),
                                   [&](const UserSchedule& s) { return serves(options, s, collective, root); });
  return has_own ? root : any_root;
}

// Whatever the root.
bool Planner::Table::meets(const PlannerOptions& options, const Row& row, Demand demand) {
  const Group who = group(options, 0, row.pipeline);
  const size_t message = row.shape(who).message;
  if (demand.wide && message > 1 && message * opaque_bytes_max > options.message_bytes_max) return false;
  if (demand.of_pairs && !goes_straight(row, who)) return false;
  // What the catalog's do that fold from the left; of a user's schedule nothing proves it.
  if (demand.several_inputs && row.user != nullptr) return false;
  if (!meaning(row.collective()).reduces || !(demand.rank_order || demand.left_fold)) return true;
  const Claim claim = row.claim(who);
  return (!demand.rank_order || claim.rank_order) && (!demand.left_fold || claim.left_fold);
}

// All rows of a collective that meet the demand, with all their pipelines; only those by the forced name where there
// are such. The user's come first: where prices are equal, they are taken.
std::vector<Row> Planner::Table::candidates(const PlannerOptions& options, Collective collective, int root,
                                            Demand demand, std::string_view forced) {
  std::vector<Row> rows, named;
  const auto add = [&](const Row& row) {
    if (!meets(options, row, demand)) return;
    if (row.name() == forced) named.push_back(row);
    if (row.algorithm != nullptr && row.algorithm->of_shared_cores && options.costs.core_of.empty()) return;
    // Cutting a message into tiles ends at whole elements: leave room for one of each chunk.
    const Shape shape = row.shape(group(options, 0, row.pipeline));
    if (shape.message * size_t{64} <= options.message_bytes_max) rows.push_back(row);
  };
  for (const UserSchedule& schedule : options.schedules)
    if (serves(options, schedule, collective, root)) add({nullptr, 1, &schedule});
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != collective) continue;
    for (const int pipeline : pipelines) {
      add({&algorithm, pipeline});
      if (!algorithm.pipelined) break;
    }
  }
  return named.empty() ? rows : named;
}

// Whether candidates() has some by that name. Quick: each call that names its algorithm asks.
bool Planner::Table::has(const PlannerOptions& options, Collective collective, int root, Demand demand,
                         std::string_view name) {
  const Algorithm* const algorithm = find_algorithm(collective, name);
  if (algorithm != nullptr && meets(options, {algorithm, 1}, demand)) return true;
  return std::any_of(options.schedules.begin(), options.schedules.end(), [&](const UserSchedule& schedule) {
    return schedule.name == name && serves(options, schedule, collective, root) &&
           meets(options, {nullptr, 1, &schedule}, demand);
  });
}

std::vector<std::string_view> Planner::Table::names(const PlannerOptions& options, Collective collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : catalog())
    if (algorithm.collective == collective) names.push_back(algorithm.name);
  for (const UserSchedule& schedule : options.schedules)
    if (schedule.collective == collective && std::find(names.begin(), names.end(), schedule.name) == names.end())
      names.push_back(schedule.name);
  return names;
}

double Planner::Table::time_ns(const PlannerOptions& options, const Row& row, int root, double bytes,
                               std::span<const Plan> plans) {
  if (plans.empty()) return estimate(row, group(options, root, row.pipeline), options.costs, bytes);
  const size_t message_max = options.n < 2 ? options.message_bytes_max : message_bytes_max(options, plans[0], plans[1]);
  const Price seen = price(plans, options.costs, uint64_t(bytes), message_max);
  return (seen.time_ns + seen.pace_ns) / 2;
}

std::array<Row, size_classes> Planner::Table::choose(const PlannerOptions& options, Collective collective,
                                                     int choice_root, Demand demand, std::string_view forced) {
  std::array<Row, size_classes> chosen;
  std::array<double, size_classes> best;
  best.fill(INFINITY);
  const std::vector<Row> rows = candidates(options, collective, choice_root, demand, forced);
  TUTTI_ASSERT(!rows.empty());
  const int root = std::max(choice_root, 0);  // 0 stands for any
  for (const Row& row : rows) {
    std::array<double, priced_bytes.size()> times{};
    if (rows.size() > 1) {
      std::vector<Plan> plans;
      if (options.n <= priced_ranks_max) plans = row.plans(group(options, root, row.pipeline));
      for (size_t i = 0; i < times.size(); ++i) times[i] = time_ns(options, row, root, priced_bytes[i], plans);
    }
    for (size_t i = 0; i < size_classes; ++i) {
      const double time = interpolate(times, smallest_of_class(i));
      if (time >= best[i] * (1 - saying_nothing)) continue;
      best[i] = time;
      chosen[i] = row;
    }
  }
  return chosen;
}

const Row& Planner::Table::chosen(const PlannerOptions& options, Collective collective, size_t bytes, int root,
                                  Demand demand, std::string_view asked) {
  const int for_root = choice_root(options, collective, root);
  const ChoiceKey key{collective, demand.number(), for_root, asked};
  auto found = choice.find(key);
  if (found == choice.end()) {
    const std::string_view forced = asked.empty() ? std::string_view(options.forced) : asked;
    found = choice.emplace(key, choose(options, collective, for_root, demand, forced)).first;
    const std::vector<std::string_view> known = names(options, collective);
    const bool exists = std::find(known.begin(), known.end(), forced) != known.end();
    if (options.log != nullptr && exists && found->second[0].name() != forced)
      options.log->debug(fmt::format("the algorithm {} of {} gives way to {}: it does not do what a call asks", forced,
                                     name(collective), found->second[0].name()));
  }
  return found->second[size_class(bytes)];
}

enum class Buffers : uint8_t { inputs, all, all_but_copies, all_in_place };

// Of the whole buffer of a call: from so many bytes on these of this host's ranks are more than fits a cache.
uint64_t exceeding_bytes(const PlannerOptions& options, Collective collective, Buffers which) {
  const Meaning& call = meaning(collective);
  const auto share = [&](Part part) { return part == Part::all ? 1.0 : part == Part::own ? 1.0 / options.n : 0.0; };
  const auto buffers = [&](bool is_root) {
    const double input = share(call.input_of(is_root)), output = share(call.output_of(is_root));
    const double copied = call.reduces ? 0 : call.transposes ? 1.0 / options.n : std::min(input, output);
    switch (which) {
      case Buffers::inputs: return input;
      case Buffers::all: return input + output;
      case Buffers::all_but_copies: return input + output - copied;
      case Buffers::all_in_place: return std::max(input, output);
    }
    return 0.0;
  };
  const auto here = std::count(options.host_of.begin(), options.host_of.end(), options.host_of[size_t(options.rank)]);
  const size_t fits = call.reduces ? options.kept_bytes() : options.cached_bytes_max;
  return uint64_t(double(fits) / (double(here - 1) * buffers(false) + buffers(true)));
}

// Whether each rank writes an output of its own, and only copies.
bool all_copy(const Meaning& call) { return !call.reduces && (!call.rooted || call.output == Part::own); }

bool root_alone_writes(const Meaning& call) { return call.rooted && call.output == Part::none; }

// Of calls in place only a gather stores past the caches: its root has read nothing where it writes, and writes alone.
bool may_stream_in_place(const Meaning& call) { return root_alone_writes(call) && !call.reduces; }

// Whether a call of which some goes past the caches has all go there, where it is not in place: what the root of a gather keeps in them of
// its output drives out its inputs. (Measured, Zen 4, 2 to 8 ranks, 12 to 20 MiB: 0.78 to 0.99 of the time; others, which are
// written by more than one rank, 0.96 to 1.02. Not where copies are best at a stretch: not measured there.)
bool streams_all(const Meaning& call, size_t factor) { return root_alone_writes(call) && !call.reduces && factor == 1; }

// How many times as much as fits the caches is stored by way of them before any of it goes past; `factor`: where ranks write at
// once. A broadcast is in place as a rule, and its root writes nothing then.
double begin_factor(const Meaning& call, double factor) {
  if (root_alone_writes(call)) return 1;
  const bool broadcasts = call.rooted && !call.reduces && call.output == Part::all;
  return broadcasts ? (1 + factor) / 2 : factor;
}

// From which sizes on what goes past the caches. Where copies are not best at a stretch, what a rank copies of its own input does so first:
// as soon as all exceeds the caches, or three quarters of that where the root alone copies; and all of a gather does where the rest
// fills 13 sixteenths of them. (All measured, Zen 4, 2 to 8 ranks: docs/tuning.md.)
void say_what_streams(Plan& plan, const PlannerOptions& options, Collective collective, bool in_place) {
  const auto exceeding = [&](Buffers which) { return exceeding_bytes(options, collective, which); };
  const Meaning& call = meaning(collective);
  const uint64_t fits = exceeding(in_place ? Buffers::all_in_place : Buffers::all), factor = options.cached_copies_factor;
  plan.uncached_bytes_min = exceeding(Buffers::all);
  if (!call.reduces) plan.reached_factor = options.reached_factor();
  if (in_place && !may_stream_in_place(call)) return;
  const uint64_t rest_fits = in_place || factor > 1 ? fits : exceeding(Buffers::all_but_copies);
  if (rest_fits > fits) plan.copies_streamed_bytes_min = call.rooted ? fits - fits / 4 : fits;
  if (!in_place && streams_all(call, factor)) {
    plan.streamed_bytes_min = plan.all_streamed_bytes_min = rest_fits - rest_fits / 16 * 3;
  } else {
    plan.streamed_bytes_min = uint64_t(begin_factor(call, double(factor)) * double(rest_fits));
    plan.all_streamed_bytes_min = (all_copy(call) ? factor : 1) * exceeding(Buffers::inputs);
  }
}

const Plan* Planner::Table::make(const PlannerOptions& options, const Row& row, int root, bool in_place) {
  std::unique_ptr<Plan>& place = plans[{row.name(), row.collective(), row.pipeline, root, in_place}];
  if (place != nullptr) return place.get();
  Group who = group(options, root, row.pipeline);
  place = std::make_unique<Plan>(row.plan(who, in_place));
  say_what_streams(*place, options, row.collective(), in_place);
  if (options.spread_bytes_max < options.message_bytes_max) {
    const auto plan_of = [&](int rank) {
      who.rank = rank;
      return row.plan(who, false);
    };
    place->message_bytes_max = message_bytes_max(options, plan_of(0), plan_of(1));
  }
  return place.get();
}

Planner::Planner(PlannerOptions options) : options_(std::move(options)), table_(std::make_unique<Table>()) {
  bool known = options_.forced.empty();
  for (const Collective collective : planned_collectives)
    known |= find_algorithm(collective, options_.forced) != nullptr;
  for (const UserSchedule& schedule : options_.schedules) known |= schedule.name == options_.forced;
  if (!known) {
    throw Error(Code::invalid_argument,
                fmt::format("no collective has an algorithm \"{}\"{}", options_.forced, all_names(options_.schedules)));
  }
  table_->slots.resize(collective_names.size() * (1 + size_t(options_.n)));
}

Planner::~Planner() = default;

const Plan& Planner::plan(Collective collective, size_t bytes, int root, bool in_place, Demand demand) {
  std::unique_ptr<Table::Slots>& slots = table_->slots[Table::slots_index(collective, root)];
  const size_t index = (demand.number() * 2 + size_t{in_place}) * size_classes + size_class(bytes);
  if (slots != nullptr && (*slots)[index] != nullptr) [[likely]] return *(*slots)[index];
  if (slots == nullptr) slots = std::make_unique<Table::Slots>();
  const Collective rows = served_as(collective);
  if (!meaning(rows).rooted) root = 0;
  (*slots)[index] = table_->make(options_, table_->chosen(options_, rows, bytes, root, demand, ""), root, in_place);
  return *(*slots)[index];
}

const Plan& Planner::plan_named(std::string_view algorithm, Collective collective, size_t bytes, int root,
                                bool in_place, Demand demand) {
  const Collective rows = served_as(collective);
  if (!meaning(rows).rooted) root = 0;
  return *table_->make(options_, table_->chosen(options_, rows, bytes, root, demand, algorithm), root, in_place);
}

Planner::Named Planner::named(std::string_view algorithm, Collective collective, int root, Demand demand) const {
  const Collective rows = served_as(collective);
  if (!meaning(rows).rooted) root = 0;
  const std::vector<std::string_view> known = Table::names(options_, rows);
  const auto found = std::find(known.begin(), known.end(), algorithm);
  if (found != known.end() && Table::has(options_, rows, root, demand, algorithm)) {
    const size_t number = size_t(found - known.begin()) + 1;
    return {*found, uint8_t(std::min<size_t>(number, signature_algorithm_max))};
  }
  std::string serving;
  for (const std::string_view name : known)
    if (Table::has(options_, rows, root, demand, name)) serving += fmt::format("{}{}", serving.empty() ? "" : ", ", name);
  const std::string which = demand.left_fold    ? " that adds as this call's determinism asks"
                            : demand.rank_order ? " that keeps the order of ranks"
                            : demand.of_pairs   ? " that sends each block straight"
                                                : "";
  throw Error(Code::invalid_argument, fmt::format("algorithm \"{}\" is none of {}{}: there {} {}", algorithm,
                                                  name(collective), which,
                                                  serving.find(',') == std::string::npos ? "is" : "are", serving));
}

std::string_view Planner::name_of(Collective collective, int number) const {
  const std::vector<std::string_view> known = Table::names(options_, served_as(collective));
  if (number < 1 || size_t(number) > known.size() || number == int(signature_algorithm_max)) return "";
  return known[size_t(number) - 1];
}

std::vector<Candidate> Planner::explain(Collective collective, size_t bytes, int root) const {
  std::vector<Candidate> result;
  const Collective rows = served_as(collective);
  if (!meaning(rows).rooted) root = 0;
  for (const Row& row : Table::candidates(options_, rows, root, {}, options_.forced)) {
    std::vector<Plan> plans;
    if (options_.n <= priced_ranks_max) plans = row.plans(Table::group(options_, root, row.pipeline));
    const double time = Table::time_ns(options_, row, root, double(bytes), plans);
    result.push_back({row.name(), row.pipeline, time});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_ns < b.time_ns; });
  return result;
}

PointToPointPlans::PointToPointPlans(int peer, bool sending, size_t cached_bytes_max, bool divides, double reached_factor) {
  Plan& plan = whole;
  plan.algorithm = sending ? "send" : "recv";
  plan.shape = {1, 1, 0};
  plan.peers = {uint32_t(peer)};
  Fold step;
  if (sending) step.a = in(0);
  else step.dst = out(0);
  step.n_to = sending ? 1 : 0;
  step.n_from = sending ? 0 : 1;
  step.keeps = step.given = sending;
  step.early = sending ? 0 : 1;  // nothing else is in the run
  plan.steps = {step};
  plan.uncached_bytes_min = plan.streamed_bytes_min = cached_bytes_max / 2;
  plan.reached_factor = reached_factor;
  // (Measured where they are divided: 12 to 20 MiB, all of which goes past the caches, there and back 0.96 to 0.99 of the time, a send and
  // a receive at once 0.83 to 1.01.)
  plan.all_streamed_bytes_min = divides ? plan.streamed_bytes_min : cached_bytes_max;
  for (size_t i = 0; i < cuts.size(); ++i) {
    cut[i] = whole;
    if (divides) cut[i].message_bytes_max = cut[i].small_bytes_max = cuts[i].message_bytes_max;
  }
}

}  // namespace tutti
