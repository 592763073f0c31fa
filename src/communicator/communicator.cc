// Running calls: admission, plans, scratch memory, waiting.
#include "communicator/communicator.h"

#include <algorithm>
#include <new>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "communicator/c_api.h"
#include "communicator/wait.h"
#include "memory/preloaded_heap.h"
#include "reduce/copy.h"
#include "reduce/exact.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

constexpr size_t scratch_alignment = 64;
// How long what has failed is waited for on a device: what stands before it there may take its time.
constexpr TimeNs drain_ns_max = 10 * ns_per_s;
// How long a call that has failed waits for a peer to leave its memory: a peer that runs needs a small part of that.
constexpr TimeNs stuck_peer_ns_max = 100 * ns_per_ms;
// Where no rank knows all sizes, all must choose as for one size.
constexpr size_t pair_bytes_assumed = size_t{64} << 10;

// A send that stands alone ends when all of it is copied, before its receiver comes if there is room. For so many bytes there is
// none, but where caches are very large, so it waits for its receiver anyway; and he alone copies it sooner than both do, one
// after the other, while a cache may hold two like it.
constexpr size_t lone_send_lent_bytes_min = size_t{4} << 20;
static_assert(Repeat::bytes_max < lone_send_lent_bytes_min);

// What is larger goes in several messages.
constexpr size_t reduced_at_leisure_bytes_max = size_t{64} << 10;

bool lends_lone_send(size_t bytes, const Plan& plan) {
  return bytes >= lone_send_lent_bytes_min && bytes < plan.uncached_bytes_min / 2;
}

// Where the call's memory is the library's own, or libtutti_malloc.so's, ranks of one host read it where it lies.
const LentRegion* region_of(const std::byte* data) noexcept {
  const auto block = data == nullptr ? nullptr : process_memory().find(data, 1);
  if (block != nullptr && block->region->is_taken_back()) return nullptr;
  return block != nullptr ? &block->region->lent() : data == nullptr ? nullptr : preloaded_region(data);
}

}  // namespace

void Communicator::ScratchDeleter::operator()(std::byte* p) const noexcept {
  ::operator delete(p, std::align_val_t(scratch_alignment));
}

Communicator::~Communicator() {
  windows_.clear();
  leave();
  bootstrap_->compare_calls({});  // what it would ask ends before it does
  // The control thread may end before it has told of the verdict.
  if (const Verdict* verdict = failure()) recorder_->write_record_of_failure(verdict->sentence);
}

Code Communicator::run(const Request& request) noexcept {
  if (failure() != nullptr) return failure()->code;
  if (request.entry != nullptr && !await_begin(request)) [[unlikely]] return failure()->code;
  Repeat* const repeat = place_to_repeat(request);
  if (repeat != nullptr) repeat->mode = Repeat::Mode::none;
  Operation& operation = repeat != nullptr ? repeat->operation : operation_;
  if (!begin(operation, request)) {
    let_go();
    return failure()->code;
  }
  if (repeat != nullptr && by_shared_memory_ == nullptr) remember(*repeat, request);
  if (request.timeout_ns > 0 || request.on_device || by_peers_ != nullptr || by_shared_memory_ != nullptr)
    return wait_for(operation, timeout_ns(request));
  const Status at_once = recorder_->tracing() ? Status::again : engine_->progress(operation);
  if (at_once == Status::done) give_way(request.call.kind, operation.work().bytes());
  const Code code = finish(operation, at_once);
  if (watched_.operation != nullptr && code == Code::success) [[unlikely]] end_watching(operation);
  return code;
}

bool Communicator::may_begin_now(const Request& request, size_t& room) noexcept {
  if (request.layout != nullptr || request.call.count > room || !idle()) return false;
  const size_t bytes = buffer_bytes(request.call, nullptr);
  if (bytes > room) return false;
  room -= bytes;
  return place_to_repeat(request) != nullptr;
}

