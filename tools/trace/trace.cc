// Reading, aligning and summing up traces.
#include "tools/trace/trace.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti::trace {
namespace {

using Json = nlohmann::json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + long(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Ends on all ranks once the last has come.
bool ends_together(const std::string& name) {
  for (const char* kind : {"all_reduce(", "barrier(", "all_gather(", "all_to_all(", "reduce_scatter("})
    if (name.rfind(kind, 0) == 0) return true;
  return false;
}

// Of one host to another: by the ends of the calls that both made.
double offset_us(const RankTrace& from, const RankTrace& to) {
  std::vector<double> differences;
  for (size_t a = 0, b = 0; a < from.calls.size() && b < to.calls.size();) {
    const Call &x = from.calls[a], &y = to.calls[b];
    if (x.sequence == y.sequence && x.name == y.name && ends_together(x.name))
      differences.push_back(y.end_us - x.end_us);
    if (x.sequence <= y.sequence) ++a;
    if (y.sequence <= x.sequence) ++b;
  }
  return median(std::move(differences));
}

}  // namespace

RankTrace read_trace(const std::string& file) {
  std::ifstream input(file);
  if (!input) throw std::runtime_error(file + ": cannot be read");
  RankTrace trace;
  trace.file = file;
  try {
    const Json json = Json::parse(input);
    const Json& about = json.at("metadata");
    trace.rank = about.at("rank");
    trace.size = about.at("size");
    trace.host = about.at("host");
    std::map<uint64_t, Call> calls;
    for (const Json& event : json.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const Json& args = event.at("args");
      Call& call = calls[args.at("sequence").get<uint64_t>()];
      const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
      if (event.at("cat") == "wait") {
        call.waits.push_back({begin, end, args.at("peer")});
        continue;
      }
      call.name = event.at("name");
      call.algorithm = args.at("algorithm");
      call.bytes = args.at("bytes");
      call.begin_us = begin;
      call.end_us = end;
    }
    for (auto& [sequence, call] : calls) {
      if (call.name.empty()) continue;  // did not end
      call.sequence = sequence;
      trace.calls.push_back(std::move(call));
    }
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("{}: no trace that TUTTI_TRACE wrote: {}", file, error.what()));
  }
  return trace;
}

void align(std::vector<RankTrace>& ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  std::map<std::string, double> hosts;
  for (size_t i = 0; i < ranks.size(); ++i) {
    RankTrace& trace = ranks[i];
    if (trace.size != ranks[0].size)
      throw std::runtime_error(
          fmt::format("{} is of {} ranks, {} of {}", ranks[0].file, ranks[0].size, trace.file, trace.size));
    if (i > 0 && trace.rank == ranks[i - 1].rank)
      throw std::runtime_error(fmt::format("{} and {} are both of rank {}", ranks[i - 1].file, trace.file, trace.rank));
    const auto [host, is_new] = hosts.try_emplace(trace.host, 0);
    if (is_new && i > 0) host->second = offset_us(trace, ranks[0]) + ranks[0].offset_us;
    trace.offset_us = host->second;
  }
}

std::string merged_json(const std::vector<RankTrace>& ranks) {
  double first = 1e300;
  for (const RankTrace& trace : ranks)
    for (const Call& call : trace.calls) first = std::min(first, call.begin_us + trace.offset_us);
  Json events = Json::array();
  const auto add = [&](const RankTrace& trace, const char* kind, const std::string& name, double begin, double end,
                       Json args) {
    events.push_back({{"ph", "X"}, {"name", name}, {"cat", kind}, {"pid", trace.rank},
                      {"tid", kind == std::string_view("wait") ? 1 : 0}, {"ts", begin + trace.offset_us - first},
                      {"dur", end - begin}, {"args", std::move(args)}});
  };
  for (const RankTrace& trace : ranks) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", trace.rank},
                      {"args", {{"name", fmt::format("rank {}", trace.rank)}}}});
    for (const Call& call : trace.calls) {
      add(trace, "call", call.name, call.begin_us, call.end_us,
          {{"sequence", call.sequence}, {"algorithm", call.algorithm}, {"bytes", call.bytes}});
      for (const Wait& wait : call.waits)
        add(trace, "wait", fmt::format("for rank {}", wait.peer), wait.begin_us, wait.end_us,
            {{"sequence", call.sequence}, {"call", call.name}, {"peer", wait.peer}});
    }
  }
  return Json{{"traceEvents", std::move(events)}}.dump() + "\n";
}

std::vector<Lateness> lateness(const std::vector<RankTrace>& ranks) {
  std::map<uint64_t, std::vector<std::pair<const RankTrace*, const Call*>>> by_sequence;
  for (const RankTrace& trace : ranks)
    for (const Call& call : trace.calls) by_sequence[call.sequence].emplace_back(&trace, &call);
  std::vector<Lateness> all;
  for (const auto& [sequence, made] : by_sequence) {
    const std::string& name = made[0].second->name;
    const bool alike = std::all_of(made.begin(), made.end(), [&](auto& m) { return m.second->name == name; });
    if (made.size() < ranks.size() || made.size() < 2 || !alike) continue;
    const auto begin = [](const auto& m) { return m.second->begin_us + m.first->offset_us; };
    const auto last = std::max_element(made.begin(), made.end(), [&](auto& a, auto& b) { return begin(a) < begin(b); });
    std::vector<double> others;
    double end = 0;
    for (auto it = made.begin(); it != made.end(); ++it) {
      if (it != last) others.push_back(begin(*it));
      end = std::max(end, it->second->end_us + it->first->offset_us);
    }
    all.push_back({sequence, name, last->first->rank, begin(*last) - median(std::move(others)), end - begin(*last)});
  }
  return all;
}

std::vector<RankSummary> summary(const std::vector<RankTrace>& ranks, double threshold_us) {
  std::map<int, RankSummary> by_rank;
  for (const RankTrace& trace : ranks) by_rank[trace.rank].rank = trace.rank;
  for (const Lateness& call : lateness(ranks)) {
    if (call.late_us <= threshold_us) continue;
    RankSummary& rank = by_rank[call.last_rank];
    ++rank.times_last;
    rank.late_us += call.late_us;
    rank.late_max_us = std::max(rank.late_max_us, call.late_us);
  }
  for (const RankTrace& trace : ranks)
    for (const Call& call : trace.calls)
      for (const Wait& wait : call.waits) {
        by_rank[trace.rank].waited_us += wait.end_us - wait.begin_us;
        if (by_rank.contains(wait.peer)) by_rank[wait.peer].waited_for_us += wait.end_us - wait.begin_us;
      }
  std::vector<RankSummary> all;
  for (const auto& [rank, entry] : by_rank) all.push_back(entry);
  return all;
}

}  // namespace tutti::trace
