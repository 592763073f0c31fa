// Scenes: making, writing, reading and shrinking them.
#include "simulation/scene.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "algorithms/catalog.h"
#include "schedule/collective.h"
#include "simulation/fabric.h"
#include "simulation/scene_parts.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, scene_fault_kinds> fault_names = {
    "death", "silent_death", "stop",  "pause",     "slow",    "mismatch", "link_cut",
    "link_lost", "one_way_loss", "delay", "duplicate", "reorder", "bit_flip", "allocation"};

constexpr std::array<std::string_view, 3> then_names = {"end", "shrink", "replace"};

constexpr std::array<std::string_view, 4> difference_names = {"count", "root", "algorithm", "left_out"};

constexpr int ranks_max = 4096;
constexpr size_t count_max = 1 << 20;

Collective planned_collective(std::string_view text) {
  for (const Collective collective : planned_collectives)
    if (name(collective) == text) return collective;
  refuse_scene(fmt::format("\"{}\" is no collective", text));
}

SceneThen then_named(std::string_view text) {
  const auto found = std::ranges::find(then_names, text);
  if (found == then_names.end()) refuse_scene(fmt::format("then \"{}\" is not end, shrink or replace", text));
  return SceneThen(found - then_names.begin());
}

SceneDifference difference_named(std::string_view text) {
  const auto found = std::ranges::find(difference_names, text);
  if (found == difference_names.end())
    refuse_scene(fmt::format("difference \"{}\" is not count, root, algorithm or left_out", text));
  return SceneDifference(found - difference_names.begin());
}

// Slow enough that messages wait for each other.
constexpr std::array<std::string_view, 6> fabrics = {"switch,link=10G",
                                                     "switch,ranks=4,numa=2,rails=2,link=10G",
                                                     "fat-tree:3x3x3,oversubscription=3,link=10G",
                                                     "fat-tree:2x16,ranks=2,link=25G",
                                                     "dragonfly,link=10G,global=5G",
                                                     "torus,link=10G"};

// Whether it adds in the order of ranks, also among fewer of them.
bool is_strict(const SceneCall& call, int n) {
  const Algorithm* const algorithm = find_algorithm(call.collective, call.algorithm);
  if (!meaning(call.collective).reduces || algorithm->name == "hierarchical" || algorithm->of_shared_cores) return false;
  return algorithm->claim({.rank = 0, .n = n, .root = call.root, .pipeline = 1, .host_of = {}}).left_fold;
}

// More ranks end in the same moment or later, and others are late meanwhile; afterwards survivors may go on.
void add_deaths(Random& random, Scene& scene) {
  if (random.chance(0.3)) scene.faults[0].rank = 0;
  const TimeNs first_at = scene.faults[0].at;
  for (uint64_t more = scene.n > 2 ? random.below(3) : 0; more > 0; --more) {
    SceneFault fault;
    fault.kind = SceneFaultKind(random.below(5));  // death, silent_death, stop, pause, slow
    fault.rank = int(random.below(uint64_t(scene.n)));
    // In the same instant, while the first is being found and decided on, or some time.
    const bool soon = random.chance(0.5);
    const auto later = [&] { return TimeNs(random.below(uint64_t{1} << random.between(8, soon ? 19 : 25))); };
    fault.at = random.chance(0.4) ? first_at : (soon ? first_at : 0) + later();
    const auto same = [&](const SceneFault& other) { return other.rank == fault.rank; };
    if (std::ranges::none_of(scene.faults, same)) scene.faults.push_back(fault);
  }
  scene.then = SceneThen(random.below(3));
}

template <class Suits>
SceneCall random_call(Random& random, int n, Suits suits) {
  SceneCall call;
  // Pipelined ones are priced first, which takes longer than the run.
  const Algorithm* algorithm = nullptr;
  do algorithm = &catalog()[random.below(catalog().size())];
  while (algorithm->pipelined || !suits(*algorithm));
  call.collective = algorithm->collective;
  call.algorithm = algorithm->name;
  call.root = meaning(call.collective).rooted ? int(random.below(uint64_t(n))) : 0;
  call.in_place = random.chance(0.3);
  call.count = random.chance(0.2) ? random.below(3) : random.below(3000);
  return call;
}