Operation* Communicator::begin_now(const Request& request, Code& code) noexcept {
  code = Code::success;
  Repeat& repeat = *place_to_repeat(request);
  repeat.mode = Repeat::Mode::none;
  if (!begin(repeat.operation, request)) {
    let_go();
    code = failure()->code;
    return nullptr;
  }
  if (by_shared_memory_ == nullptr) remember(repeat, request);
  Status status = progress(repeat.operation);
  if (patience_.spin_ns == 0) status = look_after_turns(status, [&] { return progress(repeat.operation); });
  else if (status == Status::again) status = linger_at(repeat.operation);
  return status == Status::done ? nullptr : &repeat.operation;
}

Code Communicator::run_again(Repeat& repeat, const std::byte* input, std::byte* output) noexcept {
  if (failure() != nullptr) [[unlikely]] return failure()->code;
  recorder_->again(repeat.operation.work().signature);
  const Status status = engine_->restart(repeat.operation, input, output);
  return status == Status::done ? Code::success : finish(repeat.operation, status);
}

Code Communicator::run_large_again(Repeat& repeat, const std::byte* input, std::byte* output) noexcept {
  if (failure() != nullptr) return failure()->code;
  if (repeat.asks_shared_path) shared_path_->tries(repeat.call);  // it says no, and counts that
  Work& work = repeat.operation.work_of_restart();
  recorder_->again(work.signature);
  work.input = input;
  work.output = output;
  const bool is_lone_send = repeat.call.kind == Collective::send_recv && input != nullptr;  // too small to be lent
  if (!is_lone_send) find_regions(work);
  copy_by_kernel(repeat.operation, work, repeat.call, is_lone_send);
  const Status at_once = engine_->restart_elsewhere(repeat.operation);
  if (at_once == Status::done) give_way(repeat.call.kind, work.bytes());
  const Code code = finish(repeat.operation, at_once);
  if (watched_.operation != nullptr && code == Code::success) end_watching(repeat.operation);
  return code;
}

// Null: it is too large, or goes by a way of its own and has no plan here that could start again.
Repeat* Communicator::place_to_repeat(const Request& request) noexcept {
  if (recorder_->tracing() || request.on_device || goes_by_peers(request) || request.made != nullptr ||
      request.terms != Terms{} || request.timeout_ns != 0)
    return nullptr;
  const Call& call = request.call;
  if ((request.layout != nullptr ? request.layout->elements : call.count) > Repeat::bytes_max) return nullptr;
  const size_t bytes = buffer_bytes(call, request.layout.get());
  if (bytes < lent_bytes_min_of(call)) return may_go_by_shared_memory(request) ? nullptr : &repeats_.place_for(key_of(request));
  if (bytes > Repeat::bytes_max) return nullptr;
  return &large_repeats_.place_for(key_of(request));
}

// What a v-form is known by: the elements of all that the rank sends; of its own block, where it sends that or nothing.
size_t Communicator::count_of_v_form(const Layout& layout, const Call& call) const noexcept {
  const Part input = meaning(call.kind).input_of(int(call.root) == rank_);
  if (input != Part::all) return (input == Part::own ? layout.input : layout.output).sizes[size_t(rank_)];
  return std::accumulate(layout.input.sizes.begin(), layout.input.sizes.end(), size_t{0});
}

void Communicator::remember(Repeat& repeat, const Request& request) {
  const Call& call = request.call;
  const Meaning& kind = meaning(call.kind);
  const bool is_root = int(call.root) == rank_;
  const size_t width = element_bytes(call), me = size_t(rank_);
  const Layout* const layout = request.layout.get();
  const auto bytes_of = [&](Part part, const BlockLayout& blocks) {
    if (layout != nullptr) return (part == Part::own && !request.in_place ? blocks.sizes[me] : blocks.end()) * width;
    return call.count * width * (kind.blocks && part == Part::all ? size_t(size_) : 1);
  };
  const Part input = kind.input_of(is_root), output = kind.output_of(is_root);
  static const Layout none;
  const Layout& blocks = layout != nullptr ? *layout : none;
  repeat.remember(request, bytes_of(input, blocks.input), bytes_of(output, blocks.output));
  repeat.call = key_of(request);
  repeat.layout = request.layout;
  repeat.asks_shared_path = goes_by_shared_memory(request);
  if (!request.in_place || input == output) return;
  repeat.mode = Repeat::Mode::in_place_of_block;
  const size_t block_at = (layout != nullptr ? layout->input.firsts[me] : call.count * me) * width;
  repeat.send_ahead = input == Part::own ? ptrdiff_t(block_at) : -ptrdiff_t(block_at);
}

