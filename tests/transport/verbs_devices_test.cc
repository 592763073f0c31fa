// Memory of devices that is sent from where it lies. For a machine with RDMA devices rxe0 and rxe1 (tests/rdma boots one).
// Soft-RoCE takes no dmabuf, so a stand-in registers one: it maps the file and registers that mapping under the device's
// addresses. These cannot be touched by the host, so whoever reads them in another way dies.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "device/devices.h"
#include "transport/verbs/verbs_library.h"
#include "transport/verbs_calls.h"

namespace tutti {
namespace {

constexpr size_t message_bytes = 64 * 1024;
constexpr TimeNs patience_ns = 60 * ns_per_s;

ibv_mr* register_mapped(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t address, int fd, int access) {
  using RegisterAt = ibv_mr*(ibv_pd*, void*, size_t, uint64_t, int);
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const register_at = reinterpret_cast<RegisterAt*>(::dlsym(library, "ibv_reg_mr_iova"));
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t(offset));
  return mapped == MAP_FAILED ? nullptr : register_at(pd, mapped, bytes, address, access);
}

ibv_mr* refuse_file(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}

// An allocation of the simulated device, as network cards are told of it.
struct DeviceMemory {
  explicit DeviceMemory(size_t bytes) : buffer(0, bytes) {
    DeviceFile file;
    test::must(device().export_file(buffer.data() + 1, &file));
    EXPECT_EQ(file.begin, buffer.data());
    fd = Fd(file.fd);
    region.memory = {++regions_made, file.begin, file.bytes, file.fd, 0, file.bytes,
                     std::make_shared<std::atomic<uint64_t>>(0)};
    region.device = this;
    region.fetch = [](void* self, std::byte* to, const std::byte* from, size_t n) noexcept {
      ++static_cast<DeviceMemory*>(self)->fetches;
      return device().copy(nullptr, to, from, n).ok() && device().wait_stream(nullptr).ok();
    };
  }
  static Device& device() { return test::simulated().device(0); }

  static inline uint64_t regions_made = 5000;
  test::DeviceBuffer buffer;
  Fd fd;
  DeviceRegion region;
  int fetches = 0;
};

struct Pair {
  explicit Pair(VerbsRegisterFile* register_file)
      : transports(connected_verbs(2, {}, [&](VerbsOptions& o, int) { o.register_file = register_file; })),
        from(*transports[0]->endpoint(1, 0)),
        to(*transports[1]->endpoint(0, 0)) {}
  template <class Attempt>
  Status settle(Attempt attempt) {
    Status status = attempt();
    for (const TimeNs deadline = now_ns() + patience_ns; status == Status::again && now_ns() < deadline; status = attempt())
      for (const auto& transport : transports) transport->progress();
    return status;
  }

