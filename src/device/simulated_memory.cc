// Memory of simulated devices: reserved addresses, memory files, and who may reach them.
#include "device/simulated_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

// Never used again, so that memory that was freed is known: enough for what tests allocate in one process.
constexpr size_t reserved_bytes = size_t{64} << 30;

// What a handle of exported memory holds.
struct FileHandle {
  int32_t process;
  int32_t descriptor;
  uint64_t bytes;
};

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

}  // namespace

SimulatedMemory::SimulatedMemory() {
  void* const place =
      ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) throw system_error("cannot reserve the addresses of simulated devices", errno);
  next_ = static_cast<std::byte*>(place);
  end_ = next_ + reserved_bytes;
}

// Between two allocations lies a page of nobody's.
std::byte* SimulatedMemory::take_addresses(size_t bytes) {
  const size_t taken = whole_pages(bytes) + page_bytes();
  if (taken > size_t(end_ - next_)) throw Error(Code::device_error, "the simulated devices have no addresses left");
  std::byte* const place = next_;
  next_ += taken;
  return place;
}

SimulatedMemory::Block& SimulatedMemory::add(uintptr_t address, Block block) {
  block.number = ++last_number_;
  return blocks_[address] = std::move(block);
}

const SimulatedMemory::Blocks::value_type* SimulatedMemory::find(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const auto& found = *std::prev(after);
  return address - found.first < std::max<size_t>(1, found.second.bytes) ? &found : nullptr;
}

void* SimulatedMemory::allocate(int device, size_t bytes, size_t limit, bool for_peers) {
  const std::unique_lock lock(mutex_);
  size_t in_use = 0;
  for (const auto& [address, block] : blocks_)
    if (block.state == State::allocated && block.device == device) in_use += block.bytes;
  if (bytes > limit - std::min(limit, in_use))
    throw Error(Code::device_error, fmt::format("simulated device {} is out of memory: {} bytes asked for, {} of {} free",
                                                device, bytes, limit - std::min(limit, in_use), limit));
  Block block;
  block.device = device;
  block.bytes = bytes;
  block.for_peers = for_peers;
  const std::string what = fmt::format("memory of simulated device {}", device);
  block.file = make_memory_file("tutti-device", std::max<size_t>(1, whole_pages(bytes)), what);
  block.shadow = Mapping(block.file.get(), 0, std::max<size_t>(1, whole_pages(bytes)), what);
  std::byte* const place = take_addresses(std::max<size_t>(1, bytes));
  add(reinterpret_cast<uintptr_t>(place), std::move(block));
  return place;
}

void* SimulatedMemory::allocate_managed(int device, size_t bytes) {
  const std::unique_lock lock(mutex_);
  Block block;
  block.state = State::managed;
  block.device = device;
  block.bytes = bytes;
  block.file = make_memory_file("tutti-managed", whole_pages(bytes), "managed memory");
  block.shadow = Mapping(block.file.get(), 0, whole_pages(bytes), "managed memory");
  std::byte* const place = block.shadow.data();
  add(reinterpret_cast<uintptr_t>(place), std::move(block));
  return place;
}

void SimulatedMemory::free(int device, void* pointer) {
  if (pointer == nullptr) return;
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.device != device ||
      (found->second.state != State::allocated && found->second.state != State::managed))
    refuse(fmt::format("{} is no allocation of simulated device {}{}", pointer, device,
                       found != blocks_.end() && found->second.state == State::freed ? ": it was freed" : ""));
  if (found->second.state == State::managed) {
    blocks_.erase(found);
    return;
  }
  // A peer's stream may still be at it, and read nothing of worth: its addresses stay, its memory goes.
  Block& block = found->second;
  block.state = State::freed;
  ::madvise(block.shadow.data(), block.shadow.bytes(), MADV_REMOVE);
  block.file.reset();
}

void* SimulatedMemory::allocate_host(size_t bytes) {
  const std::unique_lock lock(mutex_);
  Block block;
  block.state = State::host;
  block.bytes = bytes;
  block.file = make_memory_file("tutti-pinned", whole_pages(std::max<size_t>(1, bytes)), "pinned memory");
  block.shadow = Mapping(block.file.get(), 0, whole_pages(std::max<size_t>(1, bytes)), "pinned memory");
  std::byte* const place = block.shadow.data();
  add(reinterpret_cast<uintptr_t>(place), std::move(block));
  return place;
}

void SimulatedMemory::free_host(void* pointer) {
  if (pointer == nullptr) return;
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.state != State::host) refuse(fmt::format("{} is no pinned memory", pointer));
  blocks_.erase(found);
}

void SimulatedMemory::register_host(void* pointer, size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const auto after = blocks_.lower_bound(begin + bytes);
  const bool overlaps = find(pointer) != nullptr || (after != blocks_.begin() && std::prev(after)->first >= begin);
  if (overlaps) throw Error(Code::invalid_usage, fmt::format("{} bytes at {} are registered already", bytes, pointer));
  Block block;
  block.state = State::registered;
  block.bytes = bytes;
  add(begin, std::move(block));
}

void SimulatedMemory::unregister_host(void* pointer) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.state != State::registered)
    refuse(fmt::format("{} is not registered", pointer));
  blocks_.erase(found);
}

