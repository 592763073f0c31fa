// The C interface: memory that ranks of one host reach directly.
#include <pthread.h>

#include <cerrno>

#include "communicator/arguments.h"
#include "communicator/c_api.h"

namespace tutti {

SharedMemory& process_memory() {
  static SharedMemory& memory = *[] {
    auto* const made = new SharedMemory();
    const int error = ::pthread_atfork([] { process_memory().before_fork(); },
                                       [] { process_memory().after_fork(false); },
                                       [] { process_memory().after_fork(true); });
    if (error != 0) throw system_error("tuttiMemAlloc: cannot prepare for forks", error);
    return made;
  }();
  return memory;
}

}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiMemAlloc(void** pointer, size_t bytes) {
  return at_the_border([&] {
    check_not_null("pointer", pointer);
    *pointer = nullptr;
    *pointer = process_memory().allocate(bytes);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void* buff, size_t size, void** handle) {
  return at_the_border([&] {
    check_not_null("handle", handle);
    *handle = nullptr;
    Communicator& communicator = communicator_of(comm);
    check_not_null("buff", buff);
    if (size == 0) throw Error(Code::invalid_argument, "size is 0");
    *handle = communicator.registrations().add(process_memory(), buff, size);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void* handle) {
  return at_the_border([&] {
    Communicator& communicator = communicator_of(comm);
    if (handle != nullptr) communicator.registrations().remove(handle);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiMemFree(void* pointer) {
  return at_the_border([&] {
    process_memory().free(pointer);
    return tuttiSuccess;
  });
}

}  // extern "C"
