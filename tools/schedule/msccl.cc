// The translation of an MSCCL program: its steps run in one order, on what every chunk of every buffer holds, and leave
// the steps of each rank behind.
#include "tools/schedule/msccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "schedule/print.h"
#include "tools/schedule/msccl_program.h"

namespace tutti {
namespace {

using msccl::Area;
using msccl::Node;
using msccl::Op;
using msccl::Program;

// A step's chunks cannot stay together: thrown where they could be apart.
struct Apart {};

// What one chunk of a gpu's buffer holds, and where Tutti has it.
struct Cell {
  bool set = false;
  uint32_t number = 0;     // of the chunk: its place in the whole buffer
  std::vector<bool> from;  // the ranks whose inputs are in it
  bool finished = false;
  Slice place;  // of one chunk

  uint32_t first_rank() const { return uint32_t(std::find(from.begin(), from.end(), true) - from.begin()); }
  bool complete() const { return std::find(from.begin(), from.end(), false) == from.end(); }
};
using Cells = std::vector<Cell>;

// Which of the file's buffers stand for what, and how many chunks Tutti's have.
struct Layout {
  char input = 'i', output = 'o';
  uint32_t chunks = 1;
  bool blocks = false, transposes = false;
};

class Translation {
 public:
  Translation(const Program& program, const Layout& layout, bool apart)
      : program_(program), layout_(layout), apart_(apart), ranks_(size_t(program.n())) {
    schedule_.collective = program.collective;
    schedule_.root = program.root;
    schedule_.ranks.resize(ranks_.size());
    for (int g = 0; g < program.n(); ++g) set_inputs(g);
  }

  UserSchedule run(const std::vector<Node>& order) {
    for (const Node& node : order) {
      node_ = node;
      act(program_.gpus[size_t(node.gpu)].blocks[size_t(node.block)]);
    }
    for (int g = 0; g < program_.n(); ++g) bring_home(g);
    return std::move(schedule_);
  }

 private:
  struct Rank {
    std::map<char, Cells> buffers;
    // Scratch of Tutti is layers of all chunks: the place of a chunk is its number within one. Chunks that lie side by
    // side in the file have the same distance from their numbers, so they share a layer and stay side by side.
    std::map<std::pair<char, int>, uint32_t> layers;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, fmt::format("{}: {}: {}", program_.source, msccl::name(node_), why));
  }
  Schedule& steps() { return schedule_.ranks[size_t(node_.gpu)]; }

  // --- Where chunks lie

  void set_inputs(int g) {
    Rank& rank = ranks_[size_t(g)];
    const msccl::Gpu& gpu = program_.gpus[size_t(g)];
    rank.buffers['i'].resize(size_t(gpu.i_chunks));
    rank.buffers['o'].resize(size_t(gpu.o_chunks));
    rank.buffers['s'].resize(size_t(gpu.s_chunks));
    const Part part = meaning(program_.collective).input_of(g == program_.root);
    Cells& cells = rank.buffers[layout_.input];
    for (uint32_t c = 0; c < layout_.chunks; ++c) {
      if (!holds(part, uint32_t(g), c)) continue;
      const size_t at = part == Part::own && layout_.input == 'i' ? 0 : c;
      if (at >= cells.size()) continue;
      cells[at] = {true, c, std::vector<bool>(ranks_.size(), false), false, in(int(c))};
      cells[at].from[size_t(g)] = true;
    }
  }

  // The chunk of the collective's result that this cell is; none where it is none.
  std::optional<uint32_t> result_chunk(int g, char buffer, int offset) const {
    if (buffer != layout_.output) return std::nullopt;
    const Part part = meaning(program_.collective).output_of(g == program_.root);
    const uint32_t chunk = part == Part::own && buffer == 'o' ? uint32_t(g) : uint32_t(offset);
    if (part == Part::own && buffer == 'o' && offset > 0) return std::nullopt;
    return chunk < layout_.chunks && holds(part, uint32_t(g), chunk) ? std::optional(chunk) : std::nullopt;
  }

  Slice place_of(int g, char buffer, int offset, uint32_t number) {
    const auto result = result_chunk(g, buffer, offset);
    if (result && (layout_.transposes || *result == number)) return out(int(*result));
    const uint32_t n = layout_.chunks;
    const uint32_t at = layout_.transposes ? uint32_t(offset) % n : number;
    const auto [layer, is_new] =
        ranks_[size_t(g)].layers.try_emplace({buffer, offset - int(at)}, uint32_t(ranks_[size_t(g)].layers.size()));
    return scratch(int(layer->second * n + at));
  }

