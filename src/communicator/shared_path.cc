// The path through each other's memory: cards, shares, and the work on them.
#include "communicator/shared_path.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "algorithms/catalog.h"
#include "communicator/c_api.h"
#include "communicator/wait.h"
#include "memory/memory_file.h"
#include "memory/shared_memory.h"
#include "schedule/check.h"
#include "schedule/link_check.h"

namespace tutti {
namespace {

// Results of several outputs that no kernel stores at once are made here first, and stay in a near cache; of large calls, in
// longer stretches (measured).
constexpr size_t stage_bytes = size_t{64} << 10, small_stage_bytes = size_t{16} << 10;
static_assert(small_stage_bytes >= opaque_bytes_max);
// What is copied or added for one output alone is done in stretches of so many bytes.
constexpr size_t stretch_bytes = size_t{64} << 10;
constexpr size_t stage_alignment = 64;
// As much is done between two looks at the world outside.
constexpr size_t bytes_between_looks = size_t{1} << 20;
// Kinds, roots and choices of ranks in place whose plans are kept; then all are made again.
constexpr size_t linked_kept_max = 64;
// After so many refused calls in a row, one in so many tries again.
constexpr uint32_t refused_max = 4, calls_between_tries = 64;

LentPlace place_of(const std::byte* data, const LentRegion& region) {
  return {region.number, uint64_t(data - region.begin), data};
}

bool is_input(const LinkedPlace& place) {
  return place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input;
}

}  // namespace

SharedPath::SharedPath(std::span<Endpoint* const> peers, int rank, size_t cache_bytes)
    : peers_(peers.begin(), peers.end()),
      cache_bytes_(cache_bytes),
      rank_(rank),
      size_(int(peers.size())),
      cards_(peers.size()),
      stage_(static_cast<std::byte*>(::operator new(stage_bytes, std::align_val_t(stage_alignment))),
             [](std::byte* stage) { ::operator delete(stage, std::align_val_t(stage_alignment)); }) {}

std::string_view SharedPath::algorithm_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce: return "two_shot";
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter: return "direct";
    default: return "";
  }
}

bool SharedPath::tries(const Call& call) noexcept {
  Tries& tries = tries_[size_t(call.kind)][size_class(call)];
  return tries.refused < refused_max || ++tries.calls % calls_between_tries == 0;
}

bool SharedPath::would_try(const Call& call) const noexcept {
  const Tries& tries = tries_[size_t(call.kind)][size_class(call)];
  return tries.refused < refused_max || (tries.calls + 1) % calls_between_tries == 0;
}

void SharedPath::begin(const SharedCall& call, Exchange exchange, FallBack fall_back) {
  call_ = call;
  exchange_ = std::move(exchange);
  fall_back_ = std::move(fall_back);
  broken_peer_ = -1;
  mine_ = own_card();
  exchange_(reinterpret_cast<const std::byte*>(&mine_), reinterpret_cast<std::byte*>(cards_.data()), sizeof mine_);
  phase_ = Phase::cards;
}

Status SharedPath::progress(const Progress& exchange) noexcept {
  try {
    return step(exchange);
  } catch (const std::exception&) {  // no memory
    broken_peer_ = rank_;
    return Status::failed;
  }
}

Status SharedPath::step(const Progress& exchange) {
  for (;;) {
    switch (phase_) {
      case Phase::idle: return Status::done;
      case Phase::cards: {
        if (const Status status = exchange(); status != Status::done) return status;
        const Sharing how = choose_plan();
        Tries& tries = tries_[size_t(call_.call.kind)][std::bit_width(call_.call.count) % 64];
        tries.refused = how == Sharing::none ? tries.refused + 1 : 0;
        if (how == Sharing::none) {
          fall_back_();
          phase_ = Phase::common;
          break;
        }
        if (!resolve()) return Status::failed;
        share_out(how);
        ++direct_calls_;
        phase_ = Phase::working;
        break;
      }
      case Phase::common: {
        const Status status = exchange();
        if (status == Status::done) phase_ = Phase::idle;
        return status;
      }
      case Phase::working:
        if (!enter_all()) return Status::failed;
        if (!work()) return Status::again;
        exchange_(nullptr, nullptr, 0);
        phase_ = Phase::leaving;
        break;
      case Phase::leaving: {
        const Status status = exchange();
        if (status == Status::done) phase_ = Phase::idle;
        return status;
      }
    }
  }
}

// --- Cards

