// What a communicator's calls need of its device, made when it is first asked for and kept.
#include "communicator/device_side.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/device_flags.h"
#include "communicator/group.h"
#include "reduce/reduce.h"
#include "reduce/scale.h"

namespace tutti {
namespace {

void check(const Outcome& outcome) {
  if (!outcome.ok()) throw Error(outcome.code, outcome.sentence);
}

}  // namespace

EventPool::~EventPool() {
  for (const DeviceEvent event : idle_) device_.destroy_event(event);
}

DeviceEvent EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      const DeviceEvent event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  DeviceEvent event = nullptr;
  check(device_.create_event(false, &event));
  return event;
}

void EventPool::give(DeviceEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

EntryEvent::EntryEvent(std::shared_ptr<EventPool> pool, DeviceStream stream)
    : pool_(std::move(pool)), event_(pool_->take()) {
  const Outcome recorded = pool_->device().record_event(event_, stream);
  if (recorded.ok()) return;
  pool_->give(event_);
  throw Error(recorded.code, recorded.sentence);
}

DeviceSide::DeviceSide(Platform& platform, size_t message_bytes, std::vector<std::span<std::byte>> slots, Log log)
    : platform_(platform), message_bytes_(message_bytes), slots_(std::move(slots)), log_(std::move(log)) {}

DeviceSide::~DeviceSide() {
  worker_.reset();
  if (device_ == nullptr) return;
  for (const auto& task : tasks_)
    for (DeviceLane& lane : task->lanes)
      if (!task->in_use) free_lane(lane);
  device_->destroy_event(made_);
  if (making_ != nullptr) device_->destroy_stream(making_);
  device_->free(scratch_.data);
  device_->free(made_input_.data);
  for (void* data : outgrown_) device_->free(data);
  for (void* data : outgrown_pinned_) platform_.free_host(data);
  for (const auto& [data, bytes] : registered_) platform_.unregister_host(const_cast<std::byte*>(data));
  DeviceFlags::of_process().give(platform_, flag_.load(std::memory_order_relaxed));
}

void DeviceSide::bind(int number) {
  if (device_ != nullptr) {
    if (device_->number() == number) return;
    throw Error(Code::invalid_argument,
                fmt::format("it is of device {}, but this communicator uses device {}", number, device_->number()));
  }
  Device& device = platform_.device(number);
  check(device.create_stream(&making_, true));  // first of all: so what is of all devices is had in this one's context
  check(device.create_event(false, &made_));
  uint32_t* const flag = DeviceFlags::of_process().take(platform_);
  flag_base_ = std::atomic_ref<uint32_t>(*flag).load(std::memory_order_relaxed);
  flag_.store(flag, std::memory_order_release);
  device_ = &device;
  events_ = std::make_shared<EventPool>(device);
}

// Not before messages are made: it takes 0.6 ms a MiB (an H200's host), and calls by peers make none. Where it is refused,
// messages are copied once more, which is slower and nothing else.
void DeviceSide::register_slots() {
  for (const std::span<std::byte> memory : slots_) {
    const Outcome outcome = platform_.register_host(memory.data(), memory.size());
    if (outcome.ok()) registered_[memory.data()] = memory.size();
    else log_.info(fmt::format("{} bytes of message slots are not pinned: {}", memory.size(), outcome.sentence));
  }
}

bool DeviceSide::holds(const std::byte* data, size_t bytes) const noexcept {
  const auto after = registered_.upper_bound(data);
  if (after == registered_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return data + bytes <= begin + size;
}

std::shared_ptr<const EntryEvent> DeviceSide::enter(DeviceStream stream) {
  return std::make_shared<const EntryEvent>(events_, stream);
}

void DeviceSide::hold(DeviceStream stream, uint64_t ticket) {
  check(device_->wait_flag(stream, flag_.load(std::memory_order_relaxed), flag_base_ + uint32_t(ticket) + 1));
}

Stream& DeviceSide::worker() {
  if (worker_ == nullptr) worker_ = std::make_unique<Stream>();
  return *worker_;
}

void DeviceSide::begin(const EntryEvent* entry) {
  entry_ = entry;
  if (entry_ != nullptr) check(device_->wait_event(making_, entry_->event()));
}

DeviceLane DeviceSide::make_lane() {
  DeviceLane lane;
  try {
    check(device_->create_stream(&lane.stream, true));
    lane.passed = DeviceFlags::of_process().take(platform_);
    lane.marks = std::atomic_ref(*lane.passed).load(std::memory_order_relaxed);
    void* aside = nullptr;
    check(device_->allocate(DeviceLane::places_max * message_bytes_, &aside));
    lane.aside = static_cast<std::byte*>(aside);
  } catch (const Error&) {
    free_lane(lane);
    throw;
  }
  return lane;
}

void DeviceSide::prepare(DeviceLane& lane, size_t pinned_bytes) {
  if (pinned_bytes <= lane.pinned_bytes) return;
  void* pinned = nullptr;
  check(platform_.allocate_host(DeviceLane::pinned_places * pinned_bytes, &pinned));
  if (lane.pinned != nullptr) outgrown_pinned_.push_back(lane.pinned);
  lane.pinned = static_cast<std::byte*>(pinned);
  lane.pinned_bytes = pinned_bytes;
}

void DeviceSide::free_lane(DeviceLane& lane) noexcept {
  if (lane.stream != nullptr) device_->destroy_stream(lane.stream);
  device_->free(lane.aside);
  if (lane.pinned != nullptr) platform_.free_host(lane.pinned);
  if (lane.passed != nullptr) DeviceFlags::of_process().give(platform_, lane.passed);
  lane = {};
}

DeviceWork& DeviceSide::start(int channels, size_t pinned_bytes) {
  if (!std::exchange(has_registered_, true)) register_slots();
  auto found = std::find_if(tasks_.begin(), tasks_.end(), [](const auto& task) { return !task->in_use; });
  if (found == tasks_.end()) found = tasks_.insert(tasks_.end(), std::make_unique<Task>());
  Task& task = **found;
  while (task.lanes.size() < size_t(channels)) task.lanes.push_back(make_lane());
  for (DeviceLane& lane : task.lanes) prepare(lane, pinned_bytes);
  check(device_->record_event(made_, making_));
  for (int i = 0; i < channels; ++i) check(device_->wait_event(task.lanes[size_t(i)].stream, made_));
  task.in_use = true;
  ++running_;
  task.work = DeviceWork{};
  task.work.device = device_;
  task.work.pinned = this;
  task.work.place_bytes = message_bytes_;
  task.work.lanes = task.lanes;
  return task.work;
}

std::shared_ptr<const DeviceRegion> DeviceSide::region_of(const std::byte* pointer) {
  if (pointer == nullptr || !makes_files_) return nullptr;
  const Location location = platform_.locate(pointer);
  if (location.kind != MemoryKind::device || location.device != number()) return nullptr;
  auto found = std::find_if(files_.begin(), files_.end(),
                            [&](const auto& file) { return file->allocation == location.allocation; });
  if (found == files_.end()) {
    forget_freed_files();
    auto made = make_file(location);
    if (made == nullptr) return nullptr;
    found = files_.insert(files_.end(), std::move(made));
  }
  std::rotate(found, found + 1, files_.end());
  return {files_.back(), &files_.back()->region};
}

// Null: the device makes none, which is said once.
std::shared_ptr<const DeviceSide::File> DeviceSide::make_file(const Location& location) {
  DeviceFile made;
  if (const Outcome outcome = device_->export_file(location.base, &made); !outcome.ok()) {
    makes_files_ = false;
    log_.info(fmt::format("network cards read device {} by way of the host: {}", number(), outcome.sentence));
    return nullptr;
  }
  auto file = std::make_shared<File>();
  file->allocation = location.allocation;
  file->base = location.base;
  file->file = Fd(made.fd);
  file->changes = std::make_shared<std::atomic<uint64_t>>(0);
  file->region.memory = {location.allocation, made.begin, made.bytes, made.fd, 0, made.bytes, file->changes};
  file->region.device = device_;
  file->region.fetch = [](void* device, std::byte* to, const std::byte* from, size_t bytes) noexcept {
    Device& from_device = *static_cast<Device*>(device);
    DeviceStream stream = nullptr;
    if (!from_device.create_stream(&stream, true).ok()) return false;
    const bool copied = from_device.copy(stream, to, from, bytes).ok() && from_device.wait_stream(stream).ok();
    from_device.destroy_stream(stream);
    return copied;
  };
  return file;
}

// Whoever has registered one lets it go then. Calls that run have hold of theirs.
void DeviceSide::forget_freed_files() noexcept {
  size_t surplus = files_.size() < files_max ? 0 : files_.size() - files_max + 1;
  std::erase_if(files_, [&](const auto& file) {
    const bool is_old = surplus > 0 && surplus-- > 0;
    if (!is_old && platform_.locate(file->base).allocation == file->allocation) return false;
    file->changes->fetch_add(1, std::memory_order_release);  // pairs with the loads of who has registered it
    return true;
  });
}

void DeviceSide::end(DeviceWork& work) noexcept {
  const auto task = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& t) { return &t->work == &work; });
  if (task == tasks_.end() || !(*task)->in_use) return;
  (*task)->in_use = false;
  work.input_region.reset();
  work.output_region.reset();
  --running_;
}

