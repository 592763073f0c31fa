// A host as JSON.
#pragma once

#include <string>

#include "topology/topology.h"

namespace tutti {

// Pretty-printed; the names are those of topology.h.
std::string host_json(const Host& host);

}  // namespace tutti
