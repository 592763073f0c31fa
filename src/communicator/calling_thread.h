// What is kept per calling thread: the open group and the last error's sentence, because the C interface's functions take no
// handle for it, and whether others want the thread's core. Nothing else of the library is kept per thread.
#pragma once

#include <string>
#include <vector>

#include "communicator/group.h"
#include "communicator/patience.h"

namespace tutti {

struct CallingThread {
  int group_depth = 0;
  bool preparing = false;             // the outermost group is a tuttiPrepareStart
  std::vector<GroupCall> calls;       // of the open group
  KeptGroups kept;
  std::vector<GroupJoin> joins;       // communicators to be made by the group's end
  Code first_refusal = Code::success; // the first call of the group that was refused
  std::string sentence;               // of the last error
  CoreDemand core_demand;             // where it waits

  // Runs `calls`, and forgets them.
  Outcome run_calls();

  static CallingThread& current() noexcept {
    CallingThread* const known = known_;
    return known != nullptr ? *known : first_of_thread();
  }

 private:
  static CallingThread& first_of_thread() noexcept;
  // Constant at first, so that to read it takes no call. initial-exec: one addition finds it, where a shared library would have to
  // ask the loader otherwise. It is small enough for the room that the loader keeps for libraries loaded later.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local CallingThread* known_;
};

}  // namespace tutti