size_t SharedPath::bytes_of(Part part) const noexcept {
  const size_t bytes = call_.call.count * element_bytes(call_.call);
  return part == Part::none ? 0 : meaning(call_.call.kind).blocks && part == Part::all ? bytes * size_t(size_) : bytes;
}

// Of a rank's buffer; in place, of the one that both are in.
size_t SharedPath::extent(int rank, bool in_place, bool input) const noexcept {
  const Meaning& kind = meaning(call_.call.kind);
  const bool is_root = int(call_.call.root) == rank;
  const size_t in = bytes_of(kind.input_of(is_root)), out = bytes_of(kind.output_of(is_root));
  return in_place ? std::max(in, out) : input ? in : out;
}

SharedCard SharedPath::own_card() const {
  SharedCard card;
  std::memset(static_cast<void*>(&card), 0, sizeof card);  // its gaps too
  const Meaning& kind = meaning(call_.call.kind);
  const bool is_root = int(call_.call.root) == rank_;
  card.in_place = call_.in_place && kind.input_of(is_root) != Part::none && kind.output_of(is_root) != Part::none;
  card.on_device = call_.on_device;
  const auto in_reach = [&](const std::byte* data, const LentRegion* region, bool input) {
    if (data == nullptr || region == nullptr || !region->holds(data, extent(rank_, card.in_place, input))) return false;
    return std::all_of(peers_.begin(), peers_.end(), [&](Endpoint* peer) { return peer == nullptr || peer->tell(*region); });
  };
  card.output_in_reach = in_reach(call_.output, call_.output_region, false);
  card.input_in_reach = card.in_place ? card.output_in_reach : in_reach(call_.input, call_.input_region, true);
  if (card.output_in_reach) {
    card.output = place_of(call_.output, *call_.output_region);
    card.output_writable =
        process_memory().find_whole(call_.output, extent(rank_, card.in_place, false)) != nullptr;
  }
  if (card.input_in_reach) card.input = card.in_place ? card.output : place_of(call_.input, *call_.input_region);
  return card;
}

// From what all ranks said, so all choose alike: an even plan, else one that asks less of the buffers.
SharedPath::Sharing SharedPath::choose_plan() {
  Sharing best = Sharing::none;
  if (std::any_of(cards_.begin(), cards_.end(), [](const SharedCard& card) { return card.on_device != 0; })) return best;
  for (const LinkedPlan& plan : linked()) {
    const Sharing how = sharing(plan);
    if (how == Sharing::none || best == Sharing::even) continue;
    if (best == Sharing::own && how == Sharing::own) continue;
    best = how;
    plan_ = &plan;
  }
  return best;
}

// The plans of all ranks, for those who are in place as their cards say: by putting, and by reading alone.
const std::vector<LinkedPlan>& SharedPath::linked() {
  std::array<bool, linked_ranks_max> in_place{};
  uint32_t mask = 0;
  for (int r = 0; r < size_; ++r) {
    in_place[size_t(r)] = cards_[size_t(r)].in_place != 0;
    mask |= uint32_t{in_place[size_t(r)]} << r;
  }
  const Collective kind = call_.call.kind;
  if (linked_.size() >= linked_kept_max) linked_.clear();
  const auto [found, is_new] = linked_.try_emplace({kind, call_.call.root, mask});
  std::vector<LinkedPlan>& linked = found->second;
  if (!is_new) return linked;
  const Algorithm& algorithm = *find_algorithm(kind, algorithm_of(kind));
  Group group{.rank = 0, .n = size_, .root = int(call_.call.root), .pipeline = 1, .host_of = {}};
  std::vector<Plan> plans;
  for (; group.rank < size_; ++group.rank)
    plans.push_back(lower(record(algorithm, group), algorithm.shape(group), algorithm.name, in_place[size_t(group.rank)]));
  group.rank = 0;
  const std::span<const bool> all(in_place.data(), size_t(size_));
  // What the algorithm adds from the left gets the same bits here. Two operands have them in either order.
  const bool must_fold = meaning(kind).reduces && size_ > 2;
  if (must_fold && !algorithm.claim(group).left_fold) return linked;
  for (const bool puts : {true, false}) {
    LinkedPlan plan;
    if (!link(kind, plans, int(call_.call.root), all, &plan, puts)) continue;
    const LinkedProof proof = check_linked(kind, plan, int(call_.call.root), all);
    if (proof.violation.empty() && (!must_fold || proof.in_rank_order)) linked.push_back(plan);
  }
  return linked;
}

