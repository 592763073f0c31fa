// Running calls together until all are done.
#include "communicator/call_set.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/device_calls.h"
#include "communicator/wait.h"
#include "reduce/cold.h"

namespace tutti {
namespace {

bool same_lane(const GroupCall& a, const GroupCall& b) {
  if (a.communicator != b.communicator) return false;
  const bool a_collective = a.request.call.kind != Collective::send_recv;
  const bool b_collective = b.request.call.kind != Collective::send_recv;
  if (a_collective || b_collective) return a_collective && b_collective;
  return a.request.peer == b.request.peer && a.request.sending == b.request.sending;
}

std::vector<Communicator*> members_of(const std::vector<GroupCall>& calls) {
  std::vector<Communicator*> members;
  for (const GroupCall& call : calls)
    if (std::find(members.begin(), members.end(), call.communicator) == members.end())
      members.push_back(call.communicator);
  return members;
}

// Whether one is the other once more, of a kind that may be kept.
bool is_same_kept(const Request& a, const Request& b) {
  return a.call == b.call && a.input == b.input && a.output == b.output && a.in_place == b.in_place && a.peer == b.peer &&
         a.sending == b.sending && a.terms == b.terms && a.vector_stride == b.vector_stride && a.timeout_ns == b.timeout_ns &&
         a.layout == nullptr && b.layout == nullptr && a.made == nullptr && b.made == nullptr && !a.on_device && !b.on_device &&
         may_be_kept(a.call);
}

// Where the bytes of a collective's buffers lie. (Of a v-form it does not say; nothing goes on beside one.)
class Buffers {
 public:
  explicit Buffers(const GroupCall& call) {
    const Request& request = call.request;
    const Communicator& communicator = *call.communicator;
    const Meaning& kind = meaning(request.call.kind);
    const bool is_root = int(request.call.root) == communicator.rank();
    const size_t blocks = kind.blocks ? size_t(communicator.size()) : 1;
    const auto extent = [&](const std::byte* begin, Part part, size_t before_last_vector) {
      if (part == Part::none || begin == nullptr) return Extent{};
      const size_t elements = request.call.count * (part == Part::all ? blocks : 1) + before_last_vector;
      return Extent{begin, begin + elements * element_bytes(request.call)};
    };
    output_ = extent(request.output, request.in_place ? Part::all : kind.output_of(is_root), 0);
    input_ = extent(request.input, request.in_place ? Part::all : kind.input_of(is_root),
                    (request.terms.inputs - 1) * request.vector_stride);
  }

  bool may_be_used_beside(const Buffers& other) const {
    return !output_.meets(other.output_) && !output_.meets(other.input_) && !input_.meets(other.output_);
  }

 private:
  struct Extent {
    const std::byte *begin = nullptr, *end = nullptr;
    bool meets(const Extent& other) const { return std::less<>()(begin, other.end) && std::less<>()(other.begin, end); }
  };
  Extent input_, output_;
};

// Whose end says no more than that all have come to it. (That of a barrier is to say that what came before it is over.)
bool goes_ahead(Collective kind) { return kind != Collective::send_recv && kind != Collective::barrier; }

Outcome first_failure(std::span<Communicator* const> members) {
  for (const Communicator* member : members)
    if (const Verdict* verdict = member->failure()) return {verdict->code, verdict->sentence};
  return {Code::internal_error, "a group failed without a reason"};
}

}  // namespace

bool to_self(const GroupCall& call) {
  return call.request.call.kind == Collective::send_recv && call.request.peer == call.communicator->rank();
}

// No smaller message goes to memory that is looked at.
constexpr size_t receives_beside_bytes_min = cold_bytes_min;

bool may_be_kept(const Call& call) {
  if (call.kind == Collective::send_recv) return true;
  return call.count < lent_call_bytes_min && call.count * element_bytes(call) < lent_call_bytes_min;
}

// A call may run when the call before it in its lane is done: collectives of a communicator are one lane; so are its
// sends to a peer, and its receives from a peer. It may follow that call, step by step, when all calls up to `after` are done.
struct CallSet::Item {
  GroupCall call;
  int before = -1;  // index of that call, or -1
  int after = -1;   // likewise; `before` where the call is none that may go ahead
  // Of one that takes turns, or -1: of a receive, the send whose messages are made while its own are copied; of a large send, the
  // receive of whose only message parts are copied between those of its own.
  int beside = -1;
  bool begun = false;
  bool done = false;
  bool passed = false;   // as Engine's has_passed()
  bool all_sent = false; // by it and all before it in its lane
  bool planned = false;  // begun in an earlier run
  bool may_lend = false;  // ordinary memory
  bool tries = false;     // of those of its communicator, the first one that has begun: for all of them
  uint32_t scratch_epoch = 0;
  Communicator::TimedWay trial{};  // where it tries
  Operation operation;