  Cells read(const Area& area, int count) const {
    const Cells& cells = ranks_[size_t(node_.gpu)].buffers.at(area.buffer);
    for (int i = area.first; i < area.first + count; ++i)
      if (!cells[size_t(i)].set) refuse(fmt::format("reads chunk {} of {}, which holds nothing yet", i, area.buffer));
    return {cells.begin() + area.first, cells.begin() + area.first + count};
  }
  // Gives `values` their places in an area.
  void write(const Area& area, Cells& values) {
    Cells& cells = ranks_[size_t(node_.gpu)].buffers.at(area.buffer);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].place = place_of(node_.gpu, area.buffer, area.first + int(i), values[i].number);
      cells[size_t(area.first) + i] = values[i];
    }
  }

  // Parts of cells [first, first + size) that Tutti moves in one step: one where they may not be apart.
  std::vector<std::pair<size_t, size_t>> parts(size_t size) const {
    if (!apart_) return {{0, size}};
    std::vector<std::pair<size_t, size_t>> all;
    for (size_t i = 0; i < size; ++i) all.emplace_back(i, 1);
    return all;
  }
  Slice slice(const Cells& cells, size_t first, size_t size) const {
    Slice whole = cells[first].place;
    for (size_t i = 1; i < size; ++i) {
      const Slice& next = cells[first + i].place;
      if (next.buffer != whole.buffer || next.first != whole.first + i) throw Apart{};
    }
    if (whole.first % layout_.chunks + size > layout_.chunks) throw Apart{};
    whole.count = uint32_t(size);
    return whole;
  }

  // --- Running

  void act(const msccl::ThreadBlock& block) {
    const msccl::Step& step = block.steps[size_t(node_.step)];
    const size_t size = size_t(step.count);
    Cells value;
    if (step.op == Op::nothing) return;
    if (msccl::receives(step.op)) {
      value = fifos_[{block.recv_from, node_.gpu, block.channel}].front();
      fifos_[{block.recv_from, node_.gpu, block.channel}].pop_front();
    }
    // A part is received, added and sent on before the next one is received, so that few slots are enough.
    const auto send_part = [&](size_t first, size_t n) {
      if (!msccl::sends(step.op)) return;
      steps().push_back({Verb::send, false, uint32_t(block.send_to), slice(value, first, n), {}, {}});
    };
    if (msccl::reduces(step.op)) {
      const Cells local = read(step.src, step.count);
      const std::vector<bool> incoming_first = add(value, local);
      if (step.op == Op::recv_reduce_send) {
        for (size_t i = 0; i < size; ++i)
          value[i].place = place_of(node_.gpu, 't', int(value[i].number), value[i].number);
      } else {
        write(step.dst, value);
      }
      for (const auto& [first, n] : parts(size)) {
        const bool order = same(incoming_first, first, n);
        steps().push_back(
            {Verb::recv_reduce, order, uint32_t(block.recv_from), slice(local, first, n), {}, slice(value, first, n)});
        finish(value, first, n);
        send_part(first, n);
      }
    } else if (msccl::receives(step.op)) {
      write(step.dst, value);
      for (const auto& [first, n] : parts(size)) {
        steps().push_back({Verb::recv, false, uint32_t(block.recv_from), {}, {}, slice(value, first, n)});
        send_part(first, n);
      }
    } else if (step.op == Op::send) {
      value = read(step.src, step.count);
      for (const auto& [first, n] : parts(size)) send_part(first, n);
    } else {
      act_locally(step);
    }
    if (msccl::sends(step.op)) fifos_[{node_.gpu, block.send_to, block.channel}].push_back(value);
  }

  void act_locally(const msccl::Step& step) {
    const size_t size = size_t(step.count);
    const Cells source = read(step.src, step.count);
    Cells value = source;
    if (step.op == Op::copy) {
      write(step.dst, value);
      for (const auto& [first, n] : parts(size)) {
        const Slice a = slice(source, first, n), dst = slice(value, first, n);
        if (!(a == dst)) steps().push_back({Verb::copy, false, 0, a, {}, dst});
      }
      return;
    }
    const Cells sum = read(step.dst, step.count);
    const std::vector<bool> source_first = add(value, sum);
    write(step.dst, value);
    for (const auto& [first, n] : parts(size)) {
      Slice a = slice(sum, first, n), b = slice(source, first, n);
      if (same(source_first, first, n)) std::swap(a, b);
      steps().push_back({Verb::reduce, false, 0, a, b, slice(value, first, n)});
      finish(value, first, n);
    }
  }

  // value += local, chunk by chunk. For each, whether what was in `value` stands first in the sum: the one with the
  // lowest rank does, so that all ranks that add the same two things write the same sum.
  std::vector<bool> add(Cells& value, const Cells& local) const {
    if (!meaning(program_.collective).reduces) refuse(fmt::format("{} adds nothing", name(program_.collective)));
    std::vector<bool> first;
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].number != local[i].number)
        refuse(fmt::format("adds chunk {} to chunk {}", value[i].number, local[i].number));
      first.push_back(value[i].first_rank() < local[i].first_rank());
      for (size_t r = 0; r < value[i].from.size(); ++r) value[i].from[r] = value[i].from[r] || local[i].from[r];
      value[i].finished = value[i].complete();
    }
    return first;
  }
  static bool same(const std::vector<bool>& flags, size_t first, size_t n) {
    for (size_t i = 1; i < n; ++i)
      if (flags[first + i] != flags[first]) throw Apart{};
    return flags[first];
  }

  // MSCCL has no last part of an operator: it belongs where a sum becomes complete.
  void finish(const Cells& value, size_t first, size_t n) {
    for (size_t i = 1; i < n; ++i)
      if (value[first + i].finished != value[first].finished) throw Apart{};
    if (value[first].finished) steps().push_back({Verb::finish, false, 0, {}, {}, slice(value, first, n)});
  }

  // Results that still lie elsewhere: the input of a file that works in place, or what never left its rank.
  void bring_home(int g) {
    Cells& cells = ranks_[size_t(g)].buffers[layout_.output];
    const bool reduces = meaning(program_.collective).reduces;
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto chunk = result_chunk(g, layout_.output, int(i));
      if (!chunk || !cells[i].set) continue;
      const Slice home = out(int(*chunk));
      Schedule& steps = schedule_.ranks[size_t(g)];
      if (!(cells[i].place == home)) steps.push_back({Verb::copy, false, 0, cells[i].place, {}, home});
      if (reduces && !cells[i].finished && cells[i].complete()) steps.push_back({Verb::finish, false, 0, {}, {}, home});
    }
  }

  const Program& program_;
  const Layout layout_;
  const bool apart_;
  Node node_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int>, std::deque<Cells>> fifos_;  // from, to, channel
  UserSchedule schedule_;
};

