// The one table of algorithms.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedule/algorithm.h"

namespace tutti {

std::span<const Algorithm> catalog();

// Null where there is none. A barrier and v-forms have the rows of the collective that they are served as.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// The names of a collective's algorithms, comma-separated, for messages.
std::string algorithm_names(Collective collective);

}  // namespace tutti