  TimeNs timeout_ns() const noexcept { return call.communicator->timeout_ns(call.request); }
};

struct CallSet::SelfCopy {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
  Communicator* communicator;
  Request send;  // for where it lies, and what it comes after
};

CallSet::CallSet(std::vector<GroupCall> calls) : members_(members_of(calls)) {
  take_self_sends(calls);
  items_.resize(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) items_[i].call = std::move(calls[i]);
  find_lanes();
}

CallSet::CallSet() = default;
CallSet::~CallSet() = default;
CallSet::CallSet(CallSet&&) noexcept = default;
CallSet& CallSet::operator=(CallSet&&) noexcept = default;

void CallSet::take(std::span<GroupCall> calls) {
  ordered_ = ordered_ && items_.size() == calls.size();
  items_.resize(calls.size());
  members_.clear();
  for (size_t i = 0; i < calls.size(); ++i) {
    Item& item = items_[i];
    GroupCall& call = calls[i];
    const bool is_same = item.call.communicator == call.communicator && is_same_kept(item.call.request, call.request);
    ordered_ = ordered_ && is_same;
    item.planned = item.planned && is_same;
    item.call = std::move(call);
    if (std::find(members_.begin(), members_.end(), item.call.communicator) == members_.end())
      members_.push_back(item.call.communicator);
  }
  find_lanes();
}

size_t CallSet::size() const noexcept { return items_.size(); }
const GroupCall& CallSet::call(size_t i) const noexcept { return items_[i].call; }

void CallSet::find_lanes() {
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].call.request.beside_others = items_.size() > 1;
    items_[i].before = items_[i].beside = -1;
    for (size_t j = i; j-- > 0;)
      if (same_lane(items_[j].call, items_[i].call)) {
        items_[i].before = int(j);
        break;
      }
  }
}

// Those that may go ahead are found by their buffers: nothing that a call reads or writes is written by one that goes on
// beside it. So many go at once that others' messages have room, and that their operations stay in a cache.
void CallSet::find_order() noexcept {
  constexpr size_t together_max = 16;
  sends_ahead_ = false;
  for (size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    item.after = item.before;
    const Request& request = item.call.request;
    if (item.before < 0 || !goes_ahead(request.call.kind) || !item.call.communicator->may_begin_beside(request)) continue;
    const Buffers mine(item.call);
    int since = item.before;
    for (size_t n = 1; n < together_max && since >= 0; ++n, since = items_[size_t(since)].before) {
      const GroupCall& other = items_[size_t(since)].call;
      // What is called after a barrier may read what others wrote before it.
      if (other.request.call.kind == Collective::barrier || !mine.may_be_used_beside(Buffers(other))) break;
    }
    item.after = since;
    sends_ahead_ = sends_ahead_ || item.after != item.before;
  }
  ordered_ = true;
}

// The k-th send of a rank to itself meets its k-th receive from itself: both leave `calls`, and are a copy.
void CallSet::take_self_sends(std::vector<GroupCall>& calls) {
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
    const Request &send = first.sending ? first : second, &recv = first.sending ? second : first;
    if (send.call != recv.call)
      throw Error(Code::mismatch, fmt::format("rank {} sends itself {} and receives {} from itself", rank,
                                              describe(send.call), describe(recv.call)));
    Request kept = send.on_device ? send : recv;
    copies_.push_back({send.input, recv.output, send.call.count * element_bytes(send.call), calls[i].communicator,
                       std::move(kept)});
    calls.erase(other);
    calls.erase(calls.begin() + long(i));
  }
}

