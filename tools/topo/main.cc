// tutti-topo: shows this host, or one from a file, and explains which algorithm ranks on it would choose.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "engine/schedule_files.h"
#include "tools/topo/explain.h"
#include "tools/topo/json.h"
#include "topology/draw.h"
#include "topology/text.h"
#include "topology/topology.h"

namespace tutti {
namespace {

constexpr int exit_failed = 1;     // this machine refused
constexpr int exit_arguments = 2;  // an argument cannot be what it is
constexpr int ranks_max = 1024;

struct Arguments {
  std::string load;
  std::string svg;
  bool json = false;
  bool xml = false;
  std::vector<std::string> explain;  // a collective and a size
  int n = 0;                         // 0: as many as there are allowed CPUs
  int hosts = 1;
  bool bind = false;
  std::string transport = "shm,tcp";
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--load", arguments.load, "Show the machine in this hwloc XML file instead of this host")
      ->type_name("FILE.xml");
  app.add_flag("--json", arguments.json, "Print JSON");
  auto* xml = app.add_flag("--xml", arguments.xml, "Print hwloc XML, which --load and hwloc's tools read");
  app.add_option("--svg", arguments.svg, "Write a drawing to this file (- for standard output)")->type_name("FILE");
  xml->excludes("--json");
  auto* explain = app.add_option("--explain", arguments.explain,
                                 "Print each candidate algorithm for a call of this size, its predicted time, and why "
                                 "the winner wins, for ranks on hosts like this one: --explain all_reduce 1M -n 16");
  explain->expected(1, 2)->type_name("COLLECTIVE SIZE")->excludes("--xml")->excludes("--svg");
  app.add_option("-n", arguments.n, "Number of ranks (default: as many as there are allowed CPUs)")->needs(explain);
  app.add_option("--hosts", arguments.hosts, "Number of hosts that the ranks fill in blocks (default 1)")
      ->needs(explain);
  app.add_flag("--bind", arguments.bind, "The ranks are bound to cores, as tutti-run --bind does: ranks that share one are known")
      ->needs(explain);
  app.add_option("--transport", arguments.transport,
                 "What may be used, as TUTTI_TRANSPORT says it: shm,tcp (default), shm,verbs, tcp or verbs")->needs(explain);
}

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw Error(Code::invalid_argument, system_error("--svg: cannot write " + path, errno).what());
}

Host chosen_host(const Arguments& arguments, std::string* xml) {
  if (arguments.load.empty()) return discover_host(xml);
  try {
    return load_host(arguments.load, xml);
  } catch (const Error& error) {  // whatever is wrong with the file, the argument named it
    throw Error(Code::invalid_argument, std::string("--load: ") + error.what());
  }
}

void show_host(const Arguments& arguments) {
  std::string xml;
  const Host host = chosen_host(arguments, &xml);
  if (!arguments.svg.empty()) write_file(arguments.svg, to_svg(host));
  if (arguments.json) std::fputs(host_json(host).c_str(), stdout);
  else if (arguments.xml) std::fputs(xml.c_str(), stdout);
  else if (arguments.svg.empty()) std::fputs(to_text(host).c_str(), stdout);
}

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

Question question_of(const Arguments& arguments, const Host& host) {
  Question question;
  question.collective = parse_collective(arguments.explain[0]);
  if (arguments.explain.size() == 2) question.bytes = parse_size(arguments.explain[1]);
  else if (question.collective != Collective::barrier)
    refuse(fmt::format("--explain: {} needs a size such as 64, 4K, 1M or 2G", arguments.explain[0]));
  question.n = arguments.n != 0 ? arguments.n : std::max(1, int(host.cores_allowed.size()));
  if (question.n < 1 || question.n > ranks_max)
    refuse(fmt::format("-n: {} is not a number of ranks between 1 and {}", question.n, ranks_max));
  question.hosts = arguments.hosts;
  question.bound = arguments.bind;
  if (question.hosts < 1 || question.hosts > question.n)
    refuse(fmt::format("--hosts: {} is not a number of hosts between 1 and the {} ranks", question.hosts, question.n));
  const std::string& transport = arguments.transport;
  constexpr std::array known = {"shm", "shm,tcp", "shm,verbs", "tcp", "verbs"};
  if (std::find(known.begin(), known.end(), transport) == known.end())
    refuse(fmt::format("--transport: \"{}\" is no transport; there are shm, tcp, verbs, and shm,tcp and shm,verbs for "
                       "shared memory inside a host", transport));
  question.shared_memory = transport.starts_with("shm");
  question.others = transport.ends_with("verbs") ? LinkKind::verbs : LinkKind::tcp;
  question.message_bytes_max = environment_bytes("TUTTI_SHM_SLOT_BYTES").value_or(question.message_bytes_max);
  question.forced = environment_text("TUTTI_ALGO").value_or("");
  question.schedules = load_user_schedules(environment_text("TUTTI_SCHEDULES").value_or(""));
  return question;
}

// The constants are measured where the host is this one; a host from a file gets the defaults.
void show_explanation(const Arguments& arguments) {
  const Host host = chosen_host(arguments, nullptr);
  const Question question = question_of(arguments, host);
  const MachineCosts costs = arguments.load.empty() ? calibrate(25, &host) : MachineCosts{};
  const Explanation explanation = explain(question, host, costs);
  std::fputs((arguments.json ? to_json(explanation) : to_text(explanation)).c_str(), stdout);
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Shows what a host has and which cores are allowed here, or explains which algorithm would be chosen.",
               "tutti-topo");
  declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_arguments;
  }
  try {
    arguments.explain.empty() ? show_host(arguments) : show_explanation(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "tutti-topo: {}\n", error.what());
    return error.code() == Code::system_error ? exit_failed : exit_arguments;
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
