// The simulated device's platform: arguments are checked and translated when a call is made, and done by the streams.
#include "device/simulated.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse_bytes.h"
#include "device/linked_call.h"
#include "device/linked_launch.h"
#include "device/simulated_kernels.h"
#include "reduce/reduce.h"
#include "reduce/scale.h"

namespace tutti {
namespace {

constexpr int devices_max = 16;
constexpr uint32_t blocks_at_once = 256;  // blocks need no room here: as if they did

using EventCell = std::shared_ptr<SimulatedEvent>;

EventCell& cell_of(DeviceEvent event) { return *reinterpret_cast<EventCell*>(event); }
DeviceStream handle_of(SimulatedStream* stream) { return reinterpret_cast<DeviceStream>(stream); }

// Nothing is thrown past the interface.
template <class Body>
Outcome guarded(Body body) noexcept {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::exception& error) {
    return {Code::internal_error, error.what()};
  }
}

void raise(const Outcome& outcome) {
  if (outcome.code != Code::success) throw Error(outcome.code, outcome.sentence);
}

// Whether it is this one's turn to go wrong.
bool strikes(std::atomic<int>& left) noexcept {
  int now = left.load(std::memory_order_relaxed);
  while (now >= 0)
    if (left.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) return now == 0;
  return false;
}

void check_event(DeviceEvent event) {
  if (event == nullptr) throw Error(Code::invalid_argument, "event is NULL");
}

}  // namespace

class SimulatedPlatform::SimulatedDevice final : public Device {
 public:
  SimulatedDevice(SimulatedPlatform& platform, int number)
      : platform_(platform), number_(number) {
    info_.name = fmt::format("simulated device {}", number);
    info_.memory_bytes = platform.options_.memory_bytes;
    info_.exports_memory = platform.options_.exports;
    info_.blocks_at_once = blocks_at_once;
    const std::string uuid = fmt::format("simulated {:6d}", number);
    std::memcpy(info_.uuid.data(), uuid.data(), std::min(uuid.size(), info_.uuid.size()));
  }

  int number() const noexcept override { return number_; }
  const DeviceInfo& info() const noexcept override { return info_; }
  bool is_lost() const noexcept override { return fate_.is_lost(); }
  SimulatedFaults& faults() noexcept { return faults_; }
  uint64_t copies_both_ways() const noexcept { return both_ways_.load(std::memory_order_relaxed); }
  uint64_t works_done() const noexcept { return works_done_.load(std::memory_order_acquire); }
  void lose(const std::string& why) noexcept { fate_.lose(why); }
  std::atomic<uint64_t>& peers() noexcept { return peers_; }

