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

// Running all ranks' plans on virtual clocks costs n² messages for some algorithms: larger groups are estimated.
constexpr int priced_ranks_max = 64;

// An algorithm with its number of chunks in flight.
struct Row {
  const Algorithm* algorithm = nullptr;
  int pipeline = 1;
};

// Collectives that have rows of their own; barrier uses all_reduce's.
constexpr std::array planned = {Collective::all_reduce, Collective::broadcast};

Collective rows_of(Collective collective) {
  return collective == Collective::barrier ? Collective::all_reduce : collective;
}

// Closed form for large groups: rounds of latency, the busiest rank's messages and bytes, over the slowest link class.
double estimate(const Algorithm& algorithm, Group group, const CostModel& costs, double bytes) {
  LinkCost worst;
  for (const LinkCost& link : costs.classes) {
    worst.latency_ns = std::max(worst.latency_ns, link.latency_ns);
    worst.message_ns = std::max(worst.message_ns, link.message_ns);
    worst.byte_ns = std::max(worst.byte_ns, link.byte_ns);
  }
  size_t messages = 0;
  for (const int rank : {0, 1, group.n / 2, group.n - 1}) {
    group.rank = rank;
    const Schedule schedule = record(algorithm, group);
    const auto is_send = [](const Step& step) { return step.verb == Verb::send; };
    messages = std::max(messages, size_t(std::count_if(schedule.begin(), schedule.end(), is_send)));
  }
  const Claim claim = algorithm.claim(group);
  return claim.rounds * worst.latency_ns +
         costs.contention * (double(messages) * (worst.message_ns + costs.step_ns) +
                             claim.bytes_sent * bytes * (worst.byte_ns + costs.reduce_byte_ns));
}

double interpolate(const std::array<double, priced_bytes.size()>& times, double bytes) {
  size_t i = 1;
  while (i + 1 < priced_bytes.size() && priced_bytes[i] < bytes) ++i;
  const double slope = (times[i] - times[i - 1]) / (priced_bytes[i] - priced_bytes[i - 1]);
  return times[i] + slope * (bytes - priced_bytes[i]);
}

}  // namespace

struct Planner::Table {
  using Slots = std::array<const Plan*, 2 * size_classes>;  // [in_place × size_classes + size class]
  using Key = std::tuple<std::string_view, Collective, int, int, bool>;

  std::map<Collective, std::array<Row, size_classes>> choice;
  std::vector<std::unique_ptr<Slots>> slots;  // 0: all_reduce; 1 + root: broadcast
  std::map<Key, std::unique_ptr<Plan>> plans;

  static size_t slots_index(Collective collective, int root) {
    return collective == Collective::broadcast ? 1 + size_t(root) : 0;
  }
  static Group group(const PlannerOptions& options, int root, int pipeline) {
    return {options.rank, options.n, root, pipeline, options.host_of};
  }
  static std::vector<Row> candidates(const PlannerOptions& options, Collective collective);
  static double time_ns(const PlannerOptions& options, const Row& row, int root, double bytes,
                        std::span<const Plan> plans);
  static std::array<Row, size_classes> choose(const PlannerOptions& options, Collective collective);
  const Plan* make(const PlannerOptions& options, const Row& row, int root, bool in_place);
};

// All rows of a collective with all their pipelines; only those by the forced name where there are such.
std::vector<Row> Planner::Table::candidates(const PlannerOptions& options, Collective collective) {
  const bool forced = !options.forced.empty() && find_algorithm(collective, options.forced) != nullptr;
  std::vector<Row> rows;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != collective || (forced && algorithm.name != options.forced)) continue;
    for (const int pipeline : pipelines) {
      // Cutting a message into tiles ends at whole elements: leave room for one of each chunk.
      const Shape shape = algorithm.shape(group(options, 0, pipeline));
      if (forced || shape.message * size_t{64} <= options.message_bytes_max) rows.push_back({&algorithm, pipeline});
      if (!algorithm.pipelined) break;
    }
  }
  return rows;
}

