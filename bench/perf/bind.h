// Keeps a rank to one core, the same way in tutti-perf and in the programs that it is compared with.
#pragma once

#include <sched.h>

namespace tutti::perf {

// The calling thread keeps to one core: the n-th rank of this host takes the n-th core that is allowed, starting over
// where there are fewer cores than ranks. Where the system refuses, nothing happens.
inline void bind_to_core(int n) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int wanted = n % CPU_COUNT(&allowed);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != wanted) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

}  // namespace tutti::perf
