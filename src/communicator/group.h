// Groups: calls that are collected and progress together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

  // Takes other calls in place of these, none of them a send to the rank itself, in the memory of these. A small call that
  // is at its place already needs no plan again.
  void take(std::span<GroupCall> calls);

  // Before each run, by the thread that asks for it: the calls come after what is on the stream now. Throws Error.
  void enter(const CallStream& stream);
  // Returns the first error. One thread at a time; in the turns of its communicators.
  Outcome run();
  // Begins, and waits for a few microseconds; none where it is not over by then, and run() has to go on with it, on any thread.
  std::optional<Outcome> try_run();
  // Whether nothing stands before its calls, and they need so little of a thread that try_run() is worth it.
  bool may_run_at_once() const noexcept;
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
  Status linger() noexcept;
  Status look_once() noexcept;
  Status begin(Item& item) noexcept;
  Status look_ahead(Item& item) noexcept;
  bool is_over(int i) const noexcept;
  void find_order() noexcept;
  uint64_t position() const noexcept;
  TimeNs timeout_ns() const noexcept;
  void expire() noexcept;
  bool copy_own();

  bool running_ = false;
  bool ordered_ = false;     // find_order() has been called for these items
  bool sends_ahead_ = false; // some items may
  bool take_turns_ = false;  // some items do: one that says again may move on once others have moved
  std::vector<Item> items_;
  std::vector<SelfCopy> copies_;
  std::vector<Communicator*> members_;
};

// What a thread keeps of a group for its next one. Most groups are few calls of one communicator, run by the calling thread, and
// programs make the same ones again and again: these have their memory here, and small ones their plans. Of a group of small
// calls that is made once more nothing is even written down: its calls are compared, one after the other.
class KeptGroup {
 public:
  static bool suits(std::span<const GroupCall> calls) noexcept;
  bool running() const noexcept { return running_; }
  // Of calls that suit, while it is not running. Moves from them.
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
    if (noted_ == known_.size() || !known_[noted_].is(call) || life_.expired() || running_) [[unlikely]] return false;
    ++noted_;
    return true;
  }
  bool has_noted() const noexcept { return noted_ > 0; }
  bool begins_with(const GroupCall& call) const noexcept;
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

// The last groups of a thread that differ: programs have several, and make them by turns. Of those with the same first call one
// is kept.
class KeptGroups {
 public:
  // As KeptGroup's; the open group's first call says which kept one it may be.
  bool note(const KeptGroup::KnownCall& call) noexcept {
    if (now_ == nullptr) return false;
    if (now_->note(call)) [[likely]] return true;
    return !now_->has_noted() && note_in_other(call);
  }
  bool has_noted_all() const noexcept { return now_ != nullptr && now_->has_noted_all(); }
  Outcome run_noted() { return now_->run_noted(); }
  void write_down(std::vector<GroupCall>& calls) {
    if (now_ != nullptr) now_->write_down(calls);
  }
  void forget_noted() noexcept {
    if (now_ != nullptr) now_->forget_noted();
  }

  // For calls that suit: where they are to run and be kept. Null: all are running.
  KeptGroup* place_for(std::span<const GroupCall> calls);

 private:
  static constexpr size_t groups_max = 8;

  bool note_in_other(const KeptGroup::KnownCall& call) noexcept;

  std::vector<std::unique_ptr<KeptGroup>> groups_;
  KeptGroup* now_ = nullptr;                        // the one that was used last; null: none yet
  size_t oldest_ = 0;
};

// Runs a closed group: calls with one stream on that stream, the rest on the calling thread, whose `kept` is. Moves from the
// calls. Throws Error(invalid_usage) where a communicator is used on two streams in one group.
Outcome run_group(std::span<GroupCall> calls, KeptGroups& kept);

// Puts one call on its stream, in the communicator's order; a small one that nothing stands before may be over when this returns.
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
