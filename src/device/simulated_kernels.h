// Kernels of simulated devices that are more than a loop of the host: those of linked plans. Where launches wait for each
// other, their code is the one that GPUs run (linked_body.h, packet_body.h), but for the elements' arithmetic, which is the
// host's.
#pragma once

#include <atomic>

#include "device/linked_call.h"

namespace tutti {

// Does the part of the ranks of call.meeting, or of all where it names none, and returns when it is done, the call has ended,
// or `lost` is set. All pointers are such as the calling thread may use. False: it has not been done.
bool run_launch_on_host(const LinkedCall& call, const std::atomic<bool>& lost);

}  // namespace tutti
