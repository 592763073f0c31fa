// Large collectives among ranks of one host that reach each other's buffers: no message carries data. The ranks tell each
// other where their buffers lie; then each does its share of all that is to be read, added and written, where it lies;
// then they tell each other that they are done. A call of which some rank's buffers cannot be reached goes the common way.
//
// Nobody writes into memory whose owner is not in the call: the owner's card comes first, and the owner leaves when all
// are done. An owner whose call fails revokes its memory and waits until nobody is in it any more; see let_go().
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/signature.h"
#include "base/status.h"
#include "device/linked_call.h"
#include "memory/lent_region.h"
#include "reduce/reduce.h"
#include "schedule/link.h"
#include "transport/transport.h"

namespace tutti {

// Where a rank's buffers of one call lie, told to all. In place, both are one.
struct SharedCard {
  LentPlace input, output;
  uint8_t input_in_reach = 0, output_in_reach = 0;
  uint8_t output_writable = 0;  // by others, too
  uint8_t in_place = 0;
  uint8_t on_device = 0;  // they are none of the host's: it may neither read nor write them
};

// One call as the path needs it; the buffers as Request's.
struct SharedCall {
  Call call;
  const std::byte* input = nullptr;  // null: the rank has none
  std::byte* output = nullptr;
  bool in_place = false;
  bool on_device = false;  // the host may not touch them
  const LentRegion* input_region = nullptr;  // where they lie; null: not in memory that peers reach
  const LentRegion* output_region = nullptr;
  uint32_t divisor = 0;
};

// Of one communicator, by the thread that drives it; one call at a time. All but noexcept functions throw Error.
class SharedPath {
 public:
  // Starts an exchange among all ranks: an all_gather of `bytes` bytes each, or a barrier of 0.
  using Exchange = std::function<void(const std::byte* mine, std::byte* all, size_t bytes)>;
  // What the rank's own exchange, or its call on the common way, has come to.
  using Progress = std::function<Status()>;
  // The call goes the common way.
  using FallBack = std::function<void()>;

  // peers[rank]; null for the rank itself. They outlive the path. cache_bytes: of the last cache, which the ranks share;
  // where all that a call touches would not stay there, results are stored past it.
  SharedPath(std::span<Endpoint* const> peers, int rank, size_t cache_bytes);

  // The algorithm whose steps calls of a collective do; "": it is not served, as all_to_all and reduce_scatter, where each
  // rank reads as much in either way and nothing is gained. Where sums depend on their order, a call's
  // own algorithm must be that one, so that its bits do not depend on where its buffers lie.
  static std::string_view algorithm_of(Collective collective) noexcept;
  // Whether the next call of this kind and size tries it; asked once for each call. The same on all ranks: where calls
  // before it could not be served, only one in a while does.
  bool tries(const Call& call) noexcept;
  // What tries() would say.
  bool would_try(const Call& call) const noexcept;

  void begin(const SharedCall& call, Exchange exchange, FallBack fall_back);
  // failed: the links have, or a peer has revoked its memory or cannot be reached: then broken_peer() says which.
  Status progress(const Progress& exchange) noexcept;
  bool is_running() const noexcept { return phase_ != Phase::idle; }
  int broken_peer() const noexcept { return broken_peer_; }
  // Another number once something has moved.
  uint64_t position() const noexcept { return position_; }
  // The call has failed, and this rank's memory is revoked: waits until no peer is in it. Where one stays there, as it was
  // stopped or killed, the buffer becomes this process's alone; `gone`, if any, is not waited for. False: that could not be.
  bool let_go(TimeNs timeout_ns, int gone = -1) noexcept;
  // Calls that went this way so far.
  size_t direct_calls() const noexcept { return direct_calls_; }

 private:
  enum class Phase : uint8_t { idle, cards, common, working, leaving };
  // Who does a step: all ranks, an even part of everything each; or the rank that the plan gives it to.
  enum class Sharing : uint8_t { none, even, own };
  // A stretch of elements of one chunk of a step.
  struct Piece {
    uint16_t step = 0, chunk = 0;
    size_t first = 0, count = 0;
  };

  Status step(const Progress& exchange);
  SharedCard own_card() const;
  Sharing choose_plan();
  const std::vector<LinkedPlan>& linked();
  Sharing sharing(const LinkedPlan& plan) const noexcept;
  bool resolve();
  void share_out(Sharing sharing);
  bool work();
  void do_piece(const Piece& piece, size_t first, size_t count) noexcept;
  bool enter_all() noexcept;
  void leave_all(size_t beyond) noexcept;
  size_t bytes_of(Part part) const noexcept;
  size_t extent(int rank, bool in_place, bool input) const noexcept;
  size_t touched_bytes() const noexcept;

  const std::vector<Endpoint*> peers_;
  const size_t cache_bytes_;
  const int rank_, size_;

  Phase phase_ = Phase::idle;
  SharedCall call_;
  Exchange exchange_;
  FallBack fall_back_;
  SharedCard mine_;
  std::vector<SharedCard> cards_;
  // By kind, root and who is in place: all that are proven.
  std::map<std::tuple<Collective, uint32_t, uint32_t>, std::vector<LinkedPlan>> linked_;
  const LinkedPlan* plan_ = nullptr;
  LinkedBuffers buffers_{};
  ReduceFunction reduce_ = nullptr;
  PutFunction put_ = nullptr;  // null: results of several outputs pass stage_
  Store store_ = Store::cached;
  std::vector<Piece> pieces_;
  size_t next_piece_ = 0, next_element_ = 0;
  std::unique_ptr<std::byte, void (*)(std::byte*)> stage_;
  struct Tries {
    uint32_t refused = 0;  // in a row
    uint32_t calls = 0;
  };
  static size_t size_class(const Call& call) noexcept { return size_t(std::bit_width(call.count)) % 64; }
  std::array<std::array<Tries, 64>, 32> tries_{};  // by kind and size class
  int broken_peer_ = -1;
  uint64_t position_ = 0;
  size_t direct_calls_ = 0;
};

}  // namespace tutti
