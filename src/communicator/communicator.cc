// Running calls: admission, plans, scratch memory, and what becomes of faults.
#include "communicator/communicator.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/wait.h"

namespace tutti {
namespace {

constexpr size_t scratch_alignment = 64;
// How long a broken data link waits for the control plane to say which rank died.
constexpr TimeNs verdict_grace_ns = 500 * ns_per_ms;

}  // namespace

void Communicator::ScratchDeleter::operator()(std::byte* p) const noexcept {
  ::operator delete(p, std::align_val_t(scratch_alignment));
}

Communicator::~Communicator() {
  leave();
}

Code Communicator::run(const Request& request) noexcept {
  if (failure() != nullptr || !begin(operation_, request)) return failure()->code;
  Communicator* const self = this;
  const WaitResult result = drive(std::span(&self, 1), [&] { return progress(operation_); });
  if (result == WaitResult::done) return Code::success;
  if (result == WaitResult::expired) expire(operation_);
  return failure()->code;
}

bool Communicator::begin(Operation& operation, const Request& request) noexcept {
  try {
    const Plan& plan = plan_of(request);
    if (plan.shape.scratch != 0) reserve_scratch(plan);
    const Call& call = request.call;
    Work& work = operation.new_work();
    work.plan = &plan;
    work.input = request.input;
    work.output = request.output;
    work.scratch = scratch_.get();
    work.count = call.count;
    work.element_bytes = element_bytes(call.type);
    work.signature = pack(call);
    if (call.kind == Collective::all_reduce) {
      work.reduce = reduce_function(call.type, call.op);
      work.divisor = call.op == ReduceOp::avg ? uint32_t(size_) : 0;
    }
    const bool point_to_point = call.kind == Collective::send_recv;
    engine_->start(operation, work, point_to_point ? channels_ : 0, point_to_point ? 1 : channels_);
    return true;
  } catch (const Error& error) {
    fail(error.code(), fmt::format("{} could not begin {}: {}", bootstrap_->describe(rank_), describe(request.call),
                                   error.what()));
  } catch (const std::exception& error) {
    fail(Code::system_error, fmt::format("{} could not begin {}: {}", bootstrap_->describe(rank_),
                                         describe(request.call), error.what()));
  }
  return false;
}

Status Communicator::progress(Operation& operation) noexcept {
  const Status status = engine_->progress(operation);
  if (status == Status::done) return status;
  if (status == Status::failed) {
    settle(operation);
    return status;
  }
  for (const auto& transport : transports_) transport->progress();
  return Status::again;
}

const Plan& Communicator::plan_of(const Request& request) {
  const Call& call = request.call;
  if (call.kind == Collective::send_recv) {
    return request.sending ? send_plans_[size_t(request.peer)] : recv_plans_[size_t(request.peer)];
  }
  const size_t bytes = call.count * element_bytes(call.type);
  return planner_->plan(call.kind, bytes, int(call.root), request.input == request.output);
}

void Communicator::reserve_scratch(const Plan& plan) {
  const size_t bytes = engine_->scratch_bytes(plan, channels_);
  if (bytes <= scratch_bytes_) return;
  scratch_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(scratch_alignment))));
  scratch_bytes_ = bytes;
}

// An endpoint has failed: finds out why, and makes it everybody's verdict.
void Communicator::settle(const Operation& operation) noexcept {
  try {
    const WaitingOn waiting = engine_->waiting_on(operation);
    const Fault& fault = waiting.endpoint->fault();
    const std::string& peer = bootstrap_->describe(waiting.peer);
    const std::string& self = bootstrap_->describe(rank_);
    if (fault.kind == FaultKind::mismatch) {
      const std::string here = describe(unpack(operation.work().signature)), there = describe(unpack(fault.signature));
      // The lower rank first, so that both sides, which may see it at once, say the same.
      const bool lower = rank_ < waiting.peer;
      fail(Code::mismatch, fmt::format("{} called {} while {} called {}", lower ? self : peer, lower ? here : there,
                                       lower ? peer : self, lower ? there : here));
      return;
    }
    // A closed link is a symptom; the control plane knows soon who died.
    for (const TimeNs start = now_ns(); failure() == nullptr && now_ns() - start < verdict_grace_ns;) ::sched_yield();
    const std::string reason =
        fault.kind == FaultKind::closed ? "was closed by the other side" : std::strerror(fault.error_number);
    fail(Code::remote_error, fmt::format("{}: the {} link to {} failed: {}", self, transport_to(waiting.peer), peer,
                                         reason));
  } catch (const std::exception& error) {
    fail(Code::internal_error, error.what());
  }
}

void Communicator::expire(const Operation& operation) noexcept {
  try {
    const WaitingOn waiting = engine_->waiting_on(operation);
    fail(Code::timeout, waiting_sentence(operation, waiting));
  } catch (const std::exception& error) {
    fail(Code::timeout, error.what());
  }
}

std::string Communicator::waiting_sentence(const Operation& operation, const WaitingOn& waiting) const {
  const Work& work = operation.work();
  const std::string for_whom = waiting.peer < 0 ? std::string("its own links") : bootstrap_->describe(waiting.peer);
  return fmt::format("{} waited {} ms in {} ({}, step {} of {}, tile {}, channel {}) {} {}", bootstrap_->describe(rank_),
                     timeout_ns_ / ns_per_ms, describe(unpack(work.signature)), work.plan->algorithm, waiting.step + 1,
                     work.plan->steps.size(), waiting.tile, waiting.channel,
                     waiting.sending ? "to send to" : "for a message from", for_whom);
}

void Communicator::fail(Code code, const std::string& sentence) noexcept {
  const int blamed = -1;
  bootstrap_->fail({code, blamed, sentence});
}

void Communicator::abort() noexcept {
  fail(Code::aborted, fmt::format("{} called tuttiCommAbort", bootstrap_->describe(rank_)));
}

void Communicator::arm() noexcept {
  for (const auto& transport : transports_) transport->arm();
}

void Communicator::disarm() noexcept {
  for (const auto& transport : transports_) transport->disarm();
  doorbell_.drain();
}

size_t Communicator::poll_fds(std::span<pollfd> space) noexcept {
  if (space.empty()) return 0;
  space[0] = {doorbell_.fd(), POLLIN, 0};
  size_t n = 1;
  for (const auto& transport : transports_) n += transport->poll_fds(space.subspan(n));
  return n;
}

void Communicator::await_turn(uint64_t ticket) noexcept {
  for (uint64_t seen = serving_.load(std::memory_order_acquire); seen != ticket;
       seen = serving_.load(std::memory_order_acquire))
    serving_.wait(seen, std::memory_order_acquire);
}

void Communicator::end_turn() noexcept {
  serving_.fetch_add(1, std::memory_order_release);  // pairs with the acquire loads of await_turn and idle
  serving_.notify_all();
}

void Communicator::leave() noexcept {
  if (left_) return;
  left_ = true;
  await_turn(next_ticket_);
  bootstrap_->leave();
}

const char* Communicator::transport_to(int peer) const noexcept { return transport_names_[size_t(peer)]; }

std::string_view Communicator::algorithm_for(Collective collective, size_t bytes) {
  return planner_->plan(collective, bytes, 0, false).algorithm;
}

}  // namespace tutti