// done: all items are; failed: one did; again: none could move on.
Status CallSet::look() noexcept {
  for (;;) {
    const uint64_t before = take_turns_ ? position() : ~uint64_t{0};
    if (sends_ahead_)
      for (Communicator* member : members_) member->hold_small(true);
    const Status status = look_once();
    if (sends_ahead_)
      for (Communicator* member : members_) member->hold_small(false);
    if (status != Status::again || !take_turns_ || position() == before) return status;
  }
}

// again: what it comes after has not passed. (Not inlined, it costs 20 instructions a call.)
[[gnu::always_inline]] inline Status CallSet::begin(Item& item) noexcept {
  Communicator& communicator = *item.call.communicator;
  const Status may = communicator.may_begin(item.call.request);
  if (may != Status::done) return may;
  if (!item.planned) item.may_lend = communicator.may_lend_beside(item.call.request);
  if (item.may_lend) [[unlikely]] item.call.request.lends = lends(item);
  if (!item.planned || !communicator.begin_again(item.operation, item.scratch_epoch, item.may_lend, item.call.request.lends)) {
    if (!communicator.begin(item.operation, item.call.request)) return Status::failed;
    item.planned = !communicator.makes_its_input(item.call.request) && !item.call.request.on_device &&
                   !communicator.goes_by_peers(item.call.request) &&
                   !communicator.may_go_by_shared_memory(item.call.request) &&
                   !communicator.may_copy_by_kernel(item.call.request);
    item.scratch_epoch = communicator.scratch_epoch();
  }
  item.begun = true;
  if (item.operation.work().takes_turns) [[unlikely]] {
    take_turns_ = true;
    const Work& work = item.operation.work();
    const bool may_receive_beside = work.count * work.element_bytes >= receives_beside_bytes_min && work.device == nullptr;
    if (!item.call.request.sending || may_receive_beside) item.beside = find_beside(item);
  }
  return Status::done;
}

// The send that a receive takes turns with, or the receive that a send does: of the same peer, if one is left, else the first; -1: none.
int CallSet::find_beside(const Item& item) const noexcept {
  int found = -1;
  for (size_t i = 0; i < items_.size(); ++i) {
    const GroupCall& other = items_[i].call;
    if (other.communicator != item.call.communicator || other.request.sending == item.call.request.sending || items_[i].done) continue;
    if (!other.request.sending && other.request.call.kind != Collective::send_recv) continue;
    if (other.request.peer == item.call.request.peer) return int(i);
    if (found < 0) found = int(i);
  }
  return found;
}

Status CallSet::progress_beside(Item& item) noexcept {
  if (items_[size_t(item.beside)].done) item.beside = find_beside(item);
  Work& work = item.operation.work_of_restart();
  Operation*& beside = item.call.request.sending ? work.receives_beside : work.sends_beside;
  if (item.beside >= 0) {
    Item& other = items_[size_t(item.beside)];
    if (item.call.request.sending && !other.begun && is_over(other.before) && begin(other) == Status::failed) return Status::failed;
    if (other.begun && other.operation.work().takes_turns) beside = &other.operation;
  }
  const Status status = item.call.communicator->progress(item.operation);
  beside = nullptr;
  return status;
}

// All that may of a communicator do as one.
bool CallSet::lends(Item& item) noexcept {
  Communicator& communicator = *item.call.communicator;
  const auto is_mine = [&](const Item& other) { return other.call.communicator == &communicator; };
  for (const Item& other : items_)
    if (other.tries && is_mine(other)) return other.trial.way.lends;
  const bool leads = std::none_of(items_.begin(), items_.end(), [&](const Item& other) {
    const Request& request = other.call.request;
    return is_mine(other) && request.call.kind == Collective::send_recv && !request.sending && request.peer < communicator.rank();
  });
  item.trial = communicator.begin_sends(item.call.request, leads);
  item.tries = tries_ = true;
  return item.trial.way.lends;
}

void CallSet::end_trials() noexcept {
  for (Item& item : items_)
    if (std::exchange(item.tries, false)) item.call.communicator->end_lending(item.trial);
  tries_ = false;
}