  std::vector<std::unique_ptr<Transport>> transports;
  Endpoint &from, &to;
};

std::vector<uint64_t> numbers(size_t count, uint64_t seed) {
  std::vector<uint64_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = seed * 1'000'003 + i;
  return values;
}

constexpr size_t count = 20;

// So many messages; before the one in the middle, `happens` is called.
template <class Happens>
void send_from_device(Pair& pair, DeviceMemory& memory, Happens happens) {
  constexpr size_t each = message_bytes / sizeof(uint64_t);
  const std::vector<uint64_t> sent = numbers(count * each, 7);
  memory.buffer.put(sent.data(), count * message_bytes);
  std::vector<uint64_t> received(each);
  size_t arrived = 0;
  const auto receive = [&] {
    size_t done = 0;
    ASSERT_EQ(pair.settle([&] { return pair.to.recv(reinterpret_cast<std::byte*>(received.data()), message_bytes, 3, done); }),
              Status::done);
    ASSERT_TRUE(std::equal(received.begin(), received.end(), sent.begin() + ptrdiff_t(arrived * each))) << arrived;
    ++arrived;
  };
  ASSERT_TRUE(pair.from.reaches(memory.region, message_bytes));
  for (size_t i = 0; i < count; ++i) {
    if (i == count / 2) happens();
    ASSERT_EQ(pair.settle([&] {
      return pair.from.lend_from_device(memory.region, memory.buffer.data() + i * message_bytes, message_bytes, 3);
    }), Status::done);
    if (i % 4 == 3) receive();
  }
  while (arrived < count && !testing::Test::HasFailure()) receive();
  ASSERT_EQ(pair.settle([&] { return pair.from.flush(); }), Status::done);
}

TEST(VerbsDevices, AreSentFromWhereTheHostCannotRead) {
  Pair pair(register_mapped);
  DeviceMemory memory(count * message_bytes);
  send_from_device(pair, memory, [] {});
  EXPECT_EQ(memory.fetches, 0);
  EXPECT_EQ(verbs_counters(*pair.transports[0])->from_devices, count);
}

TEST(VerbsDevices, AreBroughtToTheHostWhereNoPathIsLeft) {
  Pair pair(register_mapped);
  DeviceMemory memory(count * message_bytes);
  send_from_device(pair, memory, [&] { ASSERT_TRUE(break_verbs_path(*pair.transports[0], 1, 0, 0)); });
  EXPECT_GT(memory.fetches, 0);
  EXPECT_FALSE(pair.from.reaches(memory.region, message_bytes)) << "it goes by TCP now";
}

// What is once refused is not asked for again.
TEST(VerbsDevices, AreStagedWhereTheDriverTakesNoFiles) {
  DeviceMemory memory(message_bytes);
  for (VerbsRegisterFile* const refuses : {static_cast<VerbsRegisterFile*>(nullptr), &refuse_file}) {
    Pair pair(refuses);  // null: the library's own function, on soft-RoCE
    EXPECT_TRUE(pair.transports[0]->may_reach_devices()) << "not tried yet";
    EXPECT_FALSE(pair.from.reaches(memory.region, message_bytes));
    EXPECT_FALSE(pair.transports[0]->may_reach_devices());
  }
}

// --- Whole calls.

constexpr size_t elements = 300'000;

std::unique_ptr<Communicator> join(const tuttiUniqueId& id, int rank, int ranks, VerbsRegisterFile* register_file,
                                   const VerbsCounters*& counters) {
  VerbsOptions options;
  options.devices = device_of(rank);
  options.register_file = register_file;
  const Transport* verbs = nullptr;
  auto communicator = join_by_verbs(id, rank, ranks, options, true, patience_ns, verbs);
  counters = verbs_counters(*verbs);
  return communicator;
}

struct Sums {
  std::vector<uint64_t> sums;
  uint64_t from_devices = 0;
};

// All-reduces and broadcasts of buffers on a device; what rank `rank` has at the end.
Sums calls_on_device(const tuttiUniqueId& id, int rank, int ranks, VerbsRegisterFile* register_file) {
  const VerbsCounters* counters = nullptr;
  const auto communicator = join(id, rank, ranks, register_file, counters);
  communicator->device_side()->bind(0);
  const test::DeviceBuffer input(0, numbers(elements, uint64_t(rank + 1)));
  const test::DeviceBuffer output(0, elements * sizeof(uint64_t));
  for (const Collective kind : {Collective::all_reduce, Collective::broadcast, Collective::all_reduce}) {
    Request request;
    request.call = {kind, DataType::uint64, ReduceOp::sum, 0, elements};
    request.on_device = request.in_reach = true;
    const bool reads = kind != Collective::broadcast || rank == 0;
    request.input = reads ? input.data() : nullptr;
    request.output = output.data();
    EXPECT_EQ(communicator->run(request), Code::success) << communicator->failure()->sentence;
    if (kind == Collective::broadcast) {
      EXPECT_EQ(output.values<uint64_t>(), numbers(elements, 1));
    }
  }
  Sums result{output.values<uint64_t>(), counters->from_devices};
  communicator->leave();
  return result;
}

std::vector<Sums> run_calls(int ranks, VerbsRegisterFile* register_file) {
  tuttiUniqueId id;
  EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  std::vector<Sums> all(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { all[size_t(rank)] = calls_on_device(id, rank, ranks, register_file); });
  }
  return all;
}

TEST(VerbsDevices, CallsGiveTheSameWhetherCardsReadTheDeviceOrNot) {
  for (const int ranks : {2, 3}) {
    std::vector<uint64_t> wanted = numbers(elements, 1);
    for (uint64_t& value : wanted) {
      const uint64_t i = value - 1'000'003;
      value = uint64_t(ranks) * i + 1'000'003 * uint64_t(ranks) * uint64_t(ranks + 1) / 2;
    }
    for (VerbsRegisterFile* const register_file : {&register_mapped, &refuse_file}) {
      uint64_t from_devices = 0;
      for (const Sums& rank : run_calls(ranks, register_file)) {
        ASSERT_EQ(rank.sums, wanted);
        from_devices += rank.from_devices;
      }
      EXPECT_EQ(from_devices > 0, register_file == &register_mapped);
    }
  }
}

}  // namespace
}  // namespace tutti
