// Kernels whose launches meet, on the host: every thread of a pass over packets touches what it should and nothing else, and
// launches that wait for each other give each rank the bits that the steps of the plans give.
#include "device/packet_body.h"

#include <thread>

#include "algorithms/catalog.h"
#include "body_cases.h"
#include "device/host_block.h"
#include "device/linked_call.h"
#include "device/linked_launch.h"
#include "device/simulated_kernels.h"
#include "schedule/link_check.h"
#include "schedule/verbs.h"

namespace tutti::test {
namespace {

constexpr uint32_t this_call = 0x5eed;

// Packets are loads and stores of 16 bytes here; all of them have come.
struct CheckedPackets : CheckedMemory {
  using CheckedMemory::CheckedMemory;
  bool spun = false;
  Packet<16> load_packet(const std::byte* from) { return load<Packet<16>>(from); }
  void store_packet(std::byte* to, Packet<16> packet) { store(to, packet); }
  bool gives_up() { return spun = true; }
};

std::vector<uint8_t> as_packets(const std::vector<uint8_t>& data, uint32_t flag) {
  std::vector<uint8_t> packets;
  for (size_t at = 0; at < data.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &data[at], std::min<size_t>(8, data.size() - at));
    const Packet<16> packet = packet_of(word, flag);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&packet);
    packets.insert(packets.end(), bytes, bytes + 16);
  }
  return packets;
}

// One pass over `bytes` bytes, by all threads of all channels. "" where all is as it must be.
template <class Element, class Op>
std::string pass_over(size_t bytes, DataType type, ReduceOp op, std::mt19937_64& random) {
  const size_t width = element_bytes(type);
  const uint32_t n = 1 + random() % 8, outputs = 1 + random() % 8, divisor = op == ReduceOp::avg && n > 1 ? n : 0;
  PacketPass pass{};
  pass.bytes = bytes, pass.n_inputs = n, pass.n_outputs = outputs, pass.divisor = divisor;
  pass.come = 0xff & ~(uint32_t{random() % 4 != 0} << random() % 8), pass.go = uint32_t(random() & 0xff);
  std::vector<Bytes> in, out;
  std::vector<std::vector<uint8_t>> data;
  std::vector<Range> in_ranges, out_ranges;
  const size_t packets = (bytes + 7) / 8 * 16;
  const auto shift = [&](bool of_packets) { return of_packets ? 0 : random() % 16 / (random() % 2 ? width : 1); };
  for (uint32_t k = 0; k < n; ++k) {
    const bool comes = (pass.come >> k & 1) != 0;
    data.push_back(mixed_elements(type, bytes / width, random));
    const std::vector<uint8_t> lies = comes ? as_packets(data.back(), this_call) : data.back();
    in.emplace_back(lies, lies.size(), shift(comes));
    in_ranges.push_back({in.back().begin(), lies.size()});
  }
  for (uint32_t k = 0; k < outputs; ++k) {
    const bool goes = (pass.go >> k & 1) != 0;
    const size_t size = goes ? packets : bytes;
    out.emplace_back(std::vector<uint8_t>(size), size, shift(goes));
    out_ranges.push_back({out.back().begin(), size});
  }
  for (uint32_t k = 0; k < n; ++k) {
    pass.inputs[k] = in[k].begin();
    if ((pass.come >> k & 1) == 0) pass.local = in[k].begin();
  }
  for (uint32_t k = 0; k < outputs; ++k) pass.outputs[k] = out[k].begin();
  CheckedPackets memory(out_ranges, in_ranges);
  const uint32_t channels = 1 + random() % 5, thread_counts[] = {1, 32, 96, 256}, threads = thread_counts[random() % 4];
  for (uint32_t channel = 0; channel < channels; ++channel) {
    const ElementRange words = share((bytes + 7) / 8, channel, channels, 8);
    pass.first = words.first, pass.beyond = words.first + words.count;
    for (uint32_t thread = 0; thread < threads; ++thread)
      packet_pass(pass, thread, threads, this_call, memory, FoldWords<Element, Op>());
  }
  std::vector<uint8_t> expected(bytes);
  std::array<const void*, 8> host{};
  for (uint32_t k = 0; k < n; ++k) host[k] = data[k].data();
  if (n == 1 && divisor <= 1) expected = data[0];
  else reduce_function(type, op)(expected.data(), host.data(), int(n), bytes / width, divisor, Store::cached);
  const std::string where = fmt::format("{} of {} bytes, {} inputs ({:b} packets), {} outputs ({:b}), {} channels of {}",
                                        name(op), bytes, n, pass.come, outputs, pass.go, channels, threads);
  if (memory.spun) return where + ": it waits for what has come";
  if (std::string wrong = memory.wrong(); !wrong.empty()) return where + ": " + wrong;
  for (uint32_t k = 0; k < outputs; ++k) {
    std::vector<uint8_t> got(out_ranges[k].bytes);
    if (!got.empty()) std::memcpy(got.data(), out[k].begin(), got.size());
    if ((pass.go >> k & 1) == 0) {
      if (got != expected) return where + ": the bits differ";
      continue;
    }
    for (size_t at = 0; at < got.size(); at += 16) {
      Packet<16> packet;
      std::memcpy(&packet, &got[at], 16);
      const uint64_t word = word_of(packet);
      const size_t size = std::min<size_t>(8, bytes - at / 2);
      if (!has_come(packet, this_call) || std::memcmp(&word, &expected[at / 2], size) != 0) return where + ": a packet differs";
    }
  }
  return "";
}

