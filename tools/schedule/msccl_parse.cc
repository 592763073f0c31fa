// From MSCCL's XML to a program: names, numbers and references are checked.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "tools/schedule/msccl_program.h"
#include "tools/schedule/xml.h"

namespace tutti::msccl {
namespace {

constexpr int gpus_max = 4096, blocks_max = 4096, chunks_max = 65536, channels_max = 4096;

constexpr std::array<std::pair<std::string_view, Op>, 9> ops = {{{"s", Op::send},
                                                                 {"r", Op::recv},
                                                                 {"rcs", Op::recv_copy_send},
                                                                 {"rrs", Op::recv_reduce_send},
                                                                 {"rrc", Op::recv_reduce_copy},
                                                                 {"rrcs", Op::recv_reduce_copy_send},
                                                                 {"cpy", Op::copy},
                                                                 {"re", Op::reduce},
                                                                 {"nop", Op::nothing}}};
constexpr std::array<std::pair<std::string_view, Collective>, 5> collectives = {
    {{"allreduce", Collective::all_reduce},
     {"allgather", Collective::all_gather},
     {"reduce_scatter", Collective::reduce_scatter},
     {"alltoall", Collective::all_to_all},
     {"broadcast", Collective::broadcast}}};

class Element {
 public:
  Element(const XmlElement& xml, std::string_view source, std::string_view wanted) : xml_(xml), source_(source) {
    if (xml.name != wanted) refuse(fmt::format("<{}> stands where <{}> is expected", xml.name, wanted));
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, fmt::format("{}: line {}: {}", source_, xml_.line, why));
  }
  const std::string& text(std::string_view name) const {
    const std::string* value = xml_.attribute(name);
    if (value == nullptr) refuse(fmt::format("<{}> has no '{}'", xml_.name, name));
    return *value;
  }
  int number(std::string_view name, int least, int most) const {
    const std::string& value = text(name);
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size())
      refuse(fmt::format("{}=\"{}\" is no whole number", name, value));
    if (result < least || result > most)
      refuse(fmt::format("{}=\"{}\" is not within {} to {}", name, value, least, most));
    return result;
  }
  int number_or(std::string_view name, int least, int most, int otherwise) const {
    return xml_.attribute(name) == nullptr ? otherwise : number(name, least, most);
  }
  template <class T, size_t n>
  T one_of(std::string_view name, const std::array<std::pair<std::string_view, T>, n>& allowed) const {
    std::string all;
    for (const auto& [key, value] : allowed) {
      if (key == text(name)) return value;
      all += fmt::format("{}{}", all.empty() ? "" : ", ", key);
    }
    refuse(fmt::format("{}=\"{}\" is none of {}", name, text(name), all));
  }
  std::vector<Element> children(std::string_view wanted) const {
    std::vector<Element> result;
    for (const XmlElement& child : xml_.children) result.emplace_back(child, source_, wanted);
    return result;
  }

 private:
  const XmlElement& xml_;
  std::string_view source_;
};

Area parse_area(const Element& element, std::string_view buffer, std::string_view offset, const Gpu& gpu, int count) {
  constexpr std::array<std::pair<std::string_view, char>, 3> buffers = {{{"i", 'i'}, {"o", 'o'}, {"s", 's'}}};
  Area area{element.one_of(buffer, buffers), element.number(offset, 0, chunks_max)};
  const int chunks = area.buffer == 'i' ? gpu.i_chunks : area.buffer == 'o' ? gpu.o_chunks : gpu.s_chunks;
  if (area.first + count > chunks)
    element.refuse(
        fmt::format("{}=\"{}\", cnt=\"{}\": buffer {} has {} chunks", offset, area.first, count, area.buffer, chunks));
  return area;
}

