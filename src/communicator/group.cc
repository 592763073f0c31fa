// Running calls together, on the calling thread or on streams.
#include "communicator/group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/wait.h"

namespace tutti {
namespace {

// One call of a running group. It may begin when the call before it in its lane is done: collectives of a communicator
// are one lane; so are its sends to a peer, and its receives from a peer.
struct Item {
  GroupCall call;
  int before = -1;  // index of that call, or -1
  bool begun = false;
  bool done = false;
  Operation operation;
};

bool same_lane(const GroupCall& a, const GroupCall& b) {
  if (a.communicator != b.communicator) return false;
  const bool a_collective = a.request.call.kind != Collective::send_recv;
  const bool b_collective = b.request.call.kind != Collective::send_recv;
  if (a_collective || b_collective) return a_collective && b_collective;
  return a.request.peer == b.request.peer && a.request.sending == b.request.sending;
}

bool to_self(const GroupCall& call) {
  return call.request.call.kind == Collective::send_recv && call.request.peer == call.communicator->rank();
}

void copy_to_self(const Request& send, const Request& recv, int rank) {
  if (send.call != recv.call)
    throw Error(Code::mismatch, fmt::format("rank {} sends itself {} and receives {} from itself", rank,
                                            describe(send.call), describe(recv.call)));
  const size_t bytes = send.call.count * element_bytes(send.call.type);
  if (bytes != 0) std::memmove(recv.output, send.input, bytes);
}

// The k-th send of a rank to itself meets its k-th receive from itself: copies, and takes both out of `calls`.
void run_self_sends(std::vector<GroupCall>& calls) {
  for (size_t i = 0; i < calls.size();) {
    if (!to_self(calls[i])) {
      ++i;
      continue;
    }
    const auto other = std::find_if(calls.begin() + long(i) + 1, calls.end(), [&](const GroupCall& c) {
      return to_self(c) && c.communicator == calls[i].communicator &&
             c.request.sending != calls[i].request.sending;
    });
    const int rank = calls[i].communicator->rank();
    if (other == calls.end())
      throw Error(Code::invalid_usage, fmt::format("rank {} {} itself in this group without the {}", rank,
                                                   calls[i].request.sending ? "sends to" : "receives from",
                                                   calls[i].request.sending ? "receive" : "send"));
    const Request &first = calls[i].request, &second = other->request;
    copy_to_self(first.sending ? first : second, first.sending ? second : first, rank);
    calls.erase(other);
    calls.erase(calls.begin() + long(i));
  }
}

std::vector<Item> items_of(std::vector<GroupCall> calls) {
  std::vector<Item> items(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    items[i].call = std::move(calls[i]);
    for (size_t j = i; j-- > 0;)
      if (same_lane(items[j].call, items[i].call)) {
        items[i].before = int(j);
        break;
      }
  }
  return items;
}

// One look over all items. done: all are; failed: one did.
Status look_at(std::vector<Item>& items) noexcept {
  bool all_done = true;
  for (Item& item : items) {
    if (item.done) continue;
    if (item.before >= 0 && !items[size_t(item.before)].done) {
      all_done = false;
      continue;
    }
    if (!item.begun) {
      if (!item.call.communicator->begin(item.operation, item.call.request)) return Status::failed;
      item.begun = true;
    }
    const Status status = item.call.communicator->progress(item.operation);
    if (status == Status::failed) return Status::failed;
    item.done = status == Status::done;
    all_done = all_done && item.done;
  }
  return all_done ? Status::done : Status::again;
}

std::vector<Communicator*> members_of(const std::vector<GroupCall>& calls) {
  std::vector<Communicator*> members;
  for (const GroupCall& call : calls)
    if (std::find(members.begin(), members.end(), call.communicator) == members.end())
      members.push_back(call.communicator);
  return members;
}

Outcome first_failure(std::span<Communicator* const> members) {
  for (const Communicator* member : members)
    if (const Verdict* verdict = member->failure()) return {verdict->code, verdict->sentence};
  return {Code::internal_error, "a group failed without a reason"};
}

// One job: the calls of a group that share a stream, with their places in their communicators' orders.
struct GroupJob {
  std::vector<GroupCall> calls;
  std::vector<std::pair<Communicator*, uint64_t>> turns;

  Outcome run() {
    for (const auto& [communicator, ticket] : turns) communicator->await_turn(ticket);
    Outcome outcome;
    try {
      outcome = run_together(std::move(calls));
    } catch (const Error& error) {
      outcome = {error.code(), error.what()};
    } catch (const std::exception& error) {
      outcome = {Code::internal_error, error.what()};
    }
    for (const auto& [communicator, ticket] : turns) communicator->end_turn();
    return outcome;
  }
};

}  // namespace

Outcome run_together(std::vector<GroupCall> calls) {
  run_self_sends(calls);
  if (calls.empty()) return {};
  const std::vector<Communicator*> members = members_of(calls);
  for (const Communicator* member : members)
    if (member->failure() != nullptr) return first_failure(members);
  std::vector<Item> items = items_of(std::move(calls));
  const WaitResult result = drive(members, [&] { return look_at(items); });
  if (result == WaitResult::done) return {};
  if (result == WaitResult::expired)
    for (Item& item : items)
      if (item.begun && !item.done) item.call.communicator->expire(item.operation);
  return first_failure(members);
}

Outcome run_group(std::vector<GroupCall> calls) {
  std::vector<std::pair<Stream*, std::shared_ptr<GroupJob>>> jobs;
  std::vector<std::pair<Communicator*, Stream*>> used;
  for (const GroupCall& call : calls) {
    const auto before = std::find_if(used.begin(), used.end(), [&](auto& u) { return u.first == call.communicator; });
    if (before == used.end()) used.emplace_back(call.communicator, call.stream);
    else if (before->second != call.stream)
      throw Error(Code::invalid_usage,
                  fmt::format("rank {} uses two streams in one group", call.communicator->rank()));
  }
  for (GroupCall& call : calls) {
    auto job = std::find_if(jobs.begin(), jobs.end(), [&](auto& j) { return j.first == call.stream; });
    if (job == jobs.end()) job = jobs.insert(jobs.end(), {call.stream, std::make_shared<GroupJob>()});
    job->second->calls.push_back(call);
  }
  for (const auto& [communicator, stream] : used)
    for (auto& [job_stream, job] : jobs)
      if (job_stream == stream) job->turns.emplace_back(communicator, communicator->take_ticket());
  Outcome outcome;
  for (auto& [stream, job] : jobs)
    if (stream != nullptr) stream->enqueue([job = job] { return job->run(); });
  for (auto& [stream, job] : jobs)
    if (stream == nullptr) outcome = job->run();
  return outcome;
}

void enqueue(GroupCall call) {
  Stream* const stream = call.stream;
  auto job = std::make_shared<GroupJob>();
  job->turns.emplace_back(call.communicator, call.communicator->take_ticket());
  job->calls.push_back(std::move(call));
  stream->enqueue([job] { return job->run(); });
}

std::vector<std::unique_ptr<Communicator>> join_together(const std::vector<GroupJoin>& joins) {
  std::vector<std::unique_ptr<Communicator>> made(joins.size());
  std::vector<std::exception_ptr> errors(joins.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < joins.size(); ++i)
    threads.emplace_back([&, i]() noexcept {
      try {
        made[i] = Communicator::join(joins[i].id, joins[i].rank, joins[i].size, joins[i].options);
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
