// One peer of a window's service: the requests to it, and those that it makes. Data path; used by the service's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "communicator/shared_counter.h"
#include "transport/transport.h"

namespace tutti {

// Bytes that travel as messages of at most a link's length, and how far they are.
struct WindowTiles {
  std::byte* data = nullptr;
  size_t bytes = 0;
  size_t done = 0;          // whole messages
  size_t message_done = 0;  // of the one under way
};

// What a rank asks of a peer. Its memory must stay until `done` has been raised, by the service, once.
struct WindowRequest {
  enum class Kind : uint32_t { put, get, signal, flush };
  Kind kind = Kind::signal;
  size_t offset = 0;  // in the peer's memory
  WindowTiles tiles;  // a put's source, which is only read; a get's target
  bool failed = false;
  SharedCounter done;
  std::shared_ptr<WindowRequest> next;  // of its queue
};

// First in, first out, without allocation.
class RequestQueue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  WindowRequest& front() noexcept { return *first_; }
  void push(std::shared_ptr<WindowRequest> request) noexcept {
    WindowRequest* const last = request.get();
    (empty() ? first_ : last_->next) = std::move(request);
    last_ = last;
  }
  std::shared_ptr<WindowRequest> pop() noexcept {
    std::shared_ptr<WindowRequest> request = std::move(first_);
    first_ = std::move(request->next);
    return request;
  }

 private:
  std::shared_ptr<WindowRequest> first_;
  WindowRequest* last_ = nullptr;  // meaningless while empty
};

class WindowLink {
 public:
  enum class Progress : uint8_t { moved, nothing, failed };

  // The peer writes to `memory` and raises `counter`. bytes_max is the longest message, the same on both sides.
  WindowLink(Endpoint& requests, Endpoint& replies, size_t bytes_max, std::span<std::byte> memory,
             SharedCounter& counter) noexcept
      : requests_(requests), replies_(replies), bytes_max_(bytes_max), memory_(memory), counter_(counter) {}

  void enqueue(std::shared_ptr<WindowRequest> request) noexcept { unsent_.push(std::move(request)); }
  // Moves what can move. failed: see fault(); it stays failed.
  Progress progress() noexcept;
  // Of the endpoint that failed; of none where the peer asked for what it may not have.
  const Fault& fault() const noexcept;
  // Ends all requests to the peer as failed.
  void drop() noexcept;

 private:
  struct Header {
    WindowRequest::Kind kind;
    uint32_t unused;
    uint64_t offset;
    uint64_t bytes;
  };
  enum class Serving : uint8_t { header, payload, reply };

  Status send_requests() noexcept;
  Status receive_replies() noexcept;
  Status serve() noexcept;
  Status begin_serving() noexcept;
  Status receive_header() noexcept;
  Status send_reply() noexcept;
  Status send_header(const WindowRequest& request) noexcept;
  Status send_tiles(Endpoint& endpoint, WindowTiles& tiles) noexcept;
  Status receive_tiles(Endpoint& endpoint, WindowTiles& tiles) noexcept;
  template <class Move>
  Status move_tiles(WindowTiles& tiles, Move move) noexcept;
  template <class Move>
  Status move_message(size_t& done, Move move) noexcept;

  Endpoint& requests_;
  Endpoint& replies_;
  size_t bytes_max_;
  std::span<std::byte> memory_;
  SharedCounter& counter_;
  bool moved_ = false;  // in this call of progress()

  // This rank's requests.
  RequestQueue unsent_, unanswered_;
  Header sent_header_{};      // of the first unsent one
  bool header_sent_ = false;
  size_t header_done_ = 0;
  size_t answer_done_ = 0;

  // The peer's request.
  Serving serving_ = Serving::header;
  Header header_{};
  size_t served_done_ = 0;  // of its header, or of an empty reply
  WindowTiles served_;
};

}  // namespace tutti
