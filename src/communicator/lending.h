// Whether large calls lend their buffers where these lie in ordinary memory, or copy through shared memory: by trying both.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "base/signature.h"

namespace tutti {

// Lent, a message is copied once, by the kernel and the receiver; else twice, by sender and receiver at the same time. Which is
// faster depends on the machine, the size, the ranks on a core, where the data lie (in whose caches, in pages of which size),
// and even on whether the program writes its inputs anew between calls. So rank 0 times calls: for each kind and size, blocks of
// calls by turns, of each way the shortest one, which is a call that no late rank has held up. Once in a while all that again.
//
// Where some lend and others copy, everybody waits longest. So the others do what rank 0 did last: they see by its messages
// whether it lends, or by those of another rank before them who does as rank 0 does. It needs no word of it.
class Lending {
 public:
  // Of these kinds, whose ranks all wait for each other in any way: who lends must wait until all has been read. And nothing
  // is added, since an operand would be copied as well, to where it can be read.
  static constexpr std::array kinds = {Collective::all_gather, Collective::all_to_all, Collective::all_gather_v,
                                       Collective::all_to_all_v};
  static constexpr bool serves(Collective kind) noexcept { return index_of(kind) < kinds.size(); }

  // leads: this is of rank 0.
  explicit Lending(bool leads) noexcept : leads_(leads) {}

  // How the next call of a kind that is served goes. watched: once it has ended, took() or follow() is to be told of it.
  struct Way {
    Collective kind{};
    size_t bytes = 0;  // of the whole buffer
    bool in_place = false, lends = false, watched = false;
  };
  Way next(Collective kind, size_t bytes, bool in_place) noexcept {
    Way way{kind, bytes, in_place};
    Entry& entry = entry_of(way);
    if (!leads_) {
      way.lends = entry.lends;
      way.watched = true;
      return way;
    }
    const uint32_t call = entry.calls++;
    if (call < first_calls) return way;
    const uint32_t at = (call - first_calls) % period_calls, block = at / block_calls;
    if (at == 0) entry.least_byte_ns = {never_ns, never_ns};
    if (block >= blocks) {
      if (block == blocks && at % block_calls == 0) conclude(entry);
      way.lends = entry.lends;
      return way;
    }
    way.lends = block % 2 != 0;
    way.watched = at % block_calls >= settling_calls;
    return way;
  }
  // Of rank 0.
  void took(const Way& way, TimeNs ns) noexcept {
    double& least = entry_of(way).least_byte_ns[way.lends];
    least = std::min(least, double(ns) / double(way.bytes));
  }
  // Of others: whether rank 0 lent in that call, as far as was seen.
  void follow(const Way& way, bool lends) noexcept { entry_of(way).lends = lends; }

  static constexpr uint32_t first_calls = 4;  // which touch buffers and places for the first time
  // The first calls of a block find the caches as the other way has left them. (Measured, 16 MiB: up to three, which take up to
  // 1.7 times as long.)
  static constexpr uint32_t settling_calls = 3, block_calls = 6, blocks = 2, period_calls = 512;

 private:
  static constexpr double never_ns = std::numeric_limits<double>::infinity();
  struct Entry {
    uint32_t calls = 0;
    bool lends = false;
    std::array<double, 2> least_byte_ns{never_ns, never_ns};  // copied, lent
  };

  // What was right stays where the other way is better by no more than turns differ.
  static void conclude(Entry& entry) noexcept {
    const double other = entry.least_byte_ns[!entry.lends], same = entry.least_byte_ns[entry.lends];
    if (same != never_ns && other < same * gain_factor) entry.lends = !entry.lends;
  }
  static constexpr double gain_factor = 0.97;

  // Kinds, in place or not, and sizes up to the next power of two.
  Entry& entry_of(const Way& way) noexcept {
    return entries_[2 * index_of(way.kind) + way.in_place][std::min<size_t>(std::bit_width(way.bytes), size_classes - 1)];
  }
  static constexpr size_t index_of(Collective kind) noexcept {
    return size_t(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
  }
  static constexpr size_t size_classes = 40;

  const bool leads_;
  std::array<std::array<Entry, size_classes>, 2 * kinds.size()> entries_{};
};

}  // namespace tutti
