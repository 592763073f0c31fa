// RDMA devices that exist in this process alone: what libibverbs does, as far as the verbs transport asks for it, over a network
// that delays packets, loses acknowledgements and fails as it is told. It refuses what a device would: keys and places that are not
// registered, more work than a queue holds, completions without room.
//
// Packets move while somebody polls a completion queue, some at a time, in an order that a seed decides, and all at once where
// somebody sleeps on a queue.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "transport/verbs/verbs_library.h"

namespace tutti {

class FakeVerbs {
 public:
  // Its devices: fake0 and fake1, at the ends of one cable. Each reaches itself without it.
  static constexpr int devices = 2;
  static const VerbsLibrary& library();

  // All is whole again, and the order of packets begins anew. What is connected stays so.
  static void reset(uint64_t seed);

  // --- Faults.

  // What is under way, in part or whole but for its acknowledgement, stays so. told: the devices say that their ports are down.
  static void cut_cable(bool told);
  // It says so, and then nothing any more: nobody gives back what was posted to it.
  static void kill_device(int device);
  // A queue pair goes into error, as a fault of its device would have it. `which` counts those that are connected, modulo them.
  static void break_queue_pair(uint64_t which);
  // One in so many posts of sends is refused from now on; 0: none is.
  static void refuse_sends(uint32_t one_in);

  // What a device had to refuse that no program should ask for: "", or the first such thing.
  static std::string misuse();
};

}  // namespace tutti