  Outcome allocate(size_t bytes, void** pointer) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      const size_t limit = platform_.options_.memory_bytes;
      if (strikes(faults_.allocation))
        throw Error(Code::device_error, fmt::format("simulated device {} is out of memory: {} bytes asked for, {} of {} "
                                                    "free", number_, bytes, 0, limit));
      *pointer = platform_.memory_.allocate(number_, bytes, limit);
    });
  }
  Outcome free(void* pointer) noexcept override {
    return guarded([&] {
      if (pointer == nullptr) return;
      wait_for_all();
      platform_.memory_.free(number_, pointer);
    });
  }

  Outcome create_stream(DeviceStream* stream, bool) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      std::shared_ptr<SimulatedStream> made = make_stream();
      *stream = handle_of(made.get());
      platform_.add(made.get());
      const std::lock_guard lock(mutex_);
      streams_.push_back(std::move(made));
    });
  }
  Outcome destroy_stream(DeviceStream stream) noexcept override {
    return guarded([&] {
      if (!platform_.remove(stream)) throw Error(Code::invalid_argument, "stream is no stream of a simulated device");
      const std::lock_guard lock(mutex_);
      std::erase_if(streams_, [stream](const auto& one) { return handle_of(one.get()) == stream; });
    });
  }
  Outcome wait_stream(DeviceStream stream) noexcept override {
    return guarded([&] {
      stream_at(stream).wait();
      raise(fate_.outcome());
    });
  }

  Outcome query_stream(DeviceStream stream) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      if (!stream_at(stream).is_idle()) raise({Code::in_progress, ""});
    });
  }

  Outcome create_event(bool shared, DeviceEvent* event) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      *event = reinterpret_cast<DeviceEvent>(new EventCell(std::make_shared<SimulatedEvent>(shared, fate_)));
      platform_.events_.fetch_add(1, std::memory_order_relaxed);
    });
  }
  Outcome destroy_event(DeviceEvent event) noexcept override {
    return guarded([&] {
      if (event == nullptr) return;
      delete &cell_of(event);
      platform_.events_.fetch_sub(1, std::memory_order_relaxed);
    });
  }
  Outcome record_event(DeviceEvent event, DeviceStream stream) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      check_event(event);
      const EventCell cell = cell_of(event);
      if (cell->imported()) throw Error(Code::invalid_argument, "event is another process's, and cannot be recorded here");
      if (stream == nullptr && platform_.is_capturing(nullptr))
        throw Error(Code::unsupported, "the default stream would get into the capture of another one into a graph");
      stream_at(stream).enqueue([cell, number = cell->record()] {
        cell->complete(number);
        return std::string();
      });
    });
  }
  Outcome wait_event(DeviceStream stream, DeviceEvent event) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      check_event(event);
      const EventCell cell = cell_of(event);
      stream_at(stream).enqueue([cell, number = cell->recorded(), this] { return cell->await(number, fate_); });
    });
  }
  Outcome query_event(DeviceEvent event) noexcept override {
    if (fate_.is_lost()) return fate_.outcome();
    if (event == nullptr) return {Code::invalid_argument, "event is NULL"};
    const SimulatedEvent& asked = *cell_of(event);
    if (asked.fate().is_lost()) return asked.fate().outcome();
    return {asked.passed(asked.recorded()) ? Code::success : Code::in_progress, ""};
  }

  Outcome wait_flag(DeviceStream stream, const uint32_t* flag, uint32_t value) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      reach("flag", flag, sizeof *flag, false);
      stream_at(stream).enqueue([flag, value, this] {
        const std::atomic_ref<const uint32_t> word(*flag);
        // pairs with whoever sets it
        while (int32_t(word.load(std::memory_order_acquire) - value) < 0 && !fate_.is_lost())
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        return std::string();
      });
    });
  }
  Outcome write_flag(DeviceStream stream, uint32_t* flag, uint32_t value) noexcept override {
    return guarded([&] {
      raise(fate_.outcome());
      reach("flag", flag, sizeof *flag, false);
      stream_at(stream).enqueue([flag, value] {
        // pairs with the host's and wait_flag's loads; and later work looks at other words of the host's after it
        std::atomic_ref<uint32_t>(*flag).store(value, std::memory_order_seq_cst);
        return std::string();
      });
    });
  }

  Outcome copy(DeviceStream stream, void* to, const void* from, size_t bytes) noexcept override {
    return guarded([&] {
      check_launch("copy");
      if (bytes == 0) return;
      // Without access to each other devices still copy, by way of the host.
      std::byte* const target = platform_.memory_.reach("to", number_, to, bytes, ~uint64_t{0}, true);
      const std::byte* const source = platform_.memory_.reach("from", number_, from, bytes, ~uint64_t{0}, true);
      const bool from_device = is_devices(from), to_device = is_devices(to);
      run(stream, [=, this] {
        if (from_device == to_device) return void(std::memmove(target, source, bytes));
        const size_t way = to_device ? 0 : 1;
        copying_[way].fetch_add(1, std::memory_order_seq_cst);  // before the look at the other: of two at once, one sees
        if (copying_[1 - way].load(std::memory_order_seq_cst) > 0) both_ways_.fetch_add(1, std::memory_order_relaxed);
        take_longer();
        std::memmove(target, source, bytes);
        copying_[way].fetch_sub(1, std::memory_order_relaxed);
      }, from_device == to_device);
    });
  }

  Outcome reduce(DeviceStream stream, const DeviceReduction& reduction) noexcept override {
    return guarded([&] {
      check_launch("reduce");
      const ReduceFunction function = reduce_function(reduction.type, reduction.op);
      if (function == nullptr || !platform_.supports(reduction.type, reduction.op))
        throw Error(Code::unsupported, fmt::format("simulated devices have no kernel of {} on {}", tutti::name(reduction.op),
                                                   tutti::name(reduction.type)));
      if (reduction.n_inputs < 1 || reduction.n_inputs > DeviceReduction::inputs_max)
        throw Error(Code::invalid_argument, fmt::format("n_inputs is {}, outside 1 to {}", reduction.n_inputs,
                                                        DeviceReduction::inputs_max));
      if (reduction.count == 0) return;
      const size_t bytes = reduction.count * element_bytes(reduction.type);
      std::array<const void*, DeviceReduction::inputs_max> inputs{};
      for (int i = 0; i < reduction.n_inputs; ++i) {
        inputs[size_t(i)] = reach("an input", reduction.inputs[size_t(i)], bytes, false);
      }
      std::byte* const output = reach("output", reduction.output, bytes, false);
      run(stream, [=, n = reduction.n_inputs, count = reduction.count, divisor = reduction.divisor] {
        function(output, inputs.data(), n, count, divisor, Store::cached);
      });
    });
  }

  Outcome scale(DeviceStream stream, DataType type, const void* scalar, const void* input, void* output,
                size_t count) noexcept override {
    return guarded([&] {
      check_launch("scale");
      if (!defined(ReduceOp::premulsum, type))
        throw Error(Code::unsupported, fmt::format("{} cannot be scaled", tutti::name(type)));
      std::array<std::byte, 16> value{};
      std::memcpy(value.data(), scalar, element_bytes(type));
      if (count == 0) return;
      const std::byte* const source = reach("input", input, count * element_bytes(type), false);
      std::byte* const target = reach("output", output, count * element_bytes(type), false);
      run(stream, [=] { tutti::scale(type, value.data(), source, target, count); });
    });
  }

  Outcome run_linked(DeviceStream stream, const LinkedCall& asked) noexcept override {
    return guarded([&] {
      check_launch("run_linked");
      if (!platform_.supports(asked.type, asked.op))
        throw Error(Code::unsupported, fmt::format("simulated devices have no kernel of {} on {}", tutti::name(asked.op),
                                                   tutti::name(asked.type)));
      if (asked.count == 0) return;
      if (PacketArguments a; asked.plan->packets && !packet_arguments(asked, {asked.type, asked.count}, 0, &a))
        throw Error(Code::unsupported, fmt::format("a plan of packets has more than {} steps for one device, or one of two "
                                                    "local operands", packet_steps_max));
      LinkedCall call = asked;
      const LinkedExtents extents = linked_extents(call);
      const size_t workspace = call.meets() ? meeting_workspace_bytes : linked_workspace_bytes(*call.plan, call.type, call.count);
      for (uint32_t r = 0; r < call.plan->ranks; ++r) {
        if (extents.inputs[r] > 0) call.inputs[r] = reach("an input", call.inputs[r], extents.inputs[r], false);
        if (extents.outputs[r] > 0) call.outputs[r] = reach("an output", call.outputs[r], extents.outputs[r], false);
        if (workspace > 0) call.workspaces[r] = reach("a workspace", call.workspaces[r], workspace, false);
      }
      run(stream, [call, plan = *call.plan, this] {
        LinkedCall kept = call;
        kept.plan = &plan;
        (void)run_launch_on_host(kept, fate_.lost());
      });
    });
  }

  Outcome run_on_host(DeviceStream stream, std::span<const DeviceExtent> extents, HostKernel kernel) noexcept override {
    return guarded([&] {
      check_launch("kernel of the host");
      std::vector<std::byte*> places;
      for (const DeviceExtent& extent : extents) places.push_back(reach("an extent", extent.data, extent.bytes, false));
      run(stream, [places = std::move(places), kernel = std::move(kernel)] { kernel(places); });
    });
  }

  Outcome export_memory(const void* pointer, ExportedMemory* exported) noexcept override {
    return guarded([&] {
      check_exports();
      *exported = platform_.memory_.export_memory(number_, pointer);
    });
  }
  Outcome export_file(const void* pointer, DeviceFile* file) noexcept override {
    return guarded([&] {
      check_exports();
      *file = platform_.memory_.export_file(number_, pointer);
    });
  }
  Outcome import_memory(const ExportedMemory& exported, void** begin) noexcept override {
    return guarded([&] {
      check_exports();
      if (!platform_.options_.imports)
        throw Error(Code::device_error, fmt::format("simulated device {} cannot open what others export", number_));
      *begin = platform_.memory_.import_memory(number_, exported);
    });
  }
  Outcome close_memory(void* begin) noexcept override {
    return guarded([&] {
      wait_for_all();
      platform_.memory_.close_memory(begin);
    });
  }
  Outcome export_event(DeviceEvent event, ExportedEvent* exported) noexcept override {
    return guarded([&] {
      check_exports();
      check_event(event);
      *exported = cell_of(event)->exported();
    });
  }
  Outcome import_event(const ExportedEvent& exported, DeviceEvent* event) noexcept override {
    return guarded([&] {
      check_exports();
      *event = reinterpret_cast<DeviceEvent>(new EventCell(std::make_shared<SimulatedEvent>(exported, fate_)));
      platform_.events_.fetch_add(1, std::memory_order_relaxed);
    });
  }

 private:
  std::shared_ptr<SimulatedStream> make_stream() {
    const uint64_t made = platform_.streams_made_.fetch_add(1, std::memory_order_relaxed);
    return std::make_shared<SimulatedStream>(number_, fate_, platform_.options_.delay_us,
                                             platform_.options_.seed * 1000003 + made);
  }
  SimulatedStream& stream_at(DeviceStream stream) {
    if (stream != nullptr) return *reinterpret_cast<SimulatedStream*>(stream);
    const std::lock_guard lock(mutex_);
    if (default_stream_ == nullptr) default_stream_ = make_stream();
    return *default_stream_;
  }
  void wait_for_all() {
    std::vector<std::shared_ptr<SimulatedStream>> streams;
    {
      const std::lock_guard lock(mutex_);
      streams = streams_;
      if (default_stream_ != nullptr) streams.push_back(default_stream_);
    }
    for (const auto& stream : streams) stream->wait();
  }
  std::byte* reach(const char* what, const void* pointer, size_t bytes, bool any_host) const {
    return platform_.memory_.reach(what, number_, pointer, bytes, peers_.load(std::memory_order_relaxed), any_host);
  }
  void check_launch(const char* what) {
    raise(fate_.outcome());
    if (strikes(faults_.launch))
      throw Error(Code::device_error, fmt::format("simulated device {} refuses to launch a {}", number_, what));
  }
  void check_exports() const {
    if (!platform_.options_.exports)
      throw Error(Code::unsupported, fmt::format("simulated device {} exports nothing to other processes", number_));
  }
  bool is_devices(const void* pointer) const { return platform_.memory_.locate(pointer).kind == MemoryKind::device; }
  void take_longer() const {
    if (const int longer = faults_.slowness_ms.load(std::memory_order_relaxed); longer > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(longer));
  }
  // waits: here, as long as the device is made slow; else the kernel does.
  template <class Kernel>
  void run(DeviceStream stream, Kernel kernel, bool waits = true) {
    stream_at(stream).enqueue([kernel, waits, this] {
      if (strikes(faults_.loss)) return fmt::format("simulated device {} was lost: a kernel failed", number_);
      if (waits) take_longer();
      if (!fate_.is_lost()) kernel();
      works_done_.fetch_add(1, std::memory_order_release);  // pairs with who counts them
      return std::string();
    });
  }

  SimulatedPlatform& platform_;
  const int number_;
  DeviceInfo info_;
  SimulatedFate fate_;
  SimulatedFaults faults_;
  std::atomic<uint64_t> works_done_{0}, both_ways_{0};
  std::array<std::atomic<int>, 2> copying_{};  // to the device, from it
  std::atomic<uint64_t> peers_{0};  // bit d: has access to device d
  std::mutex mutex_;
  std::vector<std::shared_ptr<SimulatedStream>> streams_;
  std::shared_ptr<SimulatedStream> default_stream_;  // null: not asked for yet
};

