// Schedules that a user writes: all ranks' steps of one collective as JSON (docs/schedules.md), proven before they run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/algorithm.h"
#include "schedule/collective.h"

namespace tutti {

inline constexpr size_t user_schedule_name_max = 64;       // characters
inline constexpr size_t user_schedule_ranks_max = 4096;    // what a proof can hold
inline constexpr size_t user_schedule_chunks_max = 65536;  // of one buffer

struct UserSchedule {
  std::string source;      // the file, for sentences
  std::string name;        // lower-case letters, digits, '_', '-' and '.'
  std::string sentence{};  // what it does; may be empty
  Collective collective = Collective::none;
  int root = 0;  // the only root that it serves; 0 where the collective has none
  Shape shape;
  std::vector<Schedule> ranks;
  Claim claim;  // filled by prove(): what was counted

  int n() const { return int(ranks.size()); }
  std::string full_name() const { return std::string(tutti::name(collective)) + "/" + name; }
};

// Reads one schedule. `source` is the file's name. Throws Error(invalid_argument) with a sentence that begins with it
// and names the line, or rank and step, and what is wrong. Proves nothing.
UserSchedule parse_user_schedule(std::string_view json, std::string_view source);

// The same as text that parse_user_schedule reads back: one step a line.
std::string to_json(const UserSchedule& schedule);

// Proves it as schedules and as plans, in place and not, with the two messages per FIFO that every transport holds, and
// fills its claim. Throws Error(invalid_argument): "FILE: rank R, step S (TEXT), chunk C: WHY", steps counted
// from 1, as everywhere.
void prove(UserSchedule& schedule);

// One line a schedule, from which ranks see whether they have loaded equal ones.
std::string identity(std::span<const UserSchedule> schedules);

// "" where all ranks' identities are equal; else a sentence that names the ranks that differ from rank 0, and in what.
std::string difference(std::span<const std::string> identities);

}  // namespace tutti
