// A scene: everything that decides what happens in one simulated run, as data. Made from a seed, written as one line,
// and made smaller while it still fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/signature.h"
#include "transport/simulated/network.h"

namespace tutti {

enum class SceneFaultKind : uint8_t {
  death,          // the process ends; its peers' links close
  silent_death,   // its host loses power: nothing closes
  stop,           // it stops for good; its links stay open
  pause,          // it stops for a while that is no silence yet
  slow,           // it loses its core for a while again and again
  mismatch,       // its first call differs from the others', as the scene says
  link_cut,       // the link between it and `peer` breaks, and both sides are told
  link_lost,      // messages both ways get lost, and nobody is told
  one_way_loss,   // those to `peer` do
  delay,          // those to `peer` are late
  duplicate,      // those to `peer` come twice now and then
  reorder,        // those to `peer` overtake each other
  bit_flip,       // one bit of some to `peer` changes
  allocation      // no memory is left when it begins a call
};
inline constexpr size_t scene_fault_kinds = 14;
std::string_view name(SceneFaultKind kind);

struct SceneFault {
  SceneFaultKind kind = SceneFaultKind::death;
  int rank = 0;
  int peer = 0;
  TimeNs at = 0;
};

// In what a mismatch differs.
enum class SceneDifference : uint8_t {
  count,      // or the operator
  root,
  algorithm,
  left_out    // it goes on with the call after it
};

struct SceneCall {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm = "one_shot";  // of the catalog
  size_t count = 1000;
  int root = 0;
  bool in_place = false;
  bool strict = false;  // of numbers whose sum depends on the order, which must be that of ranks
};

// What goes wrong on purpose in the driver around the ranks, to see whether it is found; those of the transport are
// SimulatedMistake's.
enum class SceneMistake : uint8_t {
  none,
  deadline_ignored,      // a rank waits far longer than its call allows
  wrong_verdict,         // who is found dead is called by another's number
  verdict_not_flooded,   // a rank tells nobody
  doorbell_not_rung,     // who sleeps does not hear of the verdict
  heartbeat_forgotten,   // a rank's signs of life stop
  pause_not_noticed,     // a rank that was stopped itself takes the others' silence for theirs
  result_not_finished,   // the last element of a result is left as it was
  votes_not_awaited,     // who should decide on the verdict with others' votes decides without them
  waits_not_told         // nobody tells which call it waits in for long
};

// What survivors do where ranks have died.
enum class SceneThen : uint8_t {
  end,
  shrink,  // they go on without them
  replace  // newcomers take the numbers of the dead
};

struct Scene {
  uint64_t seed = 0;
  int n = 2;
  int channels = 1;
  int slots = 2;
  size_t outbox_messages = 0;  // see SimulatedOptions
  size_t message_bytes_max = 4096;
  double short_probability = 0;
  TimeNs delay_ns_max = 0;
  bool crowded = false;  // ranks yield rather than spin
  std::string fabric;    // whose links all messages cross, as fabric.h has it, or a file (.json); "": each pair has its own
  std::vector<SceneCall> calls;
  std::vector<SceneFault> faults;
  SceneDifference difference = SceneDifference::count;
  SceneThen then = SceneThen::end;
  SimulatedMistake transport_mistake = SimulatedMistake::none;
  SceneMistake mistake = SceneMistake::none;
};

// The first call as the rank of a mismatch makes it, where it is another one than that of the others.
SceneCall odd_call(const Scene& scene, int n);

// One seed, one scene.
Scene scene_of(uint64_t seed);

// All of it, as JSON on one line, and back. Throws Error(invalid_argument) that says what cannot be.
std::string to_text(const Scene& scene);
Scene parse_scene(std::string_view text);

// The smallest scene that was found for which `fails` still says what is wrong ("": nothing), by leaving out calls,
// faults, ranks and disturbances one after the other.
Scene shrunk(Scene scene, const std::function<std::string(const Scene&)>& fails);

}  // namespace tutti