void Communicator::forget_repeats() noexcept {
  repeats_.forget();
  large_repeats_.forget();
}

// The short wait comes first: it looks at the awaited word and at nothing else, for a few microseconds at most.
inline Status Communicator::linger(Operation& operation, Status status) noexcept {
  if (patience_.spin_ns > 0) {
    if (status == Status::again) engine_->fetch_ahead(operation);
    while (status == Status::again && engine_->watch(operation).wait()) status = engine_->progress(operation);
  } else if (!shares_core_with_.empty()) {
    status = take_turns(operation, status);
  }
  return status;
}

Code Communicator::finish(Operation& operation, Status status) noexcept {
  if (recorder_->tracing()) [[unlikely]]
    return status == Status::done ? Code::success : wait_for(operation, timeout_ns_);
  status = linger(operation, status);
  if (status == Status::done) [[likely]] return Code::success;
  return wait_for(operation, timeout_ns_);
}

Status Communicator::linger_at(Operation& operation) noexcept {
  const bool by_messages = goes_by_messages(operation) && watched_.operation == nullptr && !recorder_->tracing();
  return by_messages && linger(operation, Status::again) == Status::done ? Status::done : Status::again;
}

// The core goes at once to a rank on it that has yet to do its part, and is kept for a moment where all of them have done
// it and what is awaited comes from other cores: a rank that gets it then could but give it back. So a core changes hands
// once in a call that two ranks on it take part in (p - 1 times for p ranks, at the least). A moment is what two hand-overs take.
Status Communicator::take_turns(Operation& operation, Status status) noexcept {
  constexpr int turns_max = 32, looks_max = 64;
  for (int turn = 0; turn < turns_max && status == Status::again; ++turn) {
    if (engine_->watch(operation).word == nullptr) return status;
    if (!may_share_core_with_.empty()) find_neighbours();
    Awaited awaited = engine_->awaited(operation, shares_core_with_);
    for (int look = 0; look < looks_max && !awaited.from_marked && awaited.from_others; ++look) {
      cpu_relax();
      awaited = engine_->awaited(operation, shares_core_with_);
    }
    if (awaited.from_marked || awaited.from_others) ::sched_yield();
    status = engine_->progress(operation);
  }
  return status;
}

// After a call that ended at once: of two ranks on a core this is the one that had it second, and found all that it needs there. With the
// core it would go on into the next call, have its turn first there, and so on: each rank would make its calls by twos, a short one after
// a long one. Which is as well for small calls, since it saves hand-overs (docs/tuning.md, calls by twos).
void Communicator::give_way(Collective kind, size_t bytes) const noexcept {
  constexpr size_t bytes_min = size_t{256} << 10, bytes_max = size_t{2} << 20;
  if (!two_share_cores_ || bytes < bytes_min || bytes > bytes_max) return;
  if (const Meaning& means = meaning(kind); means.blocks && !means.rooted) ::sched_yield();
}

// Ranks that are not bound run where the system puts them, and seldom move. Who gives a core away for the sake of a rank on another one
// has it taken by somebody who can do no more than give it back.
void Communicator::find_neighbours() noexcept {
  constexpr uint32_t turns_between_looks = 16;
  const int here = ::sched_getcpu();
  const bool has_moved = std::exchange(processor_, here) != here;
  if (has_moved)
    for (const auto& transport : links_.transports) transport->say_processor(here);
  else if (turns_since_look_++ % turns_between_looks != 0) return;
  for (size_t rank = 0; rank < may_share_core_with_.size(); ++rank) {
    const Endpoint* const peer = links_.endpoints[rank];
    const int there = peer == nullptr ? -1 : peer->peer_processor();
    shares_core_with_[rank] = may_share_core_with_[rank] != 0 && (there < 0 || there == here);
  }
}

