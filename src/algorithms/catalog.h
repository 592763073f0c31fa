// The one table of algorithms.
#pragma once

#include <span>
#include <string_view>

#include "schedule/algorithm.h"

namespace tutti {

std::span<const Algorithm> catalog();

// Null where there is none. barrier uses all_reduce's rows (with no bytes).
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// The names of a collective's algorithms, comma-separated, for messages.
std::string_view algorithm_names(Collective collective);

}  // namespace tutti
