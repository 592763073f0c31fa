// Collectives among ranks whose devices reach each other's memory: every rank reads what it needs where it lies, and
// only small messages go over the links. The ranks first tell each other where their buffers are; a call of which some
// rank's buffers lie elsewhere goes the common way. No stream ever waits for another process: there, the host waits for
// its own device and then tells the others. In one process, streams wait for each other's events. Up to eight ranks of
// one process on one device are served by one launch, which rank 0 makes for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/outcome.h"
#include "base/signature.h"
#include "base/status.h"
#include "communicator/device_side.h"
#include "communicator/linked_plans.h"
#include "communicator/peer_events.h"
#include "schedule/collective.h"

namespace tutti {

// What a rank says of its device when it joins.
struct DeviceCard {
  int32_t number = -1;  // -1: it has named none
  int32_t process = 0;
  uint64_t process_token = 0;  // equal with equal `process` alone: one process
  std::array<std::byte, 16> uuid{};
  std::array<char, 16> platform{};
  uint64_t machine = 0;        // equal on one kernel
  uint8_t exports = 0;

  static DeviceCard of(Platform& platform, int number, uint64_t machine);
};

// Whether ranks with these cards reach each other's memory, as this rank sees it; "" or why not.
std::string why_no_peers(Platform& platform, std::span<const DeviceCard> cards, int rank);

// Where a rank's buffers of one call lie, told to all.
struct BufferCard {
  uint8_t on_device = 0;
  uint8_t exported = 0;    // the handles are there
  uint8_t in_place = 0;
  uint64_t input = 0, output = 0;  // addresses in the rank's process
  uint64_t events = 0;             // the number of its PeerEvents, in one process
  ExportedMemory input_memory, output_memory;
};

// One call as the path needs it; the buffers as Request's, but own blocks' addresses.
struct PeerCall {
  Call call;
  const std::byte* input = nullptr;  // null: the rank has none
  std::byte* output = nullptr;
  bool in_place = false;
  bool on_device = false;
  uint32_t divisor = 0;
};

// Of one communicator, by the thread that drives it; one call at a time. All but noexcept functions throw Error.
class PeerPath {
 public:
  // Starts an exchange among all ranks: an all_gather of `bytes` bytes each, or a barrier of 0.
  using Exchange = std::function<void(const std::byte* mine, std::byte* all, size_t bytes)>;
  // What the rank's own exchange, or its call on the common way, has come to.
  using Progress = std::function<Status()>;
  // The call goes the common way.
  using FallBack = std::function<void()>;

  PeerPath(DeviceSide& side, std::vector<DeviceCard> cards, int rank);
  ~PeerPath();

  // Whether calls like this one try it; the same on all ranks.
  bool serves(const Call& call) const noexcept;
  void begin(const PeerCall& call, const EntryEvent* entry, Exchange exchange, FallBack fall_back);
  // failed: the links have (then failure() is ok), or the device.
  Status progress(const Progress& exchange) noexcept;
  bool is_running() const noexcept { return phase_ != Phase::idle; }
  bool waits_for_device() const noexcept {
    return phase_ == Phase::entering || phase_ == Phase::first || phase_ == Phase::second || phase_ == Phase::settling;
  }
  const Outcome& failure() const noexcept { return failure_; }
  // The call has failed: waits, up to timeout_ns, for what it has on the device, and in one process for what peers'
  // devices do with this rank's buffers.
  void let_go(TimeNs timeout_ns) noexcept;
  // Calls that went this way so far; and of them, those of one launch for all ranks.
  size_t direct_calls() const noexcept { return direct_calls_; }
  size_t linked_calls() const noexcept { return linked_calls_; }

 private:
  enum class Phase : uint8_t { idle, entering, cards, common, first, first_exchange, second, second_exchange, settling };

  Status step(const Progress& exchange);
  BufferCard own_card();
  bool all_reachable() const noexcept;
  void resolve();
  std::byte* imported(int rank, const ExportedMemory& memory);
  void forget_oldest();
  const LinkedPlan* linked_plan();
  bool is_served_by_another() const noexcept { return linked_ != nullptr && rank_ != 0; }
  void start_linked();
  void start_first();
  void start_second();
  void visit_peers();
  void leave_peers() noexcept;
  bool has_passed(TimeNs until) noexcept;
  void wait_for_peers(DeviceEvent PeerEvents::*event);
  void record(DeviceEvent event);
  bool passed(DeviceEvent event);

  bool two_shot() const noexcept;
  bool through_temporary() const noexcept;
  Part input_of(int rank) const noexcept;
  const std::byte* block_for(int reader, int from) const noexcept;
  void copy(std::byte* to, const std::byte* from, size_t bytes);
  void reduce(std::byte* to, size_t offset, size_t count, int beyond);
  void reduce_own(std::byte* to);
  void gather_to(std::byte* to);

  DeviceSide& side_;
  Device& device_;
  const std::vector<DeviceCard> cards_;
  const int rank_, size_;
  const bool one_process_, one_device_;

  DeviceStream stream_ = nullptr;
  DeviceEvent last_ = nullptr;
  Phase phase_ = Phase::idle;
  PeerCall call_;
  Exchange exchange_;
  FallBack fall_back_;
  BufferCard mine_;
  std::vector<BufferCard> buffers_;
  std::vector<const std::byte*> inputs_;  // of each rank, as this process reaches them
  std::vector<std::byte*> outputs_;
  std::shared_ptr<PeerEvents> events_;
  const uint64_t events_number_;
  std::vector<std::shared_ptr<PeerEvents>> peer_events_;  // of the ranks in this process, since the first call
  struct Import {
    std::byte* begin = nullptr;
    uint64_t used = 0;
  };
  std::map<std::pair<int, uint64_t>, Import> imports_;  // by rank and allocation
  LinkedPlans linked_plans_;
  const LinkedPlan* linked_ = nullptr;  // of this call; null: every rank does its own part
  bool visits_ = false;                 // has entered all peers' buffers
  uint64_t calls_ = 0, last_at_ = 0;  // begun; of them, the one that last_ was recorded for
  size_t direct_calls_ = 0, linked_calls_ = 0;
  Outcome failure_;
};

}  // namespace tutti
