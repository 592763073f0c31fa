// What the C interface's functions share: handles, and the border at which exceptions become codes.
#pragma once

#include "base/error.h"
#include "communicator/calling_thread.h"
#include "communicator/communicator.h"
#include "communicator/handle.h"
#include "communicator/stream.h"
#include "memory/shared_memory.h"
#include "tutti/tutti.h"

// The C handles are cells of these stores.
struct tuttiComm : tutti::Handle<tutti::Communicator> {};
struct tuttiStream : tutti::Handle<tutti::Stream> {};

namespace tutti {

// Keeps the sentence for tuttiGetLastError and gives the code.
tuttiResult_t report(Code code, const std::string& sentence) noexcept;

// Runs the body of a C function: nothing is thrown past it.
template <class Body>
tuttiResult_t at_the_border(Body body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(Code::system_error, "out of memory");
  } catch (const std::exception& error) {
    return report(Code::internal_error, error.what());
  }
}

// Joins all at once and writes their handles. Throws the first Error, and then no handle is written.
void join_now(const std::vector<GroupJoin>& joins);
// Makes a communicator now, or at the end of the open group.
tuttiResult_t join_or_defer(GroupJoin join);

// The live communicator or stream behind a handle. Throw Error(invalid_argument): null, or destroyed.
Communicator& communicator_of(tuttiComm_t comm);
Stream& stream_of(tuttiStream_t stream);
// What a stream argument stands for: null is none. Throws Error: invalid_argument (no live stream of the host, and none of a
// device), unsupported (it is being captured into a graph).
CallStream call_stream(tuttiStream_t stream);

// What tuttiMemAlloc gives out in this process. Never destroyed: memory may be freed while the program ends.
SharedMemory& process_memory();

}  // namespace tutti
