// Collectives among ranks whose devices reach each other's memory: every rank reads what it needs where it lies, and
// only small messages go over the links. The ranks first tell each other where their buffers are; a call of which some
// rank's buffers lie elsewhere goes the common way. No stream ever waits for another process: there, the host waits for
// its own device and then tells the others. In one process, streams wait for each other's events. Up to eight ranks of
// one process go further, by kernels of linked plans: where they share one device by one launch, which rank 0 makes for
// all; else by one launch on each device, which its first rank makes, and these wait for each other inside.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
#include "communicator/peer_group.h"
#include "communicator/peer_reach.h"
#include "schedule/collective.h"

namespace tutti {

// Where a rank's buffers of one call lie, told to all.
struct BufferCard {
  uint8_t on_device = 0;
  uint8_t exported = 0;    // the handles are there
  uint8_t in_place = 0;
  uint64_t input = 0, output = 0;  // addresses in the rank's process
  uint64_t events = 0;             // the number of its PeerEvents, in one process
  uint64_t group = 0;              // rank 0's: the number of all ranks' PeerGroup, in one process
  uint64_t workspace = 0;          // for launches that meet; 0: it has none
  uint8_t has_room = 0;            // rank 0's: launches of all devices may wait for each other in this call
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

// Of one communicator, by the thread that drives it, but where a function says otherwise; one call at a time. All but noexcept
// functions throw Error.
class PeerPath {
 public:
  // Starts an exchange among all ranks: an all_gather of `bytes` bytes each, or a barrier of 0.
  using Exchange = std::function<void(const std::byte* mine, std::byte* all, size_t bytes)>;
  // What the rank's own exchange, or its call on the common way, has come to.
  using Progress = std::function<Status()>;
  // The call goes the common way.
  using FallBack = std::function<void()>;

  // probe: what was opened to see that it can be, or null; it is given back at the end.
  PeerPath(DeviceSide& side, std::vector<DeviceCard> cards, int rank, std::unique_ptr<PeerProbe> probe);
  ~PeerPath();

  // Whether calls like this one try it; the same on all ranks.
  bool serves(const Call& call) const noexcept;
  void begin(const PeerCall& call, const EntryEvent* entry, Exchange exchange, FallBack fall_back);
  // failed: the links have (then failure() is ok), or the device.
  Status progress(const Progress& exchange) noexcept;
  bool is_running() const noexcept { return phase_ != Phase::idle; }
  // Gives back what calls have forgotten of other processes' memory. This may wait for all streams of the device: so it is for
  // the thread that makes calls, before a stream waits for its next one.
  void close_forgotten() noexcept;
  bool waits_for_device() const noexcept {
    return phase_ == Phase::entering || phase_ == Phase::falling_back || phase_ == Phase::gathering ||
           phase_ == Phase::launching || phase_ == Phase::first || phase_ == Phase::second || phase_ == Phase::settling;
  }
  const Outcome& failure() const noexcept { return failure_; }
  // The call has failed: waits, up to timeout_ns, for what it does on the device, and in one process for what peers'
  // devices do with this rank's buffers. What a stream has not come to, it does not wait for: that touches nothing.
  void let_go(TimeNs timeout_ns) noexcept;
  // Calls that went this way so far; and of them, those by kernels of linked plans, each of which is of one kind.
  struct Counts {
    size_t direct = 0, launched = 0;             // launched: that this rank has made a launch for
    size_t one_launch = 0, blocks = 0, packets = 0;
  };
  const Counts& counts() const noexcept { return counts_; }

 private:
  enum class Phase : uint8_t {
    idle, entering, cards, falling_back, common, gathering, launching, first, first_exchange, second, second_exchange, settling
  };
  // What of a call is on this rank's stream that touches buffers: nothing; a launch that does not where the call has ended
  // before it begins; or more.
  enum class AtWork : uint8_t { no, if_begun, yes };
  // Each rank does its own part; or one launch for all; or one of each device, by blocks or packets.
  enum class Way : uint8_t { each, one_launch, blocks, packets };

  Status step(const Progress& exchange);
  BufferCard own_card();
  bool is_for_peers(const std::byte* buffer) const noexcept;
  bool all_reachable() const noexcept;
  void resolve();
  std::byte* imported(int rank, const ExportedMemory& memory);
  void forget_oldest();
  Way choose();
  bool is_linked() const noexcept { return way_ != Way::each; }
  bool meets() const noexcept { return way_ == Way::blocks || way_ == Way::packets; }
  int leader_of(int rank) const noexcept;
  void start_linked();
  bool fits_packets() const noexcept;
  void make_workspace();
  void clear_workspace();
  void start_first();
  void start_second();
  void visit_peers();
  void leave_peers() noexcept;
  bool has_passed(TimeNs until) noexcept;
  bool has_begun() const noexcept;
  bool all_ready();
  void wait_for_peers(DeviceEvent PeerEvents::*event);
  void record(DeviceEvent event);
  bool passed(DeviceEvent event);
  bool has_settled();
  static bool check_running(const Outcome& outcome);

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
  std::unique_ptr<PeerProbe> probe_;
  const std::vector<DeviceCard> cards_;
  const int rank_, size_;
  const bool one_process_, one_device_;
  const size_t two_shot_bytes_min_;  // of all_reduce by each rank's own part

  DeviceStream stream_ = nullptr;
  DeviceEvent last_ = nullptr;
  Phase phase_ = Phase::idle;
  AtWork at_work_ = AtWork::no;
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
  std::mutex forgotten_mutex_;
  std::vector<std::byte*> forgotten_;
  std::atomic<bool> has_forgotten_{false};  // a hint
  LinkedPlans linked_plans_;
  Way way_ = Way::each;                 // of this call
  const LinkedPlan* linked_ = nullptr;  // its plan, but where every rank does its own part
  std::shared_ptr<PeerGroup> group_;    // of the ranks of one process, since the first call
  uint64_t group_number_ = 0;
  void* workspace_ = nullptr;           // null: launches of several devices are none of this rank's
  std::unique_ptr<MeetingRoom> room_;   // rank 0's, during such a call
  std::vector<int> devices_;            // of the ranks of one process, each once
  int meeting_channels_max_ = 1;        // blocks of each rank on the one with the most of them
  uint64_t launches_ = 0;               // of all ranks, up to this call
  uint64_t packet_calls_ = 0;
  uint32_t looks_ = 0;
  bool visits_ = false;                 // has entered all peers' buffers
  // Calls begun, and of them the one that last_ was recorded for. The low bits of their number mark packets; it begins where
  // they are soon used up, so that what is done then is no matter of long runs alone.
  static constexpr uint64_t calls_before = (uint64_t{1} << 32) - 1000;
  uint64_t calls_ = calls_before, last_at_ = 0;
  Counts counts_;
  Outcome failure_;
};

}  // namespace tutti
