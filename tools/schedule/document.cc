// docs/algorithms.md: each algorithm in a few sentences, with its claim, its picture and its price.
#include "tools/schedule/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "algorithms/catalog.h"
#include "schedule/collective.h"
#include "schedule/draw.h"

namespace tutti {
namespace {

constexpr uint64_t message_bytes_max = 256 * 1024;
constexpr std::array<uint64_t, 5> sizes = {8, 4 << 10, 64 << 10, 1 << 20, 64 << 20};
constexpr std::array<std::string_view, 5> size_names = {"8 B", "4 KiB", "64 KiB", "1 MiB", "64 MiB"};

// What the tables assume. Shared memory: two cores of one cache. Network: 10 Gbit/s Ethernet through sockets.
constexpr LinkCost shared_memory = {80, 20, 0.1};
constexpr LinkCost network = {20'000, 2'500, 0.8};
constexpr double copy_byte_ns = 0.1, reduce_byte_ns = 0.1, step_ns = 15;

struct Machine {
  std::string_view title;
  int n;
  int hosts;
};
constexpr std::array<Machine, 4> machines = {{{"4 ranks of one host over shared memory", 4, 1},
                                              {"32 ranks of one host over shared memory", 32, 1},
                                              {"8 hosts of one rank over the network", 8, 8},
                                              {"4 hosts of 8 ranks", 32, 4}}};

std::vector<int> hosts_of(const Machine& machine) {
  std::vector<int> hosts;
  for (int r = 0; r < machine.n; ++r) hosts.push_back(r * machine.hosts / machine.n);
  return hosts;
}

CostModel costs_of(const Machine& machine) {
  CostModel costs = uniform_costs(machine.n, shared_memory, copy_byte_ns, reduce_byte_ns, step_ns);
  costs.classes.push_back(network);
  const std::vector<int> hosts = hosts_of(machine);
  for (size_t from = 0; from < hosts.size(); ++from)
    for (size_t to = 0; to < hosts.size(); ++to)
      costs.link_class[from * hosts.size() + to] = hosts[from] == hosts[to] ? 0 : 1;
  return costs;
}

std::string time_text(double ns) {
  if (ns < 10'000) return fmt::format("{:.2f} µs", ns / 1e3);
  if (ns < 1'000'000) return fmt::format("{:.1f} µs", ns / 1e3);
  return fmt::format("{:.2f} ms", ns / 1e6);
}

// One row per algorithm, one column per size; the best of each column is bold.
std::string price_table(Collective collective, const Machine& machine) {
  const CostModel costs = costs_of(machine);
  const std::vector<int> hosts = hosts_of(machine);
  Group group;
  group.n = machine.n;
  group.host_of = hosts;
  std::vector<const Algorithm*> rows;
  std::vector<std::vector<BestPrice>> prices;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != collective || algorithm.of_shared_cores) continue;
    rows.push_back(&algorithm);
    prices.emplace_back();
    for (uint64_t bytes : sizes) prices.back().push_back(best_price(algorithm, group, costs, bytes, message_bytes_max));
  }
  std::string table = fmt::format("\n{}:\n\n| algorithm |", machine.title);
  for (std::string_view size : size_names) table += fmt::format(" {} |", size);
  table += "\n|---|---|---|---|---|---|\n";
  for (size_t row = 0; row < rows.size(); ++row) {
    table += fmt::format("| {} |", rows[row]->name);
    for (size_t column = 0; column < sizes.size(); ++column) {
      const BestPrice& price = prices[row][column];
      bool best = true;
      for (const auto& other : prices) best = best && price.price.time_ns <= other[column].price.time_ns;
      const std::string time = time_text(price.price.time_ns);
      const std::string chunks = rows[row]->pipelined ? fmt::format(" ({})", price.pipeline) : "";
      table += best ? fmt::format(" **{}**{} |", time, chunks) : fmt::format(" {}{} |", time, chunks);
    }
    table += "\n";
  }
  return table;
}

struct Picture {
  std::string_view collective, name;
  int n, root, pipeline, hosts, cores;
};

// Four or five ranks show what is typical; five where a power of two would hide something.
Picture picture_of(const Algorithm& algorithm) {
  const bool rooted = meaning(algorithm.collective).rooted;
  Picture picture{name(algorithm.collective), algorithm.name, 4, 0, 1, 1, 0};
  constexpr std::array of_five = {"recursive_doubling", "tree", "bruck", "circulant", "pairwise", "doubling_123"};
  if (std::find(of_five.begin(), of_five.end(), algorithm.name) != of_five.end() || rooted) picture.n = 5;
  if (algorithm.pipelined) picture.pipeline = algorithm.name == "chain" ? 3 : 4;
  if (algorithm.name == "hierarchical") picture.hosts = 2;
  if (algorithm.of_shared_cores) picture.cores = 2;
  if (rooted) picture.root = 1;
  return picture;
}

std::string drawn(const Algorithm& algorithm, const Picture& picture) {
  std::vector<int> hosts, cores;
  for (int r = 0; r < picture.n; ++r) {
    hosts.push_back(r * picture.hosts / picture.n);
    if (picture.cores > 0) cores.push_back(r * picture.cores / picture.n);
  }
  Group group;
  group.n = picture.n;
  group.root = picture.root;
  group.pipeline = picture.pipeline;
  group.host_of = hosts;
  group.core_of = cores;
  std::string title = fmt::format("{}, {} ranks", full_name(algorithm), picture.n);
  if (picture.pipeline > 1) title += fmt::format(", {} chunks", picture.pipeline);
  if (picture.hosts > 1) title += fmt::format(", {} hosts", picture.hosts);
  if (picture.cores > 0) title += fmt::format(", {} cores", picture.cores);
  if (picture.root > 0) title += fmt::format(", root {}", picture.root);
  return to_svg(plans_of(algorithm, group), title);
}

std::string claims(const Algorithm& algorithm) {
  std::string line = "| ranks |", rule = "|---|", rounds = "| messages on the longest chain |",
              bytes = "| bytes sent by the busiest rank, × buffer |", order = "| adds in the order of ranks |",
              fold = "| and all in one step (strict) |";
  for (int n : {2, 3, 4, 5, 8, 16, 64}) {
    Group group;
    group.n = n;
    group.pipeline = algorithm.pipelined ? 16 : 1;
    std::vector<int> cores;
    for (int r = 0; algorithm.of_shared_cores && r < n; ++r) cores.push_back(r * 2 / n);
    group.core_of = cores;
    const Claim claim = algorithm.claim(group);
    line += fmt::format(" {} |", n);
    rule += "---|";
    rounds += fmt::format(" {} |", claim.rounds);
    bytes += fmt::format(" {:.2f} |", claim.bytes_sent);
    order += claim.rank_order ? " yes |" : " no |";
    fold += claim.left_fold ? " yes |" : " no |";
  }
  const bool reduces = meaning(algorithm.collective).reduces;
  return line + "\n" + rule + "\n" + rounds + "\n" + bytes + "\n" + (reduces ? order + "\n" + fold + "\n" : "");
}

constexpr std::string_view introduction =
    R"(# Algorithms

Printed from the catalog in `src/algorithms/` by `tutti-schedule document`; a test compares. Each algorithm is written
once, over six verbs; the checker proves it for 1 to 64 ranks and every root, in place and not, as it is recorded and as
it is lowered to the passes that the engine runs: nobody waits for ever, every chunk of the result holds every input
once, in the same order on all ranks (of a scan those of the ranks up to its own, in their order), and rounds and bytes
are exactly those claimed here.

How to read the pictures: a line per rank, time to the right, a circle per pass of the engine, an arrow per message with
the numbers of its chunks. Blue arrows carry parts of sums (or data that is not added), green ones results. `+` adds; a
green circle completes a sum. Every pass and every flight is drawn as one tick; what they cost is in the prices below.

Where each rank has a block of its own (all_gather, reduce_scatter, gather, scatter, all_to_all), chunk i is the block
of rank i, and the buffer that claims and prices are of is all blocks together.

Where a section says that a bound is reached, that is proven too: the bytes that the busiest rank sends are the least
that any algorithm can do with, and the rounds the fewest, either of ranks that talk to all at once (one), or of ranks
that send one message and receive one at a time (log2 n, rounded up).

Pipelined algorithms cut the buffer into chunks that follow each other; the tables of claims are for 16. All others work
on tiles of the largest message, which follow each other as well. The table of by_core is for ranks that share two cores.

An operator that does not commute runs only where sums are in the order of ranks, which is proven too: hierarchical does
so where the ranks of each host follow each other, by_core where those of each core do, recursive_doubling among powers
of two.
)";

