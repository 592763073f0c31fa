// Fabrics from texts and files.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "simulation/fabric.h"
#include "simulation/fabric_graph.h"

namespace tutti {
namespace {

constexpr int hosts_max = 1 << 24;

// As the cost model has it between hosts.
constexpr double fan_out_default = 0.25;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

struct Suffix {
  std::string_view text;
  double factor;
};
std::vector<Suffix> suffixes_of(char unit) {
  switch (unit) {
    case 'b': return {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}};
    case 'B': return {{"", 1}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    case 't': return {{"ns", 1}, {"", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    default: return {{"", 1}, {"K", 1024.0}, {"M", 1048576.0}, {"G", 1073741824.0}, {"T", 1099511627776.0}};
  }
}

int count_of(std::string_view text, std::string_view what, int lowest, int highest) {
  const double value = quantity(text, 'n', what);
  if (value < lowest || value > highest || value != std::floor(value))
    refuse(fmt::format("{} is {}, which is not one of {} to {}", what, text, lowest, highest));
  return int(value);
}

}  // namespace

double quantity(std::string_view text, char unit, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(end, size_t(text.data() + text.size() - end));
  if (error == std::errc() && value >= 0 && std::isfinite(value))
    for (const Suffix& known : suffixes_of(unit))
      if (suffix == known.text) return value * known.factor;
  std::string all;
  for (const Suffix& known : suffixes_of(unit)) all += fmt::format("{}{}", all.empty() ? "" : " ", known.text);
  refuse(fmt::format("{} is \"{}\", which is no number with one of the suffixes {}", what, text, all));
}

// Puts a fabric together; throws Error(invalid_argument).
class FabricMaker {
 public:
  FabricMaker(std::string_view text, int n, const MachineCosts& costs) : n_(n) {
    fabric_.text_ = text;
    fabric_.costs_ = costs;
    fabric_.network_ = {costs.network_latency_ns, costs.tcp_message_ns, costs.loopback_byte_ns, costs.tcp_receive_ns,
                        0, 0, fan_out_default};
    fabric_.near_ = {0, costs.shm_message_ns, costs.copy_byte_ns, costs.hop_ns, 3 * costs.hop_ns, shm_inline_bytes};
    fabric_.far_ = {0, costs.shm_message_ns, costs.copy_byte_ns, costs.far_hop_ns, 3 * costs.far_hop_ns,
                    shm_inline_bytes};
    link_byte_ns_ = global_byte_ns_ = costs.network_byte_ns;
  }

  Fabric from_text(std::string_view text) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view head = text.substr(0, comma), kind = head.substr(0, head.find(':'));
    const std::string_view dimensions = kind.size() == head.size() ? "" : head.substr(kind.size() + 1);
    take_keys(comma == text.size() ? "" : text.substr(comma + 1));
    take_dimensions(kind, dimensions);
    return finish();
  }

  Fabric from_links(const nlohmann::json& json) {
    take_keys(json.value("keys", ""));
    fabric_.kind_ = Fabric::Kind::graph;
    fabric_.hosts_ = json.at("hosts").get<int>();
    if (fabric_.hosts_ < 1 || size_t(fabric_.hosts_) > FabricGraph::nodes_max)
      refuse(fmt::format("hosts is {}, which is not one of 1 to {}", fabric_.hosts_, FabricGraph::nodes_max));
    if (fabric_.rails_ != 1) refuse("rails are links of their own here");
    add_links(json.at("links"));
    return finish();
  }

 private:
  // --- Keys.
  void take_keys(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      const std::string_view pair = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const size_t equal = pair.find('=');
      if (equal == std::string_view::npos) refuse(fmt::format("fabric: \"{}\" is no key=value", pair));
      take_key(pair.substr(0, equal), pair.substr(equal + 1));
    }
  }
  void take_key(std::string_view key, std::string_view value) {
    const std::string what = fmt::format("fabric: {}", key);
    FabricEnds& network = fabric_.network_;
    const auto positive = [&](char unit) {
      const double number = quantity(value, unit, what);
      if (number <= 0) refuse(fmt::format("{} is {}, which is not above 0", what, value));
      return number;
    };
    if (key == "ranks") fabric_.ranks_per_host_ = count_of(value, what, 1, 1024);
    else if (key == "rails") fabric_.rails_ = count_of(value, what, 1, 64);
    else if (key == "numa") fabric_.numa_ = count_of(value, what, 1, 64);
    else if (key == "cores") fabric_.shared_cores_ = count_of(value, what, 0, 4096);
    else if (key == "link") link_byte_ns_ = 8e9 / positive('b');
    else if (key == "down") down_byte_ns_ = 8e9 / positive('b');
    else if (key == "global") global_ = true, global_byte_ns_ = 8e9 / positive('b');
    else if (key == "socket") socket_byte_ns_ = 1e9 / positive('B');
    else if (key == "hop") hop_ns_ = quantity(value, 't', what);
    else if (key == "latency") network.latency_ns = quantity(value, 't', what);
    else if (key == "message") network.message_ns = quantity(value, 't', what);
    else if (key == "receive") network.receive_ns = quantity(value, 't', what);
    else if (key == "byte") network.byte_ns = quantity(value, 't', what);
    else if (key == "fan_out") network.fan_out = quantity(value, 'n', what);
    else if (key == "buffer") fabric_.buffer_bytes_ = uint64_t(quantity(value, 'n', what));
    else if (key == "burst") fabric_.burst_bytes_ = uint64_t(quantity(value, 'n', what));
    else if (key == "oversubscription") oversubscription_ = std::max(1.0, positive('n'));
    else
      refuse(fmt::format("fabric: \"{}\" is none of ranks, rails, numa, cores, link, down, global, socket, hop, latency, "
                         "message, receive, byte, fan_out, buffer, burst, oversubscription", key));
  }

