// Calls that are made together, and progress together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/outcome.h"
#include "communicator/communicator.h"
#include "communicator/stream.h"
#include "tutti/tutti.h"

namespace tutti {

enum class WaitResult : uint8_t;

struct GroupCall {
  Communicator* communicator;
  Request request;
  CallStream stream;
};

// Calls of any number of communicators that run together on one thread until all are done, any number of times: sends
// and receives in any order; collectives of one communicator in their order. But of small ones the next ones send before the
// one before them has ended: what crosses between ranks is as if they came one after the other, and the way there and back is
// waited for once. Runs after the first plan nothing.
class CallSet {
 public:
  CallSet();
  // Throws Error: invalid_usage where a send to the rank itself has no receive, or the reverse; mismatch where the two
  // differ.
  explicit CallSet(std::vector<GroupCall> calls);
  ~CallSet();
  CallSet(CallSet&&) noexcept;
  CallSet& operator=(CallSet&&) noexcept;

  // Takes other calls in place of these, none of them a send to the rank itself, in the memory of these. A call that may be
  // kept and is at its place already needs no plan again.
  void take(std::span<GroupCall> calls);

  // Before each run, by the thread that asks for it: the calls come after what is on the stream now. Throws Error.
  void enter(const CallStream& stream);
  // Returns the first error. One thread at a time; in the turns of its communicators.
  Outcome run();
  // Begins, and waits for a few microseconds; none where it is not over by then, and run() has to go on with it, on any thread.
  std::optional<Outcome> try_run();
  // Whether nothing stands before its calls, and they need so little of a thread that try_run() is worth it.
  bool may_run_at_once() const noexcept;
  // Before its turn, on the calling thread: whether it was over at once on a host stream, as small calls often are. It is then spared
  // the way to the stream's thread and back. Else run() goes on with it.
  bool ran_at_once(const CallStream& stream);
  std::span<Communicator* const> members() const noexcept { return members_; }
  size_t size() const noexcept;
  const GroupCall& call(size_t i) const noexcept;

 private:
  struct Item;
  struct SelfCopy;
  void find_lanes();
  void take_self_sends(std::vector<GroupCall>& calls);
  Status look() noexcept;
  bool begin_run();
  Outcome end_run(WaitResult result);
  Outcome end_in_failure(WaitResult result);
  Outcome leave_undone();
  Status linger() noexcept;
  Status look_once() noexcept;
  Status begin(Item& item) noexcept;
  int find_beside(const Item& item) const noexcept;
  Status progress_beside(Item& item) noexcept;
  bool lends(Item& item) noexcept;
  void end_trials() noexcept;
  Status look_ahead(Item& item) noexcept;
  bool is_over(int i) const noexcept;
  void find_order() noexcept;
  uint64_t position() const noexcept;
  TimeNs timeout_ns() const noexcept;
  void tell_waiting() noexcept;
  void tell_stuck() noexcept;
  void expire() noexcept;
  bool copy_own();

  bool running_ = false;
  bool ordered_ = false;     // find_order() has been called for these items
  bool sends_ahead_ = false; // some items may
  bool tries_ = false;       // some item tries whether to lend
  bool take_turns_ = false;  // some items do: one that says again may move on once others have moved
  std::vector<Item> items_;
  std::vector<SelfCopy> copies_;
  std::vector<Communicator*> members_;
};

// Whether it is a send or a receive of a rank to or from itself.
bool to_self(const GroupCall& call);
// Whether it may be run again without a look at what it is. Of large collectives all ranks agree, call by call, on the way.
bool may_be_kept(const Call& call);

}  // namespace tutti
