// Sending and receiving by verbs: no allocation and no lock; system calls only where the driver makes them.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "reduce/copy.h"
#include "transport/verbs/verbs_endpoint.h"

namespace tutti {
namespace {

constexpr int completions_at_once = 16;
constexpr uint32_t rounds_between_looks = 256;  // at events and connections, while nobody sleeps

uint64_t place_in(const VerbsTarget& target, uint32_t number) noexcept {
  return target.address + (number - target.first) / target.every * target.stride;
}

}  // namespace

// --- Sending.

// A message goes from where it is staged. The copy stays there until the peer has consumed the message, so it can be
// sent again on another path.
Status VerbsEndpoint::send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  std::byte* const place = reserve(bytes);
  if (place == nullptr) return fault_.kind == FaultKind::none ? Status::again : Status::failed;
  if (bytes > 0) std::memcpy(place, data, bytes);
  commit(bytes, signature);
  bytes_done = bytes;
  return Status::done;
}

Status VerbsEndpoint::lend(const LentRegion& region, const std::byte* data, size_t bytes, uint64_t signature,
                           size_t& bytes_done) noexcept {
  if (bytes < lent_bytes_min || bytes > message_bytes_max_) return send(data, bytes, signature, bytes_done);
  const VerbsRegions::Keys* const keys = transport_.regions().find(region);
  if (keys == nullptr) return send(data, bytes, signature, bytes_done);
  if (!may_send(bytes)) return fault_.kind == FaultKind::none ? Status::again : Status::failed;
  lent_until_ = sent_ + 1;
  lent_ = true;
  publish(std::exchange(reserved_, ShmBulk::npos), bytes, signature, data, keys);
  bytes_done = bytes;
  return Status::done;
}

bool VerbsEndpoint::reaches(const DeviceRegion& region, size_t bytes) noexcept {
  return bytes >= lent_bytes_min && bytes <= message_bytes_max_ && !by_stream_ &&
         transport_.register_device_memory(region) != nullptr;
}

// Once the device's memory is registered, it is as the host's. Who has said that it reaches it keeps that word, though no
// path be left meanwhile.
Status VerbsEndpoint::lend_from_device(const DeviceRegion& region, const std::byte* data, size_t bytes,
                                       uint64_t signature) noexcept {
  if (!may_send(bytes)) return fault_.kind == FaultKind::none ? Status::again : Status::failed;
  const VerbsRegions::Keys* const keys = by_stream_ ? nullptr : transport_.register_device_memory(region);
  if (keys == nullptr) {
    if (!region.fetch(region.device, staging_ + reserved_ + verbs_unit_bytes, data, bytes))
      return fail(FaultKind::system, EIO, 0, bytes);
    commit(bytes, signature);
    return Status::done;
  }
  lent_until_ = sent_ + 1;
  lent_ = true;
  ++transport_.counters().from_devices;
  publish(std::exchange(reserved_, ShmBulk::npos), bytes, signature, data, keys, &region);
  return fault_.kind == FaultKind::none ? Status::done : Status::failed;
}

std::byte* VerbsEndpoint::reserve(size_t bytes) noexcept {
  if (bytes > message_bytes_max_) fail(FaultKind::system, EMSGSIZE, 0, bytes);
  return may_send(bytes) ? staging_ + reserved_ + verbs_unit_bytes : nullptr;
}

void VerbsEndpoint::commit(size_t bytes, uint64_t signature) noexcept {
  publish(std::exchange(reserved_, ShmBulk::npos), bytes, signature, nullptr, nullptr);
}

// Whether there is a line, and a place in the peer's ring, for a message; it is reserved then.
bool VerbsEndpoint::may_send(size_t bytes) noexcept {
  for (int look = 0; fault_.kind == FaultKind::none; ++look) {
    const uint32_t free = free_until();
    const bool line = sent_ - free <= mask_;
    if (line && reserved_ == ShmBulk::npos) {
      bulk_.give_back(free, sent_);
      reserved_ = bulk_.place(bytes + verbs_unit_bytes);
    }
    if (line && reserved_ != ShmBulk::npos && !ended_ && (by_stream_ ? stream_.has_room() : choose_path() != nullptr))
      return true;
    if (ended_ && !attention_) {
      fail(FaultKind::closed, 0);
      return false;
    }
    if (look > 0 || !transport_.poll()) return false;
  }
  return false;
}