TEST(PacketBody, TouchesEachByteOnceForEverySizeAndPlace) {
  std::mt19937_64 random(seed + 8);
  for (size_t bytes = 0; bytes <= 5000; bytes += few_cases ? 13 : 1)
    ASSERT_EQ((pass_over<PlainElement<int8_t>, scalar::Sum>(bytes, DataType::int8, ReduceOp::sum, random)), "") << "seed " << seed;
}

TEST(PacketBody, GivesTheBitsOfTheHost) {
  std::mt19937_64 random(seed + 9);
  for (size_t count = 0; count <= 5000; count += count < 70 ? 1 : 61) {
    ASSERT_EQ((pass_over<PlainElement<float>, scalar::Sum>(count * 4, DataType::float32, ReduceOp::avg, random)), "");
    ASSERT_EQ((pass_over<ScalarBfloat16, scalar::Sum>(count * 2, DataType::bfloat16, ReduceOp::avg, random)), "");
    ASSERT_EQ((pass_over<PlainElement<double>, scalar::Max>(count * 8, DataType::float64, ReduceOp::max, random)), "");
    ASSERT_EQ((pass_over<PlainElement<int64_t>, scalar::Sum>(count * 8, DataType::int64, ReduceOp::sum, random)), "");
  }
}

TEST(PacketBody, GoesOnWithoutWhatDoesNotComeOnceTheCallHasEnded) {
  alignas(16) std::byte slot[64]{}, output[32]{};
  PacketPass pass{};
  pass.inputs[0] = slot, pass.outputs[0] = output;
  pass.come = 1, pass.n_inputs = pass.n_outputs = 1, pass.bytes = 32, pass.beyond = 4;
  const uint32_t ended = 1;
  HostMemory memory{{&ended, nullptr}};
  packet_pass(pass, 0, 1, this_call, memory, FoldWords<PlainElement<uint8_t>, scalar::Sum>());
  EXPECT_EQ(output[0], std::byte{0});
}

// --- Launches that meet: each on threads of its own, as the simulated device runs them. -------------------------------

struct Launches {
  Collective collective;
  std::string_view algorithm;
  int n;
  bool packets, in_place;
  DataType type;
  size_t count;
  int devices;
};

