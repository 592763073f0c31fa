// Which of Highway's instruction sets are compiled: those that are a step up on machines in use. Include before hwy/.
#pragma once

// SSSE3 machines run the plain code, and SVE code serves SVE2 machines of any width.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// Plain code is one lane at a time, with every compiler: emulated vectors take clang's sanitizers ten minutes a file.
#define HWY_BROKEN_EMU128 1
