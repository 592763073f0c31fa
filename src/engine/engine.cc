// The engine: cuts a call into channels and tiles, and has a Run interpret the plan's steps over each.
#include "engine/engine.h"

#include <algorithm>

#include "base/cpu.h"
#include "engine/device_run.h"
#include "engine/run.h"
#include "engine/small_call.h"

namespace tutti {
namespace {

// Less memory is fetched as fast as it is written.
constexpr size_t fetched_bytes_min = 4096;

// Smaller calls stay in the caches whatever their order.
constexpr size_t turned_bytes_min = size_t{256} << 10;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Room for one chunk of scratch. Chunks are rounded up to 64 bytes, and never larger than a message.
size_t scratch_chunk_bytes(const Plan& plan, size_t message_bytes_max) {
  return std::min(message_bytes_max, round_up(message_bytes_max / plan.message_chunks_max, 64) + 64);
}

size_t scratch_channel_bytes(const Plan& plan, size_t message_bytes_max) {
  return plan.shape.scratch == 0 ? 0 : round_up(plan.shape.scratch * scratch_chunk_bytes(plan, message_bytes_max), 64);
}

// Of one message of the plan.
size_t message_bytes(const Plan& plan, size_t message_bytes_max) {
  return size_t(std::min<uint64_t>(plan.message_bytes_max, message_bytes_max));
}

}  // namespace

Engine::Engine(int size, std::span<Endpoint* const> endpoints, size_t message_bytes_max, ColdOutputs* cold_outputs,
               bool at_a_stretch)
    : size_(size),
      endpoints_(endpoints),
      message_bytes_max_(message_bytes_max),
      cold_outputs_(cold_outputs),
      at_a_stretch_(at_a_stretch),
      flushes_(std::any_of(endpoints.begin(), endpoints.end(),
                           [](const Endpoint* endpoint) { return endpoint != nullptr && endpoint->stages(); })) {}

size_t Engine::scratch_bytes(const Plan& plan, int channels) const noexcept {
  return scratch_channel_bytes(plan, message_bytes_max_) * size_t(channels);
}

// A small call is one tile, whose messages fit because all of it does; chunks of large elements may be uneven by more than
// scratch has room for.
bool Engine::is_small(const Work& work) const noexcept {
  const uint64_t bytes_max = std::min<uint64_t>(message_bytes_max_, work.plan->small_bytes_max);
  return work.element_bytes <= chunk_unit_bytes && work.bytes() * work.vectors <= bytes_max;
}

size_t Engine::longest_tile(const Work& work, bool small) const noexcept {
  if (small) return work.count;
  const uint32_t divided = work.plan->shape.blocks ? 1 : work.plan->shape.output;
  return tile_elements_max(divided, work.plan->message_chunks_max * work.vectors, work.element_bytes,
                           message_bytes(*work.plan, message_bytes_max_));
}

size_t Engine::multiplied_tile_bytes(const Work& work) const noexcept {
  const size_t blocks = work.plan->shape.blocks ? work.plan->shape.input : 1;
  return round_up(blocks * std::min(work.count, longest_tile(work, is_small(work))) * work.element_bytes, multiplied_tiles_alignment);
}

void Engine::start(Operation& operation, const Work& work, int first_channel, int channels) const noexcept {
  if (&work != &operation.work_) operation.work_ = work;
  operation.first_channel_ = first_channel;
  operation.channels_ = channels;
  operation.channels_done_ = 0;
  operation.blocked_ = 0;
  operation.n_small_steps_ = 0;
  operation.fetches_ = false;
  const bool alone = channels == 1 && work.device == nullptr && work.multiplied == nullptr;
  operation.alone_ = alone && work.layout == nullptr;
  operation.alone_v_form_ = alone && work.layout != nullptr;
  if (work.layout != nullptr) {
    share_out(operation);
    begin_looks(operation);
    begin_reads(operation);
    make_small_steps_ready(operation);
    if (work.offers != Offer::none) [[unlikely]] offer(operation);
    return;
  }
  const uint32_t divided = work.plan->shape.blocks ? 1 : work.plan->shape.output;
  const bool small = is_small(work);
  const size_t tile_max = longest_tile(work, small);
  const Chunks shares(work.count, uint32_t(channels), work.element_bytes);  // no division where there is one channel
  for (int i = 0; i < channels; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    channel.share_first = shares.first(uint32_t(i));
    channel.share_count = shares.size(uint32_t(i));
    channel.tile_elements = even_tile_elements(channel.share_count, divided, work.element_bytes, tile_max);
    channel.tiles = channel.share_count <= tile_max
                        ? 1
                        : (channel.share_count + channel.tile_elements - 1) / channel.tile_elements;
    begin_channel(operation, i);
    if (work.multiplied == nullptr) [[likely]] Run<false>(operation.work_, channel).begin_tile(0);
    else Run<false, true>(operation.work_, channel).begin_tile(0);
  }
  begin_looks(operation);
  begin_reads(operation);
  if (small) make_small_steps_ready(operation);
  operation.fetches_ = operation.alone_ && work.bytes() >= fetched_bytes_min;
  if (work.offers != Offer::none) [[unlikely]] offer(operation);
}

void Engine::make_small_steps_ready(Operation& operation) const noexcept {
  const Work& work = operation.work_;
  Operation::Channel& channel = operation.channel_[0];
  if (channel.flushes || work.custom != nullptr || work.vectors > 1 || work.offers != Offer::none) return;
  bool are_ready = false;
  if (operation.alone_) are_ready = SmallSteps<false>(work, channel).make_ready(operation.small_steps_);
  else if (operation.alone_v_form_) are_ready = SmallSteps<true>(work, channel).make_ready(operation.small_steps_);
  if (!are_ready || work.plan->steps.empty()) return;
  operation.n_small_steps_ = uint32_t(work.plan->steps.size());
  operation.n_first_sends_ = work.plan->first_receiving_step();
  SmallCall::find_short_ways(operation);
  SmallCall::rewind(operation);
}

void Engine::offer(Operation& operation) const noexcept {
  for (int i = 0; i < operation.channels_; ++i) {
    if (operation.work_.layout != nullptr) Run<true>(operation.work_, operation.channel_[size_t(i)]).offer();
    else Run<false>(operation.work_, operation.channel_[size_t(i)]).offer();
  }
}

// Whether the kernel may copy some of it: to or from private memory of another process.
bool Engine::is_for_kernel(const Work& work) noexcept {
  const auto is_private = [](const LentRegion* region) { return region != nullptr && region->is_private(); };
  return is_private(work.input_region) || is_private(work.output_region) || work.offers != Offer::none;
}

// What a channel has beside its share.
void Engine::begin_channel(Operation& operation, int i) const noexcept {
  Operation::Channel& channel = operation.channel_[size_t(i)];
  const Work& work = operation.work_;
  const size_t bytes = work.bytes();
  channel.endpoints = endpoints_.data() + size_t(operation.first_channel_ + i) * size_t(size_);
  if (work.plan->shape.scratch > 0) {
    channel.scratch = work.scratch + size_t(i) * scratch_channel_bytes(*work.plan, message_bytes_max_);
  }
  if (work.multiplied != nullptr) [[unlikely]] {
    const MultipliedInput& input = *work.multiplied;
    channel.made_tile = input.tiles == nullptr ? nullptr : input.tiles + size_t(i) * multiplied_tile_bytes(work);
    channel.tiles_made = 0;
  }
  channel.flushes = flushes_ || work.input_region != nullptr || work.output_region != nullptr ||
                    (work.device != nullptr && (work.device->input_region != nullptr || work.device->output_region != nullptr));
  const bool in_file = work.output_region != nullptr && !work.output_region->is_private();
  const uint64_t stored_as = in_file || !is_for_kernel(work) ? uint64_t(double(bytes) * work.plan->reached_factor) : bytes;
  channel.streamed_tiles = work.plan->streamed_tiles(stored_as, channel.tiles);
  channel.streams_copies = stored_as >= work.plan->copies_streamed_bytes_min;
  // What lies in a memory file may be in a peer's cache, which is no farther than memory to some.
  const bool looks = bytes >= cold_bytes_min && channel.streamed_tiles < channel.tiles && work.device == nullptr && !in_file;
  channel.looks = looks ? cold_outputs_ : nullptr;
  channel.at_a_stretch = at_a_stretch_;
  channel.done = false;
  channel.lane = uint8_t(i);
}

// Of each run. What a run has touched last the caches hold at its end, so the next one to the same memory begins there.
void Engine::begin_reads(Operation& operation) const noexcept {
  const Work& work = operation.work_;
  bool from_end = false;
  if (work.alternates && work.bytes() >= turned_bytes_min) {
    const std::byte* const memory = work.output != nullptr ? work.output : work.input;
    const uint64_t bit = uint64_t{1} << ((reinterpret_cast<uintptr_t>(memory) >> 12) * 0x9E3779B97F4A7C15u >> 58);
    from_end = (std::atomic_ref(turned_).fetch_xor(bit, std::memory_order_relaxed) & bit) != 0;
  }
  for (int i = 0; i < operation.channels_; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    channel.own.to = nullptr;
    channel.own.bytes = channel.own.copied = 0;
    channel.from_end = from_end;
    channel.end_is_looked_at = false;
  }
}

// Of each run.
void Engine::begin_looks(Operation& operation) const noexcept {
  const Work& work = operation.work_;
  bool is_read = false;
  if (operation.channel_[0].looks != nullptr && work.input != work.output) {
    if (work.input != nullptr) cold_outputs_->call_reads(work.input);
    if (work.output != nullptr) is_read = cold_outputs_->call_writes(work.output);
  }
  for (int i = 0; i < operation.channels_; ++i) {
    operation.channel_[size_t(i)].n_looks = 0;
    operation.channel_[size_t(i)].output_is_read = is_read;
  }
}

// The channels of a v-form. A rank has as many tiles as its largest block needs, which may be more or fewer than others
// have: per block, both sides count alike.
void Engine::share_out(Operation& operation) const noexcept {
  const Work& work = operation.work_;
  const size_t tile_max = longest_tile(work, false);
  size_t largest = 0;
  for (const BlockLayout* side : {&work.layout->input, &work.layout->output})
    for (const size_t size : side->sizes) largest = std::max(largest, size);
  const size_t share_max = Chunks(largest, uint32_t(operation.channels_), work.element_bytes).size(0);
  for (int i = 0; i < operation.channels_; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    channel.share = uint32_t(i);
    channel.shares = uint32_t(operation.channels_);
    channel.tiles = std::max<size_t>(1, (share_max + tile_max - 1) / tile_max);
    channel.tile_elements = tile_max;
    begin_channel(operation, i);
    Run<true>(operation.work_, channel).begin_tile(0);
  }
}

void Engine::rewind(Operation& operation) const noexcept {
  if (operation.n_small_steps_ > 0) return SmallCall::rewind(operation);
  operation.channels_done_ = 0;
  operation.blocked_ = 0;
  begin_looks(operation);
  begin_reads(operation);
  for (int i = 0; i < operation.channels_; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    channel.done = false;
    if (channel.tiles > 1) {
      if (operation.work_.layout != nullptr) Run<true>(operation.work_, channel).begin_tile(0);
      else Run<false>(operation.work_, channel).begin_tile(0);
    }
    channel.step = 0;
    Run<false>(operation.work_, channel).begin_step();
  }
  if (operation.work_.offers != Offer::none) [[unlikely]] offer(operation);
}

Status Engine::restart(Operation& operation, const std::byte* input, std::byte* output) const noexcept {
  operation.work_.input = input;
  operation.work_.output = output;
  if (operation.n_small_steps_ > 0) {
    SmallCall::rewind(operation);
    return SmallCall::begin(operation);
  }
  rewind(operation);
  return progress(operation);
}

Status Engine::restart_elsewhere(Operation& operation) const noexcept {
  for (int i = 0; i < operation.channels_; ++i) begin_channel(operation, i);
  if (operation.channel_[0].flushes) operation.n_small_steps_ = 0;
  rewind(operation);
  return progress(operation);
}

Status Engine::progress(Operation& operation) const noexcept {
  if (operation.n_small_steps_ > 0) return SmallCall::move(operation);
  if (operation.alone_) return Run<false>(operation.work_, operation.channel_[0]).move();
  if (operation.alone_v_form_) return Run<true>(operation.work_, operation.channel_[0]).move();
  return progress_channels(operation);
}

Status Engine::progress_channels(Operation& operation) const noexcept {
  for (int i = 0; i < operation.channels_; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    if (channel.done) continue;
    const Status status = progress_channel(operation, channel);
    if (status == Status::done) {
      channel.done = true;
      ++operation.channels_done_;
      continue;
    }
    operation.blocked_ = i;
    if (status == Status::failed) return status;
  }
  return operation.channels_done_ == operation.channels_ ? Status::done : Status::again;
}

Status Engine::progress_channel(Operation& operation, Operation::Channel& channel) const noexcept {
  const Work& work = operation.work_;
  if (work.device != nullptr)
    return work.layout != nullptr ? DeviceRun<true>(work, channel).move() : DeviceRun<false>(work, channel).move();
  if (work.multiplied != nullptr) return Run<false, true>(work, channel).move();
  return work.layout != nullptr ? Run<true>(work, channel).move() : Run<false>(work, channel).move();
}

Status Engine::follow(Operation& operation, const Operation& other, bool all_sent) const noexcept {
  Operation::Channel& channel = operation.channel_[0];
  if (!operation.alone_ || !other.alone_ || channel.tiles > 1 || other.channel_[0].tiles > 1) return Status::again;
  const Plan& plan = *operation.work_.plan;
  const auto move_to = [&](uint32_t step) {
    return operation.n_small_steps_ > 0 ? SmallCall::move_to(operation, step) : Run<false>(operation.work_, channel).move_to(step);
  };
  // Step by step behind the same plan, the one message of each pair is the second one.
  if (&plan == other.work_.plan && plan.one_message_each) return move_to(other.channel_[0].step);
  return plan.sends_first && all_sent ? move_to(plan.first_receiving_step()) : Status::again;
}

bool Engine::has_sent(const Operation& operation) const noexcept {
  const Operation::Channel& channel = operation.channel_[0];
  const Plan& plan = *operation.work_.plan;
  return operation.alone_ && channel.tiles == 1 && plan.sends_first && channel.step >= plan.first_receiving_step();
}

bool Engine::has_passed(const Operation& operation) const noexcept {
  const Operation::Channel& channel = operation.channel_[0];
  const Work& work = operation.work_;
  return operation.alone_ && channel.tile + 1 == channel.tiles && channel.step >= work.plan->steps.size() &&
         work.input_region == nullptr && work.output_region == nullptr;
}

uint64_t Engine::position(const Operation& operation) const noexcept {
  uint64_t sum = 0;
  for (int i = 0; i < operation.channels_; ++i) {
    const Operation::Channel& channel = operation.channel_[size_t(i)];
    sum += (uint64_t(channel.tile) << 48) + (uint64_t(channel.step) << 32) + channel.next_in + channel.next_out +
           channel.bytes_done + channel.stored;
  }
  return sum;
}

WaitingOn Engine::waiting_on(const Operation& operation) const noexcept {
  const Operation::Channel& channel = operation.channel_[size_t(operation.blocked_)];
  const Plan& plan = *operation.work_.plan;
  WaitingOn waiting;
  waiting.channel = operation.first_channel_ + operation.blocked_;
  waiting.tile = channel.tile;
  waiting.step = channel.step;
  // Past the last step, next_in is the step whose receivers are being flushed.
  const bool flushing = channel.step >= plan.steps.size();
  const size_t step = flushing ? channel.next_in : channel.step;
  waiting.on_device = operation.work_.device != nullptr && channel.stage != Operation::Stage::gathering &&
                      channel.stage != Operation::Stage::lending;
  if (channel.done || step >= plan.steps.size()) return waiting;
  const Fold& fold = plan.steps[step];
  waiting.sending = flushing || channel.next_in >= fold.n_from;
  if (!waiting.sending) {
    waiting.peer = int(plan.from(fold)[channel.next_in]);
  } else if (channel.next_out < fold.n_to) {
    waiting.peer = int(plan.to(fold)[channel.next_out]);
  }
  if (waiting.peer >= 0) waiting.endpoint = channel.endpoints[waiting.peer];
  const Work& work = operation.work_;
  waiting.signature = work.layout != nullptr ? v_form_signature(work, fold) : work.signature;
  return waiting;
}

Watch Engine::watch(const Operation& operation) const noexcept {
  if (operation.n_small_steps_ > 0) return SmallCall::watch(operation);
  if (operation.work_.device != nullptr) return {};  // it may be the device that is awaited
  const Operation::Channel& channel = operation.channel_[size_t(operation.blocked_)];
  const Plan& plan = *operation.work_.plan;
  if (channel.step >= plan.steps.size()) return {};
  const Fold& fold = plan.steps[channel.step];
  if (channel.next_in >= fold.n_from) return {};
  return channel.endpoints[plan.peers[fold.peers + channel.next_in]]->watch();
}

void Engine::fetch_next(Operation& operation) const noexcept {
  constexpr size_t lines_between_looks = 8, line_bytes = 64;
  const Watch awaited = watch(operation);
  if (awaited.word == nullptr) return;
  const std::span<const std::byte> next = Run<false>(operation.work_, operation.channel_[0]).next_written();
  // What is larger may be written past the caches, which is decided by whether it lies in them.
  if (next.size() >= cold_bytes_min) return;
  for (size_t at = 0; at < next.size() && !awaited.arrived();)
    for (size_t line = 0; line < lines_between_looks && at < next.size(); ++line, at += line_bytes)
      fetch_to_read(next.data() + at);  // to write, with prefetchw, hot broadcasts of 16 KiB took 1.1 to 1.2 times as long
}

// All words are looked at without a branch between, so that their lines come at once and not one after the other.
Awaited Engine::awaited(const Operation& operation, std::span<const uint8_t> marked) const noexcept {
  const Operation::Channel& channel = operation.channel_[0];
  const Plan& plan = *operation.work_.plan;
  if (!(operation.alone_ || operation.alone_v_form_) || !plan.sends_first || channel.tiles > 1) return {true, true};
  bool from[2] = {false, false};
  for (uint32_t step = channel.step; step < plan.steps.size(); ++step) {
    const Fold& fold = plan.steps[step];
    if (fold.n_to > 0) return {true, true};  // a receiver has no room
    for (const uint32_t peer : plan.from(fold)) from[marked[peer]] |= !channel.endpoints[peer]->watch().arrived();
  }
  return {from[1], from[0]};
}

}  // namespace tutti
