// The files of schedules that a user writes, as TUTTI_SCHEDULES lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/user_schedule.h"

namespace tutti {

// Reads and parses one file. Throws Error(invalid_argument) with a sentence that begins with its path.
UserSchedule read_user_schedule(const std::string& path);

// Reads and proves the files of a colon-separated list, in its order. Refuses, in a sentence, a file that cannot be
// read, one that parse_user_schedule or prove refuses, a name that the catalog has for its collective, and two of one
// name for one collective, number of ranks and root.
std::vector<UserSchedule> load_user_schedules(std::string_view files);

}  // namespace tutti
