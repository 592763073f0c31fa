// The simulated device itself: whoever breaks its rules is told, or dies of it.
#include "device/simulated.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "device/devices.h"
#include "device/simulated_memory.h"
#include "device/simulated_stream.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::DeviceBuffer;
using test::must;
using test::simulated;
using test::UserStream;

TEST(SimulatedMemory, CannotBeTouchedByTheHost) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer has a way of its own to die";
  const DeviceBuffer buffer(0, std::vector<int>(10, 7));
  EXPECT_DEATH({ *reinterpret_cast<volatile int*>(buffer.data()) = 1; }, "");
  EXPECT_EQ(buffer.values<int>(), std::vector<int>(10, 7));
}

// As a network card would read it: by a file that outlives the allocation's address.
TEST(SimulatedMemory, CanBeHadAsAFile) {
  SimulatedPlatform& platform = simulated();
  const DeviceBuffer buffer(0, std::vector<int>(5000, 7));
  DeviceFile made;
  must(platform.device(0).export_file(buffer.data() + 17, &made));
  const Fd file(made.fd);
  EXPECT_EQ(made.begin, buffer.data());
  EXPECT_GE(made.bytes, buffer.bytes());
  const Mapping mapped(file.get(), 0, made.bytes, "test");
  int last = 0;
  std::memcpy(&last, mapped.data() + 4999 * sizeof last, sizeof last);
  EXPECT_EQ(last, 7);
  EXPECT_EQ(platform.device(1).export_file(buffer.data(), &made).code, Code::invalid_argument) << "it is another device's";
  EXPECT_EQ(platform.device(0).export_file(&last, &made).code, Code::invalid_argument);
}

TEST(SimulatedMemory, IsRecognisedAlsoWhenItIsFreed) {
  SimulatedPlatform& platform = simulated();
  void* freed = nullptr;
  must(platform.device(1).allocate(100, &freed));
  const Location live = platform.locate(static_cast<std::byte*>(freed) + 99);
  EXPECT_EQ(live.kind, MemoryKind::device);
  EXPECT_EQ(live.device, 1);
  EXPECT_EQ(live.base, freed);
  EXPECT_EQ(live.bytes, 100u);
  must(platform.device(1).free(freed));
  EXPECT_EQ(platform.locate(freed).kind, MemoryKind::freed);
  EXPECT_EQ(platform.device(1).free(freed).code, Code::invalid_argument);
  int local = 0;
  EXPECT_EQ(platform.locate(&local).kind, MemoryKind::unknown);
  must(platform.register_host(&local, sizeof local));
  EXPECT_EQ(platform.locate(&local).kind, MemoryKind::registered);
  EXPECT_EQ(platform.register_host(&local, sizeof local).code, Code::invalid_usage);
  must(platform.unregister_host(&local));
  void* const managed = platform.allocate_managed(2, 64);
  EXPECT_EQ(platform.locate(managed).kind, MemoryKind::managed);
  EXPECT_EQ(platform.locate(managed).device, 2);
  *static_cast<int*>(managed) = 5;  // the host may
  must(platform.device(2).free(managed));
}

TEST(SimulatedMemory, EndsWhereTheDeviceSaysSo) {
  SimulatedPlatform& platform = simulated();
  void* pointer = nullptr;
  const Outcome outcome = platform.device(0).allocate(platform.device(0).info().memory_bytes + 1, &pointer);
  EXPECT_EQ(outcome.code, Code::device_error);
  EXPECT_NE(outcome.sentence.find("out of memory"), std::string::npos) << outcome.sentence;
  const DeviceBuffer buffer(0, 16);
  EXPECT_EQ(platform.device(0).copy(nullptr, buffer.data(), &pointer, 17).code, Code::invalid_argument);
}

TEST(SimulatedKernels, ReachTheirOwnMemoryAndThatOfPeersOnceAllowed) {
  SimulatedPlatform platform({.devices = 2});
  void *mine = nullptr, *theirs = nullptr;
  must(platform.device(0).allocate(4, &mine));
  must(platform.device(1).allocate(4, &theirs));
  DeviceReduction reduction;
  reduction.n_inputs = 2;
  reduction.inputs = {mine, theirs};
  reduction.output = mine;
  reduction.count = 1;
  const Outcome refused = platform.device(0).reduce(nullptr, reduction);
  EXPECT_EQ(refused.code, Code::invalid_argument);
  EXPECT_NE(refused.sentence.find("no access"), std::string::npos) << refused.sentence;
  must(platform.enable_peer_access(0, 1));
  must(platform.device(0).reduce(nullptr, reduction));
  float host = 1;
  reduction.inputs[1] = &host;
  EXPECT_EQ(platform.device(0).reduce(nullptr, reduction).code, Code::invalid_argument);
  must(platform.device(0).wait_stream(nullptr));
  must(platform.device(0).free(mine));
  must(platform.device(1).free(theirs));
}