std::string run_launches(const Launches& c, std::mt19937_64& random) {
  const Algorithm& algorithm = *find_algorithm(c.collective, c.algorithm);
  std::vector<Plan> plans;
  Group group{.rank = 0, .n = c.n, .root = 0, .pipeline = 1, .host_of = {}};
  for (; group.rank < c.n; ++group.rank) {
    Schedule schedule;
    Recorder recorder(schedule);
    algorithm.record(recorder, group);
    plans.push_back(lower(schedule, algorithm.shape(group), c.algorithm, c.in_place));
  }
  const std::array<bool, 8> yes = {true, true, true, true, true, true, true, true}, no{};
  const std::span<const bool> places = std::span(c.in_place ? yes : no).first(size_t(c.n));
  static LinkedPlan plan, whole;
  const bool linked = c.packets ? link_packets(c.collective, plans, 0, places, &plan) : link(c.collective, plans, 0, places, &plan);
  if (!linked || !link(c.collective, plans, 0, places, &whole)) return "cannot be linked";
  const size_t width = element_bytes(c.type), elements = plan.blocks ? c.count * plan.chunks : c.count;
  const Meaning& meant = meaning(c.collective);
  std::vector<std::vector<std::byte>> workspaces;
  for (int r = 0; r < c.n; ++r) workspaces.emplace_back(meeting_workspace_bytes + 16);
  std::vector<Bytes> in, out, in_host, out_host;
  LinkedCall host{&whole, c.type, ReduceOp::sum, c.count, 0, {}, {}, {}, 9, {}};
  std::vector<std::byte> whole_workspace(size_t(c.n) * linked_workspace_bytes(whole, c.type, c.count) + 16);
  share_workspace(host, whole_workspace.data());
  LinkedCall call{&plan, c.type, ReduceOp::sum, c.count, 0, {}, {}, {}, 0, {}};
  uint32_t ended = 0;
  call.meeting.ended = &ended, call.meeting.channels_max = 1 + uint32_t(random() % 4);
  for (size_t r = 0; r < size_t(c.n); ++r) {
    const size_t shift = random() % 16 / width * width;
    const auto data = mixed_elements(c.type, elements, random), old = mixed_elements(c.type, elements, random);
    for (auto* bytes : {&in, &in_host}) bytes->emplace_back(data, data.size(), shift);
    for (auto* bytes : {&out, &out_host}) bytes->emplace_back(c.in_place ? data : old, old.size(), shift);
    const size_t block = c.in_place && plan.blocks ? r * c.count * width : 0;
    const auto at = [&](Part part) { return part == Part::own ? block : 0; };
    call.outputs[r] = out[r].begin() + at(meant.output), host.outputs[r] = out_host[r].begin() + at(meant.output);
    call.inputs[r] = (c.in_place ? out : in)[r].begin() + at(meant.input);
    host.inputs[r] = (c.in_place ? out_host : in_host)[r].begin() + at(meant.input);
    call.workspaces[r] = workspaces[r].data() + (16 - reinterpret_cast<uintptr_t>(workspaces[r].data()) % 16) % 16;
  }
  run_linked_on_host(host);
  // Call after call, each launch as fast as it can; in place, what came out goes in again: so there is one call only.
  const uint64_t calls = c.in_place ? 1 : 5, first_call = (uint64_t{7} << 32) - 3 + (c.in_place ? 5 : 0);
  const std::atomic<bool> lost{false};
  std::atomic<int> undone{0};
  {
    std::vector<std::jthread> launches;
    for (int device = 0; device < c.devices; ++device)
      launches.emplace_back([&, device] {
        for (uint64_t i = 0; i < calls; ++i) {
          LinkedCall mine = call;
          for (int r = device; r < c.n; r += c.devices) mine.meeting.ranks |= 1u << r;
          mine.call_number = first_call + i + (i >= 3);  // not the one whose packets have no flag
          mine.meeting.half = i % 2;
          if (!run_launch_on_host(mine, lost)) ++undone;
        }
      });
  }
  if (undone != 0) return "a launch has not been done";
  for (size_t r = 0; r < size_t(c.n); ++r)
    if (elements > 0 && std::memcmp(out[r].begin(), out_host[r].begin(), elements * width) != 0) return fmt::format("rank {} differs", r);
  return "";
}

