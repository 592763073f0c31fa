// Operations of a communicator whose buffers lie on a device.
#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "communicator/communicator.h"
#include "device/platform.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

// A step joins a whole message at most, unless it has nothing but local operands: then as many chunks as it says.
size_t pinned_bytes(const Plan& plan, size_t message_bytes_max) {
  uint32_t chunks = 1;
  for (const Fold& fold : plan.steps) chunks = std::max({chunks, fold.a.count, fold.dst.count});
  return message_bytes_max * ((chunks + plan.message_chunks_max - 1) / plan.message_chunks_max);
}

}  // namespace

// For the gathering when ranks join, as hexadecimal digits.
std::string Communicator::device_card() const {
  const FoundPlatform& found = find_platform();
  const int wanted = options_.device;
  if (wanted >= 0 && found.platform == nullptr)
    throw Error(Code::unsupported, fmt::format("device is {}, but this process has none: {}", wanted, found.why_not));
  if (wanted >= 0 && wanted >= found.platform->count())
    throw Error(Code::invalid_argument, fmt::format("device is {}, outside 0 to {} ({})", wanted,
                                                    found.platform->count() - 1, found.platform->name()));
  DeviceCard card;
  std::memset(static_cast<void*>(&card), 0, sizeof card);  // its gaps too
  card.number = -1;
  if (wanted >= 0) card = DeviceCard::of(*found.platform, wanted, std::hash<std::string>()(boot_id()));
  std::string text;
  for (const std::byte byte : std::as_bytes(std::span(&card, 1))) text += fmt::format("{:02x}", uint8_t(byte));
  return text;
}

void Communicator::make_device_side() {
  Platform* const platform = find_platform().platform;
  if (platform == nullptr) return;
  std::vector<std::span<std::byte>> slots;
  for (const auto& transport : links_.transports) transport->slot_memory(slots);
  device_side_ = std::make_unique<DeviceSide>(*platform, message_bytes_max_, std::move(slots), log_);
  if (options_.device >= 0) device_side_->bind(options_.device);
}

// Where every rank has named its device. All must see all others' memory, or none goes this way.
void Communicator::make_peer_path(const std::vector<std::string>& texts) {
  std::vector<DeviceCard> cards;
  for (const std::string& text : texts) {
    DeviceCard card;
    if (text.size() != 2 * sizeof card) return;
    for (size_t i = 0; i < sizeof card; ++i)
      reinterpret_cast<uint8_t*>(&card)[i] = uint8_t(std::stoul(text.substr(2 * i, 2), nullptr, 16));
    cards.push_back(card);
  }
  if (std::any_of(cards.begin(), cards.end(), [](const DeviceCard& card) { return card.number < 0; })) return;
  const bool wanted = environment_flag("TUTTI_PEERS");
  if (!all_reach(wanted ? why_no_peers(device_side_->platform(), cards, rank_) : "TUTTI_PEERS is 0")) return;
  std::unique_ptr<PeerProbe> probe;
  if (!std::all_of(cards.begin(), cards.end(), [&](const DeviceCard& card) { return one_process(card, cards[0]); })) {
    probe = std::make_unique<PeerProbe>(*device_side_->device());
    const auto card = std::as_bytes(std::span(&probe->card(), 1));
    const std::vector<Bytes> told = bootstrap_->all_gather(Bytes(card.begin(), card.end()));
    std::vector<ExportedMemory> all(told.size());  // of what is not as long as it should be: nothing
    for (size_t r = 0; r < told.size(); ++r)
      if (told[r].size() == sizeof all[r]) std::memcpy(&all[r], told[r].data(), sizeof all[r]);
    if (!all_reach(probe->open(cards, all, rank_))) return;
  }
  peer_path_ = std::make_unique<PeerPath>(*device_side_, std::move(cards), rank_, std::move(probe));
}

// Whether no rank has a reason why not.
bool Communicator::all_reach(const std::string& why_not) {
  const std::byte mine{why_not.empty() ? uint8_t{1} : uint8_t{0}};
  const std::vector<Bytes> all = bootstrap_->all_gather(Bytes(1, mine));
  if (!why_not.empty()) log_.info(fmt::format("devices are reached by way of the host: {}", why_not));
  return std::all_of(all.begin(), all.end(), [](const Bytes& one) { return one == Bytes(1, std::byte{1}); });
}

