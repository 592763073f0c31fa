// One order of all steps of an MSCCL program. Its channels are FIFOs of their own; Tutti has one FIFO from rank to
// rank, so the messages of all channels between two gpus are given one order, and everything else follows from it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "tools/schedule/msccl_program.h"

namespace tutti::msccl {
namespace {

constexpr int slots_max = 2;  // messages between two ranks that every transport holds

struct Message {
  int sent = 0, received = 0;  // numbers of nodes
  int channel = 0;
};

// How the messages of several channels may be merged.
enum class Merge { by_arrival, by_departure, by_channel };

class Graph {
 public:
  explicit Graph(const Program& program) : program_(program) {
    number_nodes();
    add_local_edges();
    match_messages();
  }

  // Whether the program as it stands has an order; the levels by which messages are merged come from it.
  bool set_levels() { return sorted({}, &level_).has_value(); }

  // An order that keeps `more` edges as well. None where they form a circle, which circle() then tells.
  std::optional<std::vector<int>> sorted(const std::vector<std::pair<int, int>>& more,
                                         std::vector<int>* levels = nullptr) {
    std::vector<std::vector<int>> next = next_;
    std::vector<int> waits_for(nodes_.size(), 0), level(nodes_.size(), 0);
    for (const auto& [from, to] : more) next[size_t(from)].push_back(to);
    for (const auto& list : next)
      for (const int to : list) ++waits_for[size_t(to)];
    // The lowest level first: all ranks get on alike.
    using Ready = std::pair<int, int>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (int i = 0; i < int(nodes_.size()); ++i)
      if (waits_for[size_t(i)] == 0) ready.emplace(0, i);
    std::vector<int> order;
    while (!ready.empty()) {
      const int node = ready.top().second;
      ready.pop();
      order.push_back(node);
      for (const int to : next[size_t(node)]) {
        level[size_t(to)] = std::max(level[size_t(to)], level[size_t(node)] + 1);
        if (--waits_for[size_t(to)] == 0) ready.emplace(level[size_t(to)], to);
      }
    }
    if (levels != nullptr) *levels = level;
    if (order.size() == nodes_.size()) return order;
    find_circle(next, waits_for);
    return std::nullopt;
  }

  // Between two gpus, messages in the order of `merge`, at most `slots` of them under way (0: any number).
  std::vector<std::pair<int, int>> fifo_edges(Merge merge, int slots) {
    std::vector<std::pair<int, int>> edges;
    for (auto [pair, messages] : messages_) {
      std::stable_sort(messages.begin(), messages.end(),
                       [&](const Message& a, const Message& b) { return key(a, merge) < key(b, merge); });
      for (size_t i = 1; i < messages.size(); ++i) {
        edges.emplace_back(messages[i - 1].sent, messages[i].sent);
        edges.emplace_back(messages[i - 1].received, messages[i].received);
        if (slots > 0 && i >= size_t(slots)) edges.emplace_back(messages[i - size_t(slots)].received, messages[i].sent);
      }
    }
    return edges;
  }

  std::string circle() const {
    std::string text;
    for (size_t i = 0; i < circle_.size() && i < 6; ++i)
      text += fmt::format("{}{}", i > 0 ? " waits for " : "", name(nodes_[size_t(circle_[i])]));
    return text + (circle_.size() > 6 ? " and so on" : "");
  }
  std::vector<Node> nodes_of(const std::vector<int>& order) const {
    std::vector<Node> result;
    for (const int i : order) result.push_back(nodes_[size_t(i)]);
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, program_.source + ": " + why);
  }
  int number(int gpu, int block, int step) const { return first_[size_t(gpu)][size_t(block)] + step; }
  const Step& step(const Node& node) const {
    return program_.gpus[size_t(node.gpu)].blocks[size_t(node.block)].steps[size_t(node.step)];
  }

  void number_nodes() {
    for (int g = 0; g < program_.n(); ++g) {
      first_.emplace_back();
      for (const ThreadBlock& block : program_.gpus[size_t(g)].blocks) {
        first_.back().push_back(int(nodes_.size()));
        for (int i = 0; i < int(block.steps.size()); ++i) nodes_.push_back({g, block.id, i});
      }
    }
    next_.resize(nodes_.size());
  }

  void add_local_edges() {
    for (int i = 0; i < int(nodes_.size()); ++i) {
      const Node& node = nodes_[size_t(i)];
      if (node.step > 0) next_[size_t(i - 1)].push_back(i);
      const Step& s = step(node);
      if (s.waits_for_tb >= 0) next_[size_t(number(node.gpu, s.waits_for_tb, s.waits_for_step))].push_back(i);
    }
  }

