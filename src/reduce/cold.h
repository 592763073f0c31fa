// Whether memory lies in the caches now.
#pragma once

#include <cstddef>

namespace tutti {

// Smaller areas are not looked at: what looking costs would show.
inline constexpr size_t cold_bytes_min = size_t{32} << 10;

// Whether `memory`, of cold_bytes_min bytes or more that may be read, lies in no cache nearby, by how long loads of lines here
// and there in it take, one after the other: some 20 ns if it does, 0.15 us a line if not. One line that is in a cache says
// that all are; surely: whether four must be in none to say that all are, else one. The lines looked at are in the caches
// afterwards. False where can_tell_cold() is.
bool in_no_cache(const void* memory, size_t bytes, bool surely) noexcept;

// Whether loads from memory can be told from others here: by a clock that is fine and fast enough (known on x86), and caches.
bool can_tell_cold() noexcept;

}  // namespace tutti
