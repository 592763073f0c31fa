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
#include "schedule/collective.h"

namespace tutti {

// Lent, a message is copied once, by the kernel and the receiver; else twice, by sender and receiver at the same time. Which is
// faster depends on the machine, the size, the ranks on a core, where the data lie (in whose caches, in pages of which size),
// and even on whether the program writes its inputs anew between calls. So rank 0 times calls: for each kind and size a block of
// calls as ever and a block of the other way, of each the shortest one, which is a call that no late rank has held up. Once in a
// while all that again. Where ranks share cores, how long a call takes one of them says nothing, since others
// run between: there blocks are longer, and what counts is how long a few calls take with all that is between them, of each way the
// shortest few.
//
// Where some lend and others copy, everybody waits longest. So all ranks count calls and try at the same ones; and do what
// rank 0 did last: they see by its messages whether it lends, or by those of another rank before them who does as rank 0 does.
// It needs no word of it.
//
// Where blocks go one way, from a root or to it, each that sends lends for itself, and times itself: who lends waits until all has
// been read, which takes no less than it takes the others, so if that is sooner than to copy, it is sooner for all. Where a receiver
// offers the memory that data go to, so that who sends has them written there, it is the receiver who leads, by offering or not: the
// root of a gather, and who receives what is sent alone. (That may have to end before its receiver comes, so it is never lent but to one
// who waits for it.) So a gather's copies are made by all who send, and where ranks share cores, on all of these.
//
// In a group of sends and receives, who receives from a rank before it does as that rank does, and who does not leads.
class Lending {
 public:
  // What a rank does so that the kernel copies a call of these kinds.
  enum class Duty : uint8_t {
    none,
    lends,          // its buffers, by trial
    lends_or_puts,  // likewise; having nothing else to do, it writes half itself where that is offered
    offers,         // half of what comes to it, to one who does so
    tries_offers,   // by trial, to those who put; half where it has nothing else to do
    puts,           // what it sends, where that is offered
  };
  // Where it stands in a call. is_root: also who sends in an exscan, and a message that stands alone.
  struct Place {
    int ranks;
    bool is_root, in_place, crowded;
  };
  // Where ranks share cores, not of all kinds. (Measured: all_gather of 128 KiB to 4 MiB among 4 and 8 ranks on 2 cores takes 0.9 to 1.5
  // times as long lent; all_to_all from 256 KiB on 0.76 to 1.03, all_to_all_v 0.81 to 1.09, scatter 0.4 to 1.0, sends in groups
  // 0.4 to 1.0; gather 0.8 to 1.0, and 0.3 to 0.9 of that where those who send write to the root's memory.)
  static constexpr Duty duty_of(Collective collective, const Place& at) noexcept {
    const bool two = at.ranks == 2;
    switch (served_as(collective)) {
      case Collective::all_gather: return at.crowded ? Duty::none : Duty::lends;
      case Collective::all_to_all: return Duty::lends;
      case Collective::broadcast:  // among several ranks a root does not see how long it takes all of them
        return !two || at.crowded ? Duty::none : !at.is_root ? answer(at) : at.in_place ? Duty::lends_or_puts : Duty::lends;
      case Collective::exscan:  // nothing is added
        return !two || at.crowded ? Duty::none : !at.is_root ? answer(at) : Duty::lends_or_puts;
      case Collective::scatter:
        if (at.is_root) return two && at.in_place ? Duty::lends_or_puts : Duty::lends;
        return two ? answer(at) : Duty::none;
      case Collective::gather:
        return at.is_root ? Duty::tries_offers : Duty::puts;
      case Collective::send_recv: return at.crowded ? Duty::none : at.is_root ? Duty::puts : Duty::tries_offers;
      default: return Duty::none;
    }
  }

  // Which side of a message a rank is on, in calls of two ranks in which one sends: what is too small for all of that is lent to who
  // waits for it. Not a message that stands alone: what goes to and fro is copied to where the one before was read, which is faster.
  enum class Side : uint8_t { neither, sends, receives };
  static constexpr Side side_of(Collective collective, bool is_root) noexcept {
    switch (served_as(collective)) {
      case Collective::broadcast:
      case Collective::exscan:
      case Collective::scatter: return is_root ? Side::sends : Side::receives;
      case Collective::gather:
      case Collective::reduce: return is_root ? Side::receives : Side::sends;
      default: return Side::neither;
    }
  }