Code Communicator::wait_for(Operation& operation, TimeNs timeout_ns) noexcept {
  Communicator* const self = this;
  const WaitResult result =
      drive(std::span(&self, 1), [=] { return timeout_ns; }, [&] { return progress(operation); },
            [&] { return position(operation); }, [&](Stall stall) {
              if (stall == Stall::waits) tell_waiting(operation, 0);
              else tell_stuck(operation);
            });
  if (result == WaitResult::done) return Code::success;
  if (result == WaitResult::expired) expire(operation, timeout_ns);
  let_go();
  return failure()->code;
}

// Whoever writes to this rank's memory by then, where it was offered, does so for a moment. False: a peer that does not run may be there.
bool Communicator::await_leaving() noexcept {
  const int gone = failure() == nullptr ? -1 : failure()->rank;
  const TimeNs until = now_ns() + std::min(timeout_ns_, stuck_peer_ns_max);
  bool all_left = true;
  for (size_t at = 0; at < links_.endpoints.size(); ++at) {
    const bool is_gone = int(at % size_t(size_)) == gone;
    if (const Endpoint* const peer = links_.endpoints[at]; peer != nullptr && !tutti::await_leaving(*peer, is_gone, until) && !is_gone)
      all_left = false;
  }
  return all_left;
}

void Communicator::let_go() noexcept {
  for (Endpoint* endpoint : links_.endpoints)
    if (endpoint != nullptr) endpoint->revoke();
  if (!await_leaving() && by_shared_memory_ == nullptr)
    log_.error("a peer that does not run may still write to the buffers of a call that has failed");
  if (peer_path_ != nullptr) peer_path_->let_go(std::min(timeout_ns_, drain_ns_max));
  if (device_side_ != nullptr) device_side_->drain(std::min(timeout_ns_, drain_ns_max));
  by_peers_ = nullptr;
  if (by_shared_memory_ == nullptr) return;
  by_shared_memory_ = nullptr;
  const int gone = failure() == nullptr ? -1 : failure()->rank;
  if (!shared_path_->let_go(std::min(timeout_ns_, stuck_peer_ns_max), gone))
    log_.error("a peer that does not run may still write to the buffers of a call that has failed");
}

bool Communicator::lies_as_before(const Work& work, bool lends) const noexcept {
  const LentRegion* const region = region_of(work.input);
  return (region == nullptr && lends ? &private_memory_ : region) == work.input_region && region_of(work.output) == work.output_region;
}

void Communicator::find_regions(Work& work) noexcept {
  work.input_region = region_of(work.input);
  work.output_region = work.output == work.input ? work.input_region : region_of(work.output);
}

// Buffers in ordinary memory as well, where that is faster or has to be tried. Not where no cache holds the call's buffers: the
// kernel does not copy past the caches (out of place, 64 MiB between two ranks took 1.4 to 1.9 times as long on a Xeon).
//
// Where one of two ranks sends, and has nothing else to do, and where a gather's root copies its own block, the other one offers
// its memory, so that both have their part of the work. That is tried at every size (64 MiB: 0.53 to 1.04 of the time).
void Communicator::copy_by_kernel(const Operation& operation, Work& work, const Call& call, bool sends) noexcept {
  work.puts = Puts::nowhere;
  work.offers = Offer::none;
  const bool in_place = work.input == work.output, alone = call.kind == Collective::send_recv;
  const Lending::Duty duty = kernel_duty(call, work.layout, is_root_of(call, sends), in_place);
  switch (duty) {
    case Lending::Duty::none: return;
    case Lending::Duty::offers: work.offers = Offer::half; return;
    case Lending::Duty::puts:
      if (work.input_region == nullptr) work.input_region = &private_memory_;
      work.puts = alone ? Puts::else_sends : crowded_ ? Puts::when_offered : Puts::in_turn;
      return;
    case Lending::Duty::tries_offers: {
      const bool is_idle = alone || (in_place && size_ == 2);
      const bool offers = tries_lending(operation, alone ? lending_->next_lone_receive(work.bytes())
                                                         : lending_->next(call.kind, work.bytes(), in_place));
      work.offers = !offers ? Offer::declined : is_idle ? Offer::half : Offer::all;
      return;
    }
    case Lending::Duty::lends:
      if (work.bytes() >= work.plan->uncached_bytes_min) return;
      if (work.input_region != nullptr && work.output_region != nullptr) return;
      if (tries_lending(operation, lending_->next(call.kind, work.bytes(), in_place))) lend_private(work);
      return;
    case Lending::Duty::lends_or_puts:
      if (work.input_region != nullptr && work.output_region != nullptr) return;
      if (!tries_lending(operation, lending_->next(call.kind, work.bytes(), in_place))) return;
      lend_private(work);
      work.puts = Puts::else_lends;
      return;
  }
}

