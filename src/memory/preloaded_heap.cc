// Finding the preloaded heap: by name, so that neither library needs the other.
#include "memory/preloaded_heap.h"

#include <dlfcn.h>

namespace tutti {

const LentRegion* preloaded_region(const void* data) noexcept {
  static PreloadedRegion* const find =
      reinterpret_cast<PreloadedRegion*>(::dlsym(RTLD_DEFAULT, preloaded_region_name));
  return find == nullptr ? nullptr : find(data);
}

}  // namespace tutti