void VerbsEndpoint::publish(uint64_t place, size_t bytes, uint64_t signature, const std::byte* lent,
                            const VerbsRegions::Keys* keys, const DeviceRegion* device) noexcept {
  const uint32_t number = ++sent_;
  bulk_.take(place, bytes + verbs_unit_bytes, number);
  Sent& record = sent(number);
  record.place = place / verbs_unit_bytes;
  record.bytes = bytes;
  record.lent = lent;
  record.device = device;
  record.written = record.again = false;
  if (keys != nullptr) record.keys = *keys;
  VerbsHeader& header = *header_at(staging_, record.place);
  header.signature = signature;
  header.bytes = bytes;
  header.number = number;
  ++transport_.counters().messages;
  // Of bulk that is lent, only the first message goes at once: flush() and progress() come soon.
  if (!transmit(number, lent != nullptr && consumed_ + 1 != number)) {
    record.path = by_nothing;
    unsent_ = attention_ = true;
    transport_.needs_attention();
  }
}

// Hands a message to the path that has the least to bring, or to the connection where no path is left.
bool VerbsEndpoint::transmit(uint32_t number, bool more) noexcept {
  Sent& record = sent(number);
  VerbsHeader& header = *header_at(staging_, record.place);
  header.targets = targets_taken_;
  if (by_stream_) {
    if (!stream_.has_room()) return false;
    if (record.device != nullptr && !fetch_from_device(record)) return true;
    tell_consumed(header);
    record.path = by_stream;
    const auto* start = reinterpret_cast<const std::byte*>(&header);
    const size_t whole = sizeof header + record.bytes;
    const VerbsFrame frame{VerbsFrame::message, uint32_t(record.place), whole};
    if (record.lent == nullptr) stream_.push({frame, {start, nullptr}, {whole, 0}, number});
    else stream_.push({frame, {start, record.lent}, {sizeof header, record.bytes}, number});
    write_stream();
    return true;
  }
  VerbsPath* const path = choose_path();
  if (path == nullptr) return false;
  record.path = int8_t(path->number());
  path->bytes_under_way += record.bytes + verbs_unit_bytes;
  VerbsPieces pieces{reinterpret_cast<const std::byte*>(&header), record.lent, &record.keys, record.bytes, record.place};
  const VerbsTarget* const target = record.again ? nullptr : target_of(targets(), number);
  if (target != nullptr && target->bytes == record.bytes && target->signature == header.signature) {
    pieces.address = place_in(*target, number);
    pieces.key = target->keys[size_t(path->number())];
    pieces.number = number;
    ++transport_.counters().direct;
  } else {
    tell_consumed(header);
  }
  const int result = path->post_message(pieces, more);
  record.request = path->posted();
  if (!take_result(*path, result)) return true;
  if (more) transport_.needs_attention();
  return true;
}

// The kernel's sockets cannot read a device's memory: the message comes to where it would be staged.
bool VerbsEndpoint::fetch_from_device(Sent& record) noexcept {
  const DeviceRegion& region = *record.device;
  if (!region.fetch(region.device, staging_ + (record.place + 1) * verbs_unit_bytes, record.lent, record.bytes)) {
    fail(FaultKind::system, EIO, 0, record.bytes);
    return false;
  }
  record.device = nullptr;
  record.lent = nullptr;
  return true;
}

void VerbsEndpoint::tell_consumed(VerbsHeader& header) noexcept {
  header.consumed = told_ = received_;
  untold_bytes_ = 0;
}

const VerbsTarget* VerbsEndpoint::target_of(std::span<const VerbsTarget> targets, uint32_t number) noexcept {
  for (const VerbsTarget& target : targets) {
    const uint32_t ahead = number - target.first;
    if (target.count > 0 && ahead % target.every == 0 && ahead / target.every < target.count) return &target;
  }
  return nullptr;
}

VerbsPath* VerbsEndpoint::choose_path() noexcept {
  VerbsPath* best = nullptr;
  for (const auto& path : paths_) {
    if (path->state != VerbsPath::State::alive || !path->has_room()) continue;
    if (best == nullptr || path->bytes_under_way < best->bytes_under_way) best = path.get();
  }
  return best;
}

