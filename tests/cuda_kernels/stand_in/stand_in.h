// A stand-in for CUDA on machines that have none: the functions of its runtime and driver that libtutti_cuda.so calls, done by
// simulated devices, and its kernels, whose bodies run on the host. So the calls themselves are tested, all the way from the
// public interface. It is strict where CUDA forgives, or goes wrong later: whoever breaks a rule ends the process, with a
// sentence that names the function.
//
// - What needs a context has one pushed, and it is that of the device whose streams, events and memory are named. (Without
//   one, the runtime would make one on whatever device is the current one.)
// - An error is cleared before the context is popped: the caller's own code would find it.
// - What waits or allocates does so in the relaxed mode: in the others it would spoil captures into graphs.
// - A kernel is loaded when it is first asked for, which waits for all streams of the device.
// - Memory of other processes is opened by its allocation's beginning, never by the process that exports it; peers are reached
//   where access was enabled, once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda_kernels/kernels.h"
#include "device/host_block.h"
#include "device/simulated.h"

namespace tutti::stand_in {

// Of which the environment variable STAND_IN_CUDA says how many there are: as TUTTI_DEVICE=simulated:….
SimulatedPlatform& devices();

inline constexpr uint32_t multiprocessors = 36;  // room for one call whose launches meet

// What Kernel::function points to.
struct StandInKernel {
  size_t bytes;  // of its one parameter
  // Names all pointers to what is a device's; each is replaced by where the host finds it.
  void (*visit)(void* arguments, const std::function<void(std::byte*&)>& pointer);
  void (*run)(const void* arguments, uint32_t blocks, uint32_t threads);
  std::atomic<uint32_t> loaded{0};  // bit d: on device d
};

// --- For tests of the calls.

// Devices on which a primary context was made.
std::set<int> contexts();
// As cudaStreamBeginCapture and EndCapture on a stream of the caller's; a blocking one holds up the default stream.
void set_capturing(cudaStream_t stream, bool capturing);
// The next cuStreamWaitValue32 says so.
void fail_next_wait(CUresult error);
// What cudaPeekAtLastError says.
cudaError_t last_error();
// Priority of a stream; 0: that of a caller's own.
int priority_of(cudaStream_t stream);

}  // namespace tutti::stand_in
