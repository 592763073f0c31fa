// A host as text for a person.
#pragma once

#include <string>

#include "topology/topology.h"

namespace tutti {

// Nested lines: packages, NUMA nodes, caches, cores; devices under their NUMA node; matrices of links at the end.
// Logical CPUs that are not allowed stand in parentheses.
std::string to_text(const Host& host);

}  // namespace tutti