std::string bounds(const Algorithm& algorithm) {
  const bool rounds = algorithm.optimal_rounds != Rounds::none;
  if (!rounds && !algorithm.optimal_bytes) return "";
  const std::string_view how = algorithm.optimal_rounds == Rounds::one ? "the fewest rounds, one"
                               : rounds ? "the fewest rounds of one partner at a time, log2 n"
                                        : "";
  return fmt::format("\nReaches, for every number of ranks: {}{}{}.\n", how,
                     rounds && algorithm.optimal_bytes ? "; " : "", algorithm.optimal_bytes ? "the least bytes" : "");
}

std::string section(const Algorithm& algorithm) {
  const std::string_view kind = name(algorithm.collective);
  return fmt::format("\n## {}\n\n{}\n\nSource: {}\n\n![{}](img/{}_{}.svg)\n\n{}{}", full_name(algorithm),
                     algorithm.sentence, algorithm.source, full_name(algorithm), kind, algorithm.name,
                     claims(algorithm), bounds(algorithm));
}

std::string prices() {
  std::string text =
      fmt::format(R"(
## Prices

Predictions: plans of all ranks run on virtual clocks. A message costs its sender {} ns + {} ns a byte over shared
memory and can be read {} ns later; over the network {} ns + {} ns a byte, and {} ns. Copying costs {} ns a byte,
reducing {} ns per byte of each operand, a pass {} ns; a message has at most {} KiB; every rank has a core of its own.
In parentheses: the best number of pipeline chunks. `tutti-schedule price` answers for other numbers,
`tutti-topo --explain` for a real machine.
)",
                  shared_memory.message_ns, shared_memory.byte_ns, shared_memory.latency_ns, network.message_ns,
                  network.byte_ns, network.latency_ns, copy_byte_ns, reduce_byte_ns, step_ns, message_bytes_max / 1024);
  for (const Collective collective : planned_collectives) {
    text += fmt::format("\n### {}\n", name(collective));
    for (const Machine& machine : machines) text += price_table(collective, machine);
  }
  return text;
}

}  // namespace

