// What scenes of calls and of joining have in common: faults as text, and shrinking.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"

namespace tutti {

[[noreturn]] inline void refuse_scene(const std::string& sentence) {
  throw Error(Code::invalid_argument, "scene: " + sentence);
}

// Faults have a kind, a rank, a peer and a time; `name` tells a kind's name.
template <class Fault>
void put_faults(nlohmann::ordered_json& json, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults)
    json["faults"].push_back({{"kind", name(fault.kind)}, {"rank", fault.rank}, {"peer", fault.peer}, {"at_ns", fault.at}});
}

template <class Fault, size_t kinds>
std::vector<Fault> faults_from(const nlohmann::json& json, const std::array<std::string_view, kinds>& names) {
  std::vector<Fault> faults;
  for (const nlohmann::json& entry : json.value("faults", nlohmann::json::array())) {
    const auto text = entry.at("kind").template get<std::string>();
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) refuse_scene(fmt::format("\"{}\" is no fault", text));
    const auto kind = decltype(Fault::kind)(found - names.begin());
    faults.push_back({kind, entry.at("rank"), entry.value("peer", 0), entry.value("at_ns", TimeNs{0})});
  }
  return faults;
}

template <class Fault>
void check_faults(const std::vector<Fault>& faults, int ranks) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < ranks; };
  for (const Fault& fault : faults)
    if (!is_rank(fault.rank) || !is_rank(fault.peer) || fault.at < 0)
      refuse_scene(fmt::format("fault {} of rank {} and {} at {} cannot be", name(fault.kind), fault.rank, fault.peer,
                               fault.at));
}

// Goes to the first simpler scene that fails too, and on from there, until none does.
template <class Scene>
Scene shrunk_by(Scene scene, const std::function<std::string(const Scene&)>& fails,
                const std::function<std::vector<Scene>(const Scene&)>& simpler) {
  constexpr int runs_max = 2000;
  int runs = 0;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Scene& candidate : simpler(scene)) {
      if (++runs > runs_max) return scene;
      if (fails(candidate).empty()) continue;
      scene = candidate;
      smaller = true;
      break;
    }
  }
  return scene;
}

}  // namespace tutti
