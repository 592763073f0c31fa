// Tutti's simulated devices as devices of PyTorch ("privateuseone"), for tests: memory that the host cannot touch,
// streams and events. What is not a copy or a view is computed on the CPU.
#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.h"

namespace {

constexpr c10::DeviceType here = c10::DeviceType::PrivateUse1;
constexpr int devices_max = 2;

void must(const tutti::Outcome& outcome) { TORCH_CHECK(outcome.ok(), outcome.sentence); }

tutti::Platform* loaded = nullptr;
tutti::Platform& platform() {
  TORCH_CHECK(loaded != nullptr, "load() was not called");
  return *loaded;
}
// The module of the simulated devices, which libtutti has loaded from there too.
void load(const std::string& path) {
  void* const module = ::dlopen(path.c_str(), RTLD_NOW);
  TORCH_CHECK(module != nullptr, ::dlerror());
  const auto function = reinterpret_cast<tutti::DeviceModuleFunction>(::dlsym(module, tutti::device_module_name));
  loaded = function(tutti::device_interface_version)->platform;
}
tutti::Device& device_of(c10::Device device) { return platform().device(device.index()); }

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, devices_max> current_stream{};

// Streams by their number: 0 is a device's default stream.
tutti::DeviceStream stream_of(const c10::Stream& stream, bool make = false) {
  static std::mutex mutex;
  static std::map<std::pair<int, c10::StreamId>, tutti::DeviceStream> streams;
  if (stream.id() == 0) return nullptr;
  const std::lock_guard lock(mutex);
  tutti::DeviceStream& found = streams[{stream.device_index(), stream.id()}];
  if (found == nullptr && make) must(device_of(stream.device()).create_stream(&found));
  return found;
}
c10::Stream stream_numbered(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}
c10::Stream current(c10::Device device) { return stream_numbered(device, current_stream[size_t(device.index())]); }

// Memory that streams other than the maker's use is given back when they have passed it.
std::mutex uses_mutex;
std::multimap<void*, c10::Stream> uses;
int recorded = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return here; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {here, std::exchange(current_device, device.index())};
  }
  c10::Device getDevice() const override { return {here, current_device}; }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices_max; }

  c10::Stream getStream(c10::Device device) const override { return current(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_numbered(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<c10::StreamId> made{0};
    const c10::Stream stream = stream_numbered(device, ++made);
    stream_of(stream, true);
    return stream;
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::StreamId& now = current_stream[size_t(stream.device_index())];
    return stream_numbered(stream.device(), std::exchange(now, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_of(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    synchronizeStream(stream);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    must(device_of(stream.device()).wait_stream(stream_of(stream)));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    auto made = static_cast<tutti::DeviceEvent>(*event);
    if (made == nullptr) must(device_of(stream.device()).create_event(false, &made));
    *event = made;
    must(device_of(stream.device()).record_event(made, stream_of(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    must(device_of(stream.device()).wait_event(stream_of(stream), static_cast<tutti::DeviceEvent>(event)));
  }
  bool queryEvent(void* event) const override {
    const tutti::Outcome outcome = platform().device(0).query_event(static_cast<tutti::DeviceEvent>(event));
    TORCH_CHECK(outcome.ok() || outcome.code == tutti::Code::in_progress, outcome.sentence);
    return outcome.ok();
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) (void)platform().device(0).destroy_event(static_cast<tutti::DeviceEvent>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    const std::lock_guard lock(uses_mutex);
    ++recorded;
    uses.emplace(data.get(), stream);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Block {
  void* data;
  c10::Stream maker;
};

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(here, current_device);
    if (bytes == 0) return {nullptr, device};
    void* data = nullptr;
    must(device_of(device).allocate(bytes, &data));
    return {data, new Block{data, current(device)}, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "not of these devices"); }

 private:
  // Memory of a caching allocator would be used again by the maker's stream, in its order: here it must have come to
  // it.
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    const Guard guard;
    guard.synchronizeStream(block->maker);
    const std::lock_guard lock(uses_mutex);
    const auto [first, last] = uses.equal_range(block->data);
    for (auto use = first; use != last; ++use) guard.synchronizeStream(use->second);
    uses.erase(first, last);
    must(device_of(block->maker.device()).free(block->data));
  }
};

c10::Allocator* allocator() {
  static DeviceAllocator made;
  return &made;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const at::ScalarType type = dtype.value_or(at::kFloat);
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) last = sizes[i] == 0 || last < 0 ? -1 : last + (sizes[i] - 1) * strides[i];
  const size_t bytes = size_t(last + 1) * c10::elementSize(type);
  const auto before = std::exchange(current_device, device && device->has_index() ? device->index() : current_device);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator()->allocate(bytes), allocator(), true);
  if (storage.data_ptr().get() == nullptr) storage.set_data_ptr({nullptr, c10::Device(here, current_device)});
  current_device = before;
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat>) {
  std::vector<int64_t> strides(sizes.size());
  int64_t width = 1;
  for (size_t i = sizes.size(); i-- > 0; width *= std::max<int64_t>(sizes[i], 1)) strides[i] = width;
  return empty_strided(sizes, strides, dtype, layout, device, pinned);
}

void copy_bytes(c10::Device device, void* to, const void* from, size_t bytes, bool wait) {
  if (bytes == 0) return;
  must(device_of(device).copy(stream_of(current(device)), to, from, bytes));
  if (wait) must(device_of(device).wait_stream(stream_of(current(device))));
}

// On the current stream; to and from the host it waits. What has gaps goes by way of the host.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  const bool plain = self.is_contiguous() && to.is_contiguous() && self.scalar_type() == to.scalar_type() &&
                     self.sizes() == to.sizes();
  const bool from_host = self.is_cpu(), to_host = to.is_cpu();
  const c10::Device device = from_host ? to.device() : self.device();
  if (plain) {
    copy_bytes(device, to.data_ptr(), self.data_ptr(), self.nbytes(), from_host || to_host);
    return to;
  }
  const auto whole_of = [&](const at::Tensor& tensor) {  // the host's picture of a device's storage
    const at::Tensor bytes = at::empty({int64_t(tensor.storage().nbytes())}, at::kByte);
    copy_bytes(device, bytes.data_ptr(), tensor.storage().data_ptr().get(), tensor.storage().nbytes(), true);
    return bytes.view(tensor.scalar_type());
  };
  const at::Tensor source =
      from_host ? self : whole_of(self).as_strided(self.sizes(), self.strides(), self.storage_offset());
  if (to_host) return to.copy_(source), to;
  const at::Tensor target = whole_of(to);
  target.as_strided(to.sizes(), to.strides(), to.storage_offset()).copy_(source);
  copy_bytes(device, to.storage().mutable_data_ptr().get(), target.data_ptr(), target.nbytes(), true);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  TORCH_CHECK(self.sizes() == to.sizes(), "these tensors keep their size");
  return copy_from(self, to, false);
}

void on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

}  // namespace

PYBIND11_MODULE(TUTTI_MODULE_NAME, module) {
  module.def("load", &load);
  module.def("exchange_stream", [](int device, c10::StreamId id) {
    return Guard().exchangeStream(stream_numbered({here, c10::DeviceIndex(device)}, id)).id();
  });
  module.def("new_stream", [](int device) {
    return Guard().getStreamFromGlobalPool({here, c10::DeviceIndex(device)}, false).id();
  });
  module.def("synchronize", [](int device, c10::StreamId id) {
    const pybind11::gil_scoped_release unlocked;
    Guard().synchronizeStream(stream_numbered({here, c10::DeviceIndex(device)}, id));
  });
  // Later work on the current stream waits until release(): a kernel that takes long.
  module.def("stall", [](int device) {
    void* flag = nullptr;
    must(platform().allocate_host(4096, &flag));
    const c10::Device of(here, c10::DeviceIndex(device));
    must(device_of(of).wait_flag(stream_of(current(of)), static_cast<uint32_t*>(flag), 1));
    return uintptr_t(flag);
  });
  module.def("release", [](uintptr_t flag) { std::atomic_ref(*reinterpret_cast<uint32_t*>(flag)).store(1); });
  // A stream as calls of Tutti's C interface name it, and what its producer does for whom it hands memory to: `later` comes
  // after what stream `earlier` has.
  module.def("handle", [](int device, c10::StreamId id) {
    return reinterpret_cast<uintptr_t>(stream_of(stream_numbered({here, c10::DeviceIndex(device)}, id), true));
  });
  module.def("follow", [](int device, uintptr_t later, c10::StreamId earlier) {
    const c10::Device of(here, c10::DeviceIndex(device));
    tutti::DeviceEvent event = nullptr;
    must(device_of(of).create_event(false, &event));
    must(device_of(of).record_event(event, stream_of(stream_numbered(of, earlier))));
    must(device_of(of).wait_event(reinterpret_cast<tutti::DeviceStream>(later), event));
    must(device_of(of).destroy_event(event));
  });
  module.def("recorded", [] { return recorded; });
}
