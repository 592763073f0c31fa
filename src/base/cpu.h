// What the processor offers to those who wait.
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

}  // namespace tutti
