// The run of a program that measures another library.
#include "bench/peers/peer_run.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "bench/perf/bind.h"
#include "bench/perf/measure.h"
#include "bench/perf/report.h"

namespace tutti::perf {
namespace {

// As the launchers say it; before the library starts, so that its memory lies near the core.
void bind_as_launched() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return bind_to_core(std::atoi(value));
}

int measure_all(const Options& options, Library& library, const std::string& title) {
  const bool first = library.rank() == 0;
  Heading heading;
  heading.ranks = library.ranks();
  if (first) fmt::print("# {}, {} ranks\n", title, heading.ranks);
  Measurement measurement(options, library);
  std::vector<Row> rows;
  for (const Case& what : make_cases(options, heading.ranks)) {
    rows.push_back(measurement.measure(what));
    if (first) fmt::print("{}", row_text(options, rows.back())), std::fflush(stdout);
  }
  if (first) fmt::print("{}", summary_text(rows));
  if (first && !options.json_file.empty()) write_file(options.json_file, json_text(options, heading, rows));
  return total_wrong(rows) > 0 ? 1 : 0;
}

}  // namespace

std::string from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw UsageError(fmt::format("environment variable {} is not set", name));
  return text;
}

int run_peer(int argc, char** argv, const char* program,
             const std::function<std::unique_ptr<Library>(const Options& options, std::string& title)>& make) {
  try {
    std::string text;
    const std::optional<Options> options = parse_options(argc, argv, text);
    if (!options) return fmt::print("{}", text), 0;
    if (options->bind) bind_as_launched();
    std::string title;
    const std::unique_ptr<Library> library = make(*options, title);
    return measure_all(*options, *library, title);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  }
}

}  // namespace tutti::perf
