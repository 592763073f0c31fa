// What must hold at the end of a simulated communicator: who is blamed is guilty, all survivors say one thing, and nobody
// was ok with what was wrong.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "simulation/scene.h"

namespace tutti {

bool has_fault(const Scene& scene, SceneFaultKind kind);
bool has_fault(const Scene& scene, SceneFaultKind kind, int process);
// The process ends by it, or is given up for good.
bool ends_rank(SceneFaultKind kind);

// How a communicator ended for one of its ranks.
struct SessionRank {
  int process = 0;
  bool survives = true;
  bool all_ok = false;   // all its calls
  bool went_on = false;  // to another communicator
  const Verdict* verdict = nullptr;
};
struct SessionEnding {
  std::vector<SessionRank> ranks;
  int verdicts = 0;
  bool over = false;  // all had made all their calls: who dies later matters to nobody
};

// Empty, or what is wrong. `struck`: which of the scene's faults have.
std::string judge(const Scene& scene, const std::vector<char>& struck, const SessionEnding& ending);

}  // namespace tutti