// Where one of two ranks sends, whoever waits for a message of a middling size reads it where it lies. Not tried, since who sends sees of
// it only that he has to wait.
void Communicator::lend_at_leisure(Work& work, const Request& request) noexcept {
  if (!lends_private_ || crowded_ || size_ != 2 || !copies_as_library() || request.on_device) return;
  if (makes_its_input(request) || adds_exactly(request)) return;
  // What is added is read to memory between, which is worth it from more on.
  const bool adds = request.call.kind == Collective::reduce;
  const size_t bytes_min = adds ? lent_private_bytes_min : lent_at_leisure_bytes_min;
  const size_t bytes_until = adds ? reduced_at_leisure_bytes_max + 1 : lent_bytes_min_of(request.call);
  if (work.bytes() < bytes_min || work.bytes() >= bytes_until) return;
  switch (Lending::side_of(request.call.kind, is_root_of(request.call, request.sending))) {
    case Lending::Side::neither: return;
    case Lending::Side::receives: work.offers = Offer::reads; return;
    case Lending::Side::sends:
      lend_private(work);
      work.puts = Puts::at_leisure;
      return;
  }
}

bool Communicator::tries_lending(const Operation& operation, const Lending::Way& way) noexcept {
  const TimedWay timed = begin_lending(way);
  if (way.watched) watched_ = {&operation, timed};
  return way.lends;
}

void Communicator::lend_private(Work& work) noexcept {
  if (work.input_region == nullptr) work.input_region = &private_memory_;
  if (work.output_region == nullptr) work.output_region = &private_memory_;
}

Communicator::TimedWay Communicator::begin_sends(const Request& first, bool leads) noexcept {
  const size_t bytes = first.call.count * element_bytes(first.call);
  if (bytes >= plan_of(first).uncached_bytes_min) return {};
  return begin_lending(lending_->next_sends(bytes, leads));
}

Communicator::TimedWay Communicator::begin_lending(const Lending::Way& way) noexcept {
  if (!way.watched) return {way};
  if (!way.leads) lends_before(way);  // what was seen in other calls
  return {way, now_ns()};
}

// Whether the first rank, of those before this one, that a large message has come from since this was asked lent it.
PeerLends Communicator::lends_before(const Lending::Way& way) noexcept {
  const size_t channel = way.of_sends() ? size_t(channels_) : 0;
  PeerLends first = PeerLends::unknown;
  for (int peer = 0; peer < rank_; ++peer) {
    const PeerLends lent = links_.endpoints[channel * size_t(size_) + size_t(peer)]->peer_lent();
    if (first == PeerLends::unknown) first = lent;
  }
  return first;
}

// How a call's inputs are joined, and by what the result is divided.
void Communicator::set_reduction(Work& work, const Request& request) noexcept {
  const Call& call = request.call;
  work.reduce = reduce_function(call.type, call.op);
  if (call.op == ReduceOp::avg)
    work.divisor = meaning(call.kind).joined(uint32_t(rank_), uint32_t(size_)) * request.terms.inputs;
  else if (gives_truth(call.op, call.type))
    work.divisor = 1;
  if (request.made != nullptr && request.made->custom.function != nullptr) work.custom = &request.made->custom;
  if (!adds_exactly(request)) [[likely]] return;
  work.reduce = exact_sum_function(call.type);
  work.divisor = std::max(work.divisor, 1u);
  work.vectors = request.terms.inputs;
  work.vector_stride = request.vector_stride;
  work.operands = reinterpret_cast<const void**>(scratch_.get() + engine_->scratch_bytes(*work.plan, channels_));
}

