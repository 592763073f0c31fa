// The direct path: cards, events, and which parts of whose memory a rank copies or adds.
#include "communicator/peer_path.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "device/linked_call.h"
#include "device/packet_body.h"
#include "schedule/chunks.h"

namespace tutti {
namespace {

// From here on each rank adds a part and all fetch the parts of all, instead of each adding everything.
constexpr size_t two_shot_bytes_min = size_t{128} << 10;
// Among processes that share a device, which takes 150 us from one process's work to the next one's (an H200), so that
// another round of all costs more than what it saves.
constexpr size_t two_shot_bytes_min_shared = size_t{64} << 20;
// Memory of other processes that is kept mapped.
constexpr size_t imports_max = 256;

void check(const Outcome& outcome) {
  if (!outcome.ok()) throw Error(outcome.code, outcome.sentence);
}

// As which elements a linked launch takes those of a call.
DataType linked_type(const Call& call) { return meaning(call.kind).reduces ? call.type : DataType::uint8; }
ReduceOp linked_op(const Call& call) { return meaning(call.kind).reduces ? call.op : ReduceOp::sum; }

bool on_one_device(std::span<const DeviceCard> cards) {
  return std::all_of(cards.begin(), cards.end(), [&](const DeviceCard& card) { return card.uuid == cards[0].uuid; });
}

uint64_t number_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

PeerPath::PeerPath(DeviceSide& side, std::vector<DeviceCard> cards, int rank, std::unique_ptr<PeerProbe> probe)
    : side_(side),
      device_(*side.device()),
      probe_(std::move(probe)),
      cards_(std::move(cards)),
      rank_(rank),
      size_(int(cards_.size())),
      one_process_(std::all_of(cards_.begin(), cards_.end(), [&](const auto& c) { return one_process(c, cards_[0]); })),
      one_device_(one_process_ && std::all_of(cards_.begin(), cards_.end(),
                                              [&](const auto& c) { return c.number == cards_[0].number; })),
      two_shot_bytes_min_(one_process_ || !on_one_device(cards_) ? two_shot_bytes_min : two_shot_bytes_min_shared),
      buffers_(cards_.size()),
      inputs_(cards_.size()),
      outputs_(cards_.size()),
      events_(std::make_shared<PeerEvents>(device_)),
      events_number_(PeerEvents::publish(events_)),
      peer_events_(cards_.size()),
      linked_plans_(size_) {
  check(device_.create_stream(&stream_, true));
  check(device_.create_event(false, &last_));
  if (!one_process_) return;
  std::map<int, int> ranks_on;
  for (const DeviceCard& card : cards_) ++ranks_on[card.number];
  for (const auto& [device, ranks] : ranks_on) devices_.push_back(device);
  const auto most = std::max_element(ranks_on.begin(), ranks_on.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  meeting_channels_max_ = std::max(1, int(tutti::meeting_channels_max) / most->second);
  if (rank_ == 0) {
    group_ = std::make_shared<PeerGroup>(side_.platform(), calls_before);
    group_number_ = PeerGroup::publish(group_);
  }
  if (!one_device_ && size_ <= int(linked_ranks_max)) make_workspace();
}

PeerPath::~PeerPath() {
  leave_peers();
  if (phase_ == Phase::idle) {
    for (const auto& [key, import] : imports_) device_.close_memory(import.begin);
    close_forgotten();
    device_.free(workspace_);
  } else {
    (void)probe_.release();  // NOLINT(bugprone-unused-return-value): to give back is to wait for what may never end
  }
  device_.destroy_stream(stream_);
  device_.destroy_event(last_);
}

bool PeerPath::serves(const Call& call) const noexcept {
  if (call.op == ReduceOp::premulsum || call.op == ReduceOp::custom || call.op == ReduceOp::custom_in_order) return false;
  if (call.count == 0 || is_v_form(call.kind)) return false;
  if (call.kind == Collective::barrier || call.kind == Collective::send_recv) return false;
  return !meaning(call.kind).reduces || side_.platform().supports(call.type, call.op);
}

void PeerPath::begin(const PeerCall& call, const EntryEvent* entry, Exchange exchange, FallBack fall_back) {
  call_ = call;
  exchange_ = std::move(exchange);
  fall_back_ = std::move(fall_back);
  failure_ = {};
  way_ = Way::each;
  at_work_ = AtWork::no;
  if (uint32_t(++calls_) == 0 && workspace_ != nullptr) clear_workspace();
  if (call.on_device && entry != nullptr) check(device_.wait_event(stream_, entry->event()));
  record(events_->ready);
  phase_ = Phase::entering;
}

Status PeerPath::progress(const Progress& exchange) noexcept {
  try {
    return step(exchange);
  } catch (const Error& error) {
    failure_ = {error.code(), error.what()};
  } catch (const std::exception& error) {
    failure_ = {Code::internal_error, error.what()};
  }
  return Status::failed;
}

// Where no part is needed twice, the second part stays in the rank's own memory, and nobody need hear of it.
Status PeerPath::step(const Progress& exchange) {
  for (;;) {
    switch (phase_) {
      case Phase::idle: return Status::done;
      case Phase::entering:
        if (!one_process_ && !passed(events_->ready)) return Status::again;
        mine_ = own_card();
        exchange_(reinterpret_cast<const std::byte*>(&mine_), reinterpret_cast<std::byte*>(buffers_.data()), sizeof mine_);
        phase_ = Phase::cards;
        break;
      case Phase::cards:
        if (const Status status = exchange(); status != Status::done) return status;
        if (!all_reachable()) {
          room_ = nullptr;
          phase_ = Phase::falling_back;
          break;
        }
        ++counts_.direct;
        resolve();
        way_ = choose();
        if (!meets()) room_ = nullptr;
        if (is_linked()) {
          start_linked();
          phase_ = Phase::launching;
          break;
        }
        phase_ = Phase::gathering;
        break;
      case Phase::falling_back:
        if (!passed(events_->ready)) return Status::again;
        fall_back_();
        phase_ = Phase::common;
        break;
      case Phase::gathering:
        if (one_process_ && !all_ready()) return Status::again;
        visit_peers();
        at_work_ = AtWork::yes;
        start_first();
        record(events_->first);
        phase_ = Phase::first;
        break;
      case Phase::launching:
        if (!group_->all_launched(launches_)) return Status::again;
        if (meets() && leader_of(rank_) != rank_) check(device_.wait_event(stream_, peer_events_[size_t(leader_of(rank_))]->first));
        phase_ = Phase::settling;
        break;
      case Phase::common: {
        const Status status = exchange();
        if (status == Status::done) phase_ = Phase::idle;
        return status;
      }
      case Phase::first:
        if (!one_process_ && !passed(events_->first)) return Status::again;
        exchange_(nullptr, nullptr, 0);
        phase_ = Phase::first_exchange;
        break;
      case Phase::first_exchange:
        if (const Status status = exchange(); status != Status::done) return status;
        if (one_process_) wait_for_peers(&PeerEvents::first);
        start_second();
        record(events_->second);
        phase_ = two_shot() ? Phase::second : Phase::settling;
        break;
      case Phase::second:
        if (!one_process_ && !passed(events_->second)) return Status::again;
        exchange_(nullptr, nullptr, 0);
        phase_ = Phase::second_exchange;
        break;
      case Phase::second_exchange:
        if (const Status status = exchange(); status != Status::done) return status;
        if (one_process_) wait_for_peers(&PeerEvents::second);
        phase_ = Phase::settling;
        break;
      case Phase::settling:
        if (!has_settled()) return Status::again;
        // What waited for others may have gone on without them: the verdict is under way.
        if (is_linked() && group_->has_ended()) return Status::again;
        room_ = nullptr;
        leave_peers();
        phase_ = Phase::idle;
        return Status::done;
    }
  }
}

// First this rank leaves its peers' buffers, then it waits for them to leave its own, so that no two wait for each other.
void PeerPath::let_go(TimeNs timeout_ns) noexcept {
  const TimeNs until = now_ns() + timeout_ns;
  if (group_ != nullptr) group_->end(calls_);
  if (phase_ != Phase::idle && (!has_begun() || has_passed(until))) {
    leave_peers();
    room_ = nullptr;
    phase_ = Phase::idle;
  }
  // Packets of one that is still inside come late, if ever: they need a place.
  if (one_process_ && !events_->close(until)) workspace_ = nullptr;
}

// Whether something of the call that touches buffers may be under way on the stream.
bool PeerPath::has_begun() const noexcept {
  return at_work_ == AtWork::yes || (at_work_ == AtWork::if_begun && group_->has_begun(rank_, calls_));
}

// Whether the stream has come to an end of what is on it, or never will.
bool PeerPath::has_passed(TimeNs until) noexcept {
  while (!device_.is_lost() && device_.query_stream(stream_).code == Code::in_progress) {
    if (now_ns() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void PeerPath::visit_peers() {
  if (!one_process_) return;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || peer_events_[size_t(r)]->enter()) continue;
    for (int entered = 0; entered < r; ++entered)
      if (entered != rank_) peer_events_[size_t(entered)]->leave();
    throw Error(Code::remote_error, fmt::format("rank {} has gone in the midst of the call", r));
  }
  visits_ = true;
}

void PeerPath::leave_peers() noexcept {
  if (!std::exchange(visits_, false)) return;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) peer_events_[size_t(r)]->leave();
}

// Memory that cannot be exported sends the call the common way.
BufferCard PeerPath::own_card() {
  BufferCard card;
  card.on_device = call_.on_device && (!one_process_ || one_device_ || (is_for_peers(call_.input) && is_for_peers(call_.output)));
  card.in_place = call_.in_place;
  card.input = number_of(call_.input);
  card.output = number_of(call_.output);
  card.events = events_number_;
  card.group = group_number_;
  card.workspace = number_of(workspace_);
  if (rank_ == 0 && workspace_ != nullptr && card.on_device) {
    room_ = MeetingRoom::reserve(side_.platform(), devices_);
    card.has_room = room_ != nullptr;
  }
  if (one_process_ || !call_.on_device) return card;
  card.exported = (call_.input == nullptr || device_.export_memory(call_.input, &card.input_memory).ok()) &&
                  (call_.output == nullptr || device_.export_memory(call_.output, &card.output_memory).ok());
  return card;
}

// (Of what is exported, exporting tells.)
bool PeerPath::is_for_peers(const std::byte* buffer) const noexcept {
  return buffer == nullptr || side_.platform().locate(buffer).for_peers;
}

bool PeerPath::all_reachable() const noexcept {
  return std::all_of(buffers_.begin(), buffers_.end(),
                     [this](const BufferCard& b) { return b.on_device && (one_process_ || b.exported); });
}

void PeerPath::resolve() {
  for (int r = 0; r < size_; ++r) {
    const BufferCard& buffer = buffers_[size_t(r)];
    const bool here = one_process(cards_[size_t(r)], cards_[size_t(rank_)]);
    const auto at = [&](uint64_t address, const ExportedMemory& memory) -> std::byte* {
      if (address == 0) return nullptr;
      return here ? reinterpret_cast<std::byte*>(address) : imported(r, memory) + memory.offset;
    };
    std::shared_ptr<PeerEvents>& events = peer_events_[size_t(r)];
    if (one_process_ && events == nullptr) events = PeerEvents::numbered(buffer.events);
    if (one_process_ && events == nullptr)
      throw Error(Code::remote_error, fmt::format("rank {} has gone in the midst of the call", r));
    if (one_process_ && group_ == nullptr) group_ = PeerGroup::numbered(buffers_[0].group);
    if (one_process_ && group_ == nullptr) throw Error(Code::remote_error, "rank 0 has gone in the midst of the call");
    inputs_[size_t(r)] = at(buffer.input, buffer.input_memory);
    outputs_[size_t(r)] = at(buffer.output, buffer.output_memory);
  }
  forget_oldest();
}

std::byte* PeerPath::imported(int rank, const ExportedMemory& memory) {
  Import& import = imports_[{rank, memory.allocation}];
  import.used = calls_;
  if (import.begin == nullptr) {
    void* begin = nullptr;
    const Outcome outcome = device_.import_memory(memory, &begin);
    if (!outcome.ok()) {
      imports_.erase({rank, memory.allocation});
      throw Error(outcome.code, fmt::format("cannot reach the buffer of rank {}: {}", rank, outcome.sentence));
    }
    import.begin = static_cast<std::byte*>(begin);
  }
  return import.begin;
}

// Never one of this call's.
void PeerPath::forget_oldest() {
  while (imports_.size() > imports_max) {
    const auto oldest = std::min_element(imports_.begin(), imports_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    if (oldest->second.used == calls_) return;
    const std::lock_guard lock(forgotten_mutex_);
    forgotten_.push_back(oldest->second.begin);
    has_forgotten_.store(true, std::memory_order_relaxed);
    imports_.erase(oldest);
  }
}

void PeerPath::close_forgotten() noexcept {
  if (!has_forgotten_.load(std::memory_order_relaxed)) return;
  std::vector<std::byte*> forgotten;
  {
    const std::lock_guard lock(forgotten_mutex_);
    forgotten.swap(forgotten_);
    has_forgotten_.store(false, std::memory_order_relaxed);
  }
  for (std::byte* begin : forgotten) (void)device_.close_memory(begin);
}

void PeerPath::wait_for_peers(DeviceEvent PeerEvents::*event) {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) check(device_.wait_event(stream_, (*peer_events_[size_t(r)]).*event));
}

// Whether the streams of all ranks have come to the call. (A kernel of a linked plan waits for that on the device, since it can
// be put there and yet do nothing.)
bool PeerPath::all_ready() {
  return std::all_of(peer_events_.begin(), peer_events_.end(), [](const std::shared_ptr<PeerEvents>& peer) {
    const Outcome outcome = peer->device.query_event(peer->ready);
    if (outcome.code != Code::in_progress) check(outcome);
    return outcome.ok();
  });
}

// Whether the call is over on the device. The stream of the one launch for all writes a word, of which a look costs no call; but
// what fails does not, so the device is asked now and then.
bool PeerPath::has_settled() {
  constexpr uint32_t looks_between = 256;
  if (way_ != Way::one_launch) {
    if (std::exchange(last_at_, calls_) != calls_) record(last_);
    return passed(last_);
  }
  if (group_->has_passed(calls_)) return true;
  const PeerEvents& made = *peer_events_[0];
  return ++looks_ % looks_between == 0 && check_running(made.device.query_event(made.first));
}

// False where something is still under way; what failed is thrown.
bool PeerPath::check_running(const Outcome& outcome) {
  if (outcome.code == Code::in_progress) return false;
  check(outcome);
  return true;
}

void PeerPath::record(DeviceEvent event) { check(device_.record_event(event, stream_)); }

bool PeerPath::passed(DeviceEvent event) {
  return check_running(device_.query_event(event));
}

// --- Kernels of linked plans. What does not reduce is moved as bytes.

// The same on all ranks, who have heard the same.
PeerPath::Way PeerPath::choose() {
  const Call& call = call_.call;
  if (!one_process_ || size_ > int(linked_ranks_max)) return Way::each;
  // A mean over some of the ranks is divided by another number on each.
  if (meaning(call.kind).joins != Joins::all && call.op == ReduceOp::avg) return Way::each;
  if (!side_.platform().links(linked_type(call), linked_op(call))) return Way::each;
  LinkedPlans::InPlace in_place{};
  bool have_workspaces = true;
  for (int r = 0; r < size_; ++r) {
    in_place[size_t(r)] = buffers_[size_t(r)].in_place != 0;
    have_workspaces &= buffers_[size_t(r)].workspace != 0;
  }
  linked_ = linked_plans_.find(call.kind, int(call.root), in_place);
  if (one_device_) return linked_ != nullptr ? Way::one_launch : Way::each;
  if (!have_workspaces || buffers_[0].has_room == 0) return Way::each;
  const LinkedPlan* const of_blocks = linked_;
  linked_ = uint32_t(calls_) != 0 ? linked_plans_.find_packets(call.kind, int(call.root), in_place) : nullptr;
  if (linked_ != nullptr && fits_packets()) return Way::packets;
  linked_ = of_blocks;
  return linked_ != nullptr ? Way::blocks : Way::each;
}

bool PeerPath::fits_packets() const noexcept {
  const Call& call = call_.call;
  const bool reduces = meaning(call.kind).reduces;
  if (!tutti::fits_packets(*linked_, reduces ? call.count : call.count * element_bytes(call), element_bytes(linked_type(call))))
    return false;
  std::array<uint32_t, linked_ranks_max> steps{};  // of the launch that each leader makes
  for (int r = 0; r < size_; ++r)
    steps[size_t(leader_of(r))] += linked_->first_step[size_t(r) + 1] - linked_->first_step[size_t(r)];
  return *std::max_element(steps.begin(), steps.end()) <= packet_steps_max;
}

int PeerPath::leader_of(int rank) const noexcept {
  int leader = 0;
  while (cards_[size_t(leader)].number != cards_[size_t(rank)].number) ++leader;
  return leader;
}

// The first rank of each device makes the launch of all its ranks, after what is on their streams.
void PeerPath::start_linked() {
  launches_ += devices_.size();
  packet_calls_ += way_ == Way::packets;
  counts_.one_launch += way_ == Way::one_launch;
  counts_.blocks += way_ == Way::blocks;
  counts_.packets += way_ == Way::packets;
  if (leader_of(rank_) != rank_) return;
  const Call& call = call_.call;
  LinkedCall linked;
  linked.plan = linked_;
  linked.type = linked_type(call);
  linked.op = linked_op(call);
  linked.count = meaning(call.kind).reduces ? call.count : call.count * element_bytes(call);
  linked.divisor = call_.divisor;
  linked.call_number = calls_;
  std::copy(inputs_.begin(), inputs_.end(), linked.inputs.begin());
  std::copy(outputs_.begin(), outputs_.end(), linked.outputs.begin());
  visit_peers();
  for (int r = 0; r < size_; ++r) {
    if (meets()) linked.workspaces[size_t(r)] = reinterpret_cast<void*>(buffers_[size_t(r)].workspace);
    if (leader_of(r) != rank_) continue;
    if (meets()) linked.meeting.ranks |= 1u << r;
    if (r != rank_) check(device_.wait_event(stream_, peer_events_[size_t(r)]->ready));
  }
  linked.meeting.ended = group_->ended();
  if (meets()) {
    linked.meeting.channels_max = uint32_t(meeting_channels_max_);
    linked.meeting.half = packet_calls_ % 2;
    check(device_.wait_flag(stream_, group_->gate(), uint32_t(calls_)));
  }
  at_work_ = AtWork::if_begun;
  check(device_.write_flag(stream_, group_->begun(rank_), uint32_t(calls_)));
  check(device_.run_linked(stream_, linked));
  ++counts_.launched;
  // (Not after launches that wait for each other: on an H200 they hung. Where two of their streams share a queue of the driver's,
  // what writes a word may hold up the queue until the kernel before it has ended.)
  if (way_ == Way::one_launch) check(device_.write_flag(stream_, group_->passed(), uint32_t(calls_)));
  record(events_->first);
  group_->launched(launches_, calls_);
}

// Zeroed, as launches that meet want it. Without memory for it, calls go another way.
void PeerPath::make_workspace() {
  if (!device_.allocate(meeting_workspace_bytes, &workspace_).ok()) workspace_ = nullptr;
  if (workspace_ != nullptr) clear_workspace();
}

void PeerPath::clear_workspace() {
  const std::vector<std::byte> zeros(meeting_workspace_bytes);
  check(device_.copy(stream_, workspace_, zeros.data(), zeros.size()));
  check(device_.wait_stream(stream_));
}

// --- What each rank does. A rank writes nothing but its own output, and nothing that others still read.

bool PeerPath::two_shot() const noexcept {
  return call_.call.kind == Collective::all_reduce && call_.call.count * element_bytes(call_.call) >= two_shot_bytes_min_;
}

// In place, others read what the result overwrites: it is made aside, and comes home when they have.
bool PeerPath::through_temporary() const noexcept {
  switch (call_.call.kind) {
    case Collective::all_reduce: return call_.in_place && !two_shot();
    case Collective::all_to_all:
    case Collective::scan:
    case Collective::exscan: return call_.in_place;
    default: return false;
  }
}

Part PeerPath::input_of(int rank) const noexcept { return meaning(call_.call.kind).input_of(int(call_.call.root) == rank); }

// What a rank reads of another's input.
const std::byte* PeerPath::block_for(int reader, int from) const noexcept {
  const Meaning& kind = meaning(call_.call.kind);
  const bool one_of_many = kind.blocks && input_of(from) == Part::all;
  return inputs_[size_t(from)] + (one_of_many ? size_t(reader) * call_.call.count * element_bytes(call_.call) : 0);
}

void PeerPath::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes > 0) check(device_.copy(stream_, to, from, bytes));
}

// to = the sum of elements from `offset` on of what this rank reads of the ranks below `beyond`, in the order of ranks.
// Passes end where the engine's do.
void PeerPath::reduce(std::byte* to, size_t offset, size_t count, int beyond) {
  if (count == 0 || beyond == 0) return;
  const size_t width = element_bytes(call_.call);
  const bool many = beyond > DeviceReduction::inputs_max;
  std::byte* const partial = many ? side_.scratch(count * width) : nullptr;
  DeviceReduction pass;
  pass.type = call_.call.type;
  pass.op = call_.call.op;
  pass.count = count;
  for (int r = 0; r < beyond; ++r) {
    pass.inputs[size_t(pass.n_inputs++)] = block_for(rank_, r) + offset * width;
    const bool last = r + 1 == beyond;
    if (!last && pass.n_inputs < DeviceReduction::inputs_max) continue;
    pass.output = last ? to : partial;
    pass.divisor = last ? call_.divisor : 0;
    check(device_.reduce(stream_, pass));
    pass.inputs[0] = partial;
    pass.n_inputs = 1;
  }
}

void PeerPath::reduce_own(std::byte* to) {
  reduce(to, 0, call_.call.count, int(meaning(call_.call.kind).joined(uint32_t(rank_), uint32_t(size_))));
}

void PeerPath::gather_to(std::byte* to) {
  const size_t bytes = call_.call.count * element_bytes(call_.call);
  for (int i = 0; i < size_; ++i) {
    const int r = (rank_ + i) % size_;  // not all from the same one at once
    copy(to + size_t(r) * bytes, block_for(rank_, r), bytes);
  }
}

void PeerPath::start_first() {
  const Call& call = call_.call;
  const Meaning& kind = meaning(call.kind);
  const size_t width = element_bytes(call), bytes = call.count * width;
  const size_t result = kind.blocks && kind.output_of(int(call.root) == rank_) == Part::all ? bytes * size_t(size_) : bytes;
  if (kind.output_of(int(call.root) == rank_) == Part::none) return;
  std::byte* const to = through_temporary() ? side_.made_input(result) : call_.output;
  if (two_shot()) {
    const Chunks chunks(call.count, uint32_t(size_), width);
    const size_t first = chunks.first(uint32_t(rank_));
    return reduce(to + first * width, first, chunks.size(uint32_t(rank_)), size_);
  }
  if (kind.reduces) return reduce_own(to);
  if (kind.rooted && kind.input != Part::own) return copy(to, block_for(rank_, int(call.root)), bytes);
  gather_to(to);
}

void PeerPath::start_second() {
  const Call& call = call_.call;
  const size_t width = element_bytes(call), bytes = call.count * width;
  const Meaning& kind = meaning(call.kind);
  if (two_shot()) {
    const Chunks chunks(call.count, uint32_t(size_), width);
    for (int i = 1; i < size_; ++i) {
      const auto r = uint32_t((rank_ + i) % size_);
      copy(call_.output + chunks.first(r) * width, outputs_[r] + chunks.first(r) * width, chunks.size(r) * width);
    }
  } else if (through_temporary() && kind.output_of(int(call.root) == rank_) != Part::none) {
    copy(call_.output, side_.made_input(0), kind.blocks ? bytes * size_t(size_) : bytes);
  }
}

}  // namespace tutti
