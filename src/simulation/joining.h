// Joining in virtual time: real bootstraps on simulated hosts meet, link, exchange, grow by newcomers and leave, while
// strangers knock, descriptors run out, callers contradict each other, and processes end at any moment.
//
// What must hold of every run: who joins is told the truth (the same members, the same bytes); where nothing ends it, all
// join, soon; every call ends by its deadline; whoever is blamed is guilty; all survivors end alike; of a stranger no more
// is read than a greeting and a proof; every process gives back its descriptors and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "simulation/processes.h"

namespace tutti {

enum class JoiningFaultKind : uint8_t {
  death,         // a rank's process ends
  silent_death,  // its host loses power
  stop,          // it stops for good
  pause,         // for a while that is no silence yet
  late,          // it comes late, not too late
  absent,        // it never comes
  twice,         // another caller comes as the same rank
  other_size,    // it was told another number of ranks
  other_version, // its build speaks another version
  other_key,     // it was given another job's key
  cut,           // its host and `peer`'s do not reach each other
  descriptors,   // it may open only a few
  port_held,     // others listen already where the meeting place is to be
  silent_stranger,  // somebody connects to listeners and says nothing
  babbling_stranger,  // or says something
  lying_stranger,   // speaks the protocol, without the key
  crowd          // many connect at once, and stay
};
inline constexpr size_t joining_fault_kinds = 17;
std::string_view name(JoiningFaultKind kind);

struct JoiningFault {
  JoiningFaultKind kind = JoiningFaultKind::death;
  int rank = 0;
  int peer = 0;
  TimeNs at = 0;
};

struct JoiningScene {
  uint64_t seed = 0;
  int n = 2;
  int newcomers = 0;         // with whom those who have joined grow
  bool agreed_port = false;  // the meeting place is at a port that all know; else its address is told
  bool place_apart = false;  // its process is no rank's, as where a launcher makes the id
  TimeNs spread_ns = 0;      // ranks come within this time
  std::vector<JoiningFault> faults;
  ProcessMistake mistake = ProcessMistake::none;
  bool key_leaked = false;   // a mistake: strangers know the key
};

struct JoiningResult {
  std::string problem;   // "": everything was as it must be
  int survivors = 0;
  int joined = 0;        // of them, with everything that they did ok
  std::string sentence;  // of one that failed
  TimeNs ended_at = 0;   // virtual
  size_t events = 0;
  size_t messages_max = 0;  // sent and received by one rank
  double messages_mean = 0;
};

struct JoiningTimes {
  static constexpr TimeNs timeout_ns = 3 * ns_per_s;
  static constexpr TimeNs silence_ns = 400 * ns_per_ms;
};

JoiningScene joining_scene_of(uint64_t seed);
JoiningResult play(const JoiningScene& scene);

// As JSON on one line, and back. Throws Error(invalid_argument).
std::string to_text(const JoiningScene& scene);
JoiningScene parse_joining_scene(std::string_view text);

// The smallest scene that was found for which `fails` still says what is wrong.
JoiningScene shrunk(JoiningScene scene, const std::function<std::string(const JoiningScene&)>& fails);

}  // namespace tutti
