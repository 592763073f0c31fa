// Opening a window: the ranks tell each other what they open, and map what can be mapped.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "communicator/patience.h"
#include "communicator/shared_counter.h"
#include "memory/memory_file.h"
#include "memory/shared_memory.h"

namespace tutti {

struct WindowOptions {
  std::vector<bool> local;    // by rank: shares this host's memory; the same on both sides of a pair
  std::string transports;     // allowed for the service; "": all
  PatiencePolicy patience;
  TimeNs timeout_ns = 0;      // of the opening and of each wait
};

// A rank's own memory, and what it is cut from.
struct WindowMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<const SharedBlock> block{};  // that holds the bytes; null: peers cannot map them
};

// What a rank knows of a peer.
struct WindowPeer {
  size_t bytes = 0;
  std::byte* memory = nullptr;       // as mapped here; null for 0 bytes
  SharedCounter* counter = nullptr;  // of this rank's signals to the peer; null: the peer is not reached directly
  Mapping memory_mapping{}, board_mapping{};
};

struct OpenedWindow {
  Mapping board;  // this rank's: a counter for the signals of each rank
  std::vector<WindowPeer> peers;
  std::vector<bool> served;  // by rank: not reached directly, in one direction or both
  bool any_served = false;   // of all pairs of ranks
};

// Collective. Throws Error, the same on all ranks.
OpenedWindow open_window(Bootstrap& bootstrap, const WindowOptions& options, const WindowMemory& memory);

// The counters of a board, by the rank that raises them; more than there are ranks, in whole pages.
inline std::span<SharedCounter> counters_of(const Mapping& board) noexcept {
  return {reinterpret_cast<SharedCounter*>(board.data()), board.bytes() / sizeof(SharedCounter)};
}

}  // namespace tutti