  // Of these kinds. Nothing is added (nor in an exscan of two ranks), since an operand would be copied as well, to where it can be read.
  struct Kind {
    Collective collective;
    bool by_each;       // not as rank 0 does
    bool sizes_differ;  // from rank to rank, so that each counts by itself what is another call to others
  };
  static constexpr std::array<Kind, 12> kinds = {{{Collective::all_gather},
                                                  {Collective::all_to_all},
                                                  {Collective::all_gather_v, false, true},
                                                  {Collective::all_to_all_v, false, true},
                                                  {Collective::broadcast, true},
                                                  {Collective::exscan, true},
                                                  {Collective::scatter, true},
                                                  {Collective::gather, true},
                                                  {Collective::scatter_v, true, true},
                                                  {Collective::gather_v, true, true},
                                                  {Collective::send_recv},
                                                  {Collective::send_recv, true}}};  // alone
  static constexpr bool serves(Collective collective) noexcept { return index_of(collective) < kinds.size(); }

  // How it is tried.
  struct Trial {
    uint32_t first_calls;  // before the first one
    // The same where the way at first is a good guess: a loop of few calls is over before the first trial, and of others that is less
    // than a tenth. (Its calls take up to twice as long as the better way does.)
    uint32_t guessed_calls;
    // Of a block, and of these the first ones, which are not timed: they find the caches as the other way has left them. (Measured,
    // 16 MiB: up to three, which take up to 1.7 times as long.)
    uint32_t block_calls, settling_calls;
    double gain_factor;  // what was right stays where the other way is better by no more than turns differ
    uint32_t run_calls;  // counted as one, with what is between them, where a call alone says nothing; else 1
    constexpr bool counts_runs() const noexcept { return run_calls > 1; }
    constexpr uint32_t calls() const noexcept { return 2 * block_calls; }
  };
  static constexpr Trial lone{4, 192, 6, 3, 0.97, 1};  // the first calls touch buffers and places for the first time
  // Who sends to a gather's root may be some calls ahead of it, and so come upon the other way later; if the calls are small.
  static constexpr Trial lone_gather{4, 192, 20, 14, 0.97, 1};
  static constexpr size_t ahead_bytes_max = size_t{4} << 20;
  // Before a copied call is timed so many bytes have been copied, and by then all of what messages lie in is used, over and over: the
  // first time that it is touched, and out of the caches, a call of 64 KiB takes four to eight times as long.
  static constexpr size_t settling_bytes = size_t{1} << 20;
  // A loop of few calls is over before a trial, which is long. A block's timed calls are one whose end is a beginning, and a run. Where all
  // ranks wait for all, it is two runs, of which another program that takes a core away for a moment holds up but one. Who sends may run
  // ahead for as long as a shorter run. (Counted: docs/tuning.md, trials of lending.)
  static constexpr Trial crowded{48, 96, 18, 5, 0.9, 12}, crowded_all{48, 96, 18, 5, 0.9, 6};

  // is_rank_0: and so it leads. lends_first: what is not known to be slower is lent.
  explicit Lending(bool is_rank_0, const Trial& trial = lone, bool lends_first = false) noexcept
      : is_rank_0_(is_rank_0), trial_(trial) {
    for (auto& sizes : entries_)
      for (size_t size_class = 0; size_class < size_classes; ++size_class) {
        sizes[size_class].lends = lends_first;
        sizes[size_class].pause = lends_first ? trial.guessed_calls : settled(trial, size_class).first_calls;
      }
  }