Status Communicator::may_begin(const Request& request) noexcept {
  if (request.entry == nullptr || (request.on_device && goes_by_peers(request))) return Status::done;
  const Outcome passed = request.entry->query();
  awaits_begin_ = passed.code == Code::in_progress;
  if (awaits_begin_) return Status::again;
  if (passed.ok()) return Status::done;
  fail(passed.code, fmt::format("{}: its device failed before {}: {}", bootstrap_->describe(rank_), describe(request.call),
                                passed.sentence));
  return Status::failed;
}

bool Communicator::await_begin(const Request& request) noexcept {
  Communicator* const self = this;
  const WaitResult result = drive(std::span(&self, 1), [&] { return timeout_ns(request); },
                                  [&] { return may_begin(request); }, [] { return uint64_t{0}; }, [](Stall) {});
  if (result == WaitResult::expired) expire_before(request, timeout_ns(request));
  return result == WaitResult::done;
}

bool Communicator::begin(Operation& operation, const Request& asked) noexcept {
  try {
    if (goes_by_peers(asked)) [[unlikely]] return begin_by_peers(operation, asked);
    if (goes_by_shared_memory(asked) && shared_path_->tries(asked.call)) [[unlikely]] {
      begin_by_shared_memory(operation, asked);
      return true;
    }
    begin_planned(operation, asked);
    return true;
  } catch (const Error& error) {
    fail(error.code(), fmt::format("{} could not begin {}: {}", bootstrap_->describe(rank_), describe(asked.call),
                                   error.what()));
  } catch (const std::exception& error) {
    fail(Code::system_error, fmt::format("{} could not begin {}: {}", bootstrap_->describe(rank_),
                                         describe(asked.call), error.what()));
  }
  return false;
}

void Communicator::begin_planned(Operation& operation, const Request& asked, bool recorded) {
  if (asked.on_device) [[unlikely]] device_side_->begin(asked.entry.get());
  Request made;
  if (joins_its_vectors(asked)) [[unlikely]] made = with_joined_vectors(asked);
  if (multiplies_by_tiles(asked)) [[unlikely]] made = with_multiplied_tiles(asked);
  else if (asked.call.op == ReduceOp::premulsum) [[unlikely]]
    made = with_multiplied_input(joins_its_vectors(asked) ? made : asked);
  const Request& request = makes_its_input(asked) ? made : asked;
  const Plan& plan = plan_of(request);
  const size_t operands = adds_exactly(request) ? size_t(size_) * request.terms.inputs : 0;
  if (plan.shape.scratch != 0 || operands != 0) reserve_scratch(plan, operands);
  const Call& call = request.call;
  Work& work = operation.new_work();
  work.plan = &plan;
  work.input = request.input;
  work.output = request.output;
  work.scratch = scratch_.get();
  work.count = call.count;
  work.element_bytes = element_bytes(call);
  work.signature = pack(call, request.terms);
  work.layout = request.layout.get();
  if (multiplies_by_tiles(asked)) [[unlikely]] set_multiplied_tiles(work, request);
  if ((work.bytes() >= lent_bytes_min_of(call) || may_lend_beside(request)) && !request.on_device) {
    if (!request.sending || request.beside_others || lends_lone_send(work.bytes(), plan)) find_regions(work);
    if (!request.beside_others) copy_by_kernel(operation, work, call, request.sending);
    if (request.lends && work.input_region == nullptr) work.input_region = &private_memory_;
    if (work.multiplied != nullptr && work.multiplied->tiles != nullptr) [[unlikely]]
      work.input_region = nullptr;  // the next tile is made in the same memory
    // Not a message that stands alone: there and back it is sent from where the last one left it. And caches that ranks share hold little.
    work.alternates = !crowded_ && (call.kind != Collective::send_recv || request.beside_others);
  }
  lend_at_leisure(work, asked);
  const Meaning& kind = meaning(call.kind);
  if (kind.blocks) {
    const bool is_root = int(call.root) == rank_;
    work.block_stride = call.count;
    if (!request.in_place && kind.input_of(is_root) == Part::own) work.input_first = uint32_t(rank_);
    if (!request.in_place && kind.output_of(is_root) == Part::own) work.output_first = uint32_t(rank_);
  }
  if (kind.reduces) set_reduction(work, request);
  if (request.on_device) [[unlikely]] begin_on_device(work, request);
  const bool point_to_point = call.kind == Collective::send_recv;
  work.only_sends = work.bytes() >= awaited_bytes_min && !crowded_ && !request.beside_others && plan.only_sends();
  work.takes_turns = point_to_point && request.beside_others && !crowded_ && work.bytes() <= turns_bytes_max_;
  if (!recorded) recorder_->begin(operation, work.signature);
  engine_->start(operation, work, point_to_point ? channels_ : 0, point_to_point ? 1 : channels_);
}

