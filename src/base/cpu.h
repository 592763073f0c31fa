// What the processor offers to those who wait, and to those who know what they will read or write next.
#pragma once

namespace tutti {

// Tells the core that this is a spin loop (10 to 100 cycles).
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until this core's stores are where others see them: some 20 cycles, if they are. A full fence, but not
// std::atomic_thread_fence, which compilers refuse to watch for data races.
inline void await_own_stores() noexcept {
#if defined(__x86_64__)
  asm volatile("lock orl $0, -64(%%rsp)" : : : "memory", "cc");  // leaves the word as it is; shorter than mfence
#else
  __sync_synchronize();
#endif
}

// Has the cache line at `at` fetched, to be read soon, or to be written, when other cores lose it. Hints: nobody waits, and
// no address is wrong.
inline void fetch_to_read(const void* at) noexcept { __builtin_prefetch(at, 0); }
inline void fetch_to_write(const void* at) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));  // for the builtin, compilers ask to share the line
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace tutti
