// One queue pair to a peer: what is posted to it and what it has completed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_wire.h"

namespace tutti {

class VerbsEndpoint;

inline constexpr uint32_t verbs_signal_every = 32;    // work requests to one completion; markers come on top
inline constexpr uint32_t verbs_repost_batch = 16;    // receives posted with one call
inline constexpr uint32_t verbs_batch_max = 8;        // work requests posted with one call
inline constexpr uint32_t verbs_credits_max = 24;     // credit and markers under way, beside messages

// Where a message lies that is to be written: its header, and its payload where that is elsewhere (lent).
struct VerbsPieces {
  const std::byte* header;  // in this rank's staging memory; the payload follows it, unless it is lent
  const std::byte* lent;    // or null
  const VerbsRegions::Keys* keys;  // of what is lent
  uint64_t bytes;           // of the payload
  uint64_t place;           // of the message in the peer's ring, in units
  uint64_t address = 0;     // where the payload goes by itself; 0: to the ring
  uint32_t key = 0;         // of that
  uint32_t number = 0;      // likewise only then
};

// Data path, but for construction. An error of a post is as one of a completion.
class VerbsPath {
 public:
  enum class State : uint8_t {
    alive,
    stopping,  // the queue pair is in error, and its last completions are awaited
    told,      // the peer knows, and is to say the same
    dead
  };
  struct Target {
    uint64_t ring_address = 0;
    uint32_t rkey = 0;
    uint64_t targets_address = 0;  // verbs_targets_bytes, with the same key
  };

  VerbsPath(VerbsEndpoint& endpoint, VerbsDevice& device, VerbsCounters& counters, int number, uint32_t messages_max,
            size_t inline_bytes_max);

  // --- Control path. Throw Error(system_error).
  void to_init(uint8_t port);
  struct Route {
    const VerbsPort* mine;
    const VerbsPort* theirs;
    uint8_t my_gid, their_gid;  // places in the ports' tables
    ibv_mtu mtu;
  };
  void connect(const Route& route, uint32_t peer_number, const Target& target);

  // --- Data path.
  bool has_room() const noexcept { return posted_ - completed_ < depth_; }
  // Of a work request, by its count among all of this path: whether it was completed.
  bool is_completed(uint64_t request) const noexcept { return request <= completed_; }
  uint64_t posted() const noexcept { return posted_; }
  // more: others follow at once, or ring() does; one call to the device then posts several.
  int post_message(const VerbsPieces& pieces, bool more) noexcept;
  int ring() noexcept;
  int post_credit(uint32_t immediate) noexcept;
  // To that place among the peer's.
  int post_target(const VerbsTarget& target, uint32_t place) noexcept;
  // Something signalled, whose completion tells that of `request`; nothing where such a thing is under way.
  int post_marker(uint64_t request) noexcept;
  // As many bytes as one packet takes, to the start of the peer's ring.
  int post_probe(const std::byte* data, size_t bytes) noexcept;
  int post_receives(uint32_t count) noexcept;
  // One completion. Whether it is of a receive, the caller knows.
  void send_completed() noexcept;
  void receive_completed() noexcept;
  void stop() noexcept;  // into the error state

  ibv_qp* queue_pair() const noexcept { return queue_pair_.get(); }
  VerbsEndpoint& endpoint() const noexcept { return endpoint_; }
  VerbsDevice& device() const noexcept { return device_; }
  int number() const noexcept { return number_; }
  void renumber(int number) noexcept { number_ = number; }
  bool all_receives_reaped() const noexcept { return receives_ == 0; }

  State state = State::alive;
  bool probed = false;           // the peer's probe came
  bool peer_stopped = false;     // the peer said that it has stopped this path
  TimeNs stopped_at_ns = 0;
  uint64_t bytes_under_way = 0;  // of messages that the peer has not consumed
  uint8_t cause = 0;             // why it was stopped: a VerbsCause's code
  uint8_t port = 1;
  uint8_t mtu = 0;               // ibv_mtu
  int device_index = 0;          // among this rank's open devices
  std::string description;       // "rxe0 port 1 (GID 1, RoCE v2 over IPv4)"

 private:
  // A request with its pieces, kept until the device is called.
  struct Waiting {
    ibv_send_wr request;
    ibv_sge parts[2];
  };
  Waiting& next() noexcept;
  int post_direct(const VerbsPieces& pieces, bool more) noexcept;
  int post(Waiting& waiting, bool signalled, bool more) noexcept;

  VerbsEndpoint& endpoint_;
  VerbsDevice& device_;
  VerbsCounters& counters_;
  int number_;
  VerbsOwner<ibv_qp> queue_pair_;
  Target target_;
  uint32_t inline_bytes_max_ = 0;
  uint32_t depth_;
  uint32_t receives_max_;
  uint32_t receives_ = 0;        // posted
  uint32_t receives_due_ = 0;    // completed and not posted again
  uint64_t posted_ = 0;          // work requests
  uint64_t completed_ = 0;       // of which so many, the first ones, are known to be done
  // Counts of the signalled ones that have not completed: [first, last).
  static constexpr uint32_t signalled_max = 256;
  std::array<uint64_t, signalled_max> signalled_{};
  uint32_t signalled_first_ = 0, signalled_last_ = 0;
  std::array<Waiting, verbs_batch_max> waiting_{};
  uint32_t waits_ = 0;
};

// The wr_id of receives has this bit beside the path's address.
inline constexpr uint64_t verbs_receive_bit = 1;
inline uint64_t id_of(const VerbsPath& path, bool receive) noexcept {
  return reinterpret_cast<uintptr_t>(&path) | (receive ? verbs_receive_bit : 0);
}

}  // namespace tutti