  // How the next call of a kind that is served goes. watched: once it has ended, took() is to be told of it where the rank leads, and
  // follow() where it does not.
  struct Way {
    size_t kind = 0;   // its index
    size_t bytes = 0;  // of the whole buffer
    bool apart = false;  // in place; of sends, whether the rank leads
    bool leads = false, lends = false, watched = false;
    bool settles = false;  // in a trial, one of the calls that are not timed
    bool of_sends() const noexcept { return kinds[kind].collective == Collective::send_recv; }
  };
  Way next(Collective collective, size_t bytes, bool in_place) noexcept {
    const size_t kind = index_of(collective);
    return next({kind, bytes, in_place, is_rank_0_ || kinds[kind].by_each});
  }
  // The same of a receive that stands alone,
  Way next_lone_receive(size_t bytes) noexcept { return next({kinds.size() - 1, bytes, false, true}); }
  // and of the large sends of a group, of which the first one has so many bytes.
  Way next_sends(size_t bytes, bool leads) noexcept { return next({index_of(Collective::send_recv), bytes, leads, leads}); }

  // Of who leads: when it began and ended.
  void took(const Way& way, TimeNs since, TimeNs until) noexcept {
    Seen& seen = entry_of(way).seen[way.lends];
    const Trial trial = trial_of(way, class_of(way.bytes));
    if (!trial.counts_runs()) {
      seen.least = std::min(seen.least, double(until - since) / double(way.bytes));
      return;
    }
    if (way.settles && seen.since == 0) seen.since = since;
    if (is_lost(way, trial, until)) return end_early(entry_of(way), trial);
    if (way.settles) return;
    seen.bytes += double(way.bytes);
    if (seen.calls % trial.run_calls == 0) {
      if (seen.calls > 0) seen.least = std::min(seen.least, double(until - seen.since) / seen.bytes);
      seen.since = until;
      seen.bytes = 0;
    }
    ++seen.calls;
  }
  // Of others: whether who leads lent in that call, as far as was seen.
  void follow(const Way& way, bool lends) noexcept { entry_of(way).lends = lends; }

  // From one trial to the next, which is twice as far as the one before.
  static constexpr uint32_t pause_min = 128, pause_max = 4096;
  // A size that has not been tried goes as its nearest neighbour does, and is tried later.
  static constexpr uint32_t first_calls_as_neighbour = 64;

 private:
  static constexpr Duty answer(const Place& at) noexcept { return at.crowded ? Duty::none : Duty::offers; }
  static constexpr double never_ns = std::numeric_limits<double>::infinity();
  struct Seen {
    double least = never_ns;  // of a call or a run, in ns a byte
    TimeNs since = 0;         // the present run
    double bytes = 0;         // in it
    uint32_t calls = 0;
  };
  struct Entry {
    uint32_t calls = 0, pause = 0;  // since the last trial, and until the next one
    bool lends = false, tried = false;
    std::array<Seen, 2> seen{};  // copied, lent
  };

  Way next(Way way) noexcept {
    Entry& entry = entry_of(way);
    const Trial trial = trial_of(way, class_of(way.bytes));
    if (way.leads || !kinds[way.kind].sizes_differ) {
      if (is_at_end(entry, trial)) end_trial(entry, trial);
      if (entry.calls == 0 && !entry.tried) take_from_neighbour(way);
      const uint32_t call = entry.calls++;
      if (call >= entry.pause) return in_trial(way, call - entry.pause);
    }
    way.lends = entry.lends;
    way.watched = !way.leads;
    return way;
  }

