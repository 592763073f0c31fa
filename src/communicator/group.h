// Groups: calls that are collected and progress together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "communicator/communicator.h"
#include "communicator/stream.h"
#include "tutti/tutti.h"

namespace tutti {

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

  // Takes other calls in place of these, none of them a send to the rank itself, in the memory of these. A small call that
  // is at its place already needs no plan again.
  void take(std::span<GroupCall> calls);

  // Before each run, by the thread that asks for it: the calls come after what is on the stream now. Throws Error.
  void enter(const CallStream& stream);
  // Returns the first error. One thread at a time; in the turns of its communicators.
  Outcome run();
  std::span<Communicator* const> members() const noexcept { return members_; }
  size_t size() const noexcept;
  const GroupCall& call(size_t i) const noexcept;

 private:
  struct Item;
  struct SelfCopy;
  void find_lanes();
  void take_self_sends(std::vector<GroupCall>& calls);
  Status look() noexcept;
  Status look_once() noexcept;
  Status begin(Item& item) noexcept;
  Status look_ahead(Item& item) noexcept;
  void find_order() noexcept;
  uint64_t position() const noexcept;
  TimeNs timeout_ns() const noexcept;
  void expire() noexcept;
  bool copy_own();

  bool ordered_ = false;     // find_order() has been called for these items
  bool take_turns_ = false;  // some items do: one that says again may move on once others have moved
  std::vector<Item> items_;
  std::vector<SelfCopy> copies_;
  std::vector<Communicator*> members_;
};

// What a thread keeps for its next group. Most groups are few calls of one communicator, run by the calling thread, and
// programs make the same ones again and again: these have their memory here, and small ones their plans. Of a group of small
// calls that is made once more nothing is even written down: its calls are compared, one after the other.
class KeptGroup {
 public:
  bool suits(std::span<const GroupCall> calls) const noexcept;
  // Of calls that suit. Moves from them.
  Outcome run(std::span<GroupCall> calls);

  // A call of the open group, as its caller gives it. The root of a send or a receive is Communicator::root_of_point_to_point's.
  struct KnownCall {
    Communicator* communicator;
    const void *send, *recv;
    size_t count;
    Collective kind;
    DataType type;
    ReduceOp op;
    uint32_t root;

    // Of a kept call, a null buffer is one that the rank has no part in, whatever a caller gives.
    bool is(const KnownCall& call) const noexcept {
      return communicator == call.communicator && count == call.count && kind == call.kind && type == call.type &&
             op == call.op && root == call.root && (send == nullptr || send == call.send) &&
             (recv == nullptr || recv == call.recv);
    }
  };
  // Whether the next call of the open group, whose calls so far were these, is the one that is kept at its place. Then it is
  // noted.
  bool note(const KnownCall& call) noexcept {
    if (noted_ == known_.size() || !known_[noted_].is(call) || life_.expired() || running_) return false;
    ++noted_;
    return true;
  }
  // Whether the noted calls are the whole kept group. Then run_noted() runs it.
  bool has_noted_all() const noexcept { return noted_ > 0 && noted_ == known_.size(); }
  Outcome run_noted();
  // Writes down what was noted, where the group goes on otherwise.
  void write_down(std::vector<GroupCall>& calls);
  void forget_noted() noexcept { noted_ = 0; }

 private:
  static constexpr size_t calls_max = 64;  // an Operation has some KiB

  Outcome run_set(Communicator& communicator);
  void know_calls();

  CallSet set_;
  std::weak_ptr<const void> life_;  // of the communicator
  std::vector<KnownCall> known_;    // the set's calls, where all are small and of the usual kind; else empty
  size_t noted_ = 0;
  bool running_ = false;            // a caller's operator may call
};

// Runs a closed group: calls with one stream on that stream, the rest on the calling thread, whose `kept` is. Moves from the
// calls. Throws Error(invalid_usage) where a communicator is used on two streams in one group.
Outcome run_group(std::span<GroupCall> calls, KeptGroup& kept);

// Enqueues one call on its stream, in the communicator's order.
void enqueue(GroupCall call);

// A communicator that is to be made, now or by the end of a group: there each is made on a thread of its own, all at
// once, since making one waits for the other ranks.
struct GroupJoin {
  std::function<std::unique_ptr<Communicator>()> make;  // null: this rank has no part in it
  tuttiComm_t* result;                                  // where the caller wants the handle
};
// Joins all, in the order of `joins`. Throws the first Error, and then none is made.
std::vector<std::unique_ptr<Communicator>> join_together(const std::vector<GroupJoin>& joins);

}  // namespace tutti