// Whether its bytes, here, are not read any more, or in vain. The peer may have consumed a message that is being sent again, since
// it came the first time; it is read all the same, until it is out or the peer has ended.
bool VerbsEndpoint::is_delivered(uint32_t number) noexcept {
  const Sent& record = sent(number);
  const bool consumed = ShmBulk::is_consumed(number, consumed_, sent_);
  if (consumed && (!record.again || ended_)) return true;
  if (record.path == by_stream) return record.written;
  if (record.path == by_nothing) return consumed;
  const VerbsPath& path = *paths_[size_t(record.path)];
  return path.is_completed(record.request) || (consumed && path.state == VerbsPath::State::dead);
}

// The number up to which all messages are consumed and none is read any more: their places may be used for others.
uint32_t VerbsEndpoint::free_until() noexcept {
  if (!repeats_) [[likely]] return free_until_ = consumed_;
  for (; free_until_ != consumed_; ++free_until_) {
    if (is_delivered(free_until_ + 1)) continue;
    ask_for_completion(free_until_ + 1);
    return free_until_;
  }
  repeats_ = false;
  for (uint32_t number = consumed_ + 1; int32_t(sent_ - number) >= 0; ++number) repeats_ |= sent(number).again;
  return free_until_;
}

// Asks the device to say when a message is out, where no completion is under way that would tell.
void VerbsEndpoint::ask_for_completion(uint32_t number) noexcept {
  const Sent& record = sent(number);
  if (record.path < 0) return;
  VerbsPath& path = *paths_[size_t(record.path)];
  if (path.state != VerbsPath::State::alive || !path.has_room()) return;
  take_result(path, path.post_marker(record.request));
}

// What was copied can be forgotten by the caller. What was lent is out once the device says so.
Status VerbsEndpoint::flush() noexcept {
  if (fault_.kind != FaultKind::none) return Status::failed;
  if (!lent_) return Status::done;
  ring_paths();
  transport_.poll();
  lent_ = false;
  for (uint32_t number = free_until() + 1; int32_t(lent_until_ - number) >= 0; ++number) {
    if (sent(number).lent == nullptr || is_delivered(number)) continue;
    lent_ = true;
    ask_for_completion(number);
  }
  if (lent_ && is_over()) return fail(FaultKind::closed, 0);
  if (fault_.kind != FaultKind::none) return Status::failed;
  return lent_ ? Status::again : Status::done;
}

void VerbsEndpoint::ring_paths() noexcept {
  for (const auto& path : paths_) {
    if (path->state != VerbsPath::State::alive) continue;
    take_result(*path, path->ring());
  }
}

void VerbsEndpoint::take_credit(uint32_t consumed) noexcept {
  for (; int32_t(consumed - consumed_) > 0 && consumed_ != sent_; ++consumed_) {
    const Sent& record = sent(consumed_ + 1);
    if (record.path >= 0) paths_[size_t(record.path)]->bytes_under_way -= record.bytes + verbs_unit_bytes;
  }
}

// --- Receiving.

void VerbsEndpoint::received(VerbsPath& path, uint32_t immediate) noexcept {
  if (immediate == verbs_probe) {
    path.probed = true;
    return;
  }
  if ((immediate & verbs_credit_bit) != 0) {
    // 31 bits of a count that is at most `mask_ + 1` ahead of what is known.
    const uint32_t ahead = (immediate - consumed_) & ~verbs_credit_bit;
    if (ahead <= mask_ + 1) take_credit(consumed_ + ahead);
    return;
  }
  if ((immediate & verbs_direct_bit) != 0) return received_directly(path, immediate & verbs_low_bits);
  if ((immediate & verbs_target_bit) != 0) return take_target(path, immediate & verbs_low_bits);
  const uint64_t place = immediate;
  if ((place + 1) * verbs_unit_bytes > ring_bytes_) {
    return path_failed(path, {"the peer wrote outside of its ring", "the peer runs another version of Tutti"});
  }
  const VerbsHeader& header = *header_at(ring_, place);
  if (header.bytes > ring_bytes_ - (place + 1) * verbs_unit_bytes || header.number - received_ - 1 > mask_) {
    if (int32_t(header.number - received_) <= 0) return;  // it came before, by a path that failed
    return path_failed(path, {"the peer wrote what is no message", "the peer runs another version of Tutti"});
  }
  arrivals_[header.number & mask_] = {header.number, place, nullptr};
  if (int32_t(header.targets - own_targets_taken_) > 0) own_targets_taken_ = header.targets;
  take_credit(header.consumed);
}

// --- Messages that are written to where the receiver wants them.

