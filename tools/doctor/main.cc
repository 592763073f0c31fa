// tutti-doctor: looks for what would keep Tutti from working here, and says how to mend it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/pairs.h"

namespace tutti {
namespace {

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}: {}\n", name(finding.severity), finding.check, finding.sentence);
    if (!finding.fix.empty()) text += fmt::format("{:<8} fix: {}\n", "", finding.fix);
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    json.push_back({{"check", finding.check},
                    {"severity", name(finding.severity)},
                    {"sentence", finding.sentence},
                    {"fix", finding.fix}});
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run(int argc, char** argv) {
  bool environment = false, json = false, pairs = false;
  CLI::App app("Looks for what would keep Tutti from working on this machine, and says how to mend it.\n"
               "Exit code: 0 no problem, 1 a problem, 2 bad arguments.",
               "tutti-doctor");
  auto* listing = app.add_flag("--environment", environment, "Print the table of environment variables as Markdown");
  app.add_flag("--json", json, "Print the findings as JSON")->excludes(listing);
  app.add_flag("--pairs", pairs,
               "Started as ranks are (tutti-run -n 4 tutti-doctor --pairs; mpirun; srun): which transport "
               "connects each pair, and how fast. Rank 0 prints (for JSON: tutti-run --no-prefix)")
      ->excludes(listing);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (environment) {
    std::fputs(environment_markdown().c_str(), stdout);
    return 0;
  }
  int rank = 0;
  const std::vector<Finding> findings = pairs ? examine_pairs(rank) : examine();
  if (rank == 0) std::fputs((json ? to_json(findings) : to_text(findings)).c_str(), stdout);
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::problem; });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
