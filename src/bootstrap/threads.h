// Threads that the application does not see: no signal of its own is delivered to them.
#pragma once

#include <signal.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tutti {

// Runs `body` on a new thread with all signals blocked. Throws Error(system_error).
template <typename Body>
std::thread start_thread(Body body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw system_error("cannot start a thread of the control plane", error);
  return thread;
}

}  // namespace tutti