// A place for a target is free once all of the messages of its last one have been received, and the peer has taken note of
// that target, so that it does not read while the place is written.
bool VerbsEndpoint::expect(const LentRegion& region, const ExpectedMessages& messages, uint64_t signature) noexcept {
  const uint32_t next = received_ + 1;
  if (messages.bytes < lent_bytes_min) return false;
  if (const VerbsTarget* const told = target_of(own_targets(), next)) {
    TUTTI_ASSERT(place_in(*told, next) == reinterpret_cast<uintptr_t>(messages.data) && told->signature == signature);
    return true;
  }
  if (by_stream_ || attention_ || fault_.kind != FaultKind::none) return false;
  if (messages.count == 1 && next_arrival().number == next) return false;  // it is in the ring already
  if (own_targets_told_ - own_targets_taken_ >= verbs_targets_max) return false;
  VerbsTarget& target = own_targets_[own_targets_told_ % verbs_targets_max];
  const uint32_t last = target.first + (target.count - 1) * target.every;
  if (target.count > 0 && int32_t(received_ - last) < 0) return false;
  const VerbsRegions::Keys* const keys = transport_.regions().find(region, VerbsRegions::Use::written);
  VerbsPath* const path = keys == nullptr ? nullptr : choose_path();
  if (path == nullptr) return false;
  target = {++own_targets_told_, next, messages.every, messages.count, reinterpret_cast<uintptr_t>(messages.data),
            messages.stride, messages.bytes, signature, {}};
  for (const auto& p : paths_) target.keys[size_t(p->number())] = (*keys)[size_t(p->device_index)];
  ++transport_.counters().targets;
  take_result(*path, path->post_target(target, (target.number - 1) % verbs_targets_max));
  return true;
}

void VerbsEndpoint::take_target(VerbsPath& path, uint32_t place) noexcept {
  if (place < verbs_targets_max) targets_[place] = targets_written_[place];
  if (place >= verbs_targets_max || targets_[place].every == 0 || targets_[place].bytes > message_bytes_max_)
    return path_failed(path, {"the peer wrote what is no target", "the peer runs another version of Tutti"});
  if (int32_t(targets_[place].number - targets_taken_) > 0) targets_taken_ = targets_[place].number;
}

void VerbsEndpoint::received_directly(VerbsPath& path, uint32_t low_bits) noexcept {
  const uint32_t number = received_ + 1 + ((low_bits - (received_ + 1)) & verbs_low_bits);
  const VerbsTarget* const target = target_of(own_targets(), number);
  if (number - received_ - 1 > mask_ || target == nullptr)
    return path_failed(path, {"the peer wrote what is no message", "the peer runs another version of Tutti"});
  arrivals_[number & mask_] = {number, 0, target};
  if (int32_t(target->number - own_targets_taken_) > 0) own_targets_taken_ = target->number;
}

// The peer has ended, and what it sent before has come.
bool VerbsEndpoint::is_over() noexcept {
  constexpr TimeNs last_completions_ns = 2 * ns_per_ms;
  if (!ended_) return false;
  if (now_ns() - ended_at_ns_ > last_completions_ns) return true;
  transport_.wake_at(ended_at_ns_ + last_completions_ns + 1);
  return false;
}

Status VerbsEndpoint::arrived(size_t bytes, uint64_t signature) noexcept {
  if (next_arrival().number != received_ + 1 && fault_.kind == FaultKind::none) transport_.poll();
  if (fault_.kind != FaultKind::none) return Status::failed;
  if (next_arrival().number != received_ + 1) {
    if (!is_over()) return Status::again;
    transport_.poll_all();
    if (next_arrival().number != received_ + 1) return fail(FaultKind::closed, 0);
  }
  if (const VerbsTarget* const target = next_arrival().target; target != nullptr) {
    if (target->signature == signature && target->bytes == bytes) return Status::done;
    return fail(FaultKind::mismatch, 0, target->signature, target->bytes);
  }
  const VerbsHeader& header = *header_at(ring_, next_arrival().place);
  if (header.signature == signature && header.bytes == bytes) [[likely]] return Status::done;
  return fail(FaultKind::mismatch, 0, header.signature, header.bytes);
}

Status VerbsEndpoint::receive(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done, Store how) noexcept {
  if (const Status status = arrived(bytes, signature); status != Status::done) return status;
  if (next_arrival().target == nullptr) copy_bytes(data, payload(next_arrival()), bytes, how);
  bytes_done = bytes;
  return release();
}