// Ranks, links, calls and faults.
void draw(Scene& scene) {
  Random random(scene.seed * 2 + 1);
  scene.n = int(random.between(2, random.chance(0.1) ? 24 : 9));
  scene.channels = int(random.between(1, 2));
  scene.slots = int(random.between(2, 3));
  scene.message_bytes_max = size_t{512} << random.below(4);
  scene.short_probability = random.chance(0.5) ? 0.1 : 0;
  scene.delay_ns_max = random.chance(0.5) ? 20'000 : 0;
  scene.crowded = random.chance(0.5);
  const auto any = [](const Algorithm&) { return true; };
  for (uint64_t i = random.between(1, 4); i > 0; --i) scene.calls.push_back(random_call(random, scene.n, any));
  if (random.chance(0.1)) return;
  SceneFault fault;
  fault.kind = SceneFaultKind(random.below(random.chance(0.3) ? 3 : scene_fault_kinds));  // the first three end ranks
  fault.rank = int(random.below(uint64_t(scene.n)));
  fault.peer = (fault.rank + int(random.between(1, scene.n - 1))) % scene.n;
  fault.at = TimeNs(random.below(uint64_t{1} << random.between(8, 19)));
  // A broadcast's root learns of nothing: it may be ok with another count. Nor does who sends or receives nothing. (Mismatches of
  // other kinds come later, so that those seeds whose scenes have none stay what they were.)
  if (fault.kind == SceneFaultKind::mismatch) scene.calls[0] = {Collective::all_reduce, "ring", 100, 0, false};
  scene.faults.push_back(fault);
  if (fault.kind <= SceneFaultKind::stop && random.chance(0.7)) add_deaths(random, scene);
}

// Calls of which no message of one need meet one of the other; then one in which every rank takes a message from every
// other, so that nobody is through.
void draw_difference(Random& random, Scene& scene) {
  scene.difference = SceneDifference(random.below(difference_names.size()));
  if (scene.difference == SceneDifference::count) return;
  scene.calls = {random_call(random, scene.n, [&](const Algorithm& algorithm) {
    if (scene.difference == SceneDifference::root) return meaning(algorithm.collective).rooted;
    return scene.difference == SceneDifference::left_out || algorithm.collective == Collective::all_reduce;
  })};
  scene.calls[0].count = 100;
  scene.calls.push_back({Collective::all_reduce, "one_shot", 2000, 0, false});
}

}  // namespace

SceneCall odd_call(const Scene& scene, int n) {
  SceneCall call = scene.calls[0];
  call.root %= n;
  if (scene.difference == SceneDifference::root) {
    call.root = int((uint64_t(call.root) + 1 + scene.seed % uint64_t(n - 1)) % uint64_t(n));
  } else if (scene.difference == SceneDifference::algorithm) {
    const auto is_other = [&](const Algorithm& one) {
      return one.collective == call.collective && !one.pipelined && one.name != call.algorithm;
    };
    const auto other = std::ranges::find_if(catalog(), is_other);
    if (other != catalog().end()) call.algorithm = other->name;
  }
  return call;
}

std::string_view name(SceneFaultKind kind) { return fault_names[size_t(kind)]; }

Scene scene_of(uint64_t seed) {
  Scene scene;
  scene.seed = seed;
  draw(scene);
  Random random(seed * 2 + 2);
  if (random.chance(0.4)) scene.fabric = fabrics[random.below(fabrics.size())];
  for (SceneCall& call : scene.calls) call.strict = is_strict(call, scene.n) && random.chance(0.7);
  scene.outbox_messages = random.below(4);
  const auto differs = [](const SceneFault& fault) { return fault.kind == SceneFaultKind::mismatch; };
  if (std::ranges::any_of(scene.faults, differs)) draw_difference(random, scene);
  return scene;
}

std::string to_text(const Scene& scene) {
  nlohmann::ordered_json json;
  json["seed"] = scene.seed;
  json["n"] = scene.n;
  json["channels"] = scene.channels;
  json["slots"] = scene.slots;
  if (scene.outbox_messages > 0) json["outbox_messages"] = scene.outbox_messages;
  json["message_bytes_max"] = scene.message_bytes_max;
  json["short"] = scene.short_probability;
  json["delay_ns"] = scene.delay_ns_max;
  json["crowded"] = scene.crowded;
  if (!scene.fabric.empty()) json["fabric"] = scene.fabric;
  if (scene.transport_mistake != SimulatedMistake::none) json["transport_mistake"] = int(scene.transport_mistake);
  if (scene.mistake != SceneMistake::none) json["mistake"] = int(scene.mistake);
  for (const SceneCall& call : scene.calls)
    json["calls"].push_back({{"call", name(call.collective)}, {"algorithm", call.algorithm}, {"count", call.count},
                             {"root", call.root}, {"in_place", call.in_place}, {"strict", call.strict}});
  put_faults(json, scene.faults);
  if (scene.difference != SceneDifference::count) json["difference"] = difference_names[size_t(scene.difference)];
  if (scene.then != SceneThen::end) json["then"] = then_names[size_t(scene.then)];
  return json.dump();
}

