// Memory that runs out when a simulation says so. Linking it replaces operator new of the whole program.
#pragma once

namespace tutti {

// The allocation after `before` more of them fails, once. One at a time, on the thread that simulates.
void fail_allocation(int before) noexcept;
// No allocation fails any more. True: one has failed since it was asked for.
bool allow_allocations() noexcept;

}  // namespace tutti
