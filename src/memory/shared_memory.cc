// Blocks and the regions that they are cut from.
#include "memory/shared_memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

constexpr size_t huge_page_bytes = size_t{2} << 20;
constexpr const char* allocating = "tuttiMemAlloc";

// More than this can never be backed, though the system would promise it.
size_t host_bytes() noexcept {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return ~size_t{0};
  return (size_t(info.totalram) + size_t(info.totalswap)) * info.mem_unit;
}

uint64_t inode_of(int fd) noexcept {
  struct stat about {};
  return ::fstat(fd, &about) == 0 ? uint64_t(about.st_ino) : 0;
}

}  // namespace

SharedRegion::SharedRegion(uint64_t number, size_t bytes, bool huge_pages)
    : file_(make_memory_file("tutti-memory", bytes, allocating, "; raise `ulimit -f`")),
      mapping_(file_.get(), 0, bytes, allocating, "", huge_pages ? huge_page_bytes : 0),
      lent_{number, mapping_.data(), mapping_.bytes(), file_.get(), inode_of(file_.get()), bytes, changes_} {
  if (huge_pages) ::madvise(mapping_.data(), bytes, MADV_HUGEPAGE);  // only a favour
}

void SharedRegion::discard(size_t offset, size_t bytes) const noexcept {
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(bytes));
  changes_->fetch_add(1, std::memory_order_release);  // pairs with who looks before lending
}

bool SharedRegion::take_back(std::byte* at, size_t bytes) const noexcept {
  taken_back_.store(true, std::memory_order_relaxed);
  changes_->fetch_add(1, std::memory_order_release);  // pairs with who looks before lending
  void* const own = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  std::memcpy(own, at, bytes);
  if (::mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED) return true;
  ::munmap(own, bytes);
  return false;
}

void* SharedMemory::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (const size_t most = host_bytes(); bytes > most)
    throw Error(Code::invalid_argument,
                fmt::format("bytes is {}, more than the {} bytes of memory and swap of this host", bytes, most));
  const std::lock_guard lock(mutex_);
  const size_t pages = whole_pages(bytes);
  const std::shared_ptr<SharedBlock> block = pages > small_bytes_max ? whole(pages) : carve(pages);
  block->asked_bytes = bytes;
  blocks_[reinterpret_cast<uintptr_t>(block->data())] = block;
  return block->data();
}

std::shared_ptr<SharedBlock> SharedMemory::whole(size_t bytes) {
  auto block = std::make_shared<SharedBlock>();
  block->region = std::make_shared<const SharedRegion>(next_number_++, bytes, true);
  block->bytes = bytes;
  return block;
}

// The first place that is large enough, of the oldest region that has one.
std::shared_ptr<SharedBlock> SharedMemory::carve(size_t bytes) {
  auto block = std::make_shared<SharedBlock>();
  const auto large_enough = [bytes](const auto& place) { return place.second >= bytes; };
  auto carved = std::find_if(carved_.begin(), carved_.end(), [&](const Carved& c) {
    return !c.region->is_taken_back() && std::any_of(c.free.begin(), c.free.end(), large_enough);
  });
  if (carved == carved_.end()) {
    Carved fresh{std::make_shared<const SharedRegion>(next_number_++, shared_region_bytes, false), {}};
    fresh.free[0] = shared_region_bytes;
    carved = carved_.insert(carved_.end(), std::move(fresh));
  }
  const auto place = std::find_if(carved->free.begin(), carved->free.end(), large_enough);
  block->region = carved->region;
  block->offset = place->first;
  block->bytes = bytes;
  if (place->second > bytes) carved->free[place->first + bytes] = place->second - bytes;
  carved->free.erase(place);
  return block;
}

void SharedMemory::free(void* pointer) {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  check_may_free(pointer);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  const std::shared_ptr<SharedBlock> block = std::move(found->second);
  blocks_.erase(found);
  block->region->discard(block->offset, block->bytes);
  give_back(*block);
}