SimulatedPlatform::SimulatedPlatform(const SimulatedOptions& options) : options_(options) {
  for (int i = 0; i < options.devices; ++i) devices_.push_back(std::make_unique<SimulatedDevice>(*this, i));
}

SimulatedPlatform::~SimulatedPlatform() = default;

Device& SimulatedPlatform::device(int number) noexcept { return *devices_[size_t(number)]; }

Location SimulatedPlatform::locate(const void* pointer) const noexcept {
  times_located_.fetch_add(1, std::memory_order_relaxed);
  return memory_.locate(pointer);
}

Outcome SimulatedPlatform::describe_stream(DeviceStream stream, StreamInfo* info) noexcept {
  return guarded([&] {
    const std::lock_guard lock(mutex_);
    if (!streams_.contains(stream))
      throw Error(Code::invalid_argument, "it is no stream of a simulated device: it was destroyed, or never made");
    info->device = reinterpret_cast<SimulatedStream*>(stream)->device();
    info->capturing = capturing_.contains(stream);
  });
}

bool SimulatedPlatform::is_capturing(DeviceStream stream) const {
  const std::lock_guard lock(mutex_);
  return capturing_.contains(stream);
}

void SimulatedPlatform::set_capturing(DeviceStream stream, bool capturing) {
  const std::lock_guard lock(mutex_);
  if (capturing) capturing_.insert(stream);
  else capturing_.erase(stream);
}

