// tutti-schedule: lists, prints, checks, prices and draws the schedules of the catalog.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/environment.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/draw.h"
#include "schedule/print.h"
#include "tools/schedule/document.h"

namespace tutti {
namespace {

constexpr int exit_failed = 1;     // not proven, or this machine refused
constexpr int exit_arguments = 2;  // an argument cannot be what it is
constexpr int n_max = 4096;        // ranks; what the checker can hold
constexpr int pipeline_max = 4096;

struct Arguments {
  std::string name;
  std::string ranks = "4";
  std::string hosts;
  std::string size = "1M";
  std::string message_max = "256K";
  std::string file;
  int root = 0, rank = -1, pipeline = 0;
  bool lowered = false, in_place = false, text = false, check = false;
  double latency_ns = 80, message_ns = 20, gbps = 80, memory_gbps = 80, step_ns = 15;
};

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

std::string all_names() {
  std::string names;
  for (const Algorithm& algorithm : catalog()) names += (names.empty() ? "" : ", ") + full_name(algorithm);
  return names;
}

const Algorithm& algorithm_named(const std::string& name) {
  for (const Algorithm& algorithm : catalog())
    if (full_name(algorithm) == name) return algorithm;
  refuse(fmt::format("NAME: there is no algorithm '{}'; there are {}", name, all_names()));
}

int number(std::string_view text, std::string_view argument, std::string_view whole, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(fmt::format("{}: '{}' is no whole number", argument, whole));
  if (value < least || value > most) refuse(fmt::format("{}: {} is not within {}..{}", argument, value, least, most));
  return value;
}

// "8" or "1..64".
std::pair<int, int> range_of(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) {
    const int n = number(text, "-n", text, 1, n_max);
    return {n, n};
  }
  const int first = number(std::string_view(text).substr(0, dots), "-n", text, 1, n_max);
  const int last = number(std::string_view(text).substr(dots + 2), "-n", text, 1, n_max);
  if (last < first) refuse(fmt::format("-n: {} ends before it starts", text));
  return {first, last};
}

// "4,4,2": ranks of each host. Empty: one host.
std::vector<int> hosts_of(const std::string& text, int n) {
  std::vector<int> hosts;
  if (text.empty()) return hosts;
  int host = 0;
  for (size_t at = 0; at <= text.size(); ++host) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const int ranks = number(std::string_view(text).substr(at, comma - at), "--hosts", text, 1, n_max);
    hosts.insert(hosts.end(), size_t(ranks), host);
    at = comma + 1;
  }
  if (int(hosts.size()) != n) refuse(fmt::format("--hosts: {} are {} ranks, but -n is {}", text, hosts.size(), n));
  return hosts;
}

uint64_t bytes_of(const std::string& text, std::string_view argument, uint64_t least) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse(fmt::format("{}: '{}' is no size; write 64, 4K, 1M or 2G", argument, text));
  if (*bytes < least) refuse(fmt::format("{}: {} is less than {}", argument, text, least));
  return *bytes;
}

double positive(double value, std::string_view argument) {
  if (!(value > 0) || value > 1e12) refuse(fmt::format("{}: {} is not within 0..1e12, 0 excluded", argument, value));
  return value;
}
double not_negative(double value, std::string_view argument) {
  if (!(value >= 0) || value > 1e12) refuse(fmt::format("{}: {} is not within 0..1e12", argument, value));
  return value;
}

// The group that the arguments describe; hosts must outlive it.
Group group_of(const Arguments& arguments, const Algorithm& algorithm, std::vector<int>& hosts) {
  const auto [first, last] = range_of(arguments.ranks);
  if (first != last) refuse(fmt::format("-n: one number of ranks is needed here, not {}", arguments.ranks));
  hosts = hosts_of(arguments.hosts, first);
  Group group;
  group.n = first;
  group.root = number(std::to_string(arguments.root), "--root", "", 0, first - 1);
  if (group.root > 0 && algorithm.collective != Collective::broadcast)
    refuse(fmt::format("--root: {} has none", full_name(algorithm)));
  const int pipeline = arguments.pipeline == 0 ? (algorithm.pipelined ? 4 : 1) : arguments.pipeline;
  group.pipeline = number(std::to_string(pipeline), "--pipeline", "", 1, pipeline_max);
  group.host_of = hosts;
  return group;
}

void list() {
  for (const Algorithm& algorithm : catalog()) fmt::print("{:<30} {}\n", full_name(algorithm), algorithm.sentence);
}