  // --- Dimensions.
  static std::vector<int> numbers(std::string_view text) {
    std::vector<int> numbers;
    while (!text.empty()) {
      const size_t end = std::min(text.find('x'), text.size());
      numbers.push_back(count_of(text.substr(0, end), "fabric: a dimension", 1, hosts_max));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return numbers;
  }
  int hosts_needed() const { return (n_ + fabric_.ranks_per_host_ - 1) / fabric_.ranks_per_host_; }

  void take_dimensions(std::string_view kind, std::string_view text) {
    std::vector<int>& sizes = fabric_.dimensions_ = numbers(text);
    const bool as_needed = sizes.empty();
    if (kind == "switch") {
      if (as_needed) sizes = {hosts_needed()};
      if (sizes.size() != 1) refuse(fmt::format("fabric: switch has one dimension, not \"{}\"", text));
    } else if (kind == "fat-tree") {
      if (as_needed) sizes = tree_of(hosts_needed());
    } else if (kind == "dragonfly") {
      if (as_needed) sizes = {std::max(1, (hosts_needed() + 127) / 128), 16, 8};
      if (sizes.size() != 3) refuse(fmt::format("fabric: dragonfly is GROUPSxROUTERSxHOSTS, not \"{}\"", text));
    } else if (kind == "torus") {
      if (as_needed) sizes = cube_of(hosts_needed());
    } else {
      refuse(fmt::format("fabric: \"{}\" is none of switch, fat-tree, dragonfly, torus", kind));
    }
    double product = 1;
    for (const int size : sizes) product *= size;
    if (product > hosts_max) refuse(fmt::format("fabric: {} has {:.0f} hosts, more than {}", text, product, hosts_max));
    fabric_.hosts_ = int(product);
    if (kind == "dragonfly") add_dragonfly();
    else if (kind == "torus") add_torus();
    else add_tree();
  }
  // Switches of 32 ports down.
  static std::vector<int> tree_of(int hosts) {
    std::vector<int> sizes{std::min(hosts, 32)};
    for (int left = (hosts + 31) / 32; left > 1; left = (left + 31) / 32) sizes.push_back(std::min(left, 32));
    return sizes;
  }
  static std::vector<int> cube_of(int hosts) {
    int side = 1;
    while (side * side * side < hosts) ++side;
    return {side, side, (hosts + side * side - 1) / (side * side)};
  }

  // --- Tiers of links. Those of the hosts come first, as routes expect.
  void add_tier(std::string name, size_t per_plane, double byte_ns) {
    const size_t planes = fabric_.kind_ == Fabric::Kind::graph ? 1 : size_t(fabric_.rails_);
    if (fabric_.links_ + per_plane * planes > size_t{1} << 31) refuse("fabric: more than 2^31 links");
    fabric_.tiers_.push_back({std::move(name), fabric_.links_, uint32_t(per_plane * planes), byte_ns, hop_ns_});
    fabric_.per_plane_.push_back(uint32_t(per_plane));
    fabric_.links_ += uint32_t(per_plane * planes);
  }
  void add_host_links() {
    add_tier("host up", size_t(fabric_.hosts_), link_byte_ns_);
    add_tier("host down", size_t(fabric_.hosts_), down_byte_ns_ > 0 ? down_byte_ns_ : link_byte_ns_);
  }
  void add_tree() {
    fabric_.kind_ = Fabric::Kind::tree;
    add_host_links();
    double below = 1, narrowed = 1;
    for (size_t level = 0; level + 1 < fabric_.dimensions_.size(); ++level) {
      below *= fabric_.dimensions_[level];
      narrowed *= oversubscription_;
      fabric_.below_.push_back(int(below));
      fabric_.up_links_.push_back(std::max(1, int(std::lround(below / narrowed))));
      const size_t links = size_t(fabric_.hosts_ / int(below)) * size_t(fabric_.up_links_.back());
      const std::string name = level == 0 ? "leaf" : fmt::format("level {}", level + 1);
      add_tier(name + " up", links, link_byte_ns_);
      add_tier(name + " down", links, link_byte_ns_);
    }
  }
  void add_dragonfly() {
    fabric_.kind_ = Fabric::Kind::dragonfly;
    const size_t groups = size_t(fabric_.dimensions_[0]), routers = size_t(fabric_.dimensions_[1]);
    add_host_links();
    add_tier("local", groups * routers * routers, link_byte_ns_);
    add_tier("global", groups * groups, global_ ? global_byte_ns_ : link_byte_ns_);
  }
  void add_torus() {
    fabric_.kind_ = Fabric::Kind::torus;
    size_t hops = 0;
    for (const int size : fabric_.dimensions_) hops += size_t(size / 2);
    if (hops + 2 > FabricPath::hops_max)
      refuse(fmt::format("fabric: a torus whose longest route has {} hops; at most {} are routed", hops + 2,
                         FabricPath::hops_max));
    add_host_links();
    add_tier("torus", size_t(fabric_.hosts_) * fabric_.dimensions_.size() * 2, link_byte_ns_);
  }

  // --- A graph's links: those of one name, speed and latency are a tier.
  struct Line {
    std::string name;
    double byte_ns, hop_ns;
    int from, to;
  };
  int node_of(const std::string& name) {
    if (name.rfind("host", 0) == 0 && name.size() > 4 && std::isdigit(static_cast<unsigned char>(name[4])) != 0)
      return count_of(std::string_view(name).substr(4), "a link's host", 0, fabric_.hosts_ - 1);
    return switches_.emplace(name, fabric_.hosts_ + int(switches_.size())).first->second;
  }
  void add_links(const nlohmann::json& json) {
    std::vector<Line> lines;
    for (const nlohmann::json& entry : json) {
      const auto text = [&](const char* key, const char* otherwise) { return entry.value(key, otherwise); };
      const double bits = quantity(text("link", "10G"), 'b', "a link's speed");
      if (bits <= 0) refuse("a link's speed is not above 0");
      Line line{text("name", "link"), 8e9 / bits, quantity(text("hop", "500ns"), 't', "a link's hop"),
                node_of(entry.at("from").get<std::string>()), node_of(entry.at("to").get<std::string>())};
      if (line.from == line.to) refuse(fmt::format("a link goes from {} to itself", text("from", "")));
      lines.push_back(line);
      if (!entry.value("one_way", false)) {
        std::swap(line.from, line.to);
        lines.push_back(line);
      }
    }
    auto graph = std::make_shared<FabricGraph>();
    graph->nodes = size_t(fabric_.hosts_) + switches_.size();
    if (graph->nodes > FabricGraph::nodes_max)
      refuse(fmt::format("{} hosts and switches, more than {}", graph->nodes, FabricGraph::nodes_max));
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return std::tie(a.name, a.byte_ns, a.hop_ns) < std::tie(b.name, b.byte_ns, b.hop_ns);
    });
    graph->out.resize(graph->nodes);
    graph->in.resize(graph->nodes);
    for (const Line& line : lines) {
      const bool same = !fabric_.tiers_.empty() && fabric_.tiers_.back().name == line.name &&
                        fabric_.tiers_.back().byte_ns == line.byte_ns && fabric_.tiers_.back().latency_ns == line.hop_ns;
      if (!same) {
        hop_ns_ = line.hop_ns;
        add_tier(line.name, 0, line.byte_ns);
      }
      const auto index = uint32_t(graph->links.size());
      graph->links.push_back({line.from, line.to, fabric_.links_++, uint32_t(fabric_.tiers_.size() - 1)});
      ++fabric_.tiers_.back().count;
      graph->out[size_t(line.from)].push_back(index);
      graph->in[size_t(line.to)].push_back(index);
    }
    prove_joined(*graph);
    fabric_.graph_ = std::move(graph);
  }
  // Strongly: every host reaches host 0 and is reached from it.
  void prove_joined(const FabricGraph& graph) const {
    for (int host = 1; host < fabric_.hosts_; ++host)
      if (graph.towards(0)[size_t(host)] == ~0u || graph.towards(host)[0] == ~0u)
        refuse(fmt::format("no links lead between host0 and host{}", host));
  }