TEST(Meetings, GiveEveryRankTheBitsOfThePlans) {
  std::mt19937_64 random(seed + 10);
  for (const auto& [collective, shots] :
       {std::pair{Collective::all_reduce, "one_shot"}, std::pair{Collective::all_reduce, "two_shot"},
        std::pair{Collective::all_gather, "direct"}, std::pair{Collective::reduce_scatter, "direct"},
        std::pair{Collective::all_to_all, "direct"}})
    for (const int n : {2, 3, 8})
      for (const bool packets : {true, false})
        for (const bool in_place : {false, true}) {
          if (!packets && in_place && collective == Collective::all_to_all) continue;
          const int devices = n == 8 ? 3 : n;
          if (packets && devices < n && (collective == Collective::all_to_all || shots == std::string_view("two_shot")))
            continue;  // too many steps for a launch
          for (const size_t count : {size_t{1}, size_t{37}, 1 + random() % 600}) {
            const Launches c{collective, shots, n, packets, in_place, count % 2 ? DataType::float32 : DataType::bfloat16, count, devices};
            ASSERT_EQ(run_launches(c, random), "") << name(collective) << "/" << shots << " of " << n << ", " << count << " elements"
                                                   << (packets ? ", packets" : "") << (in_place ? ", in place" : "") << ", seed " << seed;
          }
        }
}

