// Joining scenes: making, writing, reading and shrinking them.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "simulation/joining.h"
#include "simulation/scene_parts.h"

namespace tutti {
namespace {

using Kind = JoiningFaultKind;

constexpr std::array<std::string_view, joining_fault_kinds> fault_names = {
    "death",     "silent_death", "stop",        "pause", "late",        "absent",    "twice",           "other_size",
    "other_version", "other_key", "cut", "descriptors", "port_held", "silent_stranger", "babbling_stranger",
    "lying_stranger", "crowd"};

constexpr int ranks_max = 65536;

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
  put_faults(json, scene.faults);
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
    scene.faults = faults_from<JoiningFault>(json, fault_names);
  } catch (const nlohmann::json::exception& error) {
    refuse_scene(error.what());
  }
  if (scene.n < 1 || scene.n > ranks_max) refuse_scene(fmt::format("n is {}, not within 1..{}", scene.n, ranks_max));
  if (scene.newcomers < 0 || scene.newcomers > ranks_max - scene.n) refuse_scene(fmt::format("newcomers is {}", scene.newcomers));
  if (scene.spread_ns < 0) refuse_scene(fmt::format("spread_ns is {}, less than 0", scene.spread_ns));
  check_faults(scene.faults, scene.n + scene.newcomers);
  return scene;
}

namespace {

// All scenes that are one step simpler.
std::vector<JoiningScene> simpler(const JoiningScene& scene) {
  std::vector<JoiningScene> all;
  const auto add = [&](auto change) {
    all.push_back(scene);
    change(all.back());
  };
  for (size_t i = 0; i < scene.faults.size(); ++i)
    add([&](JoiningScene& one) { one.faults.erase(one.faults.begin() + long(i)); });
  for (const auto& [n, newcomers] : {std::pair(scene.n / 2, scene.newcomers), std::pair(scene.n - 1, scene.newcomers),
                                     std::pair(scene.n, scene.newcomers / 2)}) {
    if (n < 1 || n + newcomers < 2 || n + newcomers >= scene.n + scene.newcomers) continue;
    add([ranks = n, more = newcomers](JoiningScene& one) {
      one.n = ranks;
      one.newcomers = more;
      for (JoiningFault& fault : one.faults) fault.rank %= ranks + more, fault.peer %= ranks + more;
    });
  }
  if (scene.spread_ns > 0) add([](JoiningScene& one) { one.spread_ns = 0; });
  if (scene.agreed_port) add([](JoiningScene& one) { one.agreed_port = false; });
  return all;
}

}  // namespace

JoiningScene shrunk(JoiningScene scene, const std::function<std::string(const JoiningScene&)>& fails) {
  return shrunk_by<JoiningScene>(std::move(scene), fails, simpler);
}

}  // namespace tutti