void SimulatedPlatform::add(SimulatedStream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(handle_of(stream));
}

bool SimulatedPlatform::remove(DeviceStream stream) {
  const std::lock_guard lock(mutex_);
  capturing_.erase(stream);
  return streams_.erase(stream) == 1;
}

bool SimulatedPlatform::has_peer_access(int device, int peer) const noexcept {
  return device == peer || options_.peer_access;
}

Outcome SimulatedPlatform::enable_peer_access(int device, int peer) noexcept {
  if (device == peer) return {};
  if (!options_.peer_access)
    return {Code::unsupported, fmt::format("simulated device {} has no access to device {}", device, peer)};
  devices_[size_t(device)]->peers().fetch_or(uint64_t{1} << peer, std::memory_order_relaxed);
  return {};
}

bool SimulatedPlatform::supports(DataType type, ReduceOp op) const noexcept {
  return reduce_function(type, op) != nullptr;
}

Outcome SimulatedPlatform::allocate_host(size_t bytes, void** pointer) noexcept {
  return guarded([&] { *pointer = memory_.allocate_host(bytes); });
}
Outcome SimulatedPlatform::free_host(void* pointer) noexcept {
  return guarded([&] { memory_.free_host(pointer); });
}
Outcome SimulatedPlatform::register_host(void* pointer, size_t bytes) noexcept {
  return guarded([&] { memory_.register_host(pointer, bytes); });
}
Outcome SimulatedPlatform::unregister_host(void* pointer) noexcept {
  return guarded([&] { memory_.unregister_host(pointer); });
}

