// Calls that fail: faults, deadlines and mismatches become everybody's verdict, in a sentence.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "bootstrap/waiting_calls.h"
#include "communicator/communicator.h"
#include "schedule/collective.h"

namespace tutti {

// An endpoint has failed: finds out why, and makes it everybody's verdict.
void Communicator::settle(const Operation& operation) noexcept {
  try {
    const WaitingOn waiting = engine_->waiting_on(operation);
    const DeviceWork* const device = operation.work().device;
    const Outcome* const failed = device != nullptr && !device->failure.ok() ? &device->failure
                                  : peer_path_ != nullptr && !peer_path_->failure().ok() ? &peer_path_->failure()
                                                                                         : nullptr;
    if (failed != nullptr)
      return fail(failed->code, fmt::format("{}: its device failed in {}: {}", bootstrap_->describe(rank_),
                                            describe_call(operation.work().signature), failed->sentence));
    if (&operation == by_shared_memory_ && shared_path_->broken_peer() >= 0) {
      const int peer = shared_path_->broken_peer();
      if (peer == rank_) return fail(Code::system_error, fmt::format("{} has no memory left", bootstrap_->describe(rank_)));
      return settle_broken_link(*bootstrap_, links_, peer, links_.endpoints[size_t(peer)]->fault());
    }
    const Fault& fault = waiting.endpoint->fault();
    if (fault.kind != FaultKind::mismatch) return settle_broken_link(*bootstrap_, links_, waiting.peer, fault);
    const std::string& peer = bootstrap_->describe(waiting.peer);
    const std::string& self = bootstrap_->describe(rank_);
    const std::string here = describe_call(waiting.signature), there = describe_call(fault.signature);
    // The lower rank first, so that both sides, which may see it at once, say the same.
    const bool lower = rank_ < waiting.peer;
    fail(Code::mismatch, lower ? differing_calls(self, here, peer, there) : differing_calls(peer, there, self, here));
  } catch (const std::exception& error) {
    fail(Code::internal_error, error.what());
  }
}

std::string Communicator::describe_call(uint64_t signature) const {
  const auto [call, terms] = unpack_with_terms(signature);
  return describe(call, terms, planner_->name_of(call.kind, terms.algorithm));
}

// Others' calls are compared with what this rank has recorded of its own.
void Communicator::compare_calls() {
  bootstrap_->compare_calls({[this](uint64_t number) { return recorder_->collective(number); },
                             [this](uint64_t signature) { return describe_call(signature); }});
}

void Communicator::tell_waiting(const Operation& operation, uint64_t begun_since) noexcept {
  const uint64_t signature = operation.work().signature, begun = recorder_->collectives();
  if (!is_collective(signature) || begun <= begun_since) return;
  const uint64_t number = begun - begun_since - 1;
  if (recorder_->collective(number) == signature) bootstrap_->tell_waiting(number, signature);
}

void Communicator::tell_stuck(const Operation& operation) noexcept {
  if (size_ == 1) return;
  try {
    StuckCall call;
    call.signature = operation.work().signature;
    call.collectives = recorder_->collectives();
    if (is_collective(call.signature)) {
      call.number = call.collectives - 1;
      const Call called = unpack(call.signature);
      if (recorder_->collective(call.number) != call.signature) return;
      // Of a v-form no rank need have anything for another; the largest root in a signature stands for all that are larger.
      if (is_v_form(called.kind) || (has_root(called.kind) && called.root == signature_root_max)) return;
      const auto [first, end] = needed_ranks(called.kind, called.root, uint32_t(rank_), uint32_t(size_));
      call.first = int(first);
      call.end = int(end);
    } else {
      const WaitingOn waiting = engine_->waiting_on(operation);
      if (waiting.sending || waiting.on_device || waiting.peer < 0) return;
      call.receives = true;
      call.first = waiting.peer;
      call.end = waiting.peer + 1;
    }
    std::vector<uint32_t> sent(size_t(size_), 0);
    for (int rank = 0; rank < size_; ++rank) {
      const Endpoint* const peer = links_.endpoints[size_t(channels_) * size_t(size_) + size_t(rank)];
      if (peer == nullptr) continue;
      const std::optional<Passed> passed = peer->passed();
      if (!passed) return;
      sent[size_t(rank)] = passed->sent;
      if (call.receives && rank == call.first) call.number = passed->received;
    }
    bootstrap_->tell_stuck(std::move(call), std::move(sent));
  } catch (const std::exception& error) {
    log_.error(error.what());
  }
}

void Communicator::expire_before(const Request& request, TimeNs timeout_ns) noexcept {
  fail(Code::timeout, fmt::format("{} waited {} ms to begin {}, for what is before it on its device's stream",
                                  bootstrap_->describe(rank_), timeout_ns / ns_per_ms, describe(request.call)));
}

void Communicator::expire(const Operation& operation, TimeNs timeout_ns) noexcept {
  try {
    const WaitingOn waiting = engine_->waiting_on(operation);
    fail(Code::timeout, waiting_sentence(operation, waiting, timeout_ns));
  } catch (const std::exception& error) {
    fail(Code::timeout, error.what());
  }
}

void Communicator::leave(const Request& request, const std::string& reason) noexcept {
  try {
    fail(Code::aborted, fmt::format("{} left {} undone, as another call of its group failed: {}", bootstrap_->describe(rank_),
                                    describe(request.call), reason));
  } catch (const std::exception& error) {
    fail(Code::aborted, error.what());
  }
}

std::string Communicator::waiting_sentence(const Operation& operation, const WaitingOn& waiting,
                                           TimeNs timeout_ns) const {
  const Work& work = operation.work();
  const bool on_device = waiting.on_device || (&operation == by_peers_ && peer_path_->waits_for_device());
  const std::string for_whom = on_device  ? std::string("its own device")
                               : waiting.peer < 0 ? std::string("its own links") : bootstrap_->describe(waiting.peer);
  return fmt::format("{} waited {} ms in {} ({}, step {} of {}, tile {}, channel {}) {} {}{}", bootstrap_->describe(rank_),
                     timeout_ns / ns_per_ms, describe_call(work.signature), work.plan->algorithm, waiting.step + 1,
                     work.plan->steps.size(), waiting.tile, waiting.channel,
                     on_device ? "for" : waiting.sending ? "to send to" : "for a message from", for_whom,
                     unread_calls(work.signature));
}

// Of which other collectives messages have come that nobody here asks for: of later calls, or of others than this rank
// makes, which need not meet its own where it awaits other ranks than theirs do.
std::string Communicator::unread_calls(uint64_t signature) const {
  constexpr size_t calls_max = 3;
  std::vector<uint64_t> seen;
  std::string text;
  for (size_t at = 0; at < links_.endpoints.size() && seen.size() < calls_max; ++at) {
    const Endpoint* const endpoint = links_.endpoints[at];
    const std::optional<uint64_t> other = endpoint != nullptr ? endpoint->next_signature() : std::nullopt;
    if (!other || *other == signature || unpack(*other).kind == Collective::send_recv ||
        std::ranges::find(seen, *other) != seen.end())
      continue;
    text += fmt::format("{}{} of {}", seen.empty() ? "; unread are messages of " : ", ", describe_call(*other),
                        bootstrap_->describe(int(at % size_t(size_))));
    seen.push_back(*other);
  }
  return text;
}

void Communicator::fail(Code code, const std::string& sentence) noexcept {
  const int blamed = -1;
  bootstrap_->fail({code, blamed, sentence});
}

void Communicator::abort() noexcept {
  fail(Code::aborted, fmt::format("{} called tuttiCommAbort", bootstrap_->describe(rank_)));
}

}  // namespace tutti
