// The c10d backend's calls on tensors of devices: whose communicator and stream they use.
#include <algorithm>
#include <utility>

#include "backend.h"

namespace tutti_torch {
namespace {

// While it lives, a place is another one.
template <class Place>
class Elsewhere {
 public:
  Elsewhere(Place& place, Place there) : place_(place), before_(std::exchange(place, there)) {}
  ~Elsewhere() { place_ = before_; }
  Elsewhere(const Elsewhere&) = delete;

 private:
  Place& place_;
  Place before_;
};

}  // namespace

// The call on the group's own stream of the device, by the communicator of that device.
c10::intrusive_ptr<Call> Backend::on_device(c10::Device device, const Kind& kind, const Tensors& inputs,
                                            const Tensors& outputs, Call::Body body) {
  OfDevice& there = of_device(device);
  check_not_captured(device);
  Tensors all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  auto turn = std::make_shared<Turn>(there.stream, std::move(all));
  const auto there_body = [this, &there, device, turn, body = std::move(body)] {
    if (there.comm == nullptr) make_communicator(device, there);
    const Elsewhere<Place> here(at_, {there.comm, there.handle});
    turn->run(body);
  };
  return c10::make_intrusive<Call>(rank_, kind.type, kind.title, inputs, outputs, there_body, turn);
}

// Throws where Tutti finds no such device in this process.
void Backend::check_device(c10::Device device) {
  const std::lock_guard lock(devices_mutex_);
  if (found_.count(device.index()) != 0) return;
  const int number = device.index();
  tuttiComm_t alone = nullptr;
  const tuttiResult_t result = tuttiCommInitAll(&alone, 1, &number);
  if (result != tuttiSuccess)
    raise(tuttiUnsupported, "a tensor is on " + device.str() + ", but " + tuttiGetLastError(nullptr) +
                                ". Move it to the CPU, or give each device its backend: "
                                "init_process_group(\"cpu:tutti,cuda:nccl\")");
  tuttiCommDestroy(alone);
  found_.insert(device.index());
}

// Throws where the caller's stream is captured into a graph: an event of it would draw the group's stream in. (The default
// stream cannot be captured.)
void Backend::check_not_captured(c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const tuttiStream_t handle = stream.id() == 0 ? nullptr : handle_of_callers(stream);
  if (handle != nullptr && tuttiStreamQuery(handle) == tuttiUnsupported) raise(tuttiUnsupported, tuttiGetLastError(nullptr));
}

tuttiStream_t Backend::handle_of_callers(const c10::Stream& stream) {
  const std::pair<c10::DeviceIndex, c10::StreamId> key(stream.device_index(), stream.id());
  {
    const std::lock_guard lock(devices_mutex_);
    if (const auto known = handles_.find(key); known != handles_.end()) return known->second;
  }
  const tuttiStream_t handle = handle_of(stream, [this](const c10::Stream& s) { return ask_for_handle(s); });
  const std::lock_guard lock(devices_mutex_);
  return handles_[key] = handle;
}

Backend::OfDevice& Backend::of_device(c10::Device device) {
  {
    const std::lock_guard lock(devices_mutex_);
    const auto known = devices_.find(device.index());
    if (known != devices_.end()) return known->second;
  }
  check_device(device);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
  const tuttiStream_t handle = handle_of(stream, [this](const c10::Stream& s) { return ask_for_handle(s); });
  const std::lock_guard lock(devices_mutex_);
  return devices_.emplace(device.index(), OfDevice{stream, handle, nullptr}).first->second;
}

// All ranks make it at their first call on a device. Each names its own, so that they may reach each other's memory.
void Backend::make_communicator(c10::Device device, OfDevice& there) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = int32_t(std::clamp<int64_t>(joined_timeout_.count(), 1, INT32_MAX));
  config.device = device.index();
  tuttiComm_t made = nullptr;
  check(tuttiCommDup(comm_, &made, &config));
  const std::lock_guard lock(devices_mutex_);
  there.comm = made;
  if (ended_) tuttiCommAbort(made);
}

// What the caller's stream has of a device's tensor so far; null for the host's.
std::shared_ptr<Reached> Backend::reached(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return nullptr;
  check_device(tensor.device());
  check_not_captured(tensor.device());
  return std::make_shared<Reached>(tensor.device());
}

// What the caller's streams have so far, of the devices that the group has been given tensors of.
std::vector<std::shared_ptr<Reached>> Backend::reached_by_caller() {
  const std::lock_guard lock(devices_mutex_);
  std::vector<std::shared_ptr<Reached>> made;
  for (const auto& [number, there] : devices_) made.push_back(std::make_shared<Reached>(there.stream.device()));
  return made;
}

// Until they are through with `before` and with the group's earlier calls. In the queue.
void Backend::wait_for_devices(const std::vector<std::shared_ptr<Reached>>& before, milliseconds timeout) {
  std::vector<std::shared_ptr<Reached>> all = before;
  {
    const std::lock_guard lock(devices_mutex_);
    for (const auto& [number, there] : devices_) all.push_back(std::make_shared<Reached>(there.stream));
  }
  const Patience patience(timeout);
  for (const auto& reached : all) patience.wait_for(*reached);
}

}  // namespace tutti_torch
