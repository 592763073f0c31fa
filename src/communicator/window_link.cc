// Moving one peer's requests and answers: no allocation, no lock, and no waiting.
#include "communicator/window_link.h"

#include <algorithm>

namespace tutti {
namespace {

// Of all messages of a window: both sides know what comes next.
constexpr uint64_t signature = 0x77696e646f77;

}  // namespace

WindowLink::Progress WindowLink::progress() noexcept {
  moved_ = false;
  for (const Status status : {send_requests(), receive_replies(), serve()})
    if (status == Status::failed) return Progress::failed;
  return moved_ ? Progress::moved : Progress::nothing;
}

const Fault& WindowLink::fault() const noexcept {
  return requests_.fault().kind != FaultKind::none ? requests_.fault() : replies_.fault();
}

void WindowLink::drop() noexcept {
  for (RequestQueue* queue : {&unanswered_, &unsent_})
    while (!queue->empty()) {
      const std::shared_ptr<WindowRequest> request = queue->pop();
      request->failed = true;
      request->done.raise();
    }
}

// Puts and signals are done when they are sent; the others wait for their answer.
Status WindowLink::send_requests() noexcept {
  while (!unsent_.empty()) {
    WindowRequest& request = unsent_.front();
    if (const Status status = send_header(request); status != Status::done) return status;
    const bool answered = request.kind == WindowRequest::Kind::get || request.kind == WindowRequest::Kind::flush;
    if (request.kind == WindowRequest::Kind::put)
      if (const Status status = send_tiles(requests_, request.tiles); status != Status::done) return status;
    header_sent_ = false;
    std::shared_ptr<WindowRequest> sent = unsent_.pop();
    if (answered) unanswered_.push(std::move(sent));
    else sent->done.raise();
  }
  return Status::done;
}

Status WindowLink::send_header(const WindowRequest& request) noexcept {
  if (header_sent_) return Status::done;
  sent_header_ = {request.kind, 0, request.offset, request.tiles.bytes};
  const Status status = move_message(header_done_, [&](size_t& done) {
    return requests_.send(reinterpret_cast<const std::byte*>(&sent_header_), sizeof sent_header_, signature, done);
  });
  header_sent_ = status == Status::done;
  return status;
}

Status WindowLink::receive_replies() noexcept {
  while (!unanswered_.empty()) {
    WindowRequest& request = unanswered_.front();
    const Status status =
        request.kind == WindowRequest::Kind::get
            ? receive_tiles(replies_, request.tiles)
            : move_message(answer_done_, [&](size_t& done) { return replies_.recv(nullptr, 0, signature, done); });
    if (status != Status::done) return status;
    unanswered_.pop()->done.raise();
  }
  return Status::done;
}

// The peer's requests, one after another.
Status WindowLink::serve() noexcept {
  Status status = Status::done;
  while (status == Status::done) {
    switch (serving_) {
      case Serving::header: status = receive_header(); break;
      case Serving::payload:
        status = receive_tiles(requests_, served_);
        if (status == Status::done) serving_ = Serving::header;
        break;
      case Serving::reply:
        status = send_reply();
        if (status == Status::done) serving_ = Serving::header;
        break;
    }
  }
  return status;
}

Status WindowLink::receive_header() noexcept {
  const Status status = move_message(served_done_, [&](size_t& done) {
    return requests_.recv(reinterpret_cast<std::byte*>(&header_), sizeof header_, signature, done);
  });
  return status == Status::done ? begin_serving() : status;
}

// The peer has checked its arguments; nothing outside the window is touched even so.
Status WindowLink::begin_serving() noexcept {
  if (header_.offset > memory_.size() || header_.bytes > memory_.size() - header_.offset) return Status::failed;
  served_ = {memory_.data() + header_.offset, size_t(header_.bytes)};
  switch (header_.kind) {
    case WindowRequest::Kind::put: serving_ = Serving::payload; return Status::done;
    case WindowRequest::Kind::get:
    case WindowRequest::Kind::flush: serving_ = Serving::reply; return Status::done;
    case WindowRequest::Kind::signal: counter_.raise(); return Status::done;
  }
  return Status::failed;
}

Status WindowLink::send_reply() noexcept {
  if (header_.kind == WindowRequest::Kind::get) return send_tiles(replies_, served_);
  return move_message(served_done_, [&](size_t& done) { return replies_.send(nullptr, 0, signature, done); });
}

Status WindowLink::send_tiles(Endpoint& endpoint, WindowTiles& tiles) noexcept {
  return move_tiles(tiles, [&](std::byte* data, size_t bytes, size_t& done) {
    return endpoint.send(data, bytes, signature, done);
  });
}

Status WindowLink::receive_tiles(Endpoint& endpoint, WindowTiles& tiles) noexcept {
  return move_tiles(tiles, [&](std::byte* data, size_t bytes, size_t& done) {
    return endpoint.recv(data, bytes, signature, done);
  });
}

template <class Move>
Status WindowLink::move_tiles(WindowTiles& tiles, Move move) noexcept {
  while (tiles.done < tiles.bytes) {
    const size_t bytes = std::min(bytes_max_, tiles.bytes - tiles.done);
    const Status status = move_message(
        tiles.message_done, [&](size_t& done) { return move(tiles.data + tiles.done, bytes, done); });
    if (status != Status::done) return status;
    tiles.done += bytes;
  }
  return Status::done;
}

// Some of one message; `done` is 0 again when it is over.
template <class Move>
Status WindowLink::move_message(size_t& done, Move move) noexcept {
  const size_t before = done;
  const Status status = move(done);
  moved_ = moved_ || status == Status::done || done != before;
  if (status == Status::done) done = 0;
  return status;
}

}  // namespace tutti
