// What Python knows of the backend's threads, and forks.
//
// PyTorch takes Python's lock on whatever thread lets go a tensor that Python has, too. Of a thread that Python does not
// know it makes a thread state each time, and deletes it, under a lock of the interpreter for which nobody needs Python's
// own. A process that is forked in that moment has that lock taken for ever (CPython before 3.12), and hangs. So each of the
// backend's threads is made known once, and not while a process is forked.
#pragma once

#include <Python.h>

#include <mutex>

namespace tutti_torch {

// Held while a process is forked, by the hooks of os.fork(). Who holds it may ask for Python's lock, and not the reverse.
inline std::mutex& forks() {
  static std::mutex mutex;
  return mutex;
}

class KnownToPython {
 public:
  KnownToPython() {
    if (PyGILState_GetThisThreadState() != nullptr || ending()) return;
    const std::lock_guard no_fork(forks());
    before_ = PyGILState_Ensure();
    state_ = PyEval_SaveThread();
  }
  ~KnownToPython() {
    if (state_ == nullptr || ending()) return;
    const std::lock_guard no_fork(forks());
    PyEval_RestoreThread(state_);
    PyGILState_Release(before_);
  }
  KnownToPython(const KnownToPython&) = delete;
  KnownToPython& operator=(const KnownToPython&) = delete;

 private:
  static bool ending() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
    return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
  }

  PyGILState_STATE before_{};
  PyThreadState* state_ = nullptr;
};

// Before a thread first lets tensors go. Waits for Python's lock, so no lock may be held that one who has it may ask for.
inline void be_known_to_python() { static thread_local const KnownToPython until_the_threads_end; }

}  // namespace tutti_torch
