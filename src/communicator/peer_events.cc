// Of all ranks of the process, by number.
#include "communicator/peer_events.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "communicator/by_number.h"

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

uint64_t PeerEvents::publish(const std::shared_ptr<PeerEvents>& events) { return ByNumber<PeerEvents>::publish(events); }

std::shared_ptr<PeerEvents> PeerEvents::numbered(uint64_t number) { return ByNumber<PeerEvents>::find(number); }

}  // namespace tutti
