// Running calls together, on the calling thread or on streams.
#include "communicator/group.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/device_calls.h"

namespace tutti {
namespace {

// One job: the calls of a group that share a stream, or that run on the calling thread, with their places in their
// communicators' orders.
struct GroupJob {
  CallStream stream;  // none: they run on the calling thread
  std::vector<GroupCall> calls;
  std::vector<std::pair<Communicator*, uint64_t>> turns;
  std::optional<CallSet> set;  // of `calls`: of a group once it is entered, of a call by itself when it runs

  // On the calling thread, before it is run anywhere. Throws Error, and then it is not to be run.
  void enter() {
    for (GroupCall& call : calls) {
      if (call.stream.is_device()) (void)device_call_stream(call.stream.device);  // also now, at the group's end
      tutti::enter(call.request, *call.communicator, call.stream);
    }
    set.emplace(calls);
  }
  Stream& queue() const { return stream.is_device() ? calls[0].communicator->device_side()->worker() : *stream.host; }
  // What is put on the stream from now on comes after it.
  void hold() const {
    if (!stream.is_device()) return;
    for (const auto& [communicator, ticket] : turns) communicator->device_side()->hold(stream.device, ticket);
  }

  // Of a job that has no turns yet.
  bool ran_at_once() { return set->ran_at_once(stream); }

  Outcome run() {
    for (const auto& [communicator, ticket] : turns) communicator->await_turn(ticket);
    Outcome outcome;
    try {
      if (!set) set.emplace(std::move(calls));
      outcome = set->run();
    } catch (const Error& error) {
      outcome = {error.code(), error.what()};
    } catch (const std::exception& error) {
      outcome = {Code::internal_error, error.what()};
    }
    for (const auto& [communicator, ticket] : turns) communicator->end_turn();
    return outcome;
  }
};

// The stream of the job that a call is of.
CallStream job_stream(const CallStream& stream) { return runs_elsewhere(stream) ? stream : CallStream{}; }

}  // namespace

bool KeptGroup::suits(std::span<const GroupCall> calls) noexcept {
  if (calls.empty() || calls.size() > calls_max) return false;
  return std::all_of(calls.begin(), calls.end(), [&](const GroupCall& call) {
    return call.communicator == calls[0].communicator && call.stream.is_none() && !call.request.on_device && !to_self(call);
  });
}

Outcome KeptGroup::run(std::span<GroupCall> calls) {
  Communicator& communicator = *calls[0].communicator;
  // What was planned for a communicator does not outlive it.
  if (life_.expired()) set_ = {};
  known_.clear();
  const bool is_another = set_.members().empty() || set_.members()[0] != &communicator;
  set_.take(calls);
  if (is_another) life_ = communicator.life();
  know_calls();
  return run_set(communicator);
}

Outcome KeptGroup::run_noted() {
  noted_ = 0;
  return run_set(*set_.members()[0]);
}

Outcome KeptGroup::run_set(Communicator& communicator) {
  const bool in_turn = !communicator.idle();
  if (in_turn) communicator.await_turn(communicator.take_ticket());
  running_ = true;
  Outcome outcome = set_.run();
  running_ = false;
  if (in_turn) communicator.end_turn();
  return outcome;
}

bool KeptGroup::begins_with(const GroupCall& call) const noexcept {
  if (set_.size() == 0 || life_.expired()) return false;
  const GroupCall& first = set_.call(0);
  return first.communicator == call.communicator && first.request.call == call.request.call &&
         first.request.input == call.request.input && first.request.output == call.request.output;
}

KeptGroup* KeptGroups::place_for(std::span<const GroupCall> calls) {
  while (groups_.size() < groups_max) groups_.push_back(std::make_unique<KeptGroup>());
  for (const auto& group : groups_)
    if (!group->running() && group->begins_with(calls[0])) return now_ = group.get();
  for (size_t i = 0; i < groups_max; ++i) {
    KeptGroup* const oldest = groups_[oldest_++ % groups_max].get();
    if (!oldest->running()) return now_ = oldest;
  }
  return nullptr;
}

bool KeptGroups::note_in_other(const KeptGroup::KnownCall& call) noexcept {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) { return group->note(call); });
  if (found == groups_.end()) return false;
  now_ = found->get();
  return true;
}

