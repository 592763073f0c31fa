// The one thread_local of the library.
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

CallingThread& CallingThread::current() noexcept {
  // initial-exec: one addition finds it, where a shared library would have to ask the loader otherwise. It is small
  // enough for the room that the loader keeps for libraries loaded later.
  [[gnu::tls_model("initial-exec")]] thread_local CallingThread state;
  return state;
}

}  // namespace tutti
