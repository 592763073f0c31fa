// Cards of devices, and a little memory that is really opened.
#include "communicator/peer_reach.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "base/clock.h"

namespace tutti {
namespace {

// Drawn once; a child that was forked has another number beside it.
uint64_t own_token() {
  static const uint64_t token = [] {
    uint64_t drawn = 0;
    return ::getrandom(&drawn, sizeof drawn, 0) == ssize_t(sizeof drawn) ? drawn : uint64_t(now_ns());
  }();
  return token;
}

// The number that the device of a card has here; -1: it is not seen.
int number_here(Platform& platform, const DeviceCard& card) {
  for (int i = 0; i < platform.count(); ++i)
    if (platform.device(i).info().uuid == card.uuid) return i;
  return -1;
}

}  // namespace

bool one_process(const DeviceCard& a, const DeviceCard& b) {
  return a.machine == b.machine && a.process == b.process && a.process_token == b.process_token;
}

DeviceCard DeviceCard::of(Platform& platform, int number, uint64_t machine) {
  DeviceCard card;
  card.number = number;
  card.process = ::getpid();
  card.process_token = own_token();
  card.uuid = platform.device(number).info().uuid;
  std::strncpy(card.platform.data(), platform.name(), card.platform.size() - 1);
  card.machine = machine;
  card.exports = platform.device(number).info().exports_memory;
  return card;
}

std::string why_no_peers(Platform& platform, std::span<const DeviceCard> cards, int rank) {
  const DeviceCard& mine = cards[size_t(rank)];
  for (size_t r = 0; r < cards.size(); ++r) {
    const DeviceCard& peer = cards[r];
    if (peer.number < 0) return fmt::format("rank {} has named no device", r);
    if (peer.platform != mine.platform || peer.machine != mine.machine) return fmt::format("rank {} is elsewhere", r);
    const bool here = one_process(mine, peer);
    if (!here && (!peer.exports || !mine.exports)) return fmt::format("rank {} is another process, and nothing is exported", r);
    const int number = here ? peer.number : number_here(platform, peer);
    if (number < 0) return fmt::format("the device of rank {} is not seen here", r);
    if (!platform.has_peer_access(mine.number, number))
      return fmt::format("device {} has no access to device {} of rank {}", mine.number, number, r);
    const Outcome enabled = platform.enable_peer_access(mine.number, number);
    if (!enabled.ok()) return enabled.sentence;
  }
  return "";
}

PeerProbe::PeerProbe(Device& device) noexcept : device_(device) {
  if (!device_.allocate(sizeof(uint64_t), &memory_).ok()) return;
  if (!device_.export_memory(memory_, &card_).ok()) card_ = {};
}

PeerProbe::~PeerProbe() {
  for (void* begin : opened_) (void)device_.close_memory(begin);
  (void)device_.free(memory_);
}

std::string PeerProbe::open(std::span<const DeviceCard> cards, std::span<const ExportedMemory> all, int rank) {
  for (size_t r = 0; r < cards.size(); ++r) {
    if (one_process(cards[r], cards[size_t(rank)])) continue;
    if (all[r].bytes == 0) return fmt::format("rank {} cannot export its memory", r);
    void* begin = nullptr;
    const Outcome outcome = device_.import_memory(all[r], &begin);
    if (!outcome.ok()) return fmt::format("cannot open the memory of rank {}: {}", r, outcome.sentence);
    opened_.push_back(begin);
  }
  return "";
}

}  // namespace tutti