Scene parse_scene(std::string_view text) {
  Scene scene;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    scene.seed = json.value("seed", uint64_t{0});
    scene.n = json.at("n");
    scene.channels = json.value("channels", 1);
    scene.slots = json.value("slots", 2);
    scene.outbox_messages = json.value("outbox_messages", size_t{0});
    scene.message_bytes_max = json.value("message_bytes_max", size_t{4096});
    scene.short_probability = json.value("short", 0.0);
    scene.delay_ns_max = json.value("delay_ns", TimeNs{0});
    scene.crowded = json.value("crowded", false);
    scene.fabric = json.value("fabric", std::string());
    scene.transport_mistake = SimulatedMistake(json.value("transport_mistake", 0));
    scene.mistake = SceneMistake(json.value("mistake", 0));
    scene.difference = difference_named(json.value("difference", std::string("count")));
    scene.then = then_named(json.value("then", std::string("end")));
    for (const nlohmann::json& entry : json.at("calls")) {
      const Collective collective = planned_collective(entry.at("call").get<std::string>());
      const Algorithm* algorithm = find_algorithm(collective, entry.at("algorithm").get<std::string>());
      if (algorithm == nullptr) refuse_scene(fmt::format("{} has no algorithm {}", name(collective), entry.at("algorithm").dump()));
      scene.calls.push_back({collective, algorithm->name, entry.at("count"), entry.value("root", 0),
                             entry.value("in_place", false), entry.value("strict", false)});
    }
    scene.faults = faults_from<SceneFault>(json, fault_names);
  } catch (const nlohmann::json::exception& error) {
    refuse_scene(error.what());
  }
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < scene.n; };
  if (scene.n < 2 || scene.n > ranks_max) refuse_scene(fmt::format("n is {}, not within 2..{}", scene.n, ranks_max));
  if (!scene.fabric.empty()) fabric_of(scene.fabric, scene.n);  // which refuses what is none
  if (scene.channels < 1 || scene.channels > 4) refuse_scene(fmt::format("channels is {}, not within 1..4", scene.channels));
  if (scene.slots < 2 || scene.slots > 64) refuse_scene(fmt::format("slots is {}, not within 2..64", scene.slots));
  if (scene.outbox_messages > 64) refuse_scene(fmt::format("outbox_messages is {}, more than 64", scene.outbox_messages));
  if (scene.message_bytes_max < 64) refuse_scene(fmt::format("message_bytes_max is {}, less than 64", scene.message_bytes_max));
  if (scene.calls.empty()) refuse_scene("there are no calls");
  for (const SceneCall& call : scene.calls) {
    if (!is_rank(call.root)) refuse_scene(fmt::format("root {} is no rank of {}", call.root, scene.n));
    if (call.strict && !is_strict(call, scene.n))
      refuse_scene(fmt::format("{}/{} does not add in the order of ranks", name(call.collective), call.algorithm));
    if (call.count > count_max) refuse_scene(fmt::format("count is {}, more than {}", call.count, count_max));
  }
  check_faults(scene.faults, scene.n);
  return scene;
}

namespace {

// The scene among fewer ranks; false where it cannot be.
bool reduce_ranks(Scene& scene, int n) {
  if (n < 2 || n >= scene.n) return false;
  scene.n = n;
  for (SceneCall& call : scene.calls) call.root %= n;
  for (SceneFault& fault : scene.faults) {
    fault.rank %= n;
    fault.peer %= n;
    if (fault.peer == fault.rank) fault.peer = (fault.rank + 1) % n;
  }
  return true;
}

// All scenes that are one step simpler.
std::vector<Scene> simpler(const Scene& scene) {
  std::vector<Scene> all;
  const auto add = [&](auto change) {
    Scene one = scene;
    change(one);
    if (to_text(one) != to_text(scene)) all.push_back(std::move(one));
  };
  for (size_t i = 0; scene.calls.size() > 1 && i < scene.calls.size(); ++i)
    add([&](Scene& s) { s.calls.erase(s.calls.begin() + long(i)); });
  for (size_t i = 0; i < scene.faults.size(); ++i) add([&](Scene& s) { s.faults.erase(s.faults.begin() + long(i)); });
  for (const int n : {2, scene.n / 2, scene.n - 1}) {
    Scene one = scene;
    if (reduce_ranks(one, n)) all.push_back(std::move(one));
  }
  for (size_t i = 0; i < scene.calls.size(); ++i) {
    for (const size_t count : {size_t{1}, scene.calls[i].count / 2})
      if (count < scene.calls[i].count) add([&](Scene& s) { s.calls[i].count = count; });
    add([&](Scene& s) { s.calls[i].in_place = false; });
    add([&](Scene& s) { s.calls[i].strict = false; });
  }
  add([](Scene& s) { s.then = SceneThen::end; });
  add([](Scene& s) { s.channels = 1; });
  add([](Scene& s) { s.slots = 2; });
  add([](Scene& s) { s.outbox_messages = 0; });
  add([](Scene& s) { s.short_probability = 0; });
  add([](Scene& s) { s.delay_ns_max = 0; });
  add([](Scene& s) { s.crowded = false; });
  add([](Scene& s) { s.fabric.clear(); });
  return all;
}

}  // namespace

Scene shrunk(Scene scene, const std::function<std::string(const Scene&)>& fails) {
  return shrunk_by<Scene>(std::move(scene), fails, simpler);
}

}  // namespace tutti