Step parse_step(const Element& element, const Gpu& gpu, const ThreadBlock& block) {
  if (element.number("s", 0, 1 << 30) != int(block.steps.size()))
    element.refuse(fmt::format("s=\"{}\", but it is step {} of its tb", element.text("s"), block.steps.size()));
  Step step;
  step.op = element.one_of("type", ops);
  if (sends(step.op) && block.send_to < 0) element.refuse("sends, but its tb has no send");
  if (receives(step.op) && block.recv_from < 0) element.refuse("receives, but its tb has no recv");
  if (step.op != Op::nothing) {
    step.count = element.number("cnt", 1, chunks_max);
    const bool reads = step.op != Op::recv && step.op != Op::recv_copy_send;
    const bool writes = step.op != Op::send && step.op != Op::recv_reduce_send;
    if (reads) step.src = parse_area(element, "srcbuf", "srcoff", gpu, step.count);
    if (writes) step.dst = parse_area(element, "dstbuf", "dstoff", gpu, step.count);
  }
  step.waits_for_tb = element.number_or("depid", -1, blocks_max, -1);
  step.has_dependents = element.number_or("hasdep", 0, 1, 1) == 1;
  step.waits_for_step = step.waits_for_tb < 0 ? -1 : element.number("deps", 0, 1 << 30);
  return step;
}

ThreadBlock parse_block(const Element& element, const Gpu& gpu, int id, int n) {
  ThreadBlock block;
  block.id = element.number("id", 0, blocks_max);
  if (block.id != int(gpu.blocks.size()))
    element.refuse(fmt::format("tb id=\"{}\", but it is the tb {} of its gpu", block.id, gpu.blocks.size()));
  block.send_to = element.number("send", -1, n - 1);
  block.recv_from = element.number("recv", -1, n - 1);
  block.channel = element.number_or("chan", 0, channels_max, 0);
  if (block.send_to == id || block.recv_from == id) element.refuse(fmt::format("gpu {} talks to itself", id));
  for (const Element& child : element.children("step")) block.steps.push_back(parse_step(child, gpu, block));
  return block;
}

Gpu parse_gpu(const Element& element, int id, int n) {
  if (element.number("id", 0, gpus_max) != id)
    element.refuse(fmt::format("gpu id=\"{}\", but it is gpu {} of the file", element.text("id"), id));
  Gpu gpu;
  gpu.i_chunks = element.number("i_chunks", 0, chunks_max);
  gpu.o_chunks = element.number("o_chunks", 0, chunks_max);
  gpu.s_chunks = element.number("s_chunks", 0, chunks_max);
  for (const Element& child : element.children("tb")) gpu.blocks.push_back(parse_block(child, gpu, id, n));
  return gpu;
}

// Each step that is waited for exists, and says that it is.
void check_dependencies(const Program& program) {
  for (int g = 0; g < program.n(); ++g)
    for (const ThreadBlock& block : program.gpus[size_t(g)].blocks)
      for (size_t i = 0; i < block.steps.size(); ++i) {
        const Step& step = block.steps[i];
        if (step.waits_for_tb < 0) continue;
        const auto& blocks = program.gpus[size_t(g)].blocks;
        const Node here{g, block.id, int(i)}, there{g, step.waits_for_tb, step.waits_for_step};
        const auto refuse = [&](std::string_view why) {
          throw Error(Code::invalid_argument,
                      fmt::format("{}: {}: waits for {}, {}", program.source, name(here), name(there), why));
        };
        if (there.block >= int(blocks.size()) || there.step >= int(blocks[size_t(there.block)].steps.size()))
          refuse("which does not exist");
        if (!blocks[size_t(there.block)].steps[size_t(there.step)].has_dependents) refuse("whose hasdep is 0");
      }
}

}  // namespace

std::string name(const Node& node) { return fmt::format("gpu {}, tb {}, step {}", node.gpu, node.block, node.step); }

Program parse(std::string_view xml, std::string_view source) {
  const XmlElement root = parse_xml(xml, source);
  const Element element(root, source, "algo");
  Program program;
  program.source = source;
  program.name = element.text("name");
  program.collective = element.one_of("coll", collectives);
  const int n = element.number("ngpus", 1, gpus_max);
  program.root = element.number_or("root", 0, n - 1, 0);
  const std::vector<Element> gpus = element.children("gpu");
  if (int(gpus.size()) != n) element.refuse(fmt::format("ngpus=\"{}\", but there are {}", n, gpus.size()));
  for (int g = 0; g < n; ++g) program.gpus.push_back(parse_gpu(gpus[size_t(g)], g, n));
  check_dependencies(program);
  return program;
}

}  // namespace tutti::msccl
