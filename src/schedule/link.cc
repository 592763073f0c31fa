// Linking the plans of all ranks.
#include "schedule/link.h"

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

namespace tutti {
namespace {

// A step of a rank, counted from 0 among the drafts of that rank.
struct Where {
  uint32_t rank = 0;
  size_t draft = 0;
  friend bool operator==(const Where&, const Where&) = default;
};

// A step while it is linked.
struct Draft {
  std::vector<LinkedPlace> operands, outputs;
  std::vector<LinkedWait> waits;
  bool finish = false, vanished = false;
  Where put_by;  // where it vanished: who does it now
  uint32_t first_chunk = 0, chunks = 0;
};

// A message on its way: where it will lie, and how many of the sender's steps it waits for.
struct Message {
  LinkedPlace place;
  uint8_t steps = 0;
  int loan = -1;  // index into the loans, where its sender writes there again
};

// A message that is read where it lies although its sender's later steps write there: which is right where these cannot
// come before those who read it.
struct Loan {
  Where sent;  // the sender and the number of its drafts then
  size_t step = 0;  // of the sender's plan
  LinkedPlace place;
  uint32_t chunks = 0;
  std::vector<Where> readers;
};

class Linker {
 public:
  Linker(Collective collective, std::span<const Plan> plans, int root, std::span<const bool> in_place)
      : meaning_(meaning(collective)), plans_(plans), root_(uint32_t(root)), in_place_(in_place), n_(uint32_t(plans.size())),
        copied_(n_) {}

  bool run_packets(LinkedPlan* linked) {
    packets_ = true;
    if (!can_be_linked() || !draft_all()) return false;
    return write(linked);
  }

  bool run(LinkedPlan* linked, bool puts) {
    puts_ = puts;
    if (!can_be_linked()) return false;
    // At first all is lent; what may not be is copied to a slot in the next round. Where putting takes an order away that
    // a loan needs, nothing is put.
    for (;;) {
      if (!draft_all()) return false;
      if (copy_wrong_loans()) continue;
      if (puts_) {
        put_where_possible();
        if (!wrong_loans().empty()) {
          puts_ = false;
          continue;
        }
      }
      return write(linked);
    }
  }

 private:
  static constexpr size_t steps_max = 255;  // of a rank: what LinkedWait counts to

  bool can_be_linked() const {
    if (n_ == 0 || n_ > linked_ranks_max) return false;
    const Shape& shape = plans_[0].shape;
    for (const Plan& plan : plans_)
      if (plan.shape.scratch > 0 || plan.shape.input != shape.input || plan.shape.output != shape.output) return false;
    if (!meaning_.blocks && shape.input != shape.output) return false;
    return true;
  }

  // Ranks take turns, each as far as its messages are there: in any order, since the results do not depend on it.
  bool draft_all() {
    drafts_.assign(n_, {});
    next_.assign(n_, 0);
    slots_.assign(n_, 0);
    fifos_.assign(n_ * n_, {});
    loans_.clear();
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < n_; ++rank)
        while (next_[rank] < plans_[rank].steps.size() && take(rank)) moved = true;
    }
    for (uint32_t rank = 0; rank < n_; ++rank)
      if (next_[rank] < plans_[rank].steps.size() || drafts_[rank].size() > steps_max) return false;
    return true;
  }

  // Chunk numbers of a slice, as a place of a rank. No scratch comes here.
  LinkedPlace place(uint32_t rank, const Slice& slice) const {
    const bool is_root = meaning_.rooted ? rank == root_ : rank == 0;
    const auto part = [&](Buffer of) { return of == Buffer::input ? meaning_.input_of(is_root) : meaning_.output_of(is_root); };
    // In place, a chunk's number is that of the buffer that has all of them, by whichever name the plan calls it.
    Buffer buffer = slice.buffer;
    const Buffer other = buffer == Buffer::input ? Buffer::output : Buffer::input;
    if (in_place_[rank] && part(buffer) != Part::all && part(other) == Part::all) buffer = other;
    const bool own = meaning_.blocks && part(buffer) == Part::own;
    const auto kind = buffer == Buffer::input ? own ? LinkedPlace::own_input : LinkedPlace::input
                                              : own ? LinkedPlace::own_output : LinkedPlace::output;
    return {uint8_t(rank), kind, uint16_t(slice.first)};
  }

