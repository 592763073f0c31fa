// Fibers over ucontext.
#include "simulation/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/error.h"

// The address sanitizer must know which stack is in use; where it is not linked in, these are null.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom_before, size_t* bytes_before);
}

namespace tutti {

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  stack_ = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw system_error("no memory for the stack of a simulated rank", errno);
  ::getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = stack_bytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&inside_, reinterpret_cast<void (*)()>(begin), 2, unsigned(self >> 32), unsigned(self));
}

Fiber::~Fiber() { ::munmap(stack_, stack_bytes); }

void Fiber::begin(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_stack_bytes_);
  self->body_();
  self->ended_ = true;
  self->wait();
}

// What the C++ runtime (Itanium C++ ABI, 2.2.2) keeps for the thread belongs to whom runs on it.
void Fiber::exchange_handling() {
  auto& of_thread = *reinterpret_cast<Handling*>(abi::__cxa_get_globals());
  std::swap(of_thread, handling_);
}

void Fiber::run() {
  TUTTI_ASSERT(!ended_);
  exchange_handling();
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&fake_stack, stack_, stack_bytes);
  ::swapcontext(&outside_, &inside_);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  exchange_handling();
}

void Fiber::wait() {
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(ended_ ? nullptr : &fake_stack, outside_stack_, outside_stack_bytes_);
  ::swapcontext(&inside_, &outside_);
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack, &outside_stack_, &outside_stack_bytes_);
}

}  // namespace tutti
