// Operations of a communicator whose buffers lie on a device.
#include <algorithm>

#include "communicator/communicator.h"
#include "device/platform.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

// A step joins a whole message at most, unless it has nothing but local operands: then as many chunks as it says.
size_t pinned_bytes(const Plan& plan, size_t message_bytes_max) {
  uint32_t chunks = 1;
  for (const Fold& fold : plan.steps) chunks = std::max({chunks, fold.a.count, fold.dst.count});
  return message_bytes_max * ((chunks + plan.message_chunks_max - 1) / plan.message_chunks_max);
}

}  // namespace

void Communicator::make_device_side() {
  Platform* const platform = find_platform().platform;
  if (platform == nullptr) return;
  std::vector<std::span<std::byte>> slots;
  for (const auto& transport : links_.transports) transport->slot_memory(slots);
  device_side_ = std::make_unique<DeviceSide>(*platform, message_bytes_max_, std::move(slots), log_);
}

// Of the device's kernels, those for the sum serve a sum of inputs that were multiplied before.
void Communicator::begin_on_device(Work& work, const Request& request) {
  const Call& call = request.call;
  const bool point_to_point = call.kind == Collective::send_recv;
  const ReduceOp op = call.op == ReduceOp::premulsum ? ReduceOp::sum : call.op;
  const bool folds = request.in_reach && work.custom == nullptr && work.operands == nullptr &&
                     device_side_->platform().supports(call.type, op);
  const bool host_joins = meaning(call.kind).reduces && !folds;
  const int channels = point_to_point ? 1 : channels_;
  if (work.plan->shape.scratch != 0) work.scratch = device_side_->scratch(engine_->scratch_bytes(*work.plan, channels_));
  DeviceWork& task = device_side_->start(channels, host_joins ? pinned_bytes(*work.plan, message_bytes_max_) : 0);
  task.type = call.type;
  task.op = op;
  task.folds = folds;
  work.device = &task;
}

// Of an input that the call makes of the caller's. Calls that make one follow each other.
std::byte* Communicator::made_input(const Request& request, size_t bytes) {
  if (request.on_device) return device_side_->made_input(bytes);
  made_input_.resize(std::max(made_input_.size(), bytes));
  return made_input_.data();
}

void Communicator::copy_on_device(const EntryEvent* entry, std::byte* to, const std::byte* from, size_t bytes) {
  device_side_->begin(entry);
  device_side_->copy(to, from, bytes);
}

}  // namespace tutti