void print(const Arguments& arguments) {
  const Algorithm& algorithm = algorithm_named(arguments.name);
  std::vector<int> hosts;
  Group group = group_of(arguments, algorithm, hosts);
  const int only = arguments.rank < 0 ? -1 : number(std::to_string(arguments.rank), "--rank", "", 0, group.n - 1);
  const Shape shape = algorithm.shape(group);
  for (group.rank = 0; group.rank < group.n; ++group.rank) {
    if (only >= 0 && group.rank != only) continue;
    const Schedule schedule = record(algorithm, group);
    const std::string text = arguments.lowered || arguments.in_place
                                 ? to_text(lower(schedule, shape, algorithm.name, arguments.in_place))
                                 : to_text(schedule);
    fmt::print("rank {} of {}, {} chunks\n{}", group.rank, group.n, shape.output, text);
  }
}

// Everything that can be proven of one number of ranks; the number of proofs, or throws with the first violation.
int prove(const Algorithm& algorithm, Group group) {
  int proofs = 0;
  const int roots = algorithm.collective == Collective::broadcast ? group.n : 1;
  for (group.root = 0; group.root < roots; ++group.root)
    for (int mode = 0; mode < 4; ++mode, ++proofs) {
      CheckOptions options;
      options.lowered = mode & 1;
      options.in_place = mode & 2;
      options.slots = options.lowered ? 2 : algorithm.claim(group).slots;
      options.repeat = 2;
      const Proof proof = check(algorithm, group, options);
      if (proof.violation)
        throw Error(Code::internal_error,
                    fmt::format("{} with {} ranks, root {}, {}, {}: {}", full_name(algorithm), group.n, group.root,
                                options.lowered ? "as plans" : "as schedules",
                                options.in_place ? "in place" : "out of place", proof.violation->sentence));
    }
  return proofs;
}

void check_named(const Arguments& arguments) {
  const auto [first, last] = range_of(arguments.ranks);
  if (arguments.name != "all") algorithm_named(arguments.name);
  for (const Algorithm& algorithm : catalog()) {
    if (arguments.name != "all" && full_name(algorithm) != arguments.name) continue;
    int proofs = 0;
    for (int n = first; n <= last; ++n) {
      const std::vector<int> hosts = hosts_of(arguments.hosts, n);
      Group group;
      group.n = n;
      group.host_of = hosts;
      for (int pipeline : {1, 2, 5}) {
        group.pipeline = arguments.pipeline > 0
                             ? number(std::to_string(arguments.pipeline), "--pipeline", "", 1, pipeline_max)
                         : algorithm.pipelined ? pipeline
                                               : 1;
        proofs += prove(algorithm, group);
        if (!algorithm.pipelined || arguments.pipeline > 0) break;
      }
    }
    fmt::print("{:<30} n = {}: proven ({} proofs)\n", full_name(algorithm), arguments.ranks, proofs);
    std::fflush(stdout);
  }
}

void price_named(const Arguments& arguments) {
  const Algorithm& algorithm = algorithm_named(arguments.name);
  std::vector<int> hosts;
  Group group = group_of(arguments, algorithm, hosts);
  const double byte_ns = 8 / positive(arguments.gbps, "--gbps");
  const double memory_byte_ns = 8 / positive(arguments.memory_gbps, "--memory-gbps");
  const LinkCost link{not_negative(arguments.latency_ns, "--latency-ns"),
                      not_negative(arguments.message_ns, "--message-ns"), byte_ns};
  const CostModel costs =
      uniform_costs(group.n, link, memory_byte_ns, memory_byte_ns, not_negative(arguments.step_ns, "--step-ns"));
  const uint64_t bytes = bytes_of(arguments.size, "--size", 0);
  const uint64_t message_max = bytes_of(arguments.message_max, "--message-max", 64);
  BestPrice best{group.pipeline, {}};
  if (arguments.pipeline > 0 || !algorithm.pipelined)
    best.price = price(plans_of(algorithm, group), costs, bytes, message_max);
  else
    best = best_price(algorithm, group, costs, bytes, message_max);
  fmt::print("{}: {:.3f} us, {} messages, {} bytes", full_name(algorithm), best.price.time_ns / 1e3,
             best.price.messages, best.price.bytes);
  if (algorithm.pipelined) fmt::print(", {} pipeline chunks", best.pipeline);
  fmt::print("\n");
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw system_error("cannot write " + path.string(), errno);
}

