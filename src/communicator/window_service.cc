// The service's thread: it moves all links, sleeps while nothing moves, and ends what is pending when the communicator
// has failed.
#include "communicator/window_service.h"

#include <array>

#include <fmt/format.h>

#include "bootstrap/agreement.h"
#include "bootstrap/threads.h"

namespace tutti {
namespace {

constexpr int channels = 2;  // requests, replies
// The longest sleep, so that a verdict is never overlooked for longer.
constexpr int sleep_ms_max = 100;

// Not all ranks may fail alike in this: the others are told.
Links make_links_or_fail(Bootstrap& bootstrap, const WindowServiceOptions& options, Doorbell& doorbell) {
  try {
    return make_links(bootstrap, {options.transports, channels, options.timeout_ns}, doorbell);
  } catch (const Error& error) {
    bootstrap.fail({error.code(), bootstrap.rank(), fmt::format("{} could not open a window: {}",
                                                                bootstrap.describe(bootstrap.rank()), error.what())});
    throw;
  }
}

}  // namespace

WindowService::WindowService(Bootstrap& bootstrap, const WindowServiceOptions& options, std::span<std::byte> memory,
                             std::span<SharedCounter> counters)
    : bootstrap_(bootstrap),
      patience_(options.patience),
      links_(make_links_or_fail(bootstrap, options, doorbell_)),
      peers_(size_t(bootstrap.size())),
      submitted_(size_t(bootstrap.size())) {
  Agreement agreement(bootstrap, "window", [] {});
  uint64_t bytes_max = links_.message_bytes_max;
  for (const uint64_t theirs : agreement.gather_values(bytes_max)) bytes_max = std::min(bytes_max, theirs);
  bool serves = false;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (!options.peers[peer]) continue;
    serves = true;
    peers_[peer] = std::make_unique<WindowLink>(*links_.endpoints[peer], *links_.endpoints[peers_.size() + peer],
                                                size_t(bytes_max), memory, counters[peer]);
  }
  agreement.attempt([&] {
    if (serves) thread_ = start_thread([this] { work(); });
  });
  try {
    agreement.gather({});
  } catch (...) {
    end();
    throw;
  }
}

WindowService::~WindowService() { end(); }

void WindowService::end() noexcept {
  ending_.store(true, std::memory_order_release);  // pairs with the load in work
  doorbell_.ring();
  if (thread_.joinable()) thread_.join();
}

void WindowService::submit(int peer, std::shared_ptr<WindowRequest> request) noexcept {
  const std::lock_guard lock(mutex_);
  submitted_[size_t(peer)].push(std::move(request));
  any_submitted_.store(true, std::memory_order_relaxed);
  if (!std::exchange(asleep_, false)) return;
  doorbell_.ring();
}

void WindowService::work() noexcept {
  Patience patience(patience_);
  while (!ending_.load(std::memory_order_acquire)) {  // pairs with the store in end
    if (bootstrap_.verdict() != nullptr) {
      drop_all();
      sleep({});
      continue;
    }
    if (look()) {
      patience = Patience(patience_);
      continue;
    }
    if (patience.next() == Patience::Next::look) continue;
    for (const auto& transport : links_.transports) transport->arm();
    if (!look()) sleep(links_.transports);
    for (const auto& transport : links_.transports) transport->disarm();
    patience.woke();
  }
  drop_all();
}

// Whether anything moved.
bool WindowService::look() noexcept {
  bool moved = take_submitted();
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer] == nullptr) continue;
    const WindowLink::Progress progress = peers_[peer]->progress();
    if (progress == WindowLink::Progress::failed) settle(int(peer));
    moved = moved || progress == WindowLink::Progress::moved;
  }
  for (const auto& transport : links_.transports) transport->progress();
  return moved;
}

bool WindowService::take_submitted() noexcept {
  if (!any_submitted_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  any_submitted_.store(false, std::memory_order_relaxed);
  for (size_t peer = 0; peer < peers_.size(); ++peer)
    while (!submitted_[peer].empty()) peers_[peer]->enqueue(submitted_[peer].pop());
  return true;
}

// A link has failed: nobody asks for it any more, or it becomes everybody's verdict.
void WindowService::settle(int peer) noexcept {
  if (end_expected_.load(std::memory_order_acquire)) return peers_[size_t(peer)].reset();  // pairs with expect_end
  settle_broken_link(bootstrap_, links_, peer, peers_[size_t(peer)]->fault(), " of a window");
}

void WindowService::drop_all() noexcept {
  take_submitted();
  for (const auto& peer : peers_)
    if (peer != nullptr) peer->drop();
}

// Until somebody rings or submits, or one of the transports has news.
void WindowService::sleep(std::span<const std::unique_ptr<Transport>> transports) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (any_submitted_.load(std::memory_order_relaxed)) return;
    asleep_ = true;
  }
  std::array<pollfd, 16> fds{{{doorbell_.fd(), POLLIN, 0}}};
  size_t n = 1;
  for (const auto& transport : transports) n += transport->poll_fds(std::span(fds).subspan(n));
  ::poll(fds.data(), nfds_t(n), sleep_ms_max);
  doorbell_.drain();
  const std::lock_guard lock(mutex_);
  asleep_ = false;
}

}  // namespace tutti
