// Prices the candidates for ranks on hosts like the one given, and puts the winner's advantage into words.
#include "tools/topo/explain.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "algorithms/catalog.h"
#include "base/environment.h"
#include "base/error.h"
#include "engine/planner.h"
#include "schedule/check.h"
#include "schedule/collective.h"
#include "topology/tree.h"

namespace tutti {
namespace {

// Of `cores`, those of the rank at `place` among so many: one at least.
std::vector<int> share_of(const std::vector<int>& cores, size_t place, size_t ranks) {
  const size_t from = place * cores.size() / ranks, to = (place + 1) * cores.size() / ranks;
  return {cores.begin() + std::ptrdiff_t(from), cores.begin() + std::ptrdiff_t(std::min(std::max(to, from + 1), cores.size()))};
}

PlannerOptions planner_options(const Question& question, const Host& host, const MachineCosts& costs) {
  const size_t n = size_t(question.n);
  PlannerOptions options;
  options.n = question.n;
  options.message_bytes_max = question.message_bytes_max;
  options.forced = question.forced;
  options.schedules = question.schedules;
  std::vector<Place> places(n, place_of(host));
  for (size_t r = 0; r < n; ++r) {
    places[r].host = int(r) * question.hosts / question.n;
    options.host_of.push_back(places[r].host);
  }
  for (size_t first = 0; question.bound && first < n;) {
    const size_t end = size_t(std::upper_bound(options.host_of.begin(), options.host_of.end(), options.host_of[first]) - options.host_of.begin());
    for (size_t r = first; r < end; ++r) places[r].cores_allowed = share_of(host.cores_allowed, r - first, end - first);
    first = end;
  }
  std::vector<LinkKind> links(n * n, question.others);
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to)
      if (question.shared_memory && places[from].host == places[to].host) links[from * n + to] = LinkKind::shm;
  options.costs = cost_model(places, links, costs);
  return options;
}

// What one rank's schedule sends.
void count_sends(Answer& answer, const Schedule& schedule, const Shape& shape, const Group& group) {
  for (const Step& step : schedule) {
    if (step.verb != Verb::send) continue;
    ++answer.messages;
    if (group.host(group.rank) != group.host(int(step.peer)))
      answer.bytes_between_hosts += double(step.a.count) / std::max(1u, shape.output);
  }
}

// What a candidate claims and sends: an algorithm of the catalog, or else a user's schedule.
Answer answer_of(const Question& question, const Candidate& candidate, Group group) {
  Answer answer{std::string(candidate.algorithm), candidate.pipeline, candidate.time_ns, 0, 0, 0, 0};
  const auto set_claim = [&](const Claim& claim) {
    answer.rounds = claim.rounds;
    answer.bytes_sent = claim.bytes_sent;
  };
  if (const Algorithm* algorithm = find_algorithm(question.collective, candidate.algorithm)) {
    set_claim(algorithm->claim(group));
    for (group.rank = 0; group.rank < group.n; ++group.rank)
      count_sends(answer, record(*algorithm, group), algorithm->shape(group), group);
    return answer;
  }
  const Collective planned =
      question.collective == Collective::barrier ? Collective::all_reduce : question.collective;
  for (const UserSchedule& user : question.schedules) {
    if (user.collective != planned || user.name != candidate.algorithm || user.n() != group.n || user.root != 0)
      continue;
    set_claim(user.claim);
    for (group.rank = 0; group.rank < group.n; ++group.rank)
      count_sends(answer, user.ranks[size_t(group.rank)], user.shape, group);
  }
  return answer;
}

std::string times_the_buffer(double bytes) {
  return bytes < 100 ? fmt::format("{:.3g}", bytes) : fmt::format("{:.0f}", bytes);
}

// The first of the winner's advantages over another algorithm that explains most.
std::string advantage(const Answer& winner, const Answer& other, double contention) {
  const bool fewer_rounds = winner.rounds < other.rounds;
  const bool fewer_bytes = winner.bytes_sent < other.bytes_sent - 1e-9;
  const std::string rounds = fmt::format("{} against {}", winner.rounds, other.rounds);
  const std::string bytes = fmt::format("{} against {} times the buffer", times_the_buffer(winner.bytes_sent),
                                        times_the_buffer(other.bytes_sent));
  if (winner.bytes_between_hosts < other.bytes_between_hosts - 1e-9)
    return fmt::format("it sends less between hosts, where links are slowest: {} against {} times the buffer",
                       times_the_buffer(winner.bytes_between_hosts), times_the_buffer(other.bytes_between_hosts));
  if (fewer_rounds && winner.bytes_sent <= other.bytes_sent + 1e-9)
    return fmt::format("it needs fewer rounds of messages ({}) and its busiest rank sends no more bytes", rounds);
  if (fewer_rounds)
    return fmt::format("it needs fewer rounds of messages ({}), which at this size outweighs what its busiest rank "
                       "sends ({})", rounds, bytes);
  if (fewer_bytes)
    return fmt::format("its busiest rank sends fewer bytes ({}), which at this size outweighs its rounds ({})", bytes,
                       rounds);
  if (winner.messages < other.messages)
    return fmt::format("it sends fewer messages in all ({} against {}){}", winner.messages, other.messages,
                       contention > 1 ? ", each of which costs a core that ranks share" : "");
  return "its transfers overlap better: while one message travels, ranks already work on the next";
}

std::string reason_of(const Question& question, const std::vector<Answer>& answers, double contention) {
  if (question.n == 1) return "One rank sends nothing; any algorithm would do.";
  const Answer& winner = answers[0];
  if (answers.size() == 1 && winner.algorithm == question.forced)
    return fmt::format("{} is forced by TUTTI_ALGO.", winner.algorithm);
  const std::string what = question.collective == Collective::barrier ? "a barrier" : human_bytes(question.bytes);
  std::string text = fmt::format("{} wins for {}", winner.algorithm, what);
  constexpr double tie = 1.001;
  size_t next = 1;
  std::string equals;
  for (; next < answers.size() && answers[next].time_ns <= tie * winner.time_ns; ++next)
    equals += (equals.empty() ? "" : ", ") + answers[next].algorithm;
  if (!equals.empty()) text += fmt::format(" (predicted equal, but later in the catalog: {})", equals);
  if (next == answers.size()) return text + ".";
  const Answer& other = answers[next];
  return fmt::format("{}: predicted {:.2f} times as fast as {}, because {}.", text, other.time_ns / winner.time_ns,
                     other.algorithm, advantage(winner, other, contention));
}

std::string human_time(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.2f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.2f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}

}  // namespace

