// The two ways of each call, and waiting.
#include "communicator/window.h"

#include <cstring>

#include <fmt/format.h>

#include "communicator/wait.h"
#include "communicator/window_opening.h"

namespace tutti {
namespace {

// For the sentence of who waited too long.
const char* name(WindowRequest::Kind kind) {
  switch (kind) {
    case WindowRequest::Kind::put: return "to put to";
    case WindowRequest::Kind::get: return "to get from";
    case WindowRequest::Kind::signal: return "to signal to";
    case WindowRequest::Kind::flush: break;
  }
  return "for what it had put to arrive at";
}

}  // namespace

Window::Window(Bootstrap& bootstrap, const WindowOptions& options, WindowMemory memory)
    : bootstrap_(bootstrap),
      memory_(std::move(memory)),
      patience_(options.patience),
      timeout_ns_(options.timeout_ns),
      taken_(std::make_unique<std::atomic<uint32_t>[]>(size_t(bootstrap.size()))) {
  OpenedWindow opened = open_window(bootstrap_, options, memory_);
  board_ = std::move(opened.board);
  peers_ = std::move(opened.peers);
  if (opened.any_served) {
    patience_.spin_ns = 0;  // two threads of each rank share its cores, and one waits for the other
    PatiencePolicy of_service = patience_;
    of_service.calm_ns = 500 * ns_per_us;  // it waits most of its life
    WindowServiceOptions service{std::move(opened.served), options.transports, of_service, options.timeout_ns};
    service_ = std::make_unique<WindowService>(bootstrap_, service, memory_.bytes, counters_of(board_));
  }
  if (memory_.block == nullptr) return;
  memory_.block->registrations.fetch_add(1, std::memory_order_relaxed);
  memory_.block->windows.fetch_add(1, std::memory_order_relaxed);
}

Window::~Window() {
  service_.reset();  // its thread uses the memory
  if (memory_.block == nullptr) return;
  memory_.block->windows.fetch_sub(1, std::memory_order_relaxed);
  memory_.block->registrations.fetch_sub(1, std::memory_order_relaxed);
}

// After the barrier no rank asks for anything, and before it a rank's own requests have arrived. So no link is needed
// any more when the first rank closes its own.
void Window::close() {
  for (int peer = 0; peer < size(); ++peer)
    if (!reaches_directly(peer)) flush(peer);
  if (service_ != nullptr) service_->expect_end();
  bootstrap_.barrier();
}

// memmove: a rank may put to itself, from where it puts.
Code Window::put(std::span<const std::byte> source, int peer, size_t offset) {
  if (bootstrap_.verdict() != nullptr) return failure();
  if (source.empty()) return Code::success;
  if (!reaches_directly(peer))
    return serve(WindowRequest::Kind::put, peer, offset, const_cast<std::byte*>(source.data()), source.size());
  std::memmove(peers_[size_t(peer)].memory + offset, source.data(), source.size());
  return Code::success;
}

Code Window::get(std::span<std::byte> target, int peer, size_t offset) {
  if (bootstrap_.verdict() != nullptr) return failure();
  if (target.empty()) return Code::success;
  if (!reaches_directly(peer)) return serve(WindowRequest::Kind::get, peer, offset, target.data(), target.size());
  std::memmove(target.data(), peers_[size_t(peer)].memory + offset, target.size());
  return Code::success;
}

Code Window::signal(int peer) {
  if (bootstrap_.verdict() != nullptr) return failure();
  if (!reaches_directly(peer)) return serve(WindowRequest::Kind::signal, peer, 0, nullptr, 0);
  peers_[size_t(peer)].counter->raise();
  return Code::success;
}

Code Window::flush(int peer) {
  if (bootstrap_.verdict() != nullptr) return failure();
  if (!reaches_directly(peer)) return serve(WindowRequest::Kind::flush, peer, 0, nullptr, 0);
  return Code::success;  // the copies lie in the peer's memory, for all who hear of it by a release and an acquire
}

// Only the service lets go of a request, also where the communicator has failed: its memory is read until then.
Code Window::serve(WindowRequest::Kind kind, int peer, size_t offset, std::byte* data, size_t bytes) {
  const auto request = std::make_shared<WindowRequest>();
  request->kind = kind;
  request->offset = offset;
  request->tiles = {data, bytes};
  service_->submit(peer, request);
  wait(
      request->done, [&] { return request->done.value() != 0; },
      [&] { return fmt::format("{} {}", name(kind), bootstrap_.describe(peer)); });
  return request->failed ? failure() : Code::success;
}

Code Window::wait_signal(int peer, uint32_t count) {
  if (bootstrap_.verdict() != nullptr) return failure();
  SharedCounter& counter = counters_of(board_)[size_t(peer)];
  bool taken = false;
  wait(
      counter, [&] { return (taken = take_signals(peer, count)) || bootstrap_.verdict() != nullptr; },
      [&] {
        const uint32_t here = counter.value() - taken_[size_t(peer)].load(std::memory_order_relaxed);
        return fmt::format("for {} signal{} of {}, of which {} had come", count, count == 1 ? "" : "s",
                           bootstrap_.describe(peer), here);
      });
  return taken ? Code::success : failure();
}

// Several threads may wait for one peer: each signal is taken by one of them.
bool Window::take_signals(int peer, uint32_t count) noexcept {
  std::atomic<uint32_t>& taken = taken_[size_t(peer)];
  uint32_t before = taken.load(std::memory_order_relaxed);
  while (counters_of(board_)[size_t(peer)].value() - before >= count)
    if (taken.compare_exchange_weak(before, before + count, std::memory_order_relaxed)) return true;
  return false;
}

// Until look() is true: spins, yields, then sleeps while the counter stands still. At the deadline the communicator fails;
// look() then becomes true too.
template <class Look, class Sentence>
void Window::wait(SharedCounter& counter, Look look, Sentence sentence) {
  Patience patience(patience_);
  for (uint32_t seen = counter.value(); !look(); seen = counter.value()) {
    if (patience.next() == Patience::Next::look) continue;
    const TimeNs left_ns = timeout_ns_ - patience.waited_ns();
    if (left_ns <= 0 && bootstrap_.verdict() == nullptr)
      bootstrap_.fail({Code::timeout, -1, fmt::format("{} waited {} ms in a window {}",
                                                      bootstrap_.describe(bootstrap_.rank()), timeout_ns_ / ns_per_ms,
                                                      sentence())});
    counter.sleep_at(seen, sleep_ms(patience.waited_ns(), std::max<TimeNs>(left_ns, ns_per_ms)) * ns_per_ms);
    patience.woke();
  }
}

Code Window::failure() const noexcept { return bootstrap_.verdict()->code; }

}  // namespace tutti
