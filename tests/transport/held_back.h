// A message whose sender is stopped in the middle of reading it.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstddef>

#include "transport/traffic.h"

namespace tutti {

// Memory whose second half cannot be read until somebody says so: a sender stops in the middle of its message.
class HeldBack {
 public:
  explicit HeldBack(size_t bytes) : bytes_(bytes) {
    data_ = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill(data_, bytes, 5);
    half_ = data_ + bytes / 2;
    half_bytes_ = bytes / 2;
    ::mprotect(half_, half_bytes_, PROT_NONE);
    may_go_on_ = false;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      while (!may_go_on_.load(std::memory_order_acquire)) {  // pairs with the store in go_on
      }
      ::mprotect(half_, half_bytes_, PROT_READ);
    };
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~HeldBack() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(data_, bytes_);
  }
  const std::byte* data() const { return data_; }
  static void go_on() { may_go_on_.store(true, std::memory_order_release); }  // pairs with the load in the handler

 private:
  static inline std::byte* half_;
  static inline size_t half_bytes_;
  static inline std::atomic<bool> may_go_on_;
  struct sigaction before_;
  std::byte* data_;
  size_t bytes_;
};

}  // namespace tutti