void KeptGroup::know_calls() {
  noted_ = 0;
  known_.reserve(set_.size());  // all of them are known, or none
  for (size_t i = 0; i < set_.size(); ++i) {
    const GroupCall& call = set_.call(i);
    const Request& request = call.request;
    if (!may_be_kept(request.call) || request.call.type == DataType::opaque || request.terms != Terms{} ||
        request.timeout_ns != 0 || request.layout != nullptr || request.made != nullptr)
      return known_.clear();
    const Call key = call.communicator->key_of(request);
    KnownCall known{call.communicator, request.input, request.output, key.count, key.kind, key.type, key.op, key.root};
    const Meaning& kind = meaning(key.kind);
    if (request.in_place && kind.blocks) {
      const bool is_root = int(key.root) == call.communicator->rank();
      const size_t own = size_t(call.communicator->rank()) * key.count * element_bytes(key);
      if (kind.input_of(is_root) == Part::own) known.send = request.input + own;
      if (kind.output_of(is_root) == Part::own) known.recv = request.output + own;
    }
    known_.push_back(known);
  }
}

void KeptGroup::write_down(std::vector<GroupCall>& calls) {
  for (size_t i = 0; i < noted_; ++i) calls.push_back(set_.call(i));
  noted_ = 0;
}

Outcome run_group(std::span<GroupCall> calls, KeptGroups& kept) {
  KeptGroup* const place = KeptGroup::suits(calls) ? kept.place_for(calls) : nullptr;
  if (place != nullptr) return place->run(calls);
  std::vector<std::pair<CallStream, std::shared_ptr<GroupJob>>> jobs;
  std::vector<std::pair<Communicator*, CallStream>> used;  // with the calls' own streams
  for (const GroupCall& call : calls) {
    const auto before = std::find_if(used.begin(), used.end(), [&](auto& u) { return u.first == call.communicator; });
    if (before == used.end()) used.emplace_back(call.communicator, call.stream);
    else if (before->second != call.stream)
      throw Error(Code::invalid_usage,
                  fmt::format("rank {} uses two streams in one group", call.communicator->rank()));
  }
  for (GroupCall& call : calls) {
    const CallStream stream = job_stream(call.stream);
    auto job = std::find_if(jobs.begin(), jobs.end(), [&](auto& j) { return j.first == stream; });
    if (job == jobs.end()) job = jobs.insert(jobs.end(), {stream, std::make_shared<GroupJob>()});
    job->second->stream = stream;
    job->second->calls.push_back(std::move(call));
  }
  for (auto& [stream, job] : jobs) job->enter();
  if (jobs.size() == 1 && jobs[0].second->ran_at_once()) return {};
  for (const auto& [communicator, stream] : used)
    for (auto& [their_stream, job] : jobs)
      if (their_stream == job_stream(stream)) job->turns.emplace_back(communicator, communicator->take_ticket());
  Outcome outcome;
  for (auto& [stream, job] : jobs)
    if (!stream.is_none()) job->queue().enqueue([job = job] { return job->run(); });
  for (auto& [stream, job] : jobs) job->hold();
  for (auto& [stream, job] : jobs)
    if (stream.is_none()) outcome = job->run();
  return outcome;
}

namespace {

// A small call, as GroupJob::ran_at_once(), but without what a group needs memory for.
void begin_now(Communicator& communicator, const Request& request, Stream& stream) {
  const auto outcome_of = [](const Communicator& ended, Code code) {
    return code == Code::success ? Outcome{} : Outcome{code, ended.failure()->sentence};
  };
  Code code;
  Operation* const begun = communicator.begin_now(request, code);
  if (begun == nullptr) return stream.note(outcome_of(communicator, code));
  stream.enqueue([=, &communicator, ticket = communicator.take_ticket()] {
    communicator.await_turn(ticket);
    const Outcome outcome = outcome_of(communicator, communicator.end(*begun));
    communicator.end_turn();
    return outcome;
  });
}

}  // namespace

void enqueue(GroupCall call) {
  size_t room = Communicator::bytes_begun_now_max;
  if (!call.stream.is_device() && call.stream.host->idle() && call.communicator->may_begin_now(call.request, room))
    return begin_now(*call.communicator, call.request, *call.stream.host);
  auto job = std::make_shared<GroupJob>();
  job->stream = call.stream;
  tutti::enter(call.request, *call.communicator, call.stream);
  job->turns.emplace_back(call.communicator, call.communicator->take_ticket());
  job->calls.push_back(std::move(call));
  job->queue().enqueue([job] { return job->run(); });
  job->hold();
}

std::vector<std::unique_ptr<Communicator>> join_together(const std::vector<GroupJoin>& joins) {
  std::vector<std::unique_ptr<Communicator>> made(joins.size());
  std::vector<std::exception_ptr> errors(joins.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < joins.size(); ++i)
    threads.emplace_back([&, i]() noexcept {
      try {
        made[i] = joins[i].make();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  threads.clear();  // waits for all
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return made;
}

}  // namespace tutti
