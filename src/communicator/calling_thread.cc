// The one thread_local of the library.
#include "communicator/calling_thread.h"

namespace tutti {

CallingThread& CallingThread::current() noexcept {
  // initial-exec: one addition finds it, where a shared library would have to ask the loader otherwise. It is small
  // enough for the room that the loader keeps for libraries loaded later.
  [[gnu::tls_model("initial-exec")]] thread_local CallingThread state;
  return state;
}

}  // namespace tutti