  Fabric finish() {
    if (socket_byte_ns_ > 0 && fabric_.numa_ > 1) {
      fabric_.socket_tier_ = uint32_t(fabric_.tiers_.size());
      const size_t first = fabric_.links_;
      fabric_.tiers_.push_back({"socket", uint32_t(first), uint32_t(2 * fabric_.hosts_), socket_byte_ns_, 0});
      fabric_.per_plane_.push_back(0);
      fabric_.links_ += uint32_t(2 * fabric_.hosts_);
    }
    if (fabric_.rails_ > fabric_.ranks_per_host_)
      refuse(fmt::format("fabric: rails is {}, and a host has only {} ranks", fabric_.rails_, fabric_.ranks_per_host_));
    if (n_ > fabric_.ranks())
      refuse(fmt::format("fabric: \"{}\" holds {} ranks, and {} are asked for", fabric_.text_, fabric_.ranks(), n_));
    return std::move(fabric_);
  }

  const int n_;
  Fabric fabric_;
  double link_byte_ns_ = 0, down_byte_ns_ = 0, global_byte_ns_ = 0, socket_byte_ns_ = 0;
  bool global_ = false;
  double hop_ns_ = 500;
  double oversubscription_ = 1;
  std::map<std::string, int> switches_;
};

Fabric parse_fabric(std::string_view text, int n, const MachineCosts& costs) {
  return FabricMaker(text, n, costs).from_text(text);
}

Fabric fabric_of(const std::string& text, int n) {
  return text.ends_with(".json") ? load_fabric(text, n) : parse_fabric(text, n);
}

Fabric load_fabric(const std::string& path, int n, const MachineCosts& costs) {
  std::ifstream file(path);
  if (!file) throw system_error("cannot read " + path, errno);
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    if (json.contains("fabric")) return parse_fabric(json.at("fabric").get<std::string>(), n, costs);
    return FabricMaker(path, n, costs).from_links(json);
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("{}: {}", path, error.what()));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace tutti