// --- What buffers mean

template <class Visit>
void for_each_area(Program& program, Visit visit) {
  for (msccl::Gpu& gpu : program.gpus)
    for (msccl::ThreadBlock& block : gpu.blocks)
      for (msccl::Step& step : block.steps) {
        if (step.op == Op::nothing) continue;
        const bool reads = step.op != Op::recv && step.op != Op::recv_copy_send;
        const bool writes = step.op != Op::send && step.op != Op::recv_reduce_send;
        if (reads) visit(step, step.src);
        if (writes) visit(step, step.dst);
      }
}

int chunks_of(const msccl::Gpu& gpu, char buffer) { return buffer == 'i' ? gpu.i_chunks : gpu.o_chunks; }

// Tutti's blocks are whole: where the file divides each into k chunks, k of them must always go together.
void join_chunks(Program& program, int k) {
  for_each_area(program, [&](const msccl::Step& step, Area& area) {
    if (area.first % k != 0 || step.count % k != 0)
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: {} divides the block of a rank into {} chunks and moves {} of them from {}[{}] alone: "
                      "Tutti's blocks are whole",
                      program.source, name(program.collective), k, step.count, area.buffer, area.first));
    area.first /= k;
  });
  for (msccl::Gpu& gpu : program.gpus) {
    for (int* chunks : {&gpu.i_chunks, &gpu.o_chunks, &gpu.s_chunks}) *chunks = (*chunks + k - 1) / k;
    for (msccl::ThreadBlock& block : gpu.blocks)
      for (msccl::Step& step : block.steps) step.count /= k;
  }
}

// A file that works in place names one of the buffers only.
Layout layout_of(Program& program) {
  bool uses_i = false, uses_o = false;
  for_each_area(program, [&](const msccl::Step&, const Area& area) {
    uses_i |= area.buffer == 'i';
    uses_o |= area.buffer == 'o';
  });
  const Meaning& meaning = tutti::meaning(program.collective);
  Layout layout;
  layout.input = uses_i || !uses_o ? 'i' : 'o';
  layout.output = uses_o || !uses_i ? 'o' : 'i';
  layout.blocks = meaning.blocks;
  layout.transposes = meaning.transposes;
  // The buffer that has all chunks on every gpu.
  const char whole = program.collective == Collective::all_gather || program.collective == Collective::broadcast
                         ? layout.output
                         : layout.input;
  int chunks = 0;
  for (const msccl::Gpu& gpu : program.gpus) chunks = std::max(chunks, chunks_of(gpu, whole));
  for (int g = 0; g < program.n(); ++g)
    if (chunks_of(program.gpus[size_t(g)], whole) != chunks && !(meaning.rooted && g == program.root))
      throw Error(Code::invalid_argument, fmt::format("{}: gpu {} has {} {} chunks, others have {}", program.source, g,
                                                      chunks_of(program.gpus[size_t(g)], whole), whole, chunks));
  if (chunks == 0)
    throw Error(Code::invalid_argument, fmt::format("{}: no gpu has any {} chunks", program.source, whole));
  if (meaning.blocks) {
    if (chunks % program.n() != 0)
      throw Error(Code::invalid_argument, fmt::format("{}: {} chunks are not the same number for each of {} ranks",
                                                      program.source, chunks, program.n()));
    join_chunks(program, chunks / program.n());
    chunks = program.n();
  }
  layout.chunks = uint32_t(chunks);
  return layout;
}

