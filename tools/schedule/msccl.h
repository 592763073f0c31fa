// Import of algorithms in MSCCL's XML: thread blocks with dependencies become one list of steps per rank.
#pragma once

#include <string>
#include <string_view>

#include "schedule/user_schedule.h"

namespace tutti {

// Reads an algorithm and translates it. `source` is the file's name; `name` the schedule's, or "" for the algorithm's
// own with other characters replaced. Throws Error(invalid_argument) with a sentence that begins with `source` and
// names line, or gpu, tb and step, and why it is refused. The result is proven.
UserSchedule import_msccl(std::string_view xml, std::string_view source, std::string_view name);

}  // namespace tutti