  // The call of that number in a trial.
  Way in_trial(Way way, uint32_t call) noexcept {
    Entry& entry = entry_of(way);
    const Trial trial = trial_of(way, class_of(way.bytes));
    if (call == 0) entry.seen = {};
    way.lends = call < trial.block_calls ? entry.lends : !entry.lends;
    way.settles = call % trial.block_calls < trial.settling_calls;
    way.watched = way.leads && (!way.settles || may_end_early(way, trial));
    return way;
  }
  // Nobody else counts a trial's calls where each leads for itself; and a run of the slower way is long.
  static bool may_end_early(const Way& way, const Trial& trial) noexcept { return kinds[way.kind].by_each && trial.counts_runs(); }
  // Whether, so far, the other way has taken too long to be the better one: its run, or the calls before that, as long as a run as ever.
  bool is_lost(const Way& way, const Trial& trial, TimeNs now) noexcept {
    const Entry& entry = entry_of(way);
    const bool is_in_trial = entry.calls > entry.pause;
    if (!is_in_trial || way.lends == entry.lends || !may_end_early(way, trial)) return false;
    const Seen& seen = entry.seen[way.lends];
    if (!way.settles && seen.calls == 0) return false;  // its run begins
    const double run_ns = entry.seen[entry.lends].least * double(way.bytes) * trial.run_calls;
    return double(now - seen.since) >= run_ns * (way.settles ? 1 : trial.gain_factor);
  }
  static void end_early(Entry& entry, const Trial& trial) noexcept {
    entry.seen[!entry.lends].least = never_ns;
    entry.calls = entry.pause + trial.calls();
  }
  Trial trial_of(const Way& way, size_t size_class) const noexcept {
    const Collective collective = served_as(kinds[way.kind].collective);
    if (trial_.counts_runs()) {
      const bool all_wait = collective == Collective::all_gather || collective == Collective::all_to_all;
      return all_wait ? crowded_all : trial_;
    }
    // A gather's root leads where it offers its memory.
    const bool may_be_ahead = kinds[way.kind].collective == Collective::gather && size_class <= class_of(ahead_bytes_max);
    return settled(may_be_ahead ? lone_gather : trial_, size_class);
  }
  // With the calls of that size that it takes to settle.
  static constexpr Trial settled(Trial trial, size_t size_class) noexcept {
    if (trial.counts_runs()) return trial;
    const uint32_t calls = uint32_t(settling_bytes >> (size_class + least_class_bits - 1)), timed = trial.block_calls - trial.settling_calls;
    trial.first_calls = std::max(trial.first_calls, calls);
    trial.settling_calls = std::max(trial.settling_calls, calls);
    trial.block_calls = trial.settling_calls + timed;
    return trial;
  }
  static bool is_at_end(const Entry& entry, const Trial& trial) noexcept { return entry.calls == entry.pause + trial.calls(); }
  // Of who does not lead nothing was seen.
  static void end_trial(Entry& entry, const Trial& trial) noexcept {
    const double other = entry.seen[!entry.lends].least, same = entry.seen[entry.lends].least;
    if (same != never_ns && other < same * trial.gain_factor) entry.lends = !entry.lends;
    entry.tried = true;
    entry.calls = 0;
    entry.pause = std::clamp(2 * entry.pause, pause_min, pause_max);
  }

  void take_from_neighbour(const Way& way) noexcept {
    auto& sizes = entries_of(way);
    const size_t here = class_of(way.bytes);
    for (size_t distance = 1; distance < size_classes; ++distance) {
      for (const size_t there : {here - distance, here + distance}) {  // below 0: far above
        if (there >= size_classes) continue;
        if (is_at_end(sizes[there], trial_of(way, there))) end_trial(sizes[there], trial_of(way, there));
        if (!sizes[there].tried) continue;
        sizes[here].lends = sizes[there].lends;
        sizes[here].pause = first_calls_as_neighbour;
        return;
      }
    }
  }

  // Kinds, in place or not, and sizes up to the next power of two, of which the first and the last class have all beyond them.
  static constexpr size_t size_classes = 24, least_class_bits = 15;
  static constexpr size_t class_of(size_t bytes) noexcept {
    return std::clamp<size_t>(std::bit_width(bytes), least_class_bits, least_class_bits + size_classes - 1) - least_class_bits;
  }
  static constexpr size_t index_of(Collective collective) noexcept {
    return size_t(std::find_if(kinds.begin(), kinds.end(), [=](const Kind& kind) { return kind.collective == collective; }) -
                  kinds.begin());
  }
  std::array<Entry, size_classes>& entries_of(const Way& way) noexcept { return entries_[2 * way.kind + way.apart]; }
  Entry& entry_of(const Way& way) noexcept { return entries_of(way)[class_of(way.bytes)]; }

  const bool is_rank_0_;
  const Trial trial_;
  std::array<std::array<Entry, size_classes>, 2 * kinds.size()> entries_{};
};

}  // namespace tutti
