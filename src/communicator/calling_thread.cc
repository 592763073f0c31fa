// The thread_locals of the library.
#include "communicator/calling_thread.h"

#include <utility>

namespace tutti {

Outcome CallingThread::run_calls() {
  constexpr size_t calls_kept = 256;  // their memory
  if (calls.empty() && kept.has_noted_all()) return kept.run_noted();
  kept.write_down(calls);
  std::vector<GroupCall> closed = std::exchange(calls, {});
  Outcome outcome = run_group(closed, kept);
  closed.clear();
  if (closed.capacity() <= calls_kept && calls.empty()) calls.swap(closed);
  return outcome;
}

constinit thread_local CallingThread* CallingThread::known_ = nullptr;

CallingThread& CallingThread::first_of_thread() noexcept {
  [[gnu::tls_model("initial-exec")]] thread_local CallingThread state;
  known_ = &state;
  return state;
}

}  // namespace tutti
