// Doing something when a signal comes that a signal handler must not do itself, such as writing a file.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tutti {

// "USR2", "SIGTERM" or "12" as a number. Throws Error(invalid_usage) for a text that names no signal, or one that no
// program can catch or that must not be caught here (KILL, STOP, CONT, CHLD, PIPE, and those of faults).
int signal_number(const std::string& name);

// While it lives, `react` is called on a thread of its own each time that the signal has come (once for several that
// came in a row). The program's own handler of that signal is called as well, after all reactions (or one second); where
// it had none, USR1 and USR2 do nothing more, and the others end the process, as they would have without this.
// `react` must not throw. All OnSignals of a process must name one signal: throws Error(invalid_usage) otherwise, and
// where the signal cannot be had. Any thread may make and end them.
class OnSignal {
 public:
  OnSignal(int signal, std::function<void()> react);
  ~OnSignal();

 private:
  void watch();

  const std::function<void()> react_;
  std::atomic<bool> stopping_{false};
  uint32_t seen_ = 0;  // signals that this one has answered
  std::thread thread_;
};

}  // namespace tutti
