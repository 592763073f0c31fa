// Kernels' blocks and their memory on the host: a thread of the host plays all threads of a block in turn. What simulated
// devices run, and tests.
#pragma once

#include <atomic>
#include <cstring>
#include <thread>

#include "device/linked_body.h"
#include "device/packet_body.h"

namespace tutti {

// Whether those who wait are to go on without what they wait for. Any of it may be null.
struct HostEnd {
  const uint32_t* ended = nullptr;
  const std::atomic<bool>* lost = nullptr;

  bool has_come() const noexcept {
    if (lost != nullptr && lost->load(std::memory_order_acquire)) return true;
    // pairs with the store of who ends the call
    return ended != nullptr && std::atomic_ref<const uint32_t>(*ended).load(std::memory_order_acquire) != 0;
  }
};

// linked_body.h says what each function is for. Every block is its own, also where several work on one call.
template <class Pass>
struct HostBlock {
  uint32_t index, threads;
  HostEnd end{};
  Pass arguments{};

  Pass& pass() { return arguments; }
  bool goes_on() const { return !end.has_come(); }
  template <class F>
  void once(F f) {
    f();
  }
  template <class F>
  void all(F f) {
    for (uint32_t thread = 0; thread < threads; ++thread) f(thread);
  }
  bool wait(const LinkedCounter* of, uint64_t value) {
    const std::atomic_ref<const LinkedCounter> at(*of);
    while (at.load(std::memory_order_acquire) < value) {  // pairs with tell's store
      if (end.has_come()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void tell(LinkedCounter* to, uint64_t value) { std::atomic_ref(*to).store(value, std::memory_order_release); }
  template <class To, class Of>
  bool meet(uint32_t n, To to, Of of, uint64_t value) {
    for (uint32_t k = 0; k < n; ++k)
      if (LinkedCounter* const there = to(k)) tell(there, value);
    for (uint32_t k = 0; k < n; ++k)
      if (const LinkedCounter* const here = of(k); here != nullptr && !wait(here, value)) return false;
    return true;
  }
};

// Memory that blocks share. A packet is two words of 8 bytes, each of them whole.
struct HostMemory {
  HostEnd end{};

  template <class Word>
  Word load(const std::byte* from) const {
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  template <class Word>
  void store(std::byte* to, Word word) const {
    std::memcpy(to, &word, sizeof word);
  }
  Packet<16> load_packet(const std::byte* from) const {
    const auto* const words = reinterpret_cast<const uint64_t*>(from);
    // acquire, pairs with store_packet: who reads one packet may be told of more by it
    const uint64_t low = std::atomic_ref(words[0]).load(std::memory_order_acquire);
    const uint64_t high = std::atomic_ref(words[1]).load(std::memory_order_acquire);
    return {{uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)}};
  }
  void store_packet(std::byte* to, Packet<16> packet) const {
    auto* const words = reinterpret_cast<uint64_t*>(to);
    for (size_t i = 0; i < 2; ++i) {
      const uint64_t word = uint64_t{packet.words[2 * i + 1]} << 32 | packet.words[2 * i];
      std::atomic_ref(words[i]).store(word, std::memory_order_release);
    }
  }
  bool gives_up() const noexcept {
    std::this_thread::yield();
    return end.has_come();
  }
};

}  // namespace tutti