  // The next step of a rank, where all that it receives has been sent. False where not, or where a limit is met.
  bool take(uint32_t rank) {
    const Plan& plan = plans_[rank];
    const Fold& fold = plan.steps[next_[rank]];
    for (const uint32_t from : plan.from(fold))
      if (fifo(from, rank).empty()) return false;
    Draft draft;
    const Slice& shape = fold.dst.count > 0 ? fold.dst : fold.a;
    draft.first_chunk = shape.first, draft.chunks = shape.count, draft.finish = fold.finish;
    uint32_t operand = 0;
    const auto own = [&] {
      if (fold.a.count > 0 && operand == fold.a_place) draft.operands.push_back(place(rank, fold.a)), ++operand;
    };
    own();
    for (const uint32_t from : plan.from(fold)) {
      const Message message = fifo(from, rank).front();
      fifo(from, rank).pop_front();
      draft.operands.push_back(message.place), ++operand;
      if (message.steps > 0) draft.waits.push_back({uint8_t(from), message.steps});
      if (message.loan >= 0) loans_[size_t(message.loan)].readers.push_back({rank, drafts_[rank].size()});
      own();
    }
    if (fold.b.count > 0) draft.operands.push_back(place(rank, fold.b));
    if (fold.dst.count > 0) draft.outputs.push_back(place(rank, fold.dst));
    send(rank, fold, draft);
    ++next_[rank];
    return true;
  }

  // A message lies where the step leaves it, or else in a slot. A step that does nothing but send what
  // lies in a buffer is none.
  void send(uint32_t rank, const Fold& fold, Draft& draft) {
    const std::span<const uint32_t> to = plans_[rank].to(fold);
    if (packets_) return send_packets(rank, to, draft);
    const bool only_sends = fold.dst.count == 0 && fold.n_from == 0 && fold.b.count == 0 && !fold.finish;
    const bool changes_nothing = draft.operands.size() == 1 && draft.outputs.size() == 1 &&
                                 draft.operands[0] == draft.outputs[0] && !fold.finish;
    const bool in_buffer = (fold.dst.count > 0 || only_sends) && !copied_[rank].contains(next_[rank]);
    Message message;
    if (!to.empty() && !in_buffer) draft.outputs.push_back({uint8_t(rank), LinkedPlace::slot, uint16_t(slots_[rank]++)});
    if (!to.empty()) message.place = in_buffer ? (only_sends ? draft.operands[0] : draft.outputs[0]) : draft.outputs.back();
    if (only_sends && in_buffer) {
      message.steps = last_writer(message.place, draft.chunks);
    } else if (!changes_nothing || draft.outputs.size() > 1) {
      drafts_[rank].push_back(draft);
      message.steps = uint8_t(drafts_[rank].size());
    } else {
      message.steps = last_writer(message.place, draft.chunks);
    }
    if (!puts_ && in_buffer && fold.copies_input()) {  // whoever reads it waits for nothing
      message.place = draft.operands[0];
      message.steps = last_writer(message.place, draft.chunks);
    }
    if (!to.empty() && in_buffer && !fold.keeps) {
      message.loan = int(loans_.size());
      loans_.push_back({{rank, drafts_[rank].size()}, next_[rank], message.place, draft.chunks, {}});
    }
    for (const uint32_t peer : to) fifo(rank, peer).push_back(message);
  }

  // The first output, if there is one, is the rank's own.
  void send_packets(uint32_t rank, std::span<const uint32_t> to, Draft& draft) {
    for (const uint32_t peer : to) {
      const LinkedPlace slot{uint8_t(peer), LinkedPlace::slot, uint16_t(slots_[peer]++)};
      draft.outputs.push_back(slot);
      fifo(rank, peer).push_back({slot});
    }
    const bool changes_nothing = to.empty() && draft.operands.size() == 1 && draft.operands == draft.outputs && !draft.finish;
    if (!changes_nothing) drafts_[rank].push_back(draft);
  }

