// Copies on host memory, by the instructions that are fastest on this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tutti {

// Whether the output will be read soon (cached) or should go past the caches (streaming; needs no alignment).
enum class Store : uint8_t { cached, streaming };

// How larger copies are made: as the C library does, by a loop over vectors, or by a string instruction (x86's rep movsb).
enum class CopyWay : uint8_t { library, vectors, string };

// The way for a processor: its maker as cpuid says it, its family, and whether its string instructions are fast.
//
// Zen 3 and 4 (AMD's family 0x19) and those before lose by string instructions: what they read that way from a slot does
// not stay in the caches (measured on Zen 4: broadcast of 64 KiB takes twice as long), and where only the output is
// unaligned they take up to twenty times as long (glibc's bug 30994, for which its memcpy avoids them from 2.39 on, as
// earlier ones do not). From Zen 5 on they are the best that there is for lines which another core has read: they
// overwrite them without asking for them first.
CopyWay copy_way(std::string_view maker, unsigned family, bool fast_strings) noexcept;

// The same for an input that no cache holds, to where a cache line begins.
//
// There Zen 4 does best by string instructions: they do not fetch the lines that they overwrite. (Measured, 2 ranks, near:
// a message of 64 MiB takes 0.88 to 0.97 of the time if its sender copies it so into shared memory, one of 256 KiB as long. But
// one of 2 to 8 MiB that lies in the last cache 1.1 to 1.2.)
CopyWay copy_way_from_memory(CopyWay way, bool fast_strings) noexcept;

// From so many bytes on the way matters.
inline constexpr size_t copy_way_bytes_min = 4096;

// A copy for which its way matters, of any size. No overlap.
void copy_by(CopyWay way, void* output, const void* input, size_t bytes) noexcept;
// By this processor's way,
void copy_large(void* output, const void* input, size_t bytes) noexcept;
// by that for its own buffers, for what passes through its caches (never by string instructions), and for what is in none:
// see below.
void copy_large_own(void* output, const void* input, size_t bytes) noexcept;
void copy_large_passing(void* output, const void* input, size_t bytes) noexcept;
void copy_large_from_memory(void* output, const void* input, size_t bytes) noexcept;

// memcpy, where it is not known to be slower than need be.
inline void copy_memory(void* output, const void* input, size_t bytes) noexcept {
  if (bytes < copy_way_bytes_min) std::memcpy(output, input, bytes);
  else copy_large(output, input, bytes);
}

// The same between buffers that this core alone uses. Zen 5 copies 270 GB/s by vectors where both lie in its first-level cache,
// 150 by string instructions; in the second-level cache these are faster.
inline void copy_own(void* output, const void* input, size_t bytes) noexcept {
  if (bytes < copy_way_bytes_min) std::memcpy(output, input, bytes);
  else copy_large_own(output, input, bytes);
}

// The same for a message that another core has just written and belongs to an output which this core's own caches do not hold.
// Where both cores of a Zen 5 use string instructions for that and are near each other, the writer is slowed down at times, for
// seconds: a broadcast of 2 to 8 MiB takes 2 to 3 times as long. Where the reader uses vectors it never was, and reading takes
// up to a tenth longer than at best.
inline void copy_passing(void* output, const void* input, size_t bytes) noexcept {
  if (bytes < copy_way_bytes_min) std::memcpy(output, input, bytes);
  else copy_large_passing(output, input, bytes);
}

// The same for an input that no cache holds, as far as is known.
inline void copy_from_memory(void* output, const void* input, size_t bytes) noexcept {
  if (bytes < copy_way_bytes_min) std::memcpy(output, input, bytes);
  else copy_large_from_memory(output, input, bytes);
}

// Whether copy_memory copies best at a stretch, not block by block, even to memory that is in no cache, and there better than
// past the caches. Zen 5's string instructions do: they do not read first what they overwrite. (Measured, two cores near each
// other, both at once: 512 KiB from the other's caches to memory 15.5 µs by one string instruction, 24.7 by one for each
// 4 KiB, 20 by vectors, 30 past the caches.)
bool copies_at_a_stretch() noexcept;
// Whether copies are made as the C library makes them.
bool copies_as_library() noexcept;
// Whether string instructions, by which the kernel copies between processes, are as fast as other ways where these copy. Not on
// AMD's processors before Zen 5. (Measured, Zen 4, 2 ranks that have a core each, copied once by the kernel and twice by themselves:
// 64 KiB to 256 MiB take 1.2 to 4 times as long by the kernel, as a rule.)
bool strings_copy_well() noexcept;
// So where ranks copy at once, what has this many times as many bytes as the caches is still stored by way of them.
inline size_t cached_copies_factor() noexcept { return copies_at_a_stretch() ? 2 : 1; }

// The same with a choice of store; no overlap unless output == input (then nothing is done).
void copy_bytes(void* output, const void* input, size_t bytes, Store store) noexcept;

// As copy_bytes past the caches, but what is stored may pass later stores until stream_end(): for many small blocks, whose
// fences would cost more than they do.
void stream_bytes_on(void* output, const void* input, size_t bytes) noexcept;
// That, or as copy_bytes to the caches.
inline void copy_bytes_on(void* output, const void* input, size_t bytes, Store store) noexcept {
  if (store == Store::streaming) stream_bytes_on(output, input, bytes);
  else copy_bytes(output, input, bytes, Store::cached);
}
// stream_bytes_on to several outputs: the input is read once.
void stream_bytes_to(void* const* outputs, int n_outputs, const void* input, size_t bytes) noexcept;
// After the last of these, before anybody else is told.
void stream_end() noexcept;

}  // namespace tutti
