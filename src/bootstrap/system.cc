// Threads of the control plane.
#include "bootstrap/system.h"

#include <utility>

#include "bootstrap/threads.h"

namespace tutti {

Thread::Thread(System* system, std::function<void()> body) : system_(system) {
  if (system != nullptr) number_ = system->start(std::move(body));
  else thread_ = start_thread(std::move(body));
}

}  // namespace tutti