// Own blocks in place are given as where they lie: the path reads them there.
bool Communicator::begin_by_peers(Operation& operation, const Request& request) {
  const Meaning& kind = meaning(request.call.kind);
  const bool is_root = int(request.call.root) == rank_;
  const size_t own_at = size_t(rank_) * request.call.count * element_bytes(request.call);
  const auto at = [&](Part part) { return kind.blocks && request.in_place && part == Part::own ? own_at : 0; };
  PeerCall call;
  call.call = request.call;
  call.in_place = request.in_place;
  call.on_device = request.on_device && request.in_reach;
  if (request.input != nullptr) call.input = request.input + at(kind.input_of(is_root));
  if (request.output != nullptr) call.output = request.output + at(kind.output_of(is_root));
  Work reduction;
  if (kind.reduces) set_reduction(reduction, request);
  call.divisor = reduction.divisor;
  start_exchange(operation, request, {}, nullptr);  // so that who asks about it finds the call
  recorder_->begin(operation, operation.work().signature);
  by_peers_ = &operation;
  peer_path_->begin(
      call, request.entry.get(),
      [this, &operation, request](const std::byte* mine, std::byte* all, size_t bytes) {
        start_exchange(operation, request, {mine, bytes}, all);
      },
      [this, &operation, request] { begin_planned(operation, request, true); });
  return true;
}

// A gathering of cards, or a barrier, in the name of the call: whoever calls another one is told of it here.
void Communicator::start_exchange(Operation& operation, const Request& request, std::span<const std::byte> mine,
                                  std::byte* all) {
  const bool gathers = !mine.empty();
  const Collective kind = gathers ? Collective::all_gather : Collective::barrier;
  const Plan& plan = planner_->plan(kind, mine.size() * size_t(size_), 0, false, {});
  if (plan.shape.scratch != 0) reserve_scratch(plan, 0);
  Work& work = operation.new_work();
  work.plan = &plan;
  work.input = mine.data();
  work.output = all;
  work.scratch = scratch_.get();
  work.count = mine.size();
  work.block_stride = mine.size();
  if (gathers) work.input_first = uint32_t(rank_);
  work.reduce = reduce_function(DataType::int8, ReduceOp::sum);
  work.signature = pack(request.call, request.terms);
  engine_->start(operation, work, 0, channels_);
}

// Of the device's kernels, those for the sum serve a sum of inputs that were multiplied before.
void Communicator::begin_on_device(Work& work, const Request& request) {
  const Call& call = request.call;
  const bool point_to_point = call.kind == Collective::send_recv;
  const ReduceOp op = call.op == ReduceOp::premulsum ? ReduceOp::sum : call.op;
  const bool folds = request.in_reach && work.custom == nullptr && work.operands == nullptr &&
                     device_side_->platform().supports(call.type, op);
  const bool host_joins = meaning(call.kind).reduces && !folds;
  const int channels = point_to_point ? 1 : channels_;
  if (work.plan->shape.scratch != 0) work.scratch = device_side_->scratch(engine_->scratch_bytes(*work.plan, channels_));
  DeviceWork& task = device_side_->start(channels, host_joins ? pinned_bytes(*work.plan, message_bytes_max_) : 0);
  task.type = call.type;
  task.op = op;
  task.folds = folds;
  const bool in_reach_of_cards = std::any_of(links_.transports.begin(), links_.transports.end(),
                                             [](const auto& transport) { return transport->may_reach_devices(); });
  if (in_reach_of_cards && work.bytes() >= lent_call_bytes_min) {
    task.input_region = device_side_->region_of(work.input);
    task.output_region = device_side_->region_of(work.output);
  }
  work.device = &task;
}

// Of an input that the call makes of the caller's. Calls that make one follow each other.
std::byte* Communicator::made_input(const Request& request, size_t bytes) {
  if (request.on_device) return device_side_->made_input(bytes);
  made_input_.resize(std::max(made_input_.size(), bytes));
  return made_input_.data();
}

void Communicator::copy_on_device(const EntryEvent* entry, std::byte* to, const std::byte* from, size_t bytes) {
  device_side_->begin(entry);
  device_side_->copy(to, from, bytes);
}

}  // namespace tutti