SharedPath::Sharing SharedPath::sharing(const LinkedPlan& plan) const noexcept {
  bool even = true, own = true;
  for (uint32_t r = 0; r < plan.ranks; ++r)
    for (uint32_t s = plan.first_step[r]; s < plan.first_step[r + 1]; ++s) {
      const LinkedStep& step = plan.steps[s];
      for (uint32_t k = 0; k < step.n_operands; ++k) {
        const SharedCard& card = cards_[step.operands[k].rank];
        const bool reached = is_input(step.operands[k]) ? card.input_in_reach : card.output_in_reach;
        even &= reached;
        own &= reached || step.operands[k].rank == r;
      }
      for (uint32_t k = 0; k < step.n_outputs; ++k) {
        const bool written = cards_[step.outputs[k].rank].output_writable != 0;
        even &= written;
        own &= written || step.outputs[k].rank == r;
      }
    }
  return even ? Sharing::even : own ? Sharing::own : Sharing::none;
}

// Where all buffers lie here. False: see broken_peer().
bool SharedPath::resolve() {
  buffers_ = {};
  buffers_.count = call_.call.count;
  buffers_.element_bytes = uint32_t(element_bytes(call_.call));
  for (int r = 0; r < size_; ++r) {
    const SharedCard& card = cards_[size_t(r)];
    std::byte *&input = buffers_.inputs[r], *&output = buffers_.outputs[r];
    if (r == rank_) {
      input = const_cast<std::byte*>(call_.input);
      output = call_.output;
      continue;
    }
    Endpoint& peer = *peers_[size_t(r)];
    if (card.output_in_reach != 0) output = peer.reach(card.output, extent(r, card.in_place != 0, false));
    if (card.in_place != 0) input = output;
    else if (card.input_in_reach != 0) input = peer.reach(card.input, extent(r, false, true));
    if ((card.output_in_reach == 0 || output != nullptr) && (card.input_in_reach == 0 || input != nullptr)) continue;
    broken_peer_ = r;
    return false;
  }
  const Meaning& kind = meaning(call_.call.kind);
  reduce_ = kind.reduces ? reduce_function(call_.call.type, call_.call.op) : nullptr;
  put_ = kind.reduces ? put_function(call_.call.type, call_.call.op) : nullptr;
  const size_t cached_bytes = cache_bytes_ * (kind.reduces ? 1 : cached_copies_factor());
  store_ = touched_bytes() < cached_bytes ? Store::cached : Store::streaming;
  return true;
}

// Of all ranks' buffers.
size_t SharedPath::touched_bytes() const noexcept {
  size_t bytes = 0;
  for (int r = 0; r < size_; ++r) {
    const bool in_place = cards_[size_t(r)].in_place != 0;
    bytes += extent(r, in_place, false) + (in_place ? 0 : extent(r, false, true));
  }
  return bytes;
}

// --- Work

// Everything, as one row of chunks of steps, beginning with those of rank 0; even parts are cut at whole cache lines.
void SharedPath::share_out(Sharing sharing) {
  pieces_.clear();
  next_piece_ = next_element_ = 0;
  const LinkedPlan& plan = *plan_;
  const auto weight = [](const LinkedStep& step) { return size_t{step.n_operands} + step.n_outputs; };
  const uint32_t steps = plan.first_step[plan.ranks];
  size_t total = 0;
  for (uint32_t s = 0; s < steps; ++s)
    for (uint32_t i = 0; i < plan.steps[s].chunks; ++i) total += weight(plan.steps[s]) * buffers_.elements(plan, plan.steps[s], i);
  const bool even = sharing == Sharing::even;
  const size_t begin = even ? total / size_t(size_) * size_t(rank_) : 0;
  const size_t end = !even || rank_ + 1 == size_ ? total : total / size_t(size_) * size_t(rank_ + 1);
  const size_t unit = std::max<size_t>(1, 64 / buffers_.element_bytes);
  size_t at = 0;
  for (uint32_t s = 0; s < steps; ++s)
    for (uint32_t i = 0; i < plan.steps[s].chunks; ++i) {
      const LinkedStep& step = plan.steps[s];
      const size_t count = buffers_.elements(plan, step, i), here = at;
      at += weight(step) * count;
      const bool mine = even || (s >= plan.first_step[size_t(rank_)] && s < plan.first_step[size_t(rank_) + 1]);
      if (!mine || at <= begin || here >= end || count == 0) continue;
      const auto cut = [&](size_t weighed) {
        return weighed <= here ? 0 : weighed >= at ? count : (weighed - here) / weight(step) / unit * unit;
      };
      const size_t first = cut(begin), beyond = cut(end);
      if (beyond > first) pieces_.push_back({uint16_t(s), uint16_t(i), first, beyond - first});
    }
}

