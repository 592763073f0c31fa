// Of all ranks of the process, by number.
#include "communicator/peer_events.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace tutti {

PeerEvents::PeerEvents(Device& of) : device(of) {
  for (DeviceEvent* event : {&ready, &first, &second}) {
    const Outcome made = device.create_event(false, event);
    if (!made.ok()) throw Error(made.code, made.sentence);
  }
}

PeerEvents::~PeerEvents() {
  for (const DeviceEvent event : {ready, first, second}) device.destroy_event(event);
}

bool PeerEvents::enter() noexcept {
  uint32_t now = visitors_.load(std::memory_order_relaxed);
  while ((now & closed) == 0)
    if (visitors_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
  return false;
}

bool PeerEvents::close(TimeNs until) noexcept {
  visitors_.fetch_or(closed, std::memory_order_acq_rel);
  while (visitors_.load(std::memory_order_acquire) != closed) {  // pairs with leave
    if (now_ns() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

namespace {

// Of all communicators of the process. Who fails leaves at once, so that a peer's events are asked for by number.
struct AllPeerEvents {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<PeerEvents>> by_number;
  uint64_t last = 0;

  static AllPeerEvents& of_process() {
    static AllPeerEvents& all = *new AllPeerEvents();  // never destroyed: ranks may outlive main
    return all;
  }
};

}  // namespace

uint64_t PeerEvents::publish(const std::shared_ptr<PeerEvents>& events) {
  AllPeerEvents& all = AllPeerEvents::of_process();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_number, [](const auto& entry) { return entry.second.expired(); });
  all.by_number[++all.last] = events;
  return all.last;
}

std::shared_ptr<PeerEvents> PeerEvents::numbered(uint64_t number) {
  AllPeerEvents& all = AllPeerEvents::of_process();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_number.find(number);
  return found == all.by_number.end() ? nullptr : found->second.lock();
}

}  // namespace tutti
