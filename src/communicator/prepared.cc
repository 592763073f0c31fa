// Starting prepared calls: in the turns of their communicators, as a group is.
#include "communicator/prepared.h"

#include <utility>

#include "base/error.h"
#include "communicator/device_calls.h"

namespace tutti {

Prepared::Prepared(std::vector<GroupCall> calls) : calls_(std::move(calls)) {
  for (const Communicator* member : calls_.members()) lives_.push_back(member->life());
}

Outcome Prepared::start(const CallStream& stream) {
  for (const auto& life : lives_)
    if (life.expired()) throw Error(Code::invalid_usage, "a communicator of the prepared calls has been destroyed");
  for (const Communicator* member : calls_.members())
    if (member->has_left())
      throw Error(Code::invalid_usage, "a communicator of the prepared calls has been finalized");
  if (calls_.members().empty()) return {};  // no calls, and so nothing that runs
  // acquire and release: the run before this one may have been another thread's
  if (running_.exchange(true, std::memory_order_acquire))
    throw Error(Code::invalid_usage, "the prepared calls are still running: wait for the stream of their last start");
  try {
    for (Communicator* member : calls_.members())
      if (stream.is_device()) device_side_for(*member, stream);
    calls_.enter(stream);
  } catch (...) {
    running_.store(false, std::memory_order_release);
    throw;
  }
  const bool elsewhere = runs_elsewhere(stream);
  if (calls_.ran_at_once(stream)) {
    running_.store(false, std::memory_order_release);
    return {};
  }
  std::vector<Turn> turns;
  for (Communicator* member : calls_.members()) {
    if (!elsewhere && member->idle()) continue;
    turns.push_back({member, member->take_ticket()});
  }
  if (!elsewhere) return run(turns);
  Stream& queue = stream.is_device() ? turns[0].communicator->device_side()->worker() : *stream.host;
  queue.enqueue([self = shared_from_this(), turns] { return self->run(turns); });
  for (const Turn& turn : turns)
    if (stream.is_device()) turn.communicator->device_side()->hold(stream.device, turn.ticket);
  return {};
}

Outcome Prepared::run(const std::vector<Turn>& turns) noexcept {
  for (const Turn& turn : turns) turn.communicator->await_turn(turn.ticket);
  Outcome outcome = calls_.run();
  running_.store(false, std::memory_order_release);
  for (const Turn& turn : turns) turn.communicator->end_turn();
  return outcome;
}

}  // namespace tutti