TEST(SimulatedStreams, FollowEventsAndFlagsAndNothingElse) {
  SimulatedPlatform& platform = simulated();
  Device& device = platform.device(0);
  void* pinned = nullptr;
  must(platform.allocate_host(4096, &pinned));
  auto* const flag = static_cast<uint32_t*>(pinned);
  UserStream first(0), second(0);
  DeviceEvent event = nullptr;
  must(device.create_event(false, &event));
  EXPECT_TRUE(device.query_event(event).ok()) << "never recorded";
  int one = 1, seen = 0;
  const DeviceBuffer buffer(0, std::vector<int>{0});
  must(device.wait_flag(first.get(), flag, 3));
  must(device.copy(first.get(), buffer.data(), &one, sizeof one));
  must(device.record_event(event, first.get()));
  must(device.wait_event(second.get(), event));
  must(device.copy(second.get(), &seen, buffer.data(), sizeof seen));
  must(device.write_flag(second.get(), flag + 1, 9));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(device.query_event(event).code, Code::in_progress);
  EXPECT_EQ(std::atomic_ref<uint32_t>(flag[1]).load(), 0u);
  std::atomic_ref<uint32_t>(*flag).store(3);
  second.wait();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(std::atomic_ref<uint32_t>(flag[1]).load(), 9u);
  EXPECT_TRUE(device.query_event(event).ok());
  must(device.destroy_event(event));
  must(platform.free_host(pinned));
}

TEST(SimulatedFaults, StrikeOnceAndALostDeviceStaysLost) {
  static SimulatedPlatform& platform = *new SimulatedPlatform({.devices = 1});  // its threads may outlive the test
  Device& device = platform.device(0);
  void* pointer = nullptr;
  platform.faults(0).allocation = 0;
  EXPECT_EQ(device.allocate(8, &pointer).code, Code::device_error);
  must(device.allocate(8, &pointer));
  platform.faults(0).launch = 1;
  must(device.copy(nullptr, pointer, &pointer, 8));
  EXPECT_EQ(device.copy(nullptr, pointer, &pointer, 8).code, Code::device_error);
  must(device.copy(nullptr, pointer, &pointer, 8));
  platform.faults(0).loss = 0;
  must(device.copy(nullptr, pointer, &pointer, 8));
  EXPECT_EQ(device.wait_stream(nullptr).code, Code::device_error);
  EXPECT_TRUE(device.is_lost());
  EXPECT_EQ(device.copy(nullptr, pointer, &pointer, 8).code, Code::device_error);
}

TEST(SimulatedExports, MemoryAndEventsReachOtherProcesses) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child) | ::pipe(to_parent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    SimulatedPlatform platform({.devices = 1});
    ExportedMemory memory;
    ExportedEvent exported;
    if (::read(to_child[0], &memory, sizeof memory) != sizeof memory) ::_exit(2);
    if (::read(to_child[0], &exported, sizeof exported) != sizeof exported) ::_exit(2);
    void* begin = nullptr;
    DeviceEvent event = nullptr;
    if (!platform.device(0).import_memory(memory, &begin).ok()) ::_exit(3);
    if (!platform.device(0).import_event(exported, &event).ok()) ::_exit(4);
    int value = 0;
    platform.device(0).wait_event(nullptr, event);
    platform.device(0).copy(nullptr, &value, static_cast<std::byte*>(begin) + memory.offset, sizeof value);
    platform.device(0).wait_stream(nullptr);
    if (!platform.device(0).close_memory(begin).ok()) ::_exit(5);
    ::_exit(value == 42 ? 0 : 6);
  }
  Device& device = simulated().device(0);
  const DeviceBuffer buffer(0, std::vector<int>{0, 42});
  DeviceEvent event = nullptr;
  must(device.create_event(true, &event));
  must(device.record_event(event, nullptr));
  ExportedMemory memory;
  ExportedEvent exported;
  must(device.export_memory(buffer.data() + 4, &memory));
  EXPECT_EQ(memory.offset, 4u);
  must(device.export_event(event, &exported));
  EXPECT_EQ(::write(to_child[1], &memory, sizeof memory), ssize_t(sizeof memory));
  EXPECT_EQ(::write(to_child[1], &exported, sizeof exported), ssize_t(sizeof exported));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  must(device.destroy_event(event));
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

TEST(SimulatedOptions, AreReadOrRefusedWithTheirValue) {
  const SimulatedOptions options = parse_simulated("devices=4,memory=64M,peers=0,exports=0,delay_us=5,seed=9");
  EXPECT_EQ(options.devices, 4);
  EXPECT_EQ(options.memory_bytes, size_t{64} << 20);
  EXPECT_FALSE(options.peer_access);
  EXPECT_FALSE(options.exports);
  EXPECT_EQ(options.delay_us, 5);
  EXPECT_EQ(options.seed, 9u);
  for (const char* wrong : {"devices=0", "devices=x", "memory=0", "colour=red", "peers=2"}) {
    try {
      parse_simulated(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_usage);
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tutti
