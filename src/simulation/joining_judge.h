// What must hold at the end of a joining scene.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "simulation/joining.h"

namespace tutti {

// What became of one caller.
struct JoiningCaller {
  int rank = 0;
  bool newcomer = false;
  bool second = false;  // that came as this rank
  bool comes = true;
  bool survives = false;
  bool ok = false;       // with all that it did
  bool joined_last = false;  // the job that was its last
  Code code = Code::success;
  std::string sentence;
  std::optional<Verdict> verdict;  // of that job
  TimeNs begun_at = 0, ended_at = 0;
  std::vector<JoiningFaultKind> faults;

  bool has(JoiningFaultKind kind) const { return std::ranges::find(faults, kind) != faults.end(); }
};

struct JoiningEnding {
  const JoiningScene& scene;
  std::vector<JoiningCaller> callers;
  size_t read_of_strangers_max = 0;
};

// Whether a fault may end a job.
bool is_harmful(JoiningFaultKind kind);
// "": all is as it must be.
std::string judge(const JoiningEnding& ending);

}  // namespace tutti
