// Groups: calls that are collected and progress together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "communicator/call_set.h"

namespace tutti {

// What a thread keeps of a group for its next one. Most groups are few calls of one communicator, run by the calling thread, and
// programs make the same ones again and again: these have their memory here, and sends, receives and small collectives their
// plans. Of a group of such calls that is made once more nothing is even written down: its calls are compared, one after the other.
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
  std::vector<KnownCall> known_;    // the set's calls, where all may be kept and are of the usual kind; else empty
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
