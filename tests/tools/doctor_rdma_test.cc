// tutti-doctor on machines with InfiniBand and RoCE devices, as folders show them.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gtest/gtest.h>

#include "tools/doctor/pairs.h"
#include "tools/doctor/rdma.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// A machine's /sys and /dev in a folder of its own, with one port mlx5_0:1.
class DoctorRdma : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "doctor_rdma_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    machine_.root = name;
    machine_.library = true;
    machine_.driven = {"mlx5_0"};
    fs::create_directories(machine_.root + "/dev/infiniband");
    port("state", "4: ACTIVE");
    port("link_layer", "Ethernet");
    port("rate", "100 Gb/sec (4X EDR)");
    gid(0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2");
    gid(1, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v1");
    gid(2, "0000:0000:0000:0000:0000:0000:0000:0000", "");
    gid(3, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v2");
    put("/sys/class/net/eth7/mtu", "9000");
  }
  void TearDown() override { fs::remove_all(machine_.root); }

  void put(const std::string& path, const std::string& text) {
    const fs::path file = machine_.root + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void port(const std::string& name, const std::string& text) {
    put("/sys/class/infiniband/mlx5_0/ports/1/" + name, text);
  }
  void gid(int index, const std::string& address, const std::string& type) {
    const std::string n = std::to_string(index);
    port("gids/" + n, address);
    port("gid_attrs/types/" + n, type);
    port("gid_attrs/ndevs/" + n, "eth7");
  }
  Finding finding(const std::string& check) {
    for (const Finding& found : check_rdma(machine_)) {
      EXPECT_EQ(found.fix.empty(), found.severity == Severity::ok) << found.check << ": " << found.sentence;
      if (found.check == check) return found;
    }
    ADD_FAILURE() << "no finding " << check;
    return {};
  }
  void expect(const std::string& check, Severity severity, const std::string& sentence, const std::string& fix = "") {
    const Finding found = finding(check);
    EXPECT_EQ(found.severity, severity) << found.sentence;
    EXPECT_NE(found.sentence.find(sentence), std::string::npos) << found.sentence;
    EXPECT_NE(found.fix.find(fix), std::string::npos) << found.fix;
  }

  RdmaMachine machine_;
};

TEST_F(DoctorRdma, AMachineInOrderIsDescribed) {
  expect("InfiniBand", Severity::ok, "mlx5_0 100 Gbit/s");
  expect("InfiniBand mlx5_0:1", Severity::ok, "GID 3 is 0000:0000:0000:0000:0000:ffff:0a01:0001 (RoCE v2), packets hold 4096 bytes");
  expect("locked memory", Severity::ok, "any amount");
}

TEST_F(DoctorRdma, WithoutADeviceThereIsNothingToSay) {
  fs::remove_all(machine_.root + "/sys");
  EXPECT_EQ(check_rdma(machine_).size(), 1u);
  expect("InfiniBand", Severity::ok, "no device; libibverbs is installed");
  machine_.library = false;
  expect("InfiniBand", Severity::ok, "not installed");
}

TEST_F(DoctorRdma, AMissingLibraryDriverOrDeviceFileIsNamed) {
  machine_.driven = std::vector<std::string>{};
  expect("InfiniBand", Severity::problem, "no driver for mlx5_0", "ibverbs-providers");
  fs::remove_all(machine_.root + "/dev/infiniband");
  expect("InfiniBand", Severity::problem, "/dev/infiniband is not", "--device=/dev/infiniband");
  machine_.library = false;
  expect("InfiniBand", Severity::note, "libibverbs is not installed", "apt-get install");
}

TEST_F(DoctorRdma, APortThatIsNotActiveIsNamedWithItsState) {
  port("state", "1: DOWN");
  expect("InfiniBand mlx5_0:1", Severity::note, "1: DOWN", "ip link set eth7 up");
  fs::remove_all(machine_.root + "/sys/class/infiniband/mlx5_0/ports/1/gids");
  expect("InfiniBand mlx5_0:1", Severity::note, "1: DOWN", "ip link set … up");
  put("/sys/class/infiniband/mlx5_0/device/net/eth7/mtu", "1500");
  expect("InfiniBand mlx5_0:1", Severity::note, "1: DOWN", "ip link set eth7 up");
  port("link_layer", "InfiniBand");
  expect("InfiniBand mlx5_0:1", Severity::note, "1: DOWN", "cable");
  port("state", "2: INIT");
  expect("InfiniBand mlx5_0:1", Severity::note, "2: INIT", "opensm");
}

TEST_F(DoctorRdma, AnInfiniBandPortNeedsALid) {
  port("link_layer", "InfiniBand");
  port("lid", "0x0");
  expect("InfiniBand mlx5_0:1", Severity::problem, "no LID", "opensm");
  port("lid", "0x1c");
  expect("InfiniBand mlx5_0:1", Severity::ok, "LID 0x1c");
}

TEST_F(DoctorRdma, GidsThatNoRouterPassesAndSmallPacketsAreNoted) {
  put("/sys/class/net/eth7/mtu", "1500");
  expect("InfiniBand mlx5_0:1", Severity::note, "packets hold 1024 bytes", "ip link set eth7 mtu 4200");
  gid(3, "fe80:0000:0000:0000:0000:0000:0000:0002", "RoCE v2");
  expect("InfiniBand mlx5_0:1", Severity::note, "link-local or RoCE v1", "give eth7 an IPv4");
  fs::remove_all(machine_.root + "/sys/class/infiniband/mlx5_0/ports/1/gids");
  expect("InfiniBand mlx5_0:1", Severity::problem, "no GID", "address");
}

TEST_F(DoctorRdma, WhatTheEnvironmentAsksForMustBeThere) {
  machine_.gid_index_wanted = 2;
  expect("InfiniBand mlx5_0:1", Severity::problem, "no GID 2, which TUTTI_IB_GID_INDEX", "unset");
  machine_.gid_index_wanted = 3;
  machine_.devices_wanted = "mlx5_0:1,mlx5_9";
  expect("InfiniBand choice", Severity::problem, "names mlx5_9", "TUTTI_IB_HCA");
  machine_.devices_wanted = "mlx5_0:2";
  expect("InfiniBand choice", Severity::problem, "names mlx5_0:2, which is no port", "TUTTI_IB_HCA");
  machine_.devices_wanted = "mlx5_0";
  expect("InfiniBand choice", Severity::ok, "TUTTI_IB_HCA=mlx5_0");
}

TEST_F(DoctorRdma, LittleMemoryThatMayBeLockedIsNoted) {
  machine_.locked_bytes_max = 8 << 20;
  expect("locked memory", Severity::note, "may lock 8 MiB", "ulimit -l unlimited");
}

TEST(DoctorPairs, ByTcpTheReasonIsToldUnlessItWasAskedFor) {
  const PairEnd here{0, "a", 1}, beside{1, "a", 1}, there{2, "b", 2}, without{3, "c", 0};
  const PairSpeed tcp{"tcp", 20, 1000}, verbs{"verbs", 2, 10'000};
  const auto expect = [](const Finding& found, Severity severity, const char* sentence, const char* fix) {
    EXPECT_EQ(found.severity, severity) << found.sentence;
    EXPECT_EQ(found.fix.empty(), severity == Severity::ok) << found.sentence;
    EXPECT_NE(found.sentence.find(sentence), std::string::npos) << found.sentence;
    EXPECT_NE(found.fix.find(fix), std::string::npos) << found.fix;
  };
  expect(judge_pair(here, there, verbs, ""), Severity::ok, "rank 0 (host a) and rank 2 (host b): verbs, 2.0 us, 10000 MiB/s", "");
  expect(judge_pair(here, beside, tcp, ""), Severity::note, "do not share memory", "abstract Unix sockets");
  expect(judge_pair(here, there, tcp, ""), Severity::note, "none of them connects", "TUTTI_LOG=info");
  expect(judge_pair(here, without, tcp, ""), Severity::note, "only host a has RDMA ports", "alone on host c");
  expect(judge_pair(without, there, tcp, ""), Severity::note, "only host b has RDMA ports", "alone on host c");
  expect(judge_pair(without, {4, "d", 0}, tcp, ""), Severity::ok, "tcp", "");
  expect(judge_pair(here, beside, tcp, "tcp"), Severity::ok, "(TUTTI_TRANSPORT=tcp)", "");
}

}  // namespace
}  // namespace tutti