  // How many steps of each rank are surely done when a step of a rank begins, by rank and step: those that it, or what is
  // surely done, waits for.
  std::vector<std::vector<std::vector<size_t>>> steps_before() const {
    std::vector<std::vector<std::vector<size_t>>> before(n_);
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < n_; ++rank)
        while (before[rank].size() < drafts_[rank].size()) {
          const size_t i = before[rank].size();
          const Draft& draft = drafts_[rank][i];
          std::vector<size_t> clock = i > 0 ? before[rank][i - 1] : std::vector<size_t>(n_);
          clock[rank] = i;
          bool known = true;
          if (!draft.vanished)
            for (const LinkedWait& wait : draft.waits) {
              const size_t last = wait.steps - 1u;
              if (!(known = known && last < before[wait.rank].size())) break;
              for (uint32_t r = 0; r < n_; ++r) clock[r] = std::max(clock[r], before[wait.rank][last][r]);
              clock[wait.rank] = std::max(clock[wait.rank], last + 1);
            }
          if (!known) break;
          before[rank].push_back(std::move(clock));
          moved = true;
        }
    }
    return before;
  }

  const Draft& draft_at(const Where& where) const { return drafts_[where.rank][where.draft]; }
  // Who does the step now.
  Where doer(const Where& where) const { return draft_at(where).vanished ? draft_at(where).put_by : where; }

  // Loans whose place may be written before all have read it.
  std::vector<const Loan*> wrong_loans() const {
    const auto before = steps_before();
    std::vector<const Loan*> wrong;
    for (const Loan& loan : loans_)
      for (size_t i = loan.sent.draft; i < drafts_[loan.sent.rank].size(); ++i) {
        const Draft& later = drafts_[loan.sent.rank][i];
        const bool writes = std::any_of(later.outputs.begin(), later.outputs.end(), [&](const LinkedPlace& output) {
          return overlap(output, later.chunks, loan.place, loan.chunks);
        });
        if (!writes) continue;
        const Where writer = doer({loan.sent.rank, i});
        const bool all_read = std::all_of(loan.readers.begin(), loan.readers.end(), [&](const Where& reader) {
          const Where by = doer(reader);
          return by == writer || before[writer.rank][writer.draft][by.rank] > by.draft;
        });
        if (all_read) continue;
        wrong.push_back(&loan);
        break;
      }
    return wrong;
  }

  bool copy_wrong_loans() {
    const std::vector<const Loan*> wrong = wrong_loans();
    for (const Loan* loan : wrong) copied_[loan->sent.rank].insert(loan->step);
    return !wrong.empty();
  }

  // Whether two places of one rank are the same memory, in part at least.
  bool overlap(const LinkedPlace& a, uint32_t a_chunks, const LinkedPlace& b, uint32_t b_chunks) const {
    if (a.rank != b.rank || (a.kind == LinkedPlace::slot) != (b.kind == LinkedPlace::slot)) return false;
    if (a.kind != LinkedPlace::slot && !in_place_[a.rank] && is_input(a) != is_input(b)) return false;
    if (a.kind == LinkedPlace::slot) return a.chunk == b.chunk;
    return a.chunk < b.chunk + b_chunks && b.chunk < a.chunk + a_chunks;
  }
  static bool is_input(const LinkedPlace& place) {
    return place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input;
  }

  // After so many steps of the rank the place has what it will have; 0: from the beginning.
  uint8_t last_writer(const LinkedPlace& place, uint32_t chunks) const {
    const std::vector<Draft>& drafts = drafts_[place.rank];
    for (size_t i = drafts.size(); i > 0; --i)
      for (const LinkedPlace& output : drafts[i - 1].outputs)
        if (overlap(output, drafts[i - 1].chunks, place, chunks)) return uint8_t(i);
    return 0;
  }

  // Whether any step but these two touches the place, or the maker reads more of it than it writes.
  bool touched_by_others(const LinkedPlace& place, const Draft& maker, const Draft& taker) const {
    for (const std::vector<Draft>& drafts : drafts_)
      for (const Draft& draft : drafts) {
        if (draft.vanished) continue;
        if (&draft == &maker) {
          // An operand that is the very place is read before it is written, element by element.
          for (const LinkedPlace& operand : draft.operands)
            if (overlap(operand, draft.chunks, place, taker.chunks) && operand.chunk != place.chunk) return true;
          for (const LinkedPlace& output : draft.outputs)
            if (overlap(output, draft.chunks, place, taker.chunks)) return true;
          continue;
        }
        for (const LinkedPlace& operand : draft.operands)
          if (overlap(operand, draft.chunks, place, taker.chunks)) return true;
        if (&draft == &taker) continue;
        for (const LinkedPlace& output : draft.outputs)
          if (overlap(output, draft.chunks, place, taker.chunks)) return true;
      }
    return false;
  }

  void put_where_possible() {
    for (uint32_t rank = 0; rank < n_; ++rank)
      for (Draft& taker : drafts_[rank]) {
        const bool takes = taker.operands.size() == 1 && taker.outputs.size() == 1 && taker.waits.size() == 1 && !taker.finish;
        if (!takes) continue;
        const Where by{taker.waits[0].rank, taker.waits[0].steps - 1u};
        Draft& maker = drafts_[by.rank][by.draft];
        const auto made = std::find(maker.outputs.begin(), maker.outputs.end(), taker.operands[0]);
        if (maker.vanished || made == maker.outputs.end() || maker.first_chunk != taker.first_chunk ||
            maker.chunks != taker.chunks || maker.outputs.size() == linked_places_max ||
            touched_by_others(taker.outputs[0], maker, taker))
          continue;
        maker.outputs.push_back(taker.outputs[0]);
        taker.vanished = true;
        taker.put_by = by;
      }
  }

  bool write(LinkedPlan* linked) {
    *linked = {};
    const Shape& shape = plans_[0].shape;
    linked->ranks = n_;
    linked->chunks = shape.output;
    linked->blocks = shape.blocks;
    linked->packets = packets_;
    linked->slots = *std::max_element(slots_.begin(), slots_.end());
    size_t at = 0;
    std::vector<std::vector<uint8_t>> kept_before(n_);  // of each rank's steps, those kept among the first i
    for (uint32_t rank = 0; rank < n_; ++rank) {
      uint8_t kept = 0;
      kept_before[rank].push_back(0);
      for (const Draft& draft : drafts_[rank]) kept_before[rank].push_back(kept = uint8_t(kept + !draft.vanished));
      at += kept;
    }
    if (at > linked_steps_max) return false;
    at = 0;
    for (uint32_t rank = 0; rank < n_; ++rank) {
      linked->first_step[rank] = uint16_t(at);
      for (const Draft& draft : drafts_[rank]) {
        if (draft.vanished) continue;
        if (draft.operands.size() > linked_places_max || draft.outputs.size() > linked_places_max ||
            draft.waits.size() > linked_places_max)
          return false;
        write(draft, kept_before, &linked->steps[at++]);
      }
    }
    std::fill(linked->first_step.begin() + n_, linked->first_step.end(), uint16_t(at));
    for (size_t i = 0; i < at; ++i) {
      const LinkedStep& step = linked->steps[i];
      for (size_t k = 0; k < step.n_waits; ++k)
        linked->steps[linked->first_step[step.waits[k].rank] + step.waits[k].steps - 1u].awaited = true;
      linked->waits |= step.n_waits > 0;
      for (size_t k = 0; k < step.n_outputs; ++k)
        if (step.outputs[k].kind == LinkedPlace::slot)
          linked->slot_chunks = std::max(linked->slot_chunks, uint32_t{step.chunks});
    }
    return true;
  }

  void write(const Draft& draft, const std::vector<std::vector<uint8_t>>& kept_before, LinkedStep* step) const {
    std::copy(draft.operands.begin(), draft.operands.end(), step->operands.begin());
    std::copy(draft.outputs.begin(), draft.outputs.end(), step->outputs.begin());
    step->n_operands = uint8_t(draft.operands.size());
    step->n_outputs = uint8_t(draft.outputs.size());
    for (const LinkedWait& wait : draft.waits) step->waits[step->n_waits++] = {wait.rank, kept_before[wait.rank][wait.steps]};
    step->finish = draft.finish;
    step->first_chunk = uint16_t(draft.first_chunk);
    step->chunks = uint16_t(draft.chunks);
  }

  std::deque<Message>& fifo(uint32_t from, uint32_t to) { return fifos_[from * n_ + to]; }

  const Meaning& meaning_;
  const std::span<const Plan> plans_;
  const uint32_t root_;
  const std::span<const bool> in_place_;
  const uint32_t n_;
  bool puts_ = true, packets_ = false;
  std::vector<std::set<size_t>> copied_;  // steps of each rank's plan whose message goes to a slot
  std::vector<std::vector<Draft>> drafts_;
  std::vector<size_t> next_;
  std::vector<uint32_t> slots_;
  std::vector<std::deque<Message>> fifos_;
  std::vector<Loan> loans_;
};

}  // namespace