// False: something was still on the device at `until`.
bool DeviceSide::drained(Task& task, TimeNs until) noexcept {
  for (DeviceLane& lane : task.lanes) {
    if (device_->is_lost()) return true;
    while (device_->query_stream(lane.stream).code == Code::in_progress) {
      if (now_ns() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

void DeviceSide::drain(TimeNs timeout_ns) noexcept {
  const TimeNs until = now_ns() + timeout_ns;
  for (const auto& task : tasks_)
    if (task->in_use && drained(*task, until)) {
      task->in_use = false;
      --running_;
    }
}

std::byte* DeviceSide::grown(Room& room, size_t bytes) {
  if (bytes > room.bytes) {
    const size_t wanted = std::max(bytes, 2 * room.bytes);
    void* data = nullptr;
    check(device_->allocate(wanted, &data));
    if (room.data != nullptr) outgrown_.push_back(room.data);
    room = {data, wanted};
  }
  return static_cast<std::byte*>(room.data);
}

void DeviceSide::copy(void* to, const void* from, size_t bytes) {
  check(device_->copy(making_, to, from, bytes));
  check(device_->wait_stream(making_));
}

std::vector<std::byte> DeviceSide::brought(const void* from, size_t bytes) {
  std::vector<std::byte> here(bytes);
  copy(here.data(), from, bytes);
  return here;
}

bool DeviceSide::read_scalar(const void* scalar, size_t bytes, std::span<std::byte> here) {
  const Location location = platform_.locate(scalar);
  if (location.kind == MemoryKind::freed)
    throw Error(Code::invalid_argument, fmt::format("the operator's scalar {} lies in device memory that was freed", scalar));
  if (location.kind != MemoryKind::device) return false;
  bind(location.device);
  copy(here.data(), scalar, bytes);
  return true;
}

void DeviceSide::scale(DataType type, const void* scalar, const Scaling& of, bool in_reach) {
  if (of.count == 0) return;
  if (in_reach) return check(device_->scale(making_, type, scalar, of.input, of.output, of.count));
  std::vector<std::byte> here = brought(of.input, of.count * element_bytes(type));
  tutti::scale(type, scalar, here.data(), here.data(), of.count);
  copy(of.output, here.data(), here.size());
}

void DeviceSide::join(DataType type, ReduceOp op, std::span<const void* const> inputs, std::byte* output, size_t count,
                      bool in_reach) {
  if (count == 0) return;
  if (in_reach && platform_.supports(type, op)) {
    DeviceReduction pass;
    pass.type = type;
    pass.op = op;
    pass.n_inputs = int(inputs.size());
    std::copy(inputs.begin(), inputs.end(), pass.inputs.begin());
    pass.output = output;
    pass.count = count;
    return check(device_->reduce(making_, pass));
  }
  std::vector<std::vector<std::byte>> here;
  std::vector<const void*> operands;
  for (const void* input : inputs) operands.push_back(here.emplace_back(brought(input, count * element_bytes(type))).data());
  reduce_function(type, op)(here[0].data(), operands.data(), int(operands.size()), count, 0, Store::cached);
  copy(output, here[0].data(), here[0].size());
}

void DeviceSide::serve(uint64_t ticket) noexcept {
  uint32_t* const flag = flag_.load(std::memory_order_acquire);
  if (flag == nullptr) return;
  std::atomic_ref<uint32_t>(*flag).store(flag_base_ + uint32_t(ticket), std::memory_order_release);  // pairs with wait_flag
}

}  // namespace tutti
