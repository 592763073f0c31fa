// Where a call's buffers lie, and what it comes after on a device's stream. The calling thread's.
#pragma once

#include "communicator/communicator.h"

namespace tutti {

// Finds out where a checked request's buffers lie, and binds the communicator to the device where it is not yet. Throws
// Error(invalid_argument) that names the buffer: on another device than the communicator's, or its stream; in memory
// that was freed, or ends before the buffer does; in no memory at all.
void place(Request& request, Communicator& communicator, const CallStream& stream);

// A caller's stream of a device. Throws Error(invalid_argument) where it is none, Error(unsupported) where it is captured into a
// graph. To be asked before anything is done with the stream, which could spoil the capture.
CallStream device_call_stream(DeviceStream stream);

// Whether calls on this stream are run by a thread other than the caller's, and return at once. (Those on a device's stream
// do where TUTTI_DEVICE_ASYNC asks for it.) Throws Error.
bool runs_elsewhere(const CallStream& stream);

// Throws Error(unsupported) where the buffer lies on a device: windows are of host memory.
void check_of_host(const char* name, const void* buffer);

// The communicator's device, bound to that of the stream. Throws Error(invalid_argument).
DeviceSide& device_side_for(Communicator& communicator, const CallStream& stream);

// A placed request comes after what is on the stream of a device now; with buffers on a device and no stream at all,
// after what is on its default stream. Throws Error.
void enter(Request& request, Communicator& communicator, const CallStream& stream);

}  // namespace tutti
