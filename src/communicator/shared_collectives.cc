// Operations of a communicator that go through the memory of all its ranks.
#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "communicator/communicator.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

// From how many times TUTTI_IN_PLACE_BYTES on a call of that kind is faster than by messages, whose data are read where they
// lie as well (measured: docs/tuning.md). The cards and the meeting at the end cost more where ranks wait for each
// other's core. Of an all_gather each rank copies as much in either way, but others write a half of its output here.
// at_a_stretch: whether all ranks copy so.
constexpr size_t least_factor(Collective kind, bool crowded, bool at_a_stretch) {
  switch (kind) {
    case Collective::broadcast: return crowded ? 4 : 1;
    case Collective::reduce: return crowded ? 8 : 1;
    case Collective::gather: return crowded ? 10 : 4;
    case Collective::scatter: return crowded ? 64 : 16;
    case Collective::all_gather: return at_a_stretch ? 16 : 512;
    default: return 1;
  }
}
// More ranks take longer for that, too.
constexpr size_t ranks_per_factor = 4;
// Where nobody says how large the last cache is.
constexpr size_t cache_bytes_assumed = size_t{32} << 20;

}  // namespace

// All ranks are of one host, and more than one; every rank sees that alike.
void Communicator::make_shared_path(size_t cache_bytes) {
  if (size_ < 2 || size_ > int(linked_ranks_max) || shared_path_bytes_min_ == 0) return;
  if (cache_bytes == 0) cache_bytes = cache_bytes_assumed;
  shared_path_ = std::make_unique<SharedPath>(std::span(links_.endpoints).first(size_t(size_)), rank_, cache_bytes);
}

// The same on all ranks: where a rank's buffers lie it tells the others, be it on a device.
bool Communicator::may_go_by_shared_memory(const Request& request) const noexcept {
  const Call& call = request.call;
  if (shared_path_ == nullptr || request.layout != nullptr || request.made != nullptr || !request.algorithm.empty() ||
      !options_.algorithm.empty() || request.terms.inputs > 1 || adds_exactly(request))
    return false;
  if (SharedPath::algorithm_of(call.kind).empty()) return false;
  const size_t bytes = call.count * element_bytes(call) * (meaning(call.kind).blocks ? size_t(size_) : 1);
  const size_t least = shared_path_bytes_min_ * least_factor(call.kind, crowded_, all_copy_at_a_stretch_);
  return bytes >= least * std::max<size_t>(1, size_t(size_) / ranks_per_factor);
}

// A sum's bits must not depend on where its buffers lie, so the call's own plan must add as the path does. Two operands
// give the same bits in either order.
bool Communicator::goes_by_shared_memory(const Request& request) {
  if (!may_go_by_shared_memory(request)) return false;
  const Call& call = request.call;
  return !meaning(call.kind).reduces || size_ == 2 || !order_matters(call.op, call.type) ||
         plan_of(request).algorithm == SharedPath::algorithm_of(call.kind);
}

void Communicator::begin_by_shared_memory(Operation& operation, const Request& request) {
  SharedCall call;
  call.call = request.call;
  call.input = request.input;
  call.output = request.output;
  call.in_place = request.in_place;
  call.on_device = request.on_device;
  Work work;
  work.input = request.input;
  work.output = request.output;
  if (!request.on_device) find_regions(work);
  call.input_region = work.input_region;
  call.output_region = work.output_region;
  if (meaning(request.call.kind).reduces) set_reduction(work, request);
  call.divisor = work.divisor;
  start_exchange(operation, request, {}, nullptr);  // so that who asks about it finds the call
  recorder_->begin(operation, operation.work().signature);
  by_shared_memory_ = &operation;
  shared_path_->begin(
      call,
      [this, &operation, request](const std::byte* mine, std::byte* all, size_t bytes) {
        start_exchange(operation, request, {mine, bytes}, all);
      },
      [this, &operation, request] { begin_planned(operation, request, true); });
}

}  // namespace tutti