void SharedMemory::check_may_free(const void* pointer) const {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  if (inherited_.contains(at))
    throw Error(Code::invalid_usage, fmt::format("pointer {} was allocated by the process that forked this one: only "
                                                 "that one may free it", fmt::ptr(pointer)));
  const auto found = blocks_.find(at);
  if (found == blocks_.end()) {
    const auto after = blocks_.upper_bound(at);
    const SharedBlock* around = after == blocks_.begin() ? nullptr : std::prev(after)->second.get();
    const bool inside = around != nullptr && static_cast<const std::byte*>(pointer) < around->data() + around->bytes;
    throw Error(Code::invalid_argument,
                inside ? fmt::format("pointer {} is inside memory of tuttiMemAlloc, {} bytes after its start {}",
                                     fmt::ptr(pointer), static_cast<const std::byte*>(pointer) - around->data(),
                                     fmt::ptr(around->data()))
                       : fmt::format("pointer {} is no memory of tuttiMemAlloc: it was freed, or never allocated there",
                                     fmt::ptr(pointer)));
  }
  const SharedBlock& block = *found->second;
  if (const int n = block.registrations.load(std::memory_order_relaxed); n > 0)
    throw Error(Code::invalid_usage, fmt::format("pointer {} has {} registration{} with communicators: deregister it first",
                                                 fmt::ptr(pointer), n, n == 1 ? "" : "s"));
  if (found->second.use_count() > 1)
    throw Error(Code::invalid_usage, fmt::format("pointer {} is in use by a call that is not over: wait for its stream, "
                                                 "or destroy the prepared calls that name it", fmt::ptr(pointer)));
}

// A place that others share joins its neighbours; a region of which all is free goes, unless it is the last one.
void SharedMemory::give_back(const SharedBlock& block) {
  const auto carved = std::find_if(carved_.begin(), carved_.end(),
                                   [&](const Carved& c) { return c.region == block.region; });
  if (carved == carved_.end()) return;
  auto place = carved->free.emplace(block.offset, block.bytes).first;
  if (const auto next = std::next(place); next != carved->free.end() && place->first + place->second == next->first) {
    place->second += next->second;
    carved->free.erase(next);
  }
  if (place != carved->free.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      carved->free.erase(place);
      place = before;
    }
  }
  if (place->second == shared_region_bytes && carved_.size() > 1) carved_.erase(carved);
}

std::shared_ptr<const SharedBlock> SharedMemory::find(const void* data, size_t bytes) const noexcept {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return nullptr;
  const std::shared_ptr<SharedBlock>& block = std::prev(after)->second;
  const size_t offset = at - std::prev(after)->first;
  if (offset >= block->bytes || std::max<size_t>(bytes, 1) > block->bytes - offset) return nullptr;
  return block;
}

std::shared_ptr<const SharedBlock> SharedMemory::find_whole(const void* data, size_t bytes) const noexcept {
  std::shared_ptr<const SharedBlock> block = find(data, bytes);
  if (block == nullptr || block->region->is_taken_back() || block->windows.load(std::memory_order_relaxed) > 0) return nullptr;
  const size_t at = size_t(static_cast<const std::byte*>(data) - block->data());
  const bool ends_whole = (at + bytes) % page_bytes() == 0 || at + bytes >= block->asked_bytes;
  return at % page_bytes() == 0 && ends_whole ? block : nullptr;
}

bool SharedMemory::take_back(const void* data, size_t bytes) const noexcept {
  const std::shared_ptr<const SharedBlock> block = find(data, bytes);
  if (block == nullptr) return false;
  const size_t at = size_t(static_cast<const std::byte*>(data) - block->data());
  return block->region->take_back(block->data() + at, whole_pages(bytes));
}

void SharedMemory::after_fork(bool in_child) {
  if (in_child) {
    inherited_.merge(blocks_);
    blocks_.clear();
    std::move(carved_.begin(), carved_.end(), std::back_inserter(inherited_carved_));
    carved_.clear();
  }
  mutex_.unlock();
}

}  // namespace tutti
