// tutti-run: starts local ranks of a program, shows their output by rank, and ends all when one fails.
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <tutti/tutti.h>

#include "tools/run/guard.h"
#include "tools/run/job.h"

namespace tutti::run {
namespace {

constexpr const char* footer =
    "Everything after PROGRAM goes to it unchanged. Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,\n"
    "GROUP_RANK, MASTER_ADDR and MASTER_PORT as torchrun sets them, and a fresh TUTTI_JOB_KEY. Standard input goes to\n"
    "rank 0 where it is no terminal. The exit code is that of the rank that failed first (128 + signal), 124 after\n"
    "--timeout, 2 for wrong options or a program that cannot be run.\n\n"
    "  tutti-run -n 4 ./trainer --epochs 20";

void declare(CLI::App& app, RunOptions& options, bool& no_prefix) {
  app.add_option("-n", options.ranks, "Number of ranks to start")->required();
  app.add_flag("--bind", options.bind, "Give each rank its share of the cores");
  app.add_option("--timeout", options.timeout_s, "End the job after so many seconds")->type_name("S");
  app.add_option("--grace", options.grace_s, "Seconds between SIGTERM and SIGKILL (5)")->type_name("S");
  app.add_flag("--no-prefix", no_prefix,
               "Pass lines through as they are; on a terminal the ranks write to it themselves");
  app.add_option("--output-dir", options.output_dir, "Also write DIR/rank-N.log for each rank")->type_name("DIR");
  app.set_version_flag("--version", fmt::format("tutti-run {}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH));
  app.prefix_command();
  app.footer(footer);
}

// "" or what is wrong.
std::string complaint(const RunOptions& options) {
  if (options.ranks < 1) return fmt::format("-n {}: at least 1 rank is needed", options.ranks);
  if (options.ranks > ranks_max) return fmt::format("-n {}: at most {} ranks", options.ranks, ranks_max);
  if (options.timeout_s < 0) return fmt::format("--timeout {}: less than 0 seconds", options.timeout_s);
  if (options.grace_s < 0) return fmt::format("--grace {}: less than 0 seconds", options.grace_s);
  if (options.command.empty()) return "no program is given (tutti-run -n 4 PROGRAM ...)";
  if (options.command[0].starts_with('-')) return fmt::format("unknown option {}", options.command[0]);
  return "";
}

int refuse(const std::string& sentence) {
  fmt::print(stderr, "tutti-run: {}\n", sentence);
  return exit_usage;
}

int main_of(int argc, char** argv) {
  CLI::App app("tutti-run [options] PROGRAM [arguments]\nStarts local ranks of a program.", "tutti-run");
  RunOptions options;
  bool no_prefix = false;
  declare(app, options, no_prefix);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return refuse(error.what());
  }
  options.prefix = !no_prefix;
  options.command = app.remaining();
  if (!options.command.empty() && options.command[0] == "--") options.command.erase(options.command.begin());
  if (const std::string wrong = complaint(options); !wrong.empty()) return refuse(wrong);
  return guarded([&options] {
    try {
      return run_job(options);
    } catch (const std::exception& error) {
      return refuse(error.what());
    }
  });
}

}  // namespace
}  // namespace tutti::run

int main(int argc, char** argv) { return tutti::run::main_of(argc, argv); }
