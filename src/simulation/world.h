// A world in virtual time: real communicators over a simulated network, with liveness over simulated control links, and
// the faults of a scene. Each rank is a fiber that makes its calls one after the other, as a program would; all run on
// one thread, in an order that one seed decides.
//
// A scene may go on: who survives agrees on who lives, and calls again on a communicator of fewer ranks, or of as many
// with newcomers in the place of the dead.
//
// What must hold of every run: a call that is ok has the right result; every call ends by its deadline; whoever is blamed
// is guilty; where nobody is, all calls are ok; survivors end alike; who sleeps is woken; nothing is left over.
#pragma once

#include <memory>
#include <string>

#include "simulation/scene.h"

namespace tutti {

struct WorldResult {
  std::string problem;  // "": everything was as it must be
  int survivors = 0;
  int all_ok = 0;           // survivors whose calls were all ok
  std::string verdict;      // a survivor's, or ""
  TimeNs ended_at = 0;      // virtual
  size_t events = 0;
  int regroupings = 0;  // how often survivors went on with a communicator of their own
};

// Silence, deadlines and delays of control messages in worlds.
struct WorldTimes {
  static constexpr int timeout_ms = 100;
  static constexpr TimeNs timeout_ns = timeout_ms * ns_per_ms;
  static constexpr TimeNs silence_ns = 20 * ns_per_ms;
  static constexpr TimeNs pause_ns = silence_ns / 4;
  static constexpr TimeNs tell_ns = timeout_ns / 10;  // how long a call stands until others are told of it,
  static constexpr TimeNs stuck_ns = timeout_ns / 4;  // and of what it waits for
  static constexpr TimeNs control_latency_ns = 20 * ns_per_us;
};

WorldResult play(const Scene& scene);

}  // namespace tutti
