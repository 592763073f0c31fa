// Prepared calls: a group that is kept, to be run again and again without checks or planning.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "communicator/group.h"

namespace tutti {

// One run at a time. The jobs of a stream hold it as well, so it outlives its handle where a run is under way.
class Prepared : public std::enable_shared_from_this<Prepared> {
 public:
  // Throws Error as CallSet does.
  explicit Prepared(std::vector<GroupCall> calls);

  // Runs all calls: on the calling thread (stream null), which returns their outcome, or enqueued on a stream.
  // Throws Error(invalid_usage) where a communicator of it has been destroyed or finalized, or the last run is not over.
  Outcome start(const CallStream& stream);

 private:
  struct Turn {
    Communicator* communicator;
    uint64_t ticket;
  };
  Outcome run(const std::vector<Turn>& turns) noexcept;

  CallSet calls_;
  std::vector<std::weak_ptr<const void>> lives_;  // of the communicators
  std::atomic<bool> running_{false};
};

}  // namespace tutti
