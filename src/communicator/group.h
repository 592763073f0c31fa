// Groups: calls that are collected and progress together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/stream.h"
#include "tutti/tutti.h"

namespace tutti {

struct GroupCall {
  Communicator* communicator;
  Request request;
  Stream* stream;  // null: the calling thread
};

// What came of it: a code, and its sentence where it is an error.
struct Outcome {
  Code code = Code::success;
  std::string sentence;
};

// Runs calls of any number of communicators together on the calling thread until all are done: sends and receives in
// any order; collectives of one communicator in their order. Returns the first error.
// Throws Error(invalid_usage) before anything runs where a send to the rank itself has no receive, or the reverse.
Outcome run_together(std::vector<GroupCall> calls);

// Runs a closed group: calls with one stream on that stream, the rest on the calling thread.
// Throws Error(invalid_usage) where a communicator is used on two streams in one group.
Outcome run_group(std::vector<GroupCall> calls);

// Enqueues one call on its stream, in the communicator's order.
void enqueue(GroupCall call);

// A communicator that the end of a group makes: each joins on a thread of its own, all at once.
struct GroupJoin {
  JobId id;
  int rank;
  int size;
  CommunicatorOptions options;
  tuttiComm_t* result;  // where the caller wants the handle
};
// Joins all, in the order of `joins`. Throws the first Error, and then none is made.
std::vector<std::unique_ptr<Communicator>> join_together(const std::vector<GroupJoin>& joins);

}  // namespace tutti