TEST(Meetings, EndWhereAnotherLaunchNeverComes) {
  const Algorithm& algorithm = *find_algorithm(Collective::all_reduce, "one_shot");
  std::vector<Plan> plans;
  Group group{.rank = 0, .n = 2, .root = 0, .pipeline = 1, .host_of = {}};
  for (; group.rank < 2; ++group.rank) {
    Schedule schedule;
    Recorder recorder(schedule);
    algorithm.record(recorder, group);
    plans.push_back(lower(schedule, algorithm.shape(group), algorithm.name, false));
  }
  constexpr bool no[2] = {};
  for (const bool packets : {true, false}) {
    LinkedPlan plan;
    ASSERT_TRUE(packets ? link_packets(Collective::all_reduce, plans, 0, no, &plan) : link(Collective::all_reduce, plans, 0, no, &plan));
    std::vector<float> data(100, 1.0f);
    std::vector<std::byte> workspace(2 * meeting_workspace_bytes + 16);
    LinkedCall call{&plan, DataType::float32, ReduceOp::sum, 100, 0, {data.data(), data.data()}, {data.data(), data.data()}, {}, 1, {}};
    std::byte* const begin = workspace.data() + (16 - reinterpret_cast<uintptr_t>(workspace.data()) % 16) % 16;
    call.workspaces = {begin, begin + meeting_workspace_bytes};
    uint32_t ended = 0;
    call.meeting = {.ranks = 1, .channels_max = 2, .half = 0, .ended = &ended};
    const std::atomic<bool> lost{false};
    std::jthread launch([&] { EXPECT_FALSE(run_launch_on_host(call, lost)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref(ended).store(1, std::memory_order_release);
  }
}

// A launch that begins after its call has ended, as one may whose stream was held up, touches neither buffers nor what it
// would tell others by.
TEST(Launches, ThatBeginAfterTheirCallHasEndedTouchNothing) {
  struct Joined {
    void operator()(const ReduceArguments& pass, GridPosition, HostMemory&) const { *pass.outputs[0] = std::byte{7}; }
    uint64_t operator()(const uint64_t (&words)[linked_places_max], uint32_t, uint32_t, uint32_t) const { return words[0] + 1; }
  };
  for (const bool packets : {false, true})
    for (const uint32_t ended : {1u, 0u}) {
      LinkedPlan plan;  // rank 0 adds its own to nothing, for itself and, in packets, for the other
      plan.ranks = 2, plan.chunks = 1, plan.slots = 1, plan.slot_chunks = 1, plan.packets = packets;
      plan.first_step = {0, 1, 1, 1, 1, 1, 1, 1, 1};
      plan.steps[0].chunks = plan.steps[0].n_operands = 1;
      plan.steps[0].operands[0] = {0, LinkedPlace::input, 0};
      plan.steps[0].n_outputs = 2;
      plan.steps[0].outputs[0] = {0, LinkedPlace::output, 0};
      plan.steps[0].outputs[1] = {1, packets ? LinkedPlace::slot : LinkedPlace::output, 0};
      std::vector<float> in(100, 1.0f), out(100, 2.0f), others(100, 2.0f);
      std::vector<std::byte> memory(2 * meeting_workspace_bytes + 16);
      LinkedCall call;
      call.plan = &plan, call.count = 100, call.call_number = 1;
      call.inputs = {in.data(), in.data()}, call.outputs = {out.data(), others.data()};
      std::byte* const begin = memory.data() + (16 - reinterpret_cast<uintptr_t>(memory.data()) % 16) % 16;
      call.workspaces = {begin, begin + meeting_workspace_bytes};
      call.meeting.ended = &ended;
      HostMemory host{{&ended, nullptr}};
      const LinkedElements as{DataType::float32, 100};
      PacketArguments small;
      ASSERT_TRUE(!packets || packet_arguments(call, as, 0, &small));
      const LinkedArguments large = linked_arguments(call, as, 0);
      HostBlock<PacketPass> small_block{0, 4, {&ended, nullptr}};
      HostBlock<ReduceArguments> large_block{0, 4, {&ended, nullptr}};
      if (packets) packet_body(small, small_block, host, Joined());
      else linked_body(large, large_block, host, Joined());
      const bool touched = out != std::vector<float>(100, 2.0f) ||
                           std::any_of(memory.begin(), memory.end(), [](std::byte byte) { return byte != std::byte{}; });
      EXPECT_EQ(touched, ended == 0) << (packets ? "packets" : "blocks");
    }
}

TEST(Meetings, HaveNoMoreStepsThanTheParametersHold) {
  LinkedPlan plan;
  plan.ranks = 2, plan.packets = true;
  plan.first_step = {0, 20, 40, 40, 40, 40, 40, 40, 40};
  LinkedCall call;
  call.plan = &plan, call.count = 1;
  PacketArguments a;
  call.meeting.ranks = 2;
  ASSERT_TRUE(packet_arguments(call, {DataType::float32, 1}, 0, &a));
  EXPECT_EQ(a.part.ranks[0], 1);
  EXPECT_EQ(a.first_step[1], 20);
  call.meeting.ranks = 3;
  EXPECT_FALSE(packet_arguments(call, {DataType::float32, 1}, 0, &a));
  call.meeting.ranks = 2;
  plan.steps[21].n_operands = 2;  // both in the rank's own buffer
  EXPECT_FALSE(packet_arguments(call, {DataType::float32, 1}, 0, &a));
}

TEST(Meetings, TakePacketsWhileTheyFit) {
  LinkedShape plan;
  plan.ranks = 8, plan.slots = 7, plan.slot_chunks = 1, plan.packets = true;
  EXPECT_TRUE(fits_packets(plan, 8192, 4));
  EXPECT_FALSE(fits_packets(plan, 8193, 4)) << "a message is too long";
  EXPECT_FALSE(fits_packets(plan, 1, 16)) << "an element would be cut";
  plan.slots = 9;
  EXPECT_FALSE(fits_packets(plan, 8192, 4)) << "they have no room";
  EXPECT_GE(packet_half_bytes, 7 * packet_message_bytes_max * 2);
}

}  // namespace
}  // namespace tutti::test