  // The i-th send on a channel is the i-th receive on it.
  void match_messages() {
    std::map<std::tuple<int, int, int>, std::pair<std::vector<int>, std::vector<int>>> channels;  // from, to, channel
    std::map<std::tuple<int, int, int, bool>, int> owner;
    for (int i = 0; i < int(nodes_.size()); ++i) {
      const Node& node = nodes_[size_t(i)];
      const ThreadBlock& block = program_.gpus[size_t(node.gpu)].blocks[size_t(node.block)];
      for (const bool sending : {true, false}) {
        if (!(sending ? sends(step(node).op) : receives(step(node).op))) continue;
        const int from = sending ? node.gpu : block.recv_from, to = sending ? block.send_to : node.gpu;
        const auto [one, is_new] = owner.try_emplace({from, to, block.channel, sending}, block.id);
        if (one->second != block.id)
          refuse(fmt::format("gpu {}: tb {} and tb {} both {} gpu {} on channel {}", node.gpu, one->second, block.id,
                             sending ? "send to" : "receive from", sending ? to : from, block.channel));
        auto& ends = channels[{from, to, block.channel}];
        (sending ? ends.first : ends.second).push_back(i);
      }
    }
    for (const auto& [key, ends] : channels) {
      const auto [from, to, channel] = key;
      if (ends.first.size() != ends.second.size())
        refuse(fmt::format("gpu {} sends {} messages to gpu {} on channel {}, which receives {}", from,
                           ends.first.size(), to, channel, ends.second.size()));
      for (size_t i = 0; i < ends.first.size(); ++i) add_message(from, to, channel, ends.first[i], ends.second[i]);
    }
  }

  void add_message(int from, int to, int channel, int sent, int received) {
    const Node &sender = nodes_[size_t(sent)], &receiver = nodes_[size_t(received)];
    if (step(sender).count != step(receiver).count)
      refuse(fmt::format("{} sends {} chunks where {} receives {}", name(sender), step(sender).count, name(receiver),
                         step(receiver).count));
    messages_[{from, to}].push_back({sent, received, channel});
    next_[size_t(sent)].push_back(received);
  }

  std::tuple<int, int, int> key(const Message& m, Merge merge) const {
    const int sent = level_[size_t(m.sent)], received = level_[size_t(m.received)];
    switch (merge) {
      case Merge::by_arrival: return {received, sent, m.channel};
      case Merge::by_departure: return {sent, received, m.channel};
      case Merge::by_channel: return {m.channel, sent, received};
    }
    return {};
  }

  // Among nodes that still wait for something, walks from one to one that it waits for, until one comes again.
  void find_circle(const std::vector<std::vector<int>>& next, const std::vector<int>& waits_for) {
    std::vector<int> before(nodes_.size(), -1);
    for (int i = 0; i < int(nodes_.size()); ++i)
      if (waits_for[size_t(i)] > 0)
        for (const int to : next[size_t(i)]) before[size_t(to)] = i;
    int at = int(std::find_if(waits_for.begin(), waits_for.end(), [](int n) { return n > 0; }) - waits_for.begin());
    for (size_t i = 0; i < nodes_.size(); ++i) at = before[size_t(at)];  // now surely within a circle
    circle_ = {at};
    for (int node = before[size_t(at)]; node != at; node = before[size_t(node)]) circle_.push_back(node);
    circle_.push_back(at);
  }

  const Program& program_;
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> first_;  // [gpu][block]: the number of its first node
  std::vector<std::vector<int>> next_;   // [node]: those that wait for it
  std::map<std::pair<int, int>, std::vector<Message>> messages_;
  std::vector<int> level_;  // of the program as it stands: the longest chain before a node
  std::vector<int> circle_;
};

}  // namespace

std::vector<std::vector<Node>> orders(const Program& program) {
  Graph graph(program);
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::invalid_argument, fmt::format("{}: {}: {}", program.source, why, graph.circle()));
  };
  if (!graph.set_levels()) refuse("steps wait for each other for ever");
  std::vector<std::vector<Node>> result;
  for (const Merge merge : {Merge::by_arrival, Merge::by_departure, Merge::by_channel})
    for (int slots = 1; slots <= slots_max; ++slots)
      if (const auto order = graph.sorted(graph.fifo_edges(merge, slots))) result.push_back(graph.nodes_of(*order));
  if (!result.empty()) return result;
  if (!graph.sorted(graph.fifo_edges(Merge::by_arrival, 0)))
    refuse("the messages of several channels between two gpus cannot be received in the order in which they are sent");
  graph.sorted(graph.fifo_edges(Merge::by_arrival, slots_max));
  refuse(fmt::format("more than {} messages would have to be under way from one gpu to another", slots_max));
  return result;
}

}  // namespace tutti::msccl