double Planner::Table::time_ns(const PlannerOptions& options, const Row& row, int root, double bytes,
                               std::span<const Plan> plans) {
  if (plans.empty()) return estimate(*row.algorithm, group(options, root, row.pipeline), options.costs, bytes);
  return price(plans, options.costs, uint64_t(bytes), options.message_bytes_max).time_ns;
}

std::array<Row, size_classes> Planner::Table::choose(const PlannerOptions& options, Collective collective) {
  std::array<Row, size_classes> chosen;
  std::array<double, size_classes> best;
  best.fill(INFINITY);
  const std::vector<Row> rows = candidates(options, collective);
  for (const Row& row : rows) {
    std::array<double, priced_bytes.size()> times{};
    if (rows.size() > 1) {
      std::vector<Plan> plans;
      if (options.n <= priced_ranks_max) plans = plans_of(*row.algorithm, group(options, 0, row.pipeline));
      for (size_t i = 0; i < times.size(); ++i) times[i] = time_ns(options, row, 0, priced_bytes[i], plans);
    }
    for (size_t i = 0; i < size_classes; ++i) {
      const double time = interpolate(times, smallest_of_class(i));
      if (time >= best[i]) continue;
      best[i] = time;
      chosen[i] = row;
    }
  }
  return chosen;
}

const Plan* Planner::Table::make(const PlannerOptions& options, const Row& row, int root, bool in_place) {
  std::unique_ptr<Plan>& place =
      plans[{row.algorithm->name, row.algorithm->collective, row.pipeline, root, in_place}];
  if (place == nullptr) {
    const Group who = group(options, root, row.pipeline);
    place = std::make_unique<Plan>(
        lower(record(*row.algorithm, who), row.algorithm->shape(who), row.algorithm->name, in_place));
  }
  return place.get();
}

Planner::Planner(PlannerOptions options) : options_(std::move(options)), table_(std::make_unique<Table>()) {
  bool known = options_.forced.empty();
  for (const Collective collective : planned) known |= find_algorithm(collective, options_.forced) != nullptr;
  if (!known) {
    throw Error(Code::invalid_argument,
                fmt::format("no collective has an algorithm \"{}\"; all_reduce has {}; broadcast has {}",
                            options_.forced, algorithm_names(Collective::all_reduce),
                            algorithm_names(Collective::broadcast)));
  }
  for (const Collective collective : planned) table_->choice[collective] = Table::choose(options_, collective);
  table_->slots.resize(1 + size_t(options_.n));
}

Planner::~Planner() = default;

const Plan& Planner::plan(Collective collective, size_t bytes, int root, bool in_place) {
  std::unique_ptr<Table::Slots>& slots = table_->slots[Table::slots_index(collective, root)];
  const size_t index = (in_place ? size_classes : 0) + size_class(bytes);
  if (slots != nullptr && (*slots)[index] != nullptr) [[likely]] return *(*slots)[index];
  if (slots == nullptr) slots = std::make_unique<Table::Slots>();
  const Row& row = table_->choice.at(rows_of(collective))[size_class(bytes)];
  (*slots)[index] = table_->make(options_, row, collective == Collective::broadcast ? root : 0, in_place);
  return *(*slots)[index];
}

std::vector<Candidate> Planner::explain(Collective collective, size_t bytes, int root) const {
  std::vector<Candidate> result;
  for (const Row& row : Table::candidates(options_, rows_of(collective))) {
    std::vector<Plan> plans;
    if (options_.n <= priced_ranks_max) {
      plans = plans_of(*row.algorithm, Table::group(options_, root, row.pipeline));
    }
    const double time = Table::time_ns(options_, row, root, double(bytes), plans);
    result.push_back({row.algorithm->name, row.pipeline, time});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_ns < b.time_ns; });
  return result;
}

}  // namespace tutti
