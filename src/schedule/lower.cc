// From a schedule to a plan: fuses neighbouring steps and drops stores that nobody reads.
//
// Steps are only ever merged with their neighbour, never moved, so every FIFO keeps its order. What would only be copied
// from scratch to the output at last is put there at once, where the output is no input as well.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "schedule/plan.h"

namespace tutti {
namespace {

// What the memory of one step is worth after it.
struct Liveness {
  bool a_dies = false;    // nobody reads these cells of a before they are overwritten or the run ends
  bool dst_dies = false;  // likewise dst
};

// A value for each chunk of each buffer.
template <class T>
class Cells {
 public:
  explicit Cells(const Shape& shape)
      : output_(shape.output), input_(shape.input), values_(shape.output + shape.input + shape.scratch) {}

  void set(const Slice& slice, T value) { std::fill_n(at(slice), slice.count, value); }
  template <class Is>
  bool any(const Slice& slice, Is is) const {
    const auto first = const_cast<Cells*>(this)->at(slice);
    return std::any_of(first, first + slice.count, is);
  }

 private:
  auto at(const Slice& slice) {
    const size_t base = slice.buffer == Buffer::output ? 0 : slice.buffer == Buffer::input ? output_ : output_ + input_;
    TUTTI_ASSERT(base + slice.first + slice.count <= values_.size());
    return values_.begin() + long(base + slice.first);
  }
  size_t output_, input_;
  std::vector<T> values_;
};

std::vector<Liveness> liveness(const Schedule& schedule, const Shape& shape) {
  // Which cells are read later. The output is read at the end, by the caller.
  std::vector<Liveness> result(schedule.size());
  Cells<char> live(shape);
  live.set(out(0, int(shape.output)), true);
  const auto is_live = [](char cell) { return cell != 0; };
  for (size_t i = schedule.size(); i-- > 0;) {
    const Step& step = schedule[i];
    result[i] = {!live.any(step.a, is_live), !live.any(step.dst, is_live)};
    live.set(step.dst, false);
    live.set(step.a, true);
    live.set(step.b, true);
    if (step.verb == Verb::finish) live.set(step.dst, true);
  }
  return result;
}

// Numbers from 1 of the steps that write a cell first and last; 0: none does.
struct Writes {
  Cells<size_t> first, last;
};

Writes writes(const Schedule& schedule, const Shape& shape) {
  Writes all{Cells<size_t>(shape), Cells<size_t>(shape)};
  for (size_t i = schedule.size(); i-- > 0;) all.first.set(schedule[i].dst, i + 1);
  for (size_t i = 0; i < schedule.size(); ++i) all.last.set(schedule[i].dst, i + 1);
  return all;
}

// A fold that is still growing, with its peers beside it.
struct Draft {
  Fold fold;
  std::vector<uint32_t> from, to;
  bool dst_dies = false;

