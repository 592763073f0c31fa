// Joining scenes: making, writing, reading and shrinking them.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "simulation/joining.h"

namespace tutti {
namespace {

using Kind = JoiningFaultKind;

constexpr std::array<std::string_view, joining_fault_kinds> fault_names = {
    "death",     "silent_death", "stop",        "pause", "late",        "absent",    "twice",           "other_size",
    "other_version", "other_key", "cut", "descriptors", "port_held", "silent_stranger", "babbling_stranger",
    "lying_stranger", "crowd"};

constexpr int ranks_max = 65536;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, "scene: " + sentence); }

Kind fault_named(std::string_view text) {
  const auto found = std::ranges::find(fault_names, text);
  if (found == fault_names.end()) refuse(fmt::format("\"{}\" is no fault", text));
  return Kind(found - fault_names.begin());
}

JoiningFault random_fault(Random& random, const JoiningScene& scene) {
  JoiningFault fault;
  fault.kind = Kind(random.below(joining_fault_kinds));
  const int all = scene.n + scene.newcomers;
  fault.rank = random.chance(0.2) ? 0 : int(random.below(uint64_t(all)));
  fault.peer = (fault.rank + int(random.between(1, std::max(1, all - 1)))) % all;
  // While they come, meet and link, or some time later.
  fault.at = random.chance(0.7) ? TimeNs(random.below(uint64_t(scene.spread_ns) + 3 * ns_per_ms))
                                : TimeNs(random.below(100 * ns_per_ms));
  return fault;
}

}  // namespace

std::string_view name(JoiningFaultKind kind) { return fault_names[size_t(kind)]; }

JoiningScene joining_scene_of(uint64_t seed) {
  Random random(seed * 2 + 1);
  JoiningScene scene;
  scene.seed = seed;
  scene.n = int(random.between(1, random.chance(0.1) ? 24 : 9));
  scene.newcomers = random.chance(0.4) ? int(random.between(1, 3)) : 0;
  scene.agreed_port = random.chance(0.5);
  scene.place_apart = !scene.agreed_port && random.chance(0.3);
  scene.spread_ns = random.chance(0.3) ? 0 : TimeNs(random.below(20 * ns_per_ms));
  if (scene.n + scene.newcomers == 1) scene.n = 2;
  const uint64_t faults = random.chance(0.1) ? 0 : random.chance(0.3) ? 2 : 1;
  for (uint64_t i = 0; i < faults; ++i) scene.faults.push_back(random_fault(random, scene));
  return scene;
}

std::string to_text(const JoiningScene& scene) {
  nlohmann::ordered_json json;
  json["joining"] = true;
  json["seed"] = scene.seed;
  json["n"] = scene.n;
  json["newcomers"] = scene.newcomers;
  json["agreed_port"] = scene.agreed_port;
  if (scene.place_apart) json["place_apart"] = true;
  json["spread_ns"] = scene.spread_ns;
  if (scene.mistake != ProcessMistake::none) json["mistake"] = int(scene.mistake);
  if (scene.key_leaked) json["key_leaked"] = true;
  for (const JoiningFault& fault : scene.faults)
    json["faults"].push_back({{"kind", name(fault.kind)}, {"rank", fault.rank}, {"peer", fault.peer}, {"at_ns", fault.at}});
  return json.dump();
}

JoiningScene parse_joining_scene(std::string_view text) {
  JoiningScene scene;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    scene.seed = json.value("seed", uint64_t{0});
    scene.n = json.at("n");
    scene.newcomers = json.value("newcomers", 0);
    scene.agreed_port = json.value("agreed_port", false);
    scene.place_apart = json.value("place_apart", false);
    scene.spread_ns = json.value("spread_ns", TimeNs{0});
    scene.mistake = ProcessMistake(json.value("mistake", 0));
    scene.key_leaked = json.value("key_leaked", false);
    for (const nlohmann::json& entry : json.value("faults", nlohmann::json::array()))
      scene.faults.push_back({fault_named(entry.at("kind").get<std::string>()), entry.at("rank"), entry.value("peer", 0),
                              entry.value("at_ns", TimeNs{0})});
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  }
  if (scene.n < 1 || scene.n > ranks_max) refuse(fmt::format("n is {}, not within 1..{}", scene.n, ranks_max));
  if (scene.newcomers < 0 || scene.newcomers > ranks_max - scene.n) refuse(fmt::format("newcomers is {}", scene.newcomers));
  if (scene.spread_ns < 0) refuse(fmt::format("spread_ns is {}, less than 0", scene.spread_ns));
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < scene.n + scene.newcomers; };
  for (const JoiningFault& fault : scene.faults)
    if (!is_rank(fault.rank) || !is_rank(fault.peer) || fault.at < 0)
      refuse(fmt::format("fault {} of rank {} and {} at {} cannot be", name(fault.kind), fault.rank, fault.peer, fault.at));
  return scene;
}

JoiningScene shrunk(JoiningScene scene, const std::function<std::string(const JoiningScene&)>& fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<JoiningScene> simpler;
    for (size_t i = 0; i < scene.faults.size(); ++i) {
      simpler.push_back(scene);
      simpler.back().faults.erase(simpler.back().faults.begin() + long(i));
    }
    for (const auto& [n, newcomers] : {std::pair(scene.n / 2, scene.newcomers), std::pair(scene.n - 1, scene.newcomers),
                                       std::pair(scene.n, scene.newcomers / 2)}) {
      if (n < 1 || n + newcomers < 2 || n + newcomers >= scene.n + scene.newcomers) continue;
      simpler.push_back(scene);
      simpler.back().n = n;
      simpler.back().newcomers = newcomers;
      for (JoiningFault& fault : simpler.back().faults) fault.rank %= n + newcomers, fault.peer %= n + newcomers;
    }
    if (scene.spread_ns > 0) simpler.push_back(scene), simpler.back().spread_ns = 0;
    if (scene.agreed_port) simpler.push_back(scene), simpler.back().agreed_port = false;
    for (const JoiningScene& one : simpler) {
      if (fails(one).empty()) continue;
      scene = one;
      smaller = true;
      break;
    }
  }
  return scene;
}

}  // namespace tutti