Status VerbsEndpoint::view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  if (const Status status = arrived(bytes, signature); status != Status::done) return status;
  data = payload(next_arrival());
  return Status::done;
}

Status VerbsEndpoint::release() noexcept {
  const Arrival& arrival = next_arrival();
  const uint64_t bytes = arrival.target != nullptr ? arrival.target->bytes : header_at(ring_, arrival.place)->bytes;
  untold_bytes_ += bytes + verbs_unit_bytes;
  ++received_;
  if (untold_bytes_ >= untold_bytes_max_ || received_ - told_ > mask_ / 2) give_credit();
  return Status::done;
}

// Room goes back with the messages of the other direction; where none go, with one of its own.
void VerbsEndpoint::give_credit() noexcept {
  const uint32_t immediate = (received_ & ~verbs_credit_bit) | verbs_credit_bit;
  credit_due_ = false;
  if (by_stream_ && stream_.has_room()) {
    stream_.push({{VerbsFrame::credit, immediate, 0}, {}, {}, 0});
    write_stream();
  } else if (VerbsPath* const path = by_stream_ ? nullptr : choose_path(); path != nullptr) {
    take_result(*path, path->post_credit(immediate));
  } else {
    credit_due_ = attention_ = true;
    transport_.needs_attention();
    return;
  }
  ++transport_.counters().credits;
  told_ = received_;
  untold_bytes_ = 0;
}

void VerbsEndpoint::say_what_was_consumed() noexcept {
  if (begun_ && !ended_ && fault_.kind == FaultKind::none && told_ != received_) give_credit();
}

Status VerbsEndpoint::fail(FaultKind kind, int error_number, uint64_t signature, uint64_t bytes) noexcept {
  if (fault_.kind == FaultKind::none) fault_ = {kind, error_number, signature, bytes};
  return Status::failed;
}

// --- The transport.

const VerbsRegions::Keys* VerbsTransport::register_device_memory(const DeviceRegion& region) noexcept {
  if (!regions_.takes_devices()) return nullptr;
  const VerbsRegions::Keys* const keys = regions_.find(region.memory, VerbsRegions::Use::of_device);
  if (keys == nullptr && !regions_.takes_devices()) log_.info(regions_.why_no_devices());
  return keys;
}

void VerbsTransport::progress() noexcept {
  poll();
  if (++rounds_ % rounds_between_looks == 0 || streaming_ > 0) look_at_events();
  attend();
}

void VerbsTransport::attend() noexcept {
  if (!attention_) return;
  attention_ = false;
  for (const auto& endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    endpoint->ring_paths();
    if (endpoint->wants_attention()) endpoint->attend();
    attention_ |= endpoint->wants_attention();
  }
}

bool VerbsTransport::poll() noexcept {
  bool any = false;
  for (const auto& device : hardware_.devices) {
    ibv_wc completions[completions_at_once];
    const int n = ibv_poll_cq(device->cq(), completions_at_once, completions);
    for (int i = 0; i < n; ++i) completed(completions[i]);
    any |= n > 0;
  }
  return any;
}

void VerbsTransport::poll_all() noexcept {
  while (poll()) {
  }
}

void VerbsTransport::completed(const ibv_wc& completion) noexcept {
  VerbsPath& path = *reinterpret_cast<VerbsPath*>(completion.wr_id & ~verbs_receive_bit);
  const bool receive = (completion.wr_id & verbs_receive_bit) != 0;
  if (receive) path.receive_completed();
  if (completion.status != IBV_WC_SUCCESS) return path.endpoint().path_failed(path, cause_of(completion.status));
  if (!receive) return path.send_completed();
  ++counters_.arrivals;
  path.endpoint().received(path, ntohl(completion.imm_data));
}

void VerbsTransport::arm() noexcept {
  for (const auto& endpoint : endpoints_)
    if (endpoint != nullptr) endpoint->ring_paths();
  look_at_events();
  armed_ = true;
  for (const auto& device : hardware_.devices) device->arm();
  poll_all();  // what came before makes nothing ready
  attend();    // nor does what is left to be done about it: a peer waits for word of a path that has failed
}

void VerbsTransport::disarm() noexcept {
  armed_ = false;
  for (const auto& device : hardware_.devices) device->drain_channel();
  look_at_events();
}

size_t VerbsTransport::poll_fds(std::span<pollfd> space) noexcept {
  if (space.empty()) return 0;
  space[0] = {news_.get(), POLLIN, 0};
  return 1;
}

}  // namespace tutti