// True: all is done. Peers may revoke their memory between two calls, and not during one.
bool SharedPath::work() {
  size_t left = bytes_between_looks;
  ++position_;
  while (next_piece_ < pieces_.size() && left > 0) {
    const Piece& piece = pieces_[next_piece_];
    const size_t stage = store_ == Store::streaming ? stage_bytes : small_stage_bytes;
    const size_t bytes = plan_->steps[piece.step].n_outputs > 1 && put_ == nullptr ? stage : stretch_bytes;
    const size_t count = std::min(bytes / buffers_.element_bytes, piece.count - next_element_);
    do_piece(piece, piece.first + next_element_, count);
    next_element_ += count;
    left -= std::min(left, count * buffers_.element_bytes);
    if (next_element_ < piece.count) continue;
    ++next_piece_;
    next_element_ = 0;
  }
  stream_end();
  leave_all(peers_.size());
  return next_piece_ == pieces_.size();
}

// What was just read to be joined is in the cache, so that it is written there.
void SharedPath::do_piece(const Piece& piece, size_t first, size_t count) noexcept {
  const LinkedStep& step = plan_->steps[piece.step];
  const size_t at = first * buffers_.element_bytes, bytes = count * buffers_.element_bytes;
  std::array<const void*, linked_places_max> operands{};
  std::array<void*, linked_places_max> outputs{};
  for (uint32_t k = 0; k < step.n_operands; ++k) operands[k] = buffers_.at(*plan_, step, step.operands[k], piece.chunk) + at;
  for (uint32_t k = 0; k < step.n_outputs; ++k) outputs[k] = buffers_.at(*plan_, step, step.outputs[k], piece.chunk) + at;
  const auto is_read = [&](const void* output) {
    return std::find(operands.begin(), operands.begin() + step.n_operands, output) != operands.begin() + step.n_operands;
  };
  const auto how = [&](const void* output) { return is_read(output) ? Store::cached : store_; };
  const auto copy = [&](void* output, const void* source) { copy_bytes_on(output, source, bytes, how(output)); };
  const bool joins = step.n_operands > 1 || (step.finish && call_.divisor > 0);
  if (!joins) {
    const bool none_read = std::none_of(outputs.begin(), outputs.begin() + step.n_outputs, is_read);
    if (step.n_outputs > 1 && store_ == Store::streaming && none_read)
      return stream_bytes_to(outputs.data(), step.n_outputs, operands[0], bytes);
    for (uint32_t k = 0; k < step.n_outputs; ++k) copy(outputs[k], operands[0]);
    return;
  }
  const uint32_t divisor = step.finish ? call_.divisor : 0;
  if (step.n_outputs == 1) return reduce_(outputs[0], operands.data(), step.n_operands, count, divisor, how(outputs[0]));
  if (put_ != nullptr) {
    const bool all_read = std::all_of(outputs.begin(), outputs.begin() + step.n_outputs, is_read);
    return put_(outputs.data(), step.n_outputs, operands.data(), step.n_operands, count, divisor,
                all_read ? Store::cached : store_);
  }
  reduce_(stage_.get(), operands.data(), step.n_operands, count, divisor, Store::cached);
  for (uint32_t k = 0; k < step.n_outputs; ++k) copy(outputs[k], stage_.get());
}

bool SharedPath::enter_all() noexcept {
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r] == nullptr || peers_[r]->enter()) continue;
    leave_all(r);
    broken_peer_ = int(r);
    return false;
  }
  return true;
}

void SharedPath::leave_all(size_t beyond) noexcept {
  for (size_t r = 0; r < beyond; ++r)
    if (peers_[r] != nullptr) peers_[r]->leave();
}

bool SharedPath::let_go(TimeNs timeout_ns, int gone) noexcept {
  if (phase_ == Phase::idle) return true;
  phase_ = Phase::idle;
  const TimeNs until = now_ns() + timeout_ns;
  bool all_left = true;
  for (int r = 0; r < size_; ++r)
    if (const Endpoint* const peer = peers_[size_t(r)]; peer != nullptr && !await_leaving(*peer, r == gone, until)) all_left = false;
  if (all_left || mine_.output_writable == 0) return true;
  return process_memory().take_back(call_.output, extent(rank_, mine_.in_place != 0, false));
}

}  // namespace tutti