void draw(const Arguments& arguments) {
  const Algorithm& algorithm = algorithm_named(arguments.name);
  std::vector<int> hosts;
  const Group group = group_of(arguments, algorithm, hosts);
  const std::vector<Plan> plans = plans_of(algorithm, group);
  if (arguments.text) {
    std::fputs(to_table(plans).c_str(), stdout);
    return;
  }
  const std::string svg = to_svg(plans, fmt::format("{}, {} ranks", full_name(algorithm), group.n));
  if (arguments.file.empty() || arguments.file == "-")
    std::fputs(svg.c_str(), stdout);
  else
    write_file(arguments.file, svg);
}

void document(const Arguments& arguments) {
  const std::filesystem::path folder = arguments.file;
  for (const Document& one : documents()) {
    const std::filesystem::path path = folder / one.name;
    if (!arguments.check) {
      std::filesystem::create_directories(path.parent_path());
      write_file(path, one.text);
      continue;
    }
    std::ifstream file(path, std::ios::binary);
    const std::string seen((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (seen != one.text)
      throw Error(Code::internal_error,
                  fmt::format("{} is not what the catalog says now; run tutti-schedule document {}", path.string(),
                              folder.string()));
  }
}

CLI::App* command(CLI::App& app, Arguments& arguments, const char* name, const char* sentence) {
  CLI::App* sub = app.add_subcommand(name, sentence);
  sub->add_option("NAME", arguments.name, "The algorithm, as all_reduce/ring; tutti-schedule list shows all")
      ->required();
  sub->add_option("-n", arguments.ranks, "Ranks")->capture_default_str();
  sub->add_option("--hosts", arguments.hosts, "Ranks of each host, as 4,4,2; default: one host");
  sub->add_option("--pipeline", arguments.pipeline, "Chunks of a pipelined algorithm");
  return sub;
}

void declare(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  app.add_subcommand("list", "Name every algorithm and say when it is best");
  CLI::App* print = command(app, arguments, "print", "Print each rank's steps");
  print->add_option("--root", arguments.root, "Root of a broadcast");
  print->add_option("--rank", arguments.rank, "This rank only");
  print->add_flag("--lowered", arguments.lowered, "The passes that the engine runs");
  print->add_flag("--in-place", arguments.in_place, "Input and output are the same memory (lowered)");
  command(app, arguments, "check", "Prove an algorithm, or all, for -n ranks or a range as 1..64, and every root");
  CLI::App* price = command(app, arguments, "price", "Predict the time of ranks that are all alike");
  price->add_option("--root", arguments.root, "Root of a broadcast");
  price->add_option("--size", arguments.size, "Bytes of the buffer: 64, 4K, 1M")->capture_default_str();
  price->add_option("--latency-ns", arguments.latency_ns, "Flight of a message, in ns")->capture_default_str();
  price->add_option("--message-ns", arguments.message_ns, "The sender's work per message, in ns")
      ->capture_default_str();
  price->add_option("--gbps", arguments.gbps, "A link's speed, in Gbit/s")->capture_default_str();
  price->add_option("--memory-gbps", arguments.memory_gbps, "Copying and reducing, in Gbit/s of each operand")
      ->capture_default_str();
  price->add_option("--step-ns", arguments.step_ns, "A pass of the engine, in ns")->capture_default_str();
  price->add_option("--message-max", arguments.message_max, "Bytes of the largest message")->capture_default_str();
  CLI::App* draw = command(app, arguments, "draw", "Draw who sends what to whom and when, as SVG");
  draw->add_option("--root", arguments.root, "Root of a broadcast");
  draw->add_option("-o,--output", arguments.file, "Write to this file instead of standard output");
  draw->add_flag("--text", arguments.text, "A table instead");
  CLI::App* document = app.add_subcommand("document", "Write algorithms.md and its pictures into a folder");
  document->add_option("FOLDER", arguments.file, "The folder: docs")->required();
  document->add_flag("--check", arguments.check, "Write nothing; fail where the files differ");
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Lists, prints, checks, prices and draws the schedules of collective algorithms.", "tutti-schedule");
  declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_arguments;
  }
  try {
    const std::string chosen = app.get_subcommands().front()->get_name();
    if (chosen == "list") list();
    if (chosen == "print") print(arguments);
    if (chosen == "check") check_named(arguments);
    if (chosen == "price") price_named(arguments);
    if (chosen == "draw") draw(arguments);
    if (chosen == "document") document(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-schedule: {}\n", error.what());
    const Error* known = dynamic_cast<const Error*>(&error);
    return known != nullptr && known->code() == Code::invalid_argument ? exit_arguments : exit_failed;
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
