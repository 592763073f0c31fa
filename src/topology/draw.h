// A host as a drawing.
#pragma once

#include <string>

#include "topology/topology.h"

namespace tutti {

// A whole SVG document: packages, NUMA nodes, caches and cores as nested boxes, devices in the box they hang on,
// allowed cores highlighted; below, what the matrices of links say.
std::string to_svg(const Host& host);

}  // namespace tutti
