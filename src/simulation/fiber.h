// Fibers: functions with stacks of their own that one thread runs in turn. What they call may wait in its middle.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace tutti {

// Not movable while it runs. A fiber that has not ended may be destroyed; what lies on its stack is forgotten, not
// destroyed.
class Fiber {
 public:
  // Throws Error(system_error) where there is no memory for the stack.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it waits or ends. Not from inside itself.
  void run();
  // Of the running fiber: back to who called run().
  void wait();
  bool ended() const { return ended_; }

 private:
  static void begin(unsigned high, unsigned low);

  static constexpr size_t stack_bytes = 256 * 1024;
  std::function<void()> body_;
  void* stack_ = nullptr;
  // Exceptions that are being handled: a fiber may wait inside a handler.
  struct Handling {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  void exchange_handling();
  Handling handling_;
  ucontext_t inside_{}, outside_{};
  const void* outside_stack_ = nullptr;  // for sanitizers
  size_t outside_stack_bytes_ = 0;
  bool ended_ = false;
};

}  // namespace tutti
