// One-sided access: each rank opens some of its memory, and the others put into it and get from it without a call of its
// owner's.
//
// Two ways lead to a peer. Where its memory can be mapped (it is of tuttiMemAlloc, and the peer on this host), a put is a
// copy and a signal an atomic addition: no system call unless the peer sleeps. To all others a thread of the window
// carries requests (window_service.h). All that one rank asks of one peer takes the same way, and so stays in order.
//
// Threads: opening and closing are collective, one thread at a time; all else is for any thread at any time in between.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "communicator/window_opening.h"
#include "communicator/window_service.h"

namespace tutti {

class Window {
 public:
  // Collective over all ranks; the bootstrap and the memory outlive the window. Throws Error, the same on all ranks.
  Window(Bootstrap& bootstrap, const WindowOptions& options, WindowMemory memory);
  ~Window();

  // Collective: waits until all ranks close and all that they put has arrived. Throws Error: the verdict.
  void close();

  int size() const noexcept { return int(peers_.size()); }
  size_t bytes_of(int peer) const noexcept { return peers_[size_t(peer)].bytes; }
  // Whether the peer's memory is mapped here.
  bool reaches_directly(int peer) const noexcept { return peers_[size_t(peer)].counter != nullptr; }

  // Arguments are checked: [offset, offset + bytes) lies in the peer's memory. success, or the code of the verdict. The
  // direct way neither allocates nor throws; the other may throw std::bad_alloc.

  // Returns when the source may change.
  Code put(std::span<const std::byte> source, int peer, size_t offset);
  // Returns when the target is filled.
  Code get(std::span<std::byte> target, int peer, size_t offset);
  // Seen by the peer after all that this rank put to it before.
  Code signal(int peer);
  // Returns when all that this rank put to the peer has arrived.
  Code flush(int peer);
  // Waits for `count` signals of the peer that no other wait has taken, and takes them. count <= 2^31 - 1.
  Code wait_signal(int peer, uint32_t count);

 private:
  bool take_signals(int peer, uint32_t count) noexcept;
  Code serve(WindowRequest::Kind kind, int peer, size_t offset, std::byte* data, size_t bytes);
  template <class Look, class Sentence>
  void wait(SharedCounter& counter, Look look, Sentence sentence);
  Code failure() const noexcept;

  Bootstrap& bootstrap_;
  WindowMemory memory_;
  PatiencePolicy patience_;
  TimeNs timeout_ns_;
  Mapping board_;  // a counter for each rank's signals to this one
  std::vector<WindowPeer> peers_;
  std::unique_ptr<std::atomic<uint32_t>[]> taken_;  // of each rank's signals; wraps as they do
  std::unique_ptr<WindowService> service_;          // null where all pairs of ranks are direct
};

}  // namespace tutti
