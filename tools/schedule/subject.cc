// From the arguments of tutti-schedule to schedules.
#include "tools/schedule/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "algorithms/catalog.h"
#include "base/environment.h"
#include "base/error.h"
#include "engine/schedule_files.h"
#include "schedule/check.h"
#include "schedule/price.h"
#include "tools/schedule/document.h"

namespace tutti {
namespace {

constexpr int n_max = 4096;  // ranks; what the checker can hold
constexpr std::string_view ranks_default = "4";

std::string all_names() {
  std::string names;
  for (const Algorithm& algorithm : catalog()) names += (names.empty() ? "" : ", ") + full_name(algorithm);
  return names;
}

Subject of_file(const Arguments& arguments) {
  Subject subject;
  subject.schedule = read_user_schedule(arguments.name);
  const UserSchedule& read = subject.schedule;
  if (!arguments.ranks.empty() && range_of(arguments.ranks) != std::pair(read.n(), read.n()))
    refuse(fmt::format("-n: {} is for {} ranks, not {}", arguments.name, read.n(), arguments.ranks));
  if (arguments.root != 0 && arguments.root != read.root)
    refuse(fmt::format("--root: {} is for root {}, not {}", arguments.name, read.root, arguments.root));
  if (arguments.pipeline != 0) refuse(fmt::format("--pipeline: {} has its chunks already", arguments.name));
  if (!arguments.hosts.empty()) refuse(fmt::format("--hosts: {} has its ranks already", arguments.name));
  if (!arguments.cores.empty()) refuse(fmt::format("--cores: {} has its ranks already", arguments.name));
  return subject;
}

// The group that the arguments describe.
void set_group(Subject& subject, const Arguments& arguments) {
  const Algorithm& algorithm = *subject.algorithm;
  const std::string ranks = arguments.ranks.empty() ? std::string(ranks_default) : arguments.ranks;
  const auto [first, last] = range_of(ranks);
  if (first != last) refuse(fmt::format("-n: one number of ranks is needed here, not {}", ranks));
  subject.hosts = sites_of(arguments.hosts, "--hosts", first);
  subject.cores = sites_of(arguments.cores, "--cores", first);
  Group& group = subject.group;
  group.n = first;
  group.root = number(std::to_string(arguments.root), "--root", "", 0, first - 1);
  if (group.root > 0 && !meaning(algorithm.collective).rooted)
    refuse(fmt::format("--root: {} has none", full_name(algorithm)));
  const int pipeline = arguments.pipeline == 0 ? (algorithm.pipelined ? 4 : 1) : arguments.pipeline;
  group.pipeline = number(std::to_string(pipeline), "--pipeline", "", 1, pipeline_max);
}

}  // namespace

void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

const Algorithm& algorithm_named(const std::string& name) {
  for (const Algorithm& algorithm : catalog())
    if (full_name(algorithm) == name) return algorithm;
  refuse(fmt::format("NAME: there is no algorithm '{}'; there are {}", name, all_names()));
}

bool is_file(std::string_view name) { return name.ends_with(".json"); }

int number(std::string_view text, std::string_view argument, std::string_view whole, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(fmt::format("{}: '{}' is no whole number", argument, whole));
  if (value < least || value > most) refuse(fmt::format("{}: {} is not within {}..{}", argument, value, least, most));
  return value;
}

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

std::vector<int> sites_of(const std::string& text, std::string_view argument, int n) {
  std::vector<int> sites;
  if (text.empty()) return sites;
  int site = 0;
  for (size_t at = 0; at <= text.size(); ++site) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const int ranks = number(std::string_view(text).substr(at, comma - at), argument, text, 1, n_max);
    sites.insert(sites.end(), size_t(ranks), site);
    at = comma + 1;
  }
  if (int(sites.size()) != n) refuse(fmt::format("{}: {} are {} ranks, but -n is {}", argument, text, sites.size(), n));
  return sites;
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

std::vector<Plan> Subject::plans() const {
  std::vector<Plan> plans;
  for (const Schedule& steps : schedule.ranks) plans.push_back(lower(steps, schedule.shape, schedule.name, false));
  return plans;
}

Subject subject_of(const Arguments& arguments) {
  if (is_file(arguments.name)) return of_file(arguments);
  Subject subject;
  subject.algorithm = &algorithm_named(arguments.name);
  set_group(subject, arguments);
  Group group = subject.group;
  group.host_of = subject.hosts;
  group.core_of = subject.cores;
  UserSchedule& schedule = subject.schedule;
  schedule.source = arguments.name;
  schedule.name = subject.algorithm->name;
  schedule.sentence = subject.algorithm->sentence;
  schedule.collective = subject.algorithm->collective;
  schedule.root = group.root;
  schedule.shape = subject.algorithm->shape(group);
  for (group.rank = 0; group.rank < group.n; ++group.rank) schedule.ranks.push_back(record(*subject.algorithm, group));
  return subject;
}

}  // namespace tutti