std::string full_name(const Algorithm& algorithm) {
  return fmt::format("{}/{}", name(algorithm.collective), algorithm.name);
}

CostModel uniform_costs(int n, const LinkCost& link, double copy_ns, double reduce_ns, double one_step_ns) {
  CostModel costs;
  costs.n = n;
  costs.classes = {link};
  costs.link_class.assign(size_t(n) * size_t(n), 0);
  costs.copy_byte_ns = copy_ns;
  costs.reduce_byte_ns = reduce_ns;
  costs.step_ns = one_step_ns;
  return costs;
}

BestPrice best_price(const Algorithm& algorithm, Group group, const CostModel& costs, uint64_t bytes,
                     uint64_t largest_message) {
  BestPrice best;
  for (int pipeline = 1; pipeline <= (algorithm.pipelined ? 64 : 1); pipeline *= 2) {
    group.pipeline = pipeline;
    const Price one = price(plans_of(algorithm, group), costs, bytes, largest_message);
    if (pipeline == 1 || one.time_ns < best.price.time_ns) best = {pipeline, one};
  }
  return best;
}

std::vector<Document> documents() {
  std::vector<Document> all = {{"algorithms.md", std::string(introduction)}};
  for (const Algorithm& algorithm : catalog()) {
    all[0].text += section(algorithm);
    const Picture picture = picture_of(algorithm);
    all.push_back({fmt::format("img/{}_{}.svg", picture.collective, picture.name), drawn(algorithm, picture)});
  }
  all[0].text += prices();
  return all;
}

}  // namespace tutti