SimulatedFaults& SimulatedPlatform::faults(int device) noexcept { return devices_[size_t(device)]->faults(); }

void SimulatedPlatform::lose(int device, const std::string& why) noexcept { devices_[size_t(device)]->lose(why); }

uint64_t SimulatedPlatform::works_done(int device) const noexcept { return devices_[size_t(device)]->works_done(); }

uint64_t SimulatedPlatform::copies_both_ways(int device) const noexcept {
  return devices_[size_t(device)]->copies_both_ways();
}

SimulatedCounts SimulatedPlatform::counts() const {
  SimulatedCounts counts;
  memory_.count(counts);
  const std::lock_guard lock(mutex_);
  counts.streams = streams_.size();
  counts.events = events_.load(std::memory_order_relaxed);
  return counts;
}

namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view part, std::string_view wanted) {
  throw Error(Code::invalid_usage, fmt::format("TUTTI_DEVICE=simulated:{}: {} is not {}", text, part, wanted));
}

}  // namespace

SimulatedOptions parse_simulated(std::string_view text) {
  SimulatedOptions options;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals), value = part.substr(std::min(equals + 1, part.size()));
    const auto number = [&](int64_t least, int64_t most) {
      int64_t found = 0;
      const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), found);
      if (error != std::errc() || stop != value.data() + value.size() || found < least || found > most)
        refuse(text, part, fmt::format("a number from {} to {}", least, most));
      return found;
    };
    if (key == "devices") options.devices = int(number(1, devices_max));
    else if (key == "peers") options.peer_access = number(0, 1) == 1;
    else if (key == "exports") options.exports = number(0, 1) == 1;
    else if (key == "imports") options.imports = number(0, 1) == 1;
    else if (key == "delay_us") options.delay_us = int(number(0, 1'000'000));
    else if (key == "seed") options.seed = uint64_t(number(0, INT64_MAX));
    else if (key == "memory") {
      const auto bytes = parse_bytes(std::string(value));
      if (!bytes || *bytes == 0) refuse(text, part, "a number of bytes such as 64M");
      options.memory_bytes = *bytes;
    } else {
      refuse(text, part, "one of devices, memory, peers, exports, imports, delay_us and seed");
    }
    begin = end + 1;
  }
  return options;
}

}  // namespace tutti
