// The one thread_local of the library.
#include "communicator/calling_thread.h"

namespace tutti {

CallingThread& CallingThread::current() noexcept {
  thread_local CallingThread state;
  return state;
}

}  // namespace tutti
