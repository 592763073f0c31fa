// What `tutti-schedule check` proves and prints of an algorithm or a user's schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/user_schedule.h"

namespace tutti {

// What was counted, over all proofs so far.
struct Report {
  std::string title;
  int n_first = 0, n_last = 0;
  int proofs = 0;
  int rounds = 0;          // the most, with n_last ranks
  double bytes_ratio = 0;  // sent by the busiest rank over the bound; the most
  double scratch = 0;      // over the buffer, of the longest plan; the most
  int linked = 0;          // plans of all ranks in one, in any order: see schedule/link_check.h
  int slots = 1;           // messages per FIFO that schedules need
  bool reduces = false;
  bool rank_order = true;  // every sum has its operands in the order of ranks
  bool left_fold = true;   // and adds them one after another in one step, as strict determinism asks

  void add(const Report& other);
};

// Proves a row for n ranks: every root (0, 1, the middle and the last beyond 64 ranks), as schedules and as plans, in
// place and not; up to 8 ranks, linked for ranks that reach each other's memory; pipeline 0: with 1, 2 and 5 chunks in
// flight; and, on one host, the bounds that it claims to reach.
// Throws Error(internal_error) with the first violation.
Report prove_all(const Algorithm& algorithm, int n, const std::vector<int>& hosts, const std::vector<int>& cores, int pipeline);

// Proves a user's schedule, or throws Error(internal_error) that says why it is wrong.
UserSchedule proven(UserSchedule schedule);
// Of a proven schedule.
Report report(const UserSchedule& schedule);

// "all_reduce/ring                n = 1..64: proven (256 proofs), 126 rounds, 1.000 x least bytes, …".
std::string to_text(const Report& report);

}  // namespace tutti