Status CallSet::look_once() noexcept {
  bool all_done = true;
  for (Item& item : items_) {
    if (item.done) continue;
    if (!is_over(item.before)) {
      all_done = false;
      if (look_ahead(item) == Status::failed) return Status::failed;
      continue;
    }
    if (!item.begun) {
      const Status begun = begin(item);
      if (begun == Status::failed) return Status::failed;
      if (begun == Status::again) {
        all_done = false;
        continue;
      }
    }
    const Status status = item.beside < 0 ? item.call.communicator->progress(item.operation) : progress_beside(item);
    if (status == Status::failed) return Status::failed;
    item.done = status == Status::done;
    item.passed = sends_ahead_ && !item.done && item.call.communicator->has_passed(item.operation);
    if (item.done) item.call.request.entry.reset();
    all_done = all_done && item.done;
  }
  return all_done ? Status::done : Status::again;
}

// For those that come after it.
bool CallSet::is_over(int i) const noexcept { return i < 0 || items_[size_t(i)].done || items_[size_t(i)].passed; }

// Of a call whose turn has not come. Not failed: it has come as far as it may by now.
Status CallSet::look_ahead(Item& item) noexcept {
  if (item.after == item.before || !is_over(item.after)) return Status::again;
  Item& before = items_[size_t(item.before)];
  if (!before.begun) return Status::again;
  if (!item.begun && begin(item) == Status::failed) return Status::failed;
  Communicator& communicator = *item.call.communicator;
  const bool others_sent = is_over(before.before) || items_[size_t(before.before)].all_sent;
  before.all_sent = before.all_sent || (others_sent && communicator.has_sent(before.operation));
  return communicator.follow(item.operation, before.operation, before.all_sent);
}

// Changes when something has moved.
uint64_t CallSet::position() const noexcept {
  uint64_t sum = 0;
  for (const Item& item : items_)
    if (item.begun) sum += 1 + item.call.communicator->position(item.operation);
  return sum;
}

bool CallSet::may_run_at_once() const noexcept {
  constexpr size_t calls_max = 16;
  size_t room = Communicator::bytes_begun_now_max;
  for (const SelfCopy& copy : copies_) {
    if (!copy.communicator->idle() || copy.bytes > room) return false;
    room -= copy.bytes;
  }
  return items_.size() <= calls_max && std::all_of(items_.begin(), items_.end(), [&](const Item& item) {
    return item.call.communicator->may_begin_now(item.call.request, room);
  });
}

bool CallSet::ran_at_once(const CallStream& stream) {
  if (stream.is_none() || stream.is_device() || !stream.host->idle() || !may_run_at_once()) return false;
  const std::optional<Outcome> outcome = try_run();
  if (outcome) stream.host->note(*outcome);
  return outcome.has_value();
}

// False: a communicator has failed. (Not inlined, these cost 40 instructions a run.)
[[gnu::always_inline]] inline bool CallSet::begin_run() {
  for (Item& item : items_) item.begun = item.done = item.passed = item.all_sent = false;
  for (const Communicator* member : members_)
    if (member->failure() != nullptr) return false;
  try {
    if (!copy_own()) return false;
  } catch (const Error& error) {
    members_[0]->fail(error.code(), error.what());
    return false;
  }
  if (!ordered_) find_order();
  take_turns_ = false;
  running_ = true;
  return true;
}

[[gnu::always_inline]] inline Outcome CallSet::end_run(WaitResult result) {
  running_ = false;
  if (tries_) [[unlikely]] end_trials();
  if (result == WaitResult::done) return {};
  return end_in_failure(result);
}

Outcome CallSet::end_in_failure(WaitResult result) {
  if (result == WaitResult::expired) expire();
  Outcome outcome = leave_undone();
  for (Communicator* member : members_)
    if (member->failure() != nullptr) member->let_go();
  return outcome;
}

// Some communicator has failed. Others fail with it, unless their calls are over: peers would go on with them, and with memory that is its
// owner's again once the run has returned, or take this rank's next calls for them.
Outcome CallSet::leave_undone() {
  Outcome outcome = first_failure(members_);
  for (const Item& item : items_)
    if (!item.done && item.call.communicator->failure() == nullptr)
      item.call.communicator->leave(item.call.request, outcome.sentence);
  return outcome;
}