Location SimulatedMemory::locate(const void* pointer) const {
  const std::shared_lock lock(mutex_);
  const auto* const found = find(pointer);
  if (found == nullptr) return {};
  const Block& block = found->second;
  switch (block.state) {
    case State::host:
    case State::registered: return {MemoryKind::registered, -1, nullptr, 0, 0};
    case State::managed: return {MemoryKind::managed, block.device, nullptr, 0, 0};
    case State::freed: return {MemoryKind::freed, block.device, nullptr, 0, 0};
    case State::allocated:
    case State::imported: break;
  }
  return {MemoryKind::device, block.device, reinterpret_cast<const std::byte*>(found->first), block.bytes, block.number,
          block.for_peers};
}

std::byte* SimulatedMemory::reach(const char* what, int device, const void* pointer, size_t bytes, uint64_t peers,
                                  bool any_host) const {
  const std::shared_lock lock(mutex_);
  const auto* const found = find(pointer);
  if (found == nullptr) {
    const auto* const address = static_cast<const std::byte*>(pointer);
    const bool is_hosts = address < end_ - reserved_bytes || address >= end_;
    if (any_host && is_hosts) return const_cast<std::byte*>(address);
    refuse(fmt::format("{} {} is no memory that simulated device {} can reach", what, pointer, device));
  }
  const Block& block = found->second;
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - found->first;
  if (block.state == State::freed) refuse(fmt::format("{} {} lies in memory that was freed", what, pointer));
  if (bytes > block.bytes - offset)
    refuse(fmt::format("{} {} and the next {} bytes end beyond their allocation of {} bytes", what, pointer, bytes,
                       block.bytes));
  const bool is_peers = block.state == State::allocated && block.device != device;
  if (is_peers && !any_host && (!block.for_peers || (peers >> block.device & 1) == 0))
    refuse(fmt::format("{} {} lies on simulated device {}, to which device {} has no access", what, pointer, block.device,
                       device));
  if (block.shadow.valid()) return block.shadow.data() + offset;
  return static_cast<std::byte*>(const_cast<void*>(pointer));
}

ExportedMemory SimulatedMemory::export_memory(int device, const void* pointer) const {
  const std::shared_lock lock(mutex_);
  const auto* const found = find(pointer);
  if (found == nullptr || found->second.state != State::allocated || found->second.device != device)
    refuse(fmt::format("{} lies in no allocation of simulated device {}", pointer, device));
  if (!found->second.for_peers) throw Error(Code::unsupported, fmt::format("memory at {} cannot be exported", pointer));
  ExportedMemory exported;
  exported.offset = reinterpret_cast<uintptr_t>(pointer) - found->first;
  exported.bytes = found->second.bytes;
  exported.allocation = found->second.number;
  const FileHandle handle{::getpid(), found->second.file.get(), found->second.bytes};
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  return exported;
}

DeviceFile SimulatedMemory::export_file(int device, const void* pointer) const {
  const std::shared_lock lock(mutex_);
  const auto* const found = find(pointer);
  if (found == nullptr || found->second.state != State::allocated || found->second.device != device)
    refuse(fmt::format("{} lies in no allocation of simulated device {}", pointer, device));
  const int fd = ::fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw system_error("duplicating the file of a simulated device's memory", errno);
  return {fd, reinterpret_cast<const std::byte*>(found->first), whole_pages(std::max<size_t>(1, found->second.bytes))};
}

void* SimulatedMemory::import_memory(int device, const ExportedMemory& exported) {
  FileHandle handle;
  std::memcpy(&handle, exported.handle.data(), sizeof handle);
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) throw system_error(fmt::format("cannot import memory of process {}", handle.process), errno);
  const size_t bytes = whole_pages(std::max<size_t>(1, handle.bytes));
  if (!is_memory_file(file.get(), bytes))
    refuse(fmt::format("process {} exported no memory of {} bytes by this handle", handle.process, handle.bytes));
  const std::unique_lock lock(mutex_);
  Block block;
  block.state = State::imported;
  block.device = device;
  block.bytes = handle.bytes;
  block.shadow = Mapping(file.get(), 0, bytes, "imported memory");
  std::byte* const place = take_addresses(bytes);
  add(reinterpret_cast<uintptr_t>(place), std::move(block));
  return place;
}

void SimulatedMemory::close_memory(void* begin) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(begin));
  if (found == blocks_.end() || found->second.state != State::imported) refuse(fmt::format("{} was not imported", begin));
  found->second.state = State::freed;
}

size_t SimulatedMemory::used(int device) const {
  const std::shared_lock lock(mutex_);
  size_t sum = 0;
  for (const auto& [address, block] : blocks_)
    if (block.state == State::allocated && block.device == device) sum += block.bytes;
  return sum;
}

void SimulatedMemory::count(SimulatedCounts& counts) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [address, block] : blocks_) {
    counts.allocations += block.state == State::allocated || block.state == State::managed;
    counts.imports += block.state == State::imported;
    counts.host_blocks += block.state == State::host;
    counts.registrations += block.state == State::registered;
  }
}

}  // namespace tutti
