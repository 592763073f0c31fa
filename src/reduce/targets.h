// Which of Highway's instruction sets are compiled: those that are a step up on machines in use. Include before hwy/.
#pragma once

// SSSE3 machines run the plain code, and SVE code serves SVE2 machines of any width.
#ifdef TUTTI_FEW_TARGETS  // sanitized builds: what they look for is alike in all, and each takes minutes there
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
// Plain code is one lane at a time, with every compiler: emulated vectors take clang's sanitizers ten minutes a file.
#define HWY_BROKEN_EMU128 1
