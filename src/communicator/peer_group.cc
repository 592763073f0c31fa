// What ranks of one process share for kernels that meet; and of the process, the calls under way on each device.
#include "communicator/peer_group.h"

#include <array>
#include <mutex>

#include "base/error.h"
#include "communicator/by_number.h"
#include "device/linked_call.h"

namespace tutti {
namespace {

constexpr int devices_max = 64;

struct AllCalls {
  std::mutex mutex;
  std::array<uint32_t, devices_max> calls{};  // that have room, of each device

  static AllCalls& of_process() {
    static AllCalls& all = *new AllCalls();  // never destroyed: ranks may outlive main
    return all;
  }
};

}  // namespace

PeerGroup::PeerGroup(Platform& platform, uint64_t last_call) : platform_(platform) {
  void* words = nullptr;
  const Outcome made = platform.allocate_host(4096, &words);
  if (!made.ok()) throw Error(made.code, made.sentence);
  words_ = static_cast<uint32_t*>(words);
  words_[0] = uint32_t(last_call);
}

// Where a call has ended early, its launches may be still to come, and look at the words then: these stay for good.
PeerGroup::~PeerGroup() {
  if (!has_ended()) platform_.free_host(words_);
}

uint64_t PeerGroup::publish(const std::shared_ptr<PeerGroup>& group) { return ByNumber<PeerGroup>::publish(group); }

std::shared_ptr<PeerGroup> PeerGroup::numbered(uint64_t number) { return ByNumber<PeerGroup>::find(number); }

void PeerGroup::launched(uint64_t all, uint64_t call) noexcept {
  if (launched_.fetch_add(1, std::memory_order_acq_rel) + 1 < all) return;
  std::atomic_ref(words_[0]).store(uint32_t(call), std::memory_order_release);  // pairs with the streams' waits
}

// The word first: who comes through the gate finds it. Before any look at begun(), too: of this and a launch that writes the
// one word and then reads the other, one at least sees what the other wrote.
void PeerGroup::end(uint64_t call) noexcept {
  std::atomic_ref(words_[1]).store(1, std::memory_order_seq_cst);
  std::atomic_ref(words_[0]).store(uint32_t(call) + 1, std::memory_order_seq_cst);
}

bool PeerGroup::has_begun(int rank, uint64_t call) const noexcept {
  return std::atomic_ref(*begun(rank)).load(std::memory_order_seq_cst) == uint32_t(call);
}

bool PeerGroup::has_passed(uint64_t call) const noexcept {
  return std::atomic_ref(*passed()).load(std::memory_order_acquire) == uint32_t(call);
}

bool PeerGroup::has_ended() const noexcept {
  return std::atomic_ref(words_[1]).load(std::memory_order_acquire) != 0;  // pairs with end
}

std::unique_ptr<MeetingRoom> MeetingRoom::reserve(Platform& platform, std::span<const int> devices) {
  uint64_t bits = 0;
  for (const int device : devices) {
    if (device < 0 || device >= devices_max) return nullptr;
    bits |= uint64_t{1} << device;
  }
  AllCalls& all = AllCalls::of_process();
  const std::lock_guard lock(all.mutex);
  for (int d = 0; d < devices_max; ++d)
    if ((bits >> d & 1) != 0 && all.calls[size_t(d)] >= platform.device(d).info().blocks_at_once / meeting_channels_max)
      return nullptr;
  for (int d = 0; d < devices_max; ++d) all.calls[size_t(d)] += uint32_t(bits >> d & 1);
  return std::unique_ptr<MeetingRoom>(new MeetingRoom(bits));
}

MeetingRoom::~MeetingRoom() {
  AllCalls& all = AllCalls::of_process();
  const std::lock_guard lock(all.mutex);
  for (int d = 0; d < devices_max; ++d) all.calls[size_t(d)] -= uint32_t(devices_ >> d & 1);
}

}  // namespace tutti
