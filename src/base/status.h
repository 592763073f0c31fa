// What a data-path call says: it is done, it wants to be called again, or it has failed.
#pragma once

#include <cstdint>

namespace tutti {

enum class Status : uint8_t { done, again, failed };

}  // namespace tutti
