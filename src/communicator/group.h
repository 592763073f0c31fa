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
// and receives in any order; collectives of one communicator in their order. Runs after the first plan nothing.
class CallSet {
 public:
  // Throws Error: invalid_usage where a send to the rank itself has no receive, or the reverse; mismatch where the two
  // differ.
  explicit CallSet(std::vector<GroupCall> calls);
  ~CallSet();
  CallSet(CallSet&&) noexcept;

  // Before each run, by the thread that asks for it: the calls come after what is on the stream now. Throws Error.
  void enter(const CallStream& stream);
  // Returns the first error. One thread at a time; in the turns of its communicators.
  Outcome run();
  std::span<Communicator* const> members() const noexcept { return members_; }

 private:
  struct Item;
  struct SelfCopy;
  void take_self_sends(std::vector<GroupCall>& calls);
  Status look() noexcept;
  uint64_t position() const noexcept;
  TimeNs timeout_ns() const noexcept;
  void expire() noexcept;
  bool copy_own();

  std::vector<Item> items_;
  std::vector<SelfCopy> copies_;
  std::vector<Communicator*> members_;
};

// Runs a closed group: calls with one stream on that stream, the rest on the calling thread.
// Throws Error(invalid_usage) where a communicator is used on two streams in one group.
Outcome run_group(std::vector<GroupCall> calls);

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