// --- Sums of two local slices

bool reads(const Step& step, const Slice& slice) {
  const auto overlap = [&](const Slice& s) {
    return s.count > 0 && s.buffer == slice.buffer && s.first < slice.first + slice.count &&
           slice.first < s.first + s.count;
  };
  return overlap(step.a) || overlap(step.b) || (step.verb == Verb::finish && overlap(step.dst));
}
bool receives_from(const Step& step, uint32_t peer) {
  return (step.verb == Verb::recv || step.verb == Verb::recv_reduce) && step.peer == peer;
}

// The step before `at` that received exactly `slice`, for it alone; none where it cannot wait until then.
std::optional<size_t> receive_of(const Schedule& steps, size_t at, const Slice& slice) {
  for (size_t i = at + 1; i < steps.size(); ++i) {
    if (reads(steps[i], slice)) return std::nullopt;
    if (steps[i].dst == slice) break;
  }
  for (size_t i = at; i-- > 0;) {
    if (steps[i].verb == Verb::recv && steps[i].dst == slice) {
      for (size_t k = i + 1; k < at; ++k)
        if (receives_from(steps[k], steps[i].peer)) return std::nullopt;
      return i;
    }
    if (reads(steps[i], slice) || steps[i].dst == slice) return std::nullopt;
  }
  return std::nullopt;
}

// A message that was received to be added later is received when it is added, which saves a pass.
void receive_where_added(Schedule& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].verb != Verb::reduce) continue;
    for (const bool incoming_first : {true, false}) {
      const Slice incoming = incoming_first ? steps[i].a : steps[i].b, local = incoming_first ? steps[i].b : steps[i].a;
      const auto from = incoming.buffer == Buffer::scratch ? receive_of(steps, i, incoming) : std::nullopt;
      if (!from) continue;
      steps[i] = {Verb::recv_reduce, incoming_first, steps[*from].peer, local, {}, steps[i].dst};
      steps.erase(steps.begin() + long(*from));
      --i;
      break;
    }
  }
}

// What the steps need.
Shape shape_of(const UserSchedule& schedule, const Layout& layout) {
  Shape shape{layout.chunks, layout.chunks, 0, 1, layout.blocks};
  for (const Schedule& steps : schedule.ranks)
    for (const Step& step : steps) {
      if (step.verb == Verb::send) shape.message = std::max(shape.message, step.a.count);
      for (const Slice& slice : {step.a, step.b, step.dst})
        if (slice.buffer == Buffer::scratch) shape.scratch = std::max(shape.scratch, slice.first + slice.count);
    }
  return shape;
}

std::string allowed_name(std::string_view wanted) {
  std::string name;
  for (const char c : wanted.substr(0, user_schedule_name_max)) {
    const char lower = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    const bool allowed =
        (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') || lower == '-' || lower == '.';
    name += allowed ? lower : '_';
  }
  return name.empty() ? "imported" : name;
}

}  // namespace

UserSchedule import_msccl(std::string_view xml, std::string_view source, std::string_view name) {
  Program program = msccl::parse(xml, source);
  const Layout layout = layout_of(program);
  std::optional<Error> first_reason;
  const auto orders = msccl::orders(program);
  for (const bool apart : {false, true})
    for (const auto& order : orders) try {
        UserSchedule schedule = Translation(program, layout, apart).run(order);
        for (Schedule& steps : schedule.ranks) receive_where_added(steps);
        schedule.shape = shape_of(schedule, layout);
        schedule.source = fmt::format("{}, translated", source);
        schedule.name = name.empty() ? allowed_name(program.name) : std::string(name);
        schedule.sentence = fmt::format("Imported from the MSCCL algorithm {}.", program.name);
        prove(schedule);
        return schedule;
      } catch (const Apart&) {  // then each chunk by itself
      } catch (const Error& error) {
        if (!first_reason) first_reason = error;
      }
  TUTTI_ASSERT(first_reason);
  throw *first_reason;
}

}  // namespace tutti
