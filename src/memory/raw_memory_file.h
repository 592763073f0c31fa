// Making and mapping memory files without exceptions or allocations, for who can afford neither.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

enum class MemoryFileStep : uint8_t { create, size, seal };

// A memory file, or -1: then `failed` is the step that the system refused, and errno says why. As make_memory_file.
int raw_memory_file(const char* name, size_t bytes, MemoryFileStep& failed) noexcept;

// A shared mapping of [at, at + bytes) of a file, from a multiple of `alignment` on, where that is more than a page (it
// is then cut from a larger place). Null: the system refuses, and errno says why.
std::byte* map_shared(int fd, size_t at, size_t bytes, size_t alignment) noexcept;

}  // namespace tutti