  bool empty() const { return from.empty() && to.empty() && fold.dst.count == 0; }
  // A copy, or a send of local memory.
  bool only_local() const { return from.empty() && fold.a.count > 0 && fold.b.count == 0; }
};

Draft draft_of(const Step& step, const Liveness& liveness) {
  Draft draft;
  draft.dst_dies = liveness.dst_dies;
  draft.fold.dst = step.dst;
  switch (step.verb) {
    case Verb::send:
      draft.fold.a = step.a;
      draft.to = {step.peer};
      break;
    case Verb::recv: draft.from = {step.peer}; break;
    case Verb::recv_reduce:
      draft.fold.a = step.a;
      draft.fold.a_place = step.incoming_first;
      draft.from = {step.peer};
      break;
    case Verb::copy: draft.fold.a = step.a; break;
    case Verb::finish:
      draft.fold.a = step.dst;
      draft.fold.finish = true;
      break;
    case Verb::reduce:
      draft.fold.a = step.a;
      draft.fold.b = step.b;
      break;
  }
  return draft;
}

bool contains(const std::vector<uint32_t>& list, uint32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// A send of what the draft has just computed, stored, or sent to somebody else, goes out in the same pass. A second
// message to the same peer would need a second slot at once.
bool merge_send(Draft& draft, const Step& step, const Liveness& liveness) {
  const bool of_result = draft.fold.dst.count > 0 && step.a == draft.fold.dst;
  const bool of_source = draft.only_local() && !draft.fold.finish && step.a == draft.fold.a;
  if ((!of_result && !of_source) || contains(draft.to, step.peer)) return false;
  draft.to.push_back(step.peer);
  if (of_result) draft.dst_dies = liveness.a_dies;
  return true;
}

// A copy of what the draft sends from local memory is one more store of the same pass.
bool merge_copy(Draft& draft, const Step& step, const Liveness& liveness) {
  if (!draft.only_local() || draft.fold.dst.count > 0 || draft.fold.finish || !(step.a == draft.fold.a)) return false;
  draft.fold.dst = step.dst;
  draft.dst_dies = liveness.dst_dies;
  return true;
}

bool merge_finish(Draft& draft, const Step& step, const Liveness& liveness) {
  if (!draft.to.empty() || draft.fold.finish || !(step.dst == draft.fold.dst)) return false;
  draft.fold.finish = true;
  draft.dst_dies = liveness.dst_dies;
  return true;
}

// One more operand at the right end of the draft's sum: a message, or (reduce) local memory where there is none yet.
// Where several blocks lie apart, a pass has one message and one local operand.
bool merge_operand(Draft& draft, const Step& step, const Liveness& liveness, bool blocks) {
  if (blocks && step.dst.count > 1) return false;
  const bool stored_elsewhere = !(draft.fold.dst == step.dst) && !liveness.a_dies;
  if (draft.fold.dst.count == 0 || !(step.a == draft.fold.dst) || stored_elsewhere) return false;
  if (!draft.to.empty() || draft.fold.finish || step.incoming_first || draft.fold.b.count > 0) return false;
  if (step.verb == Verb::reduce) {
    if (draft.fold.a.count > 0 || step.b == draft.fold.dst) return false;
    draft.fold.a = step.b;
    draft.fold.a_place = uint16_t(draft.from.size());
  } else {
    if (contains(draft.from, step.peer)) return false;
    draft.from.push_back(step.peer);
  }
  draft.fold.dst = step.dst;
  draft.dst_dies = liveness.dst_dies;
  return true;
}

bool merge(Draft& draft, const Step& step, const Liveness& liveness, bool blocks) {
  switch (step.verb) {
    case Verb::send: return merge_send(draft, step, liveness);
    case Verb::recv: return false;
    case Verb::recv_reduce:
    case Verb::reduce: return merge_operand(draft, step, liveness, blocks);
    case Verb::copy: return merge_copy(draft, step, liveness);
    case Verb::finish: return merge_finish(draft, step, liveness);
  }
  return false;
}

// A copy that the next step finishes is no more than a store: both are one pass, which reads the source.
bool is_finished_next(const Schedule& schedule, size_t i) {
  return schedule[i].verb == Verb::copy && i + 1 < schedule.size() && schedule[i + 1].verb == Verb::finish &&
         schedule[i + 1].dst == schedule[i].dst;
}

// The draft ends with step number `steps_done` of the schedule.
void append(Plan& plan, Draft& draft, const Writes& writes, size_t steps_done) {
  // A message that is only passed on is stored all the same: the step's slices say how large it is.
  if (draft.dst_dies && draft.fold.a.count > 0) draft.fold.dst = {};
  if (draft.empty()) return;
  draft.fold.n_from = uint16_t(draft.from.size());
  draft.fold.n_to = uint16_t(draft.to.size());
  const Slice& source = draft.fold.source();
  const bool sent_as_it_lies = draft.fold.dst.count > 0 || (draft.only_local() && !draft.fold.finish);
  const bool sends_callers = !draft.to.empty() && sent_as_it_lies && source.buffer != Buffer::scratch;
  draft.fold.keeps = sends_callers && !writes.last.any(source, [&](size_t write) { return write > steps_done; });
  draft.fold.given = sends_callers && !writes.first.any(source, [&](size_t write) { return write > 0 && write <= steps_done; });
  draft.fold.peers = uint32_t(plan.peers.size());
  plan.peers.insert(plan.peers.end(), draft.from.begin(), draft.from.end());
  plan.peers.insert(plan.peers.end(), draft.to.begin(), draft.to.end());
  for (const Slice& slice : {draft.fold.a, draft.fold.b, draft.fold.dst})
    if (slice.buffer == Buffer::scratch) plan.shape.scratch = std::max(plan.shape.scratch, slice.first + slice.count);
  plan.steps.push_back(draft.fold);
}

// In place, input chunks are output chunks: one name for them, and a copy of a chunk onto itself is no step.
// `numbers` becomes the number of each remaining step in what was recorded.
Schedule one_name_for_one_memory(const Schedule& schedule, std::vector<uint32_t>& numbers) {
  Schedule result;
  result.reserve(schedule.size());
  numbers.clear();
  for (uint32_t i = 0; i < schedule.size(); ++i) {
    Step step = schedule[i];
    for (Slice* slice : {&step.a, &step.b, &step.dst})
      if (slice->count > 0 && slice->buffer == Buffer::input) slice->buffer = Buffer::output;
    if (step.verb == Verb::copy && step.a == step.dst) continue;
    result.push_back(step);
    numbers.push_back(i);
  }
  return result;
}

bool overlap(const Slice& x, const Slice& y) {
  return x.buffer == y.buffer && x.first < y.first + y.count && y.first < x.first + x.count;
}

bool touches(const Step& step, const Slice& slice) {
  return overlap(step.a, slice) || overlap(step.b, slice) || overlap(step.dst, slice);
}

// The step that receives what step `copy` copies from scratch to the output, if all that is between could as well name the
// output: it lies free until then, and all steps name the same cells as a whole. Else schedule.size(). (Sums stay where
// they are: put elsewhere, they might be added with others in one pass, in another order than in place.)
size_t receiver_of(const Schedule& schedule, size_t copy) {
  const Slice from = schedule[copy].a, to = schedule[copy].dst;
  const auto names_it = [&](const Slice& slice) { return slice == from || !overlap(slice, from); };
  for (size_t i = copy; i-- > 0;) {
    const Step& step = schedule[i];
    if (touches(step, to) || !names_it(step.a) || !names_it(step.b) || !names_it(step.dst)) break;
    if (!(step.dst == from)) continue;
    return step.verb == Verb::recv ? i : schedule.size();
  }
  return schedule.size();
}

// Out of place: what would only be copied from scratch is received in the output. `numbers`: of each step, what it is in what
// was recorded; those of steps that go are taken out.
Schedule put_at_once(Schedule schedule, const Shape& shape, std::vector<uint32_t>& numbers) {
  std::vector<Liveness> live = liveness(schedule, shape);
  for (size_t i = 0; i < schedule.size();) {
    const Step& step = schedule[i];
    const bool ends_up = step.verb == Verb::copy && step.a.buffer == Buffer::scratch && step.dst.buffer == Buffer::output;
    const size_t receiver = ends_up && live[i].a_dies ? receiver_of(schedule, i) : schedule.size();
    if (receiver == schedule.size()) {
      ++i;
      continue;
    }
    const Slice from = step.a, to = step.dst;
    for (size_t k = receiver; k < i; ++k)
      for (Slice* slice : {&schedule[k].a, &schedule[k].b, &schedule[k].dst})
        if (*slice == from) *slice = to;
    schedule.erase(schedule.begin() + long(i));
    numbers.erase(numbers.begin() + long(i));
    live = liveness(schedule, shape);
  }
  return schedule;
}

// Finds the steps whose message may be written to its place before they begin.
void allow_early_messages(Plan& plan, const Shape& shape) {
  std::map<uint32_t, uint16_t> messages;  // by sender
  for (const Fold& fold : plan.steps)
    for (const uint32_t from : plan.from(fold)) ++messages[from];
  Cells<char> touched(shape);
  for (Fold& fold : plan.steps) {
    const bool plain = fold.n_from == 1 && fold.operands() == 1 && fold.dst.count > 0;  // if it is not divided
    if (plain && fold.dst.buffer == Buffer::output && !touched.any(fold.dst, [](char cell) { return cell != 0; }))
      fold.early = messages[plan.from(fold)[0]];
    for (const Slice& slice : {fold.a, fold.b, fold.dst}) touched.set(slice, true);
  }
}

bool sends_first(std::span<const Fold> steps) {
  const auto receives = std::find_if(steps.begin(), steps.end(), [](const Fold& fold) { return fold.n_from > 0; });
  return std::none_of(receives, steps.end(), [](const Fold& fold) { return fold.n_to > 0; });
}

bool one_message_each(const Plan& plan) {
  std::vector<uint32_t> senders, receivers;
  for (const Fold& fold : plan.steps) {
    senders.insert(senders.end(), plan.from(fold).begin(), plan.from(fold).end());
    receivers.insert(receivers.end(), plan.to(fold).begin(), plan.to(fold).end());
  }
  const auto all_differ = [](std::vector<uint32_t>& ranks) {
    std::ranges::sort(ranks);
    return std::ranges::adjacent_find(ranks) == ranks.end();
  };
  return all_differ(senders) && all_differ(receivers);
}

}  // namespace

Plan lower(const Schedule& recorded, const Shape& shape, std::string_view algorithm, bool in_place,
           std::vector<uint32_t>* first_steps) {
  std::vector<uint32_t> numbers(recorded.size());
  std::iota(numbers.begin(), numbers.end(), 0u);
  const Schedule schedule =
      in_place ? one_name_for_one_memory(recorded, numbers) : put_at_once(recorded, shape, numbers);
  const std::vector<Liveness> live = liveness(schedule, shape);
  const Writes written = writes(schedule, shape);
  Plan plan{algorithm, shape, shape.message, {}, {}};
  plan.shape.scratch = 0;
  Draft draft;
  uint32_t first_step = 0;  // of the draft
  const auto end_draft = [&](size_t steps_done) {
    append(plan, draft, written, steps_done);
    if (first_steps != nullptr && first_steps->size() < plan.steps.size()) first_steps->push_back(first_step);
  };
  for (size_t i = 0; i < schedule.size(); ++i) {
    if (!is_finished_next(schedule, i) && merge(draft, schedule[i], live[i], shape.blocks)) continue;
    end_draft(i);
    draft = draft_of(schedule[i], live[i]);
    first_step = numbers[i];
  }
  end_draft(schedule.size());
  allow_early_messages(plan, shape);
  plan.sends_first = sends_first(plan.steps);
  plan.one_message_each = one_message_each(plan);
  return plan;
}

}  // namespace tutti