std::optional<Outcome> CallSet::try_run() {
  if (!begin_run()) return leave_undone();
  Status status = look();
  if (std::any_of(members_.begin(), members_.end(), [](const auto* member) { return member->patience().spin_ns == 0; })) {
    status = look_after_turns(status, [&] { return look(); });
  } else {
    if (status == Status::again) status = linger();
    constexpr int looks_max = 100;
    for (int i = 0; status == Status::again && i < looks_max; ++i) {
      cpu_relax();
      status = look();
    }
  }
  if (status == Status::again) return std::nullopt;
  return end_run(status == Status::done ? WaitResult::done : WaitResult::failed);
}

Outcome CallSet::run() {
  if (!running_ && !begin_run()) return leave_undone();
  if (items_.empty()) return end_run(WaitResult::done);
  Status status = look();
  if (status == Status::again) status = linger();
  if (status == Status::done) return end_run(WaitResult::done);
  return end_run(drive(members_, [&] { return timeout_ns(); }, [&] { return look(); }, [&] { return position(); },
                       [&](Stall stall) {
                         if (stall == Stall::waits) tell_waiting();
                         else tell_stuck();
                       }));
}

// Where one is left, as of a send and a receive once the message is sent.
Status CallSet::linger() noexcept {
  Item* left = nullptr;
  for (Item& item : items_) {
    if (item.done) continue;
    if (left != nullptr) return Status::again;
    left = &item;
  }
  if (left == nullptr || !left->begun) return Status::again;
  Item& item = *left;
  const Status status = item.call.communicator->linger_at(item.operation);
  item.done = status == Status::done;
  if (item.done) item.call.request.entry.reset();
  return status;
}

// False: a communicator has failed.
bool CallSet::copy_own() {
  for (SelfCopy& copy : copies_) {
    if (!copy.communicator->await_begin(copy.send)) return false;
    if (copy.bytes == 0) continue;
    if (copy.send.on_device) copy.communicator->copy_on_device(copy.send.entry.get(), copy.to, copy.from, copy.bytes);
    else std::memmove(copy.to, copy.from, copy.bytes);
    copy.send.entry.reset();
  }
  return true;
}

void CallSet::enter(const CallStream& stream) {
  for (Item& item : items_) tutti::enter(item.call.request, *item.call.communicator, stream);
  for (SelfCopy& copy : copies_) tutti::enter(copy.send, *copy.communicator, stream);
}

// The least of those that still run or wait for their turn.
TimeNs CallSet::timeout_ns() const noexcept {
  TimeNs least = std::numeric_limits<TimeNs>::max();
  for (const Item& item : items_)
    if (!item.done) least = std::min(least, item.timeout_ns());
  return least;
}

// Of each communicator, of the first collective that has begun and not ended: all before it have, and others wait for it.
void CallSet::tell_waiting() noexcept {
  for (Communicator* member : members_) {
    const Item* first = nullptr;
    uint64_t begun_since = 0;
    for (const Item& item : items_) {
      if (item.call.communicator != member || !item.begun || item.call.request.call.kind == Collective::send_recv) continue;
      if (first != nullptr) ++begun_since;
      else if (!item.done) first = &item;
    }
    if (first != nullptr) member->tell_waiting(first->operation, begun_since);
  }
}

// Of each communicator, of a receive that has not ended, where its others are receives, too, or sends that have; or of its only call.
void CallSet::tell_stuck() noexcept {
  for (Communicator* member : members_) {
    const Item* first = nullptr;
    size_t calls = 0;
    bool all_tell = true;
    for (const Item& item : items_) {
      if (item.call.communicator != member) continue;
      ++calls;
      const bool receives = item.call.request.call.kind == Collective::send_recv && !item.call.request.sending;
      if (first == nullptr && item.begun && !item.done) first = &item;
      all_tell = all_tell && (receives || item.done);
    }
    if (first != nullptr && (all_tell || calls == 1)) member->tell_stuck(first->operation);
  }
}

// A call whose time is over before its turn came is told of by the call that it waits for.
void CallSet::expire() noexcept {
  const TimeNs passed = timeout_ns();
  for (const Item& item : items_) {
    if (item.done || item.timeout_ns() > passed) continue;
    const Item* running = &item;
    while (running->before >= 0 && !items_[size_t(running->before)].done)
      running = &items_[size_t(running->before)];
    if (running->begun) running->call.communicator->expire(running->operation, passed);
    else running->call.communicator->expire_before(running->call.request, passed);
  }
}

}  // namespace tutti