Collective parse_collective(const std::string& text) {
  std::string names;
  for (const Collective collective : planned_collectives) {
    if (name(collective) == text) return collective;
    names += fmt::format("{}, ", name(collective));
  }
  if (text == name(Collective::barrier)) return Collective::barrier;
  names.resize(names.size() - 2);
  throw Error(Code::invalid_argument,
              fmt::format("--explain: \"{}\" is no collective; there are {} and barrier", text, names));
}

uint64_t parse_size(const std::string& text) {
  constexpr uint64_t size_max = uint64_t{1} << 40;
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes > size_max)
    throw Error(Code::invalid_argument,
                fmt::format("--explain: \"{}\" is no size such as 64, 4K, 1M or 2G (at most 1024G)", text));
  return *bytes;
}

Explanation explain(const Question& question, const Host& host, const MachineCosts& costs) {
  const PlannerOptions options = planner_options(question, host, costs);
  Explanation result{question, costs, options.costs.contention, {}, {}};
  const Planner planner(options);
  for (const Candidate& candidate : planner.explain(question.collective, question.bytes, 0)) {
    const bool seen = std::any_of(result.answers.begin(), result.answers.end(),
                                  [&](const Answer& answer) { return answer.algorithm == candidate.algorithm; });
    if (seen) continue;  // with another number of chunks in flight, which is better
    result.answers.push_back(
        answer_of(question, candidate, {0, question.n, 0, candidate.pipeline, options.host_of, options.costs.core_of}));
  }
  result.reason = reason_of(question, result.answers, result.contention);
  return result;
}

std::string to_text(const Explanation& explanation) {
  const Question& q = explanation.question;
  const char* const others = q.others == LinkKind::verbs ? "verbs" : "TCP";
  std::string text = fmt::format("{} of {} among {} ranks on {} host{}, {}\n", name(q.collective),
                                 human_bytes(q.bytes), q.n, q.hosts, q.hosts == 1 ? "" : "s",
                                 !q.shared_memory ? fmt::format("over {}", others)
                                 : q.hosts > 1    ? fmt::format("shared memory inside a host, {} between hosts", others)
                                                  : "over shared memory");
  if (explanation.contention > 1)
    text += fmt::format("{:g} ranks share a core{}: their work adds up, and a message waits for its reader's turn\n",
                        explanation.contention, q.bound ? ", to which they are bound" : "");
  text += fmt::format("\n  {:<20} {:>12} {:>8} {:>12} {:>10} {:>14}\n", "algorithm", "predicted", "rounds",
                      "bytes sent*", "messages", "between hosts*");
  for (const Answer& answer : explanation.answers) {
    const std::string name =
        answer.pipeline > 1 ? fmt::format("{} ({})", answer.algorithm, answer.pipeline) : answer.algorithm;
    text += fmt::format("  {:<20} {:>12} {:>8} {:>12} {:>10} {:>14}\n", name, human_time(answer.time_ns), answer.rounds,
                        times_the_buffer(answer.bytes_sent), answer.messages,
                        times_the_buffer(answer.bytes_between_hosts));
  }
  text += "  * in units of the buffer: by the busiest rank; over all ranks. In parentheses: chunks in flight.\n\n";
  text += explanation.reason + "\n\nmachine constants:";
  for (const MachineCostRow& row : machine_cost_rows())
    text += fmt::format(" {}={:.4g}", row.name, explanation.costs.*row.value);
  return text + "\n";
}

std::string to_json(const Explanation& explanation) {
  const Question& q = explanation.question;
  nlohmann::ordered_json json = {{"collective", name(q.collective)},
                                 {"bytes", q.bytes},
                                 {"n", q.n},
                                 {"hosts", q.hosts},
                                 {"transport", fmt::format("{}{}", q.shared_memory ? "shm," : "",
                                                           q.others == LinkKind::verbs ? "verbs" : "tcp")},
                                 {"ranks_per_core", explanation.contention},
                                 {"bound", q.bound}};
  json["candidates"] = nlohmann::ordered_json::array();
  for (const Answer& answer : explanation.answers)
    json["candidates"].push_back({{"algorithm", answer.algorithm},
                                  {"pipeline", answer.pipeline},
                                  {"time_us", answer.time_ns / 1e3},
                                  {"rounds", answer.rounds},
                                  {"bytes_sent", answer.bytes_sent},
                                  {"messages", answer.messages},
                                  {"bytes_between_hosts", answer.bytes_between_hosts}});
  json["reason"] = explanation.reason;
  for (const MachineCostRow& row : machine_cost_rows())
    json["machine"][std::string(row.name)] = explanation.costs.*row.value;
  return json.dump(2) + "\n";
}

}  // namespace tutti