void Communicator::end_watching(const Operation& operation) noexcept {
  if (&operation != watched_.operation) return;
  watched_.operation = nullptr;
  end_lending(watched_.trial);
}

void Communicator::end_lending(const TimedWay& trial) noexcept {
  if (!trial.way.watched) return;
  if (trial.way.leads) return lending_->took(trial.way, trial.since, now_ns());
  const PeerLends before = lends_before(trial.way);
  if (before != PeerLends::unknown) lending_->follow(trial.way, before == PeerLends::yes);
}

bool Communicator::may_begin_beside(const Request& request) noexcept {
  if (request.on_device || request.entry != nullptr || request.layout != nullptr || makes_its_input(request) ||
      adds_exactly(request) || may_go_by_shared_memory(request) || may_copy_by_kernel(request))
    return false;
  if (buffer_bytes(request.call, nullptr) >= lent_call_bytes_min) return false;
  try {
    const Plan& plan = plan_of(request);
    return (plan.sends_first || plan.one_message_each) && plan.shape.scratch == 0;
  } catch (const std::exception&) {
    return false;  // told of when its turn comes
  }
}

Status Communicator::follow(Operation& operation, const Operation& other, bool all_sent) noexcept {
  if (!goes_by_messages(other)) return Status::again;
  const Status status = engine_->follow(operation, other, all_sent);
  if (status == Status::failed) settle(operation);
  return status;
}

Status Communicator::progress(Operation& operation) noexcept {
  Status status;
  if (&operation == by_peers_) [[unlikely]] {
    status = peer_path_->progress([&] { return engine_->progress(operation); });
    if (status == Status::done) by_peers_ = nullptr;
  } else if (&operation == by_shared_memory_) [[unlikely]] {
    status = shared_path_->progress([&] { return engine_->progress(operation); });
    if (status == Status::done) by_shared_memory_ = nullptr;
  } else {
    status = engine_->progress(operation);
  }
  if (recorder_->tracing()) [[unlikely]] {
    if (status == Status::done) recorder_->ended(operation);
    else recorder_->waits(operation, engine_->waiting_on(operation));
  }
  if (status == Status::done) {
    if (watched_.operation != nullptr) [[unlikely]] end_watching(operation);
    if (operation.work().device != nullptr) [[unlikely]] device_side_->end(*operation.work().device);
    return status;
  }
  if (status == Status::failed) {
    settle(operation);
    return status;
  }
  for (const auto& transport : links_.transports) transport->progress();
  return Status::again;
}

const Plan& Communicator::plan_of(const Request& request) {
  const Call& call = request.call;
  if (call.kind == Collective::send_recv) {
    return (request.sending ? send_plans_ : recv_plans_)[size_t(request.peer)].of(call.count * element_bytes(call));
  }
  const size_t blocks = meaning(call.kind).blocks ? size_t(size_) : 1;
  size_t bytes = call.count * element_bytes(call) * blocks;
  if (request.layout != nullptr)
    bytes = request.layout->of_pairs ? pair_bytes_assumed * blocks : request.layout->elements * element_bytes(call);
  const Demand demand = demand_of(request);
  // A plan for work in place has one name for input and output, but only the input has several vectors. All of it is
  // sent before any of the output is written.
  const bool in_place = request.in_place && !demand.several_inputs;
  if (demand.several_inputs) bytes *= request.terms.inputs;
  if (!request.algorithm.empty()) [[unlikely]]
    return planner_->plan_named(request.algorithm, call.kind, bytes, int(call.root), in_place, demand);
  return planner_->plan(call.kind, bytes, int(call.root), in_place, demand);
}