bool is_free_of_order(const LinkedPlan& linked, std::span<const bool> in_place) noexcept {
  if (linked.waits || linked.slots > 0) return false;
  const auto is_input = [&](const LinkedPlace& place) {
    return !in_place[place.rank] && (place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input);
  };
  const auto overlap = [&](const LinkedPlace& a, uint32_t a_chunks, const LinkedPlace& b, uint32_t b_chunks) {
    return a.rank == b.rank && is_input(a) == is_input(b) && a.chunk < b.chunk + b_chunks && b.chunk < a.chunk + a_chunks;
  };
  const std::span steps(linked.steps.data(), linked.first_step[linked.ranks]);
  for (const LinkedStep& step : steps)
    for (uint32_t k = 0; k < step.n_outputs; ++k) {
      const LinkedPlace& written = step.outputs[k];
      for (const LinkedStep& other : steps) {
        const bool same = &other == &step;
        for (uint32_t i = 0; i < other.n_outputs; ++i)
          if (!(same && i == k) && overlap(written, step.chunks, other.outputs[i], other.chunks)) return false;
        for (uint32_t i = 0; i < other.n_operands; ++i)
          if (overlap(written, step.chunks, other.operands[i], other.chunks) && !(same && other.operands[i].chunk == written.chunk))
            return false;
      }
    }
  return true;
}

bool link(Collective collective, std::span<const Plan> plans, int root, std::span<const bool> in_place,
          LinkedPlan* linked, bool puts) {
  return Linker(collective, plans, root, in_place).run(linked, puts);
}

bool link_packets(Collective collective, std::span<const Plan> plans, int root, std::span<const bool> in_place,
                  LinkedPlan* linked) {
  return Linker(collective, plans, root, in_place).run_packets(linked);
}

}  // namespace tutti
