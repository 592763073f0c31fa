// tutti-schedule: lists, prints, checks, prices, draws, exports and imports schedules.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/draw.h"
#include "schedule/print.h"
#include "tools/command_line.h"
#include "tools/schedule/document.h"
#include "tools/schedule/msccl.h"
#include "tools/schedule/report.h"
#include "tools/schedule/subject.h"

namespace tutti {
namespace {

std::string contents_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (errno != 0) throw system_error("cannot read " + path, errno);
  return text.str();
}

void list() {
  for (const Algorithm& algorithm : catalog()) fmt::print("{:<30} {}\n", full_name(algorithm), algorithm.sentence);
}

void print(const Arguments& arguments) {
  const UserSchedule schedule = subject_of(arguments).schedule;
  const int n = schedule.n();
  const int only = arguments.rank < 0 ? -1 : number(std::to_string(arguments.rank), "--rank", "", 0, n - 1);
  const bool lowered = arguments.lowered || arguments.in_place;
  if (lowered) proven(schedule);
  for (int rank = 0; rank < n; ++rank) {
    if (only >= 0 && rank != only) continue;
    const Schedule& steps = schedule.ranks[size_t(rank)];
    fmt::print("rank {} of {}, {} chunks\n{}", rank, n, schedule.shape.output,
               lowered ? to_text(lower(steps, schedule.shape, schedule.name, arguments.in_place)) : to_text(steps));
  }
}

void check_named(const Arguments& arguments) {
  if (is_file(arguments.name)) {
    const UserSchedule schedule = proven(subject_of(arguments).schedule);
    fmt::print("{}\n", to_text(report(schedule)));
    return;
  }
  const std::string ranks = arguments.ranks.empty() ? "4" : arguments.ranks;
  const auto [first, last] = range_of(ranks);
  if (arguments.name != "all") algorithm_named(arguments.name);
  const int pipeline =
      arguments.pipeline == 0 ? 0 : number(std::to_string(arguments.pipeline), "--pipeline", "", 1, pipeline_max);
  for (const Algorithm& algorithm : catalog()) {
    if (arguments.name != "all" && full_name(algorithm) != arguments.name) continue;
    Report sum;
    for (int n = first; n <= last; ++n) {
      const std::vector<int> hosts = sites_of(arguments.hosts, "--hosts", n), cores = sites_of(arguments.cores, "--cores", n);
      sum.add(prove_all(algorithm, n, hosts, cores, pipeline));
    }
    fmt::print("{}\n", to_text(sum));
    std::fflush(stdout);
  }
}

void price_named(const Arguments& arguments) {
  const Subject subject = subject_of(arguments);
  const bool pipelined = subject.algorithm != nullptr && subject.algorithm->pipelined;
  if (subject.algorithm == nullptr) proven(subject.schedule);
  const double byte_ns = 8 / positive(arguments.gbps, "--gbps");
  const double memory_byte_ns = 8 / positive(arguments.memory_gbps, "--memory-gbps");
  const LinkCost link{.latency_ns = not_negative(arguments.latency_ns, "--latency-ns"),
                      .message_ns = not_negative(arguments.message_ns, "--message-ns"),
                      .byte_ns = byte_ns};
  const CostModel costs = uniform_costs(subject.schedule.n(), link, memory_byte_ns, memory_byte_ns,
                                        not_negative(arguments.step_ns, "--step-ns"));
  const uint64_t bytes = bytes_of(arguments.size, "--size", 0);
  const uint64_t message_max = bytes_of(arguments.message_max, "--message-max", 64);
  BestPrice best{subject.group.pipeline, {}};
  if (pipelined && arguments.pipeline == 0) {
    Group group = subject.group;
    group.host_of = subject.hosts;
    group.core_of = subject.cores;
    best = best_price(*subject.algorithm, group, costs, bytes, message_max);
  } else {
    best.price = price(subject.plans(), costs, bytes, message_max);
  }
  fmt::print("{}: {:.3f} us, {} messages, {} bytes", subject.title(), best.price.time_ns / 1e3, best.price.messages,
             best.price.bytes);
  if (pipelined) fmt::print(", {} pipeline chunks", best.pipeline);
  fmt::print("\n");
}

// To standard output where there is no file, or "-".
void write_out(const std::string& file, const std::string& text) {
  if (file.empty() || file == "-") std::fputs(text.c_str(), stdout);
  else write_file(file, text);
}

void draw(const Arguments& arguments) {
  const Subject subject = subject_of(arguments);
  if (subject.algorithm == nullptr) proven(subject.schedule);
  const std::vector<Plan> plans = subject.plans();
  if (arguments.text) write_out(arguments.file, to_table(plans));
  else write_out(arguments.file, to_svg(plans, fmt::format("{}, {} ranks", subject.title(), subject.schedule.n())));
}

void export_json(const Arguments& arguments) {
  Subject subject = subject_of(arguments);
  // Not the catalog's name, which a file cannot take.
  UserSchedule& schedule = subject.schedule;
  if (subject.algorithm != nullptr) schedule.name += fmt::format("-{}", schedule.n());
  if (!arguments.new_name.empty()) schedule.name = arguments.new_name;
  write_out(arguments.file, to_json(schedule));
}

void import_xml(const Arguments& arguments) {
  write_out(arguments.file, to_json(import_msccl(contents_of(arguments.name), arguments.name, arguments.new_name)));
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
  sub->add_option(
         "NAME", arguments.name,
         "The algorithm, as all_reduce/ring (tutti-schedule list shows all), or a schedule's file, as ring.json")
      ->required();
  sub->add_option("-n", arguments.ranks, "Ranks; default: 4, or the file's");
  sub->add_option("--hosts", arguments.hosts, "Ranks of each host, as 4,4,2; default: one host");
  sub->add_option("--cores", arguments.cores, "Ranks bound to each core, as 4,4,2; default: each rank has a core");
  sub->add_option("--pipeline", arguments.pipeline, "Chunks of a pipelined algorithm");
  return sub;
}

void declare(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  app.add_subcommand("list", "Name every algorithm and say when it is best");
  CLI::App* print = command(app, arguments, "print", "Print each rank's steps");
  print->add_option("--root", arguments.root, "Root of a collective that has one");
  print->add_option("--rank", arguments.rank, "This rank only");
  print->add_flag("--lowered", arguments.lowered, "The passes that the engine runs");
  print->add_flag("--in-place", arguments.in_place, "Input and output are the same memory (lowered)");
  command(app, arguments, "check", "Prove an algorithm, or all, for -n ranks or a range as 1..64, and every root");
  CLI::App* price = command(app, arguments, "price", "Predict the time of ranks that are all alike");
  price->add_option("--root", arguments.root, "Root of a collective that has one");
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
  draw->add_option("--root", arguments.root, "Root of a collective that has one");
  draw->add_option("-o,--output", arguments.file, "Write to this file instead of standard output");
  draw->add_flag("--text", arguments.text, "A table instead");
  CLI::App* out = command(app, arguments, "export", "Write an algorithm as JSON, which TUTTI_SCHEDULES can load");
  out->add_option("--root", arguments.root, "Root of a collective that has one");
  out->add_option("-o,--output", arguments.file, "Write to this file instead of standard output");
  out->add_option("--name", arguments.new_name, "The schedule's name; default: ring-4");
  CLI::App* in = app.add_subcommand("import", "Turn an MSCCL XML algorithm into JSON and prove it");
  in->add_option("FILE", arguments.name, "The XML file")->required();
  in->add_option("-o,--output", arguments.file, "Write to this file instead of standard output");
  in->add_option("--name", arguments.new_name, "The schedule's name; default: the algorithm's in the file");
  CLI::App* document = app.add_subcommand("document", "Write algorithms.md and its pictures into a folder");
  document->add_option("FOLDER", arguments.file, "The folder: docs")->required();
  document->add_flag("--check", arguments.check, "Write nothing; fail where the files differ");
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Lists, prints, checks, prices, draws, exports and imports schedules of collective algorithms.",
               "tutti-schedule");
  declare(app, arguments);
  return run_tool(app, argc, argv, [&](const std::string& chosen) {
    if (chosen == "list") list();
    if (chosen == "print") print(arguments);
    if (chosen == "check") check_named(arguments);
    if (chosen == "price") price_named(arguments);
    if (chosen == "draw") draw(arguments);
    if (chosen == "export") export_json(arguments);
    if (chosen == "import") import_xml(arguments);
    if (chosen == "document") document(arguments);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