Demand Communicator::demand_of(const Request& request) const noexcept {
  const Call& call = request.call;
  const bool left_fold = determinism_of(request.terms) != Determinism::bitwise && order_matters(call.op, call.type);
  // Before a v-form's layout is made, its kind says which it will have.
  return {call.op == ReduceOp::custom_in_order, element_bytes(call) > chunk_unit_bytes, left_fold,
          is_of_pairs(call.kind), left_fold && request.terms.inputs > 1};
}

bool Communicator::adds_exactly(const Request& request) const noexcept {
  return determinism_of(request.terms) == Determinism::invariant && meaning(request.call.kind).reduces &&
         order_matters(request.call.op, request.call.type);
}

Planner::Named Communicator::named_algorithm(std::string_view algorithm, const Request& request) const {
  return planner_->named(algorithm, request.call.kind, int(request.call.root), demand_of(request));
}

// The plan's memory, then room for pointers to operands.
void Communicator::reserve_scratch(const Plan& plan, size_t operands) {
  const size_t bytes = engine_->scratch_bytes(plan, channels_) + operands * sizeof(const void*);
  if (bytes <= scratch_bytes_) return;
  forget_repeats();
  ++scratch_epoch_;
  scratch_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(scratch_alignment))));
  scratch_bytes_ = bytes;
}

void Communicator::arm() noexcept {
  for (const auto& transport : links_.transports) transport->arm();
}

void Communicator::disarm() noexcept {
  for (const auto& transport : links_.transports) transport->disarm();
  doorbell_.drain();
}

size_t Communicator::poll_fds(std::span<pollfd> space) noexcept {
  if (space.empty()) return 0;
  space[0] = {doorbell_.fd(), POLLIN, 0};
  size_t n = 1;
  for (const auto& transport : links_.transports) n += transport->poll_fds(space.subspan(n));
  return n;
}

void Communicator::await_turn(uint64_t ticket) noexcept {
  for (uint64_t seen = serving_.load(std::memory_order_acquire); seen != ticket;
       seen = serving_.load(std::memory_order_acquire))
    serving_.wait(seen, std::memory_order_acquire);
}

// Streams of devices are let go on first: as soon as the next ticket is served, another thread may end its turn, and their
// count would go back; or the communicator's owner may destroy it.
void Communicator::end_turn() noexcept {
  const uint64_t ended = serving_.load(std::memory_order_relaxed) + 1;  // nobody else changes it during this turn
  if (device_side_ != nullptr) device_side_->serve(ended);
  serving_.store(ended, std::memory_order_release);  // pairs with the acquire loads of await_turn and idle
  serving_.notify_all();
}

void Communicator::leave() noexcept {
  if (left_) return;
  left_ = true;
  await_turn(next_ticket_);
  bootstrap_->leave();
}

Window& Communicator::open_window(std::span<std::byte> memory, std::shared_ptr<const SharedBlock> block) {
  WindowOptions options;
  for (const char* name : links_.names) options.local.push_back(std::string_view(name) == "shm");
  options.transports = options_.transports;
  options.patience = patience_;
  options.timeout_ns = timeout_ns_;
  WindowMemory opened{memory, std::move(block)};
  return *windows_.emplace_back(std::make_unique<Window>(*bootstrap_, options, std::move(opened)));
}

void Communicator::close_window(Window& window) {
  const auto place = std::find_if(windows_.begin(), windows_.end(), [&](const auto& w) { return w.get() == &window; });
  TUTTI_ASSERT(place != windows_.end());
  const std::unique_ptr<Window> closing = std::move(*place);
  windows_.erase(place);
  closing->close();
}

const char* Communicator::transport_to(int peer) const noexcept { return links_.names[size_t(peer)]; }

std::string_view Communicator::algorithm_for(Collective collective, size_t bytes) {
  const bool left_fold = options_.determinism != Determinism::bitwise && meaning(collective).reduces &&
                         collective != Collective::barrier;
  const bool of_pairs = is_of_pairs(collective);
  if (of_pairs) bytes = pair_bytes_assumed * size_t(size_);
  return planner_->plan(collective, bytes, 0, false, {false, false, left_fold, of_pairs}).algorithm;
}

}  // namespace tutti
