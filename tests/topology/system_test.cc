// Files of /proc and /sys, laid out by the test: quotas of both cgroup versions, links, GPUs.
#include "topology/system.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class FakeRoot : public testing::Test {
 protected:
  FakeRoot() : root_(testing::TempDir() + "tutti_root_" + std::to_string(::getpid())) { fs::remove_all(root_); }
  ~FakeRoot() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  std::string root_;
};

constexpr const char* mount_v2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
constexpr const char* mount_v1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";

using Quota = FakeRoot;

TEST_F(Quota, IsNoneWhereNothingIsKnown) { EXPECT_EQ(cgroup_cpu_quota(root_), 0); }

TEST_F(Quota, OfVersionTwoIsTheLeastOfAllLevels) {
  write("/proc/self/mountinfo", mount_v2);
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0);
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
  write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.5);
  write("/sys/fs/cgroup/cpu.max", "25000 100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.25);
}

TEST_F(Quota, OfVersionOneIsThatOfTheCpuController) {
  write("/proc/self/mountinfo", mount_v1);
  write("/proc/self/cgroup", "9:memory:/m\n4:cpu,cpuacct:/job\n0::/");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "350000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 3.5);
}

TEST_F(Quota, InAContainerIsReadAtTheMountPoint) {
  write("/proc/self/mountinfo", "29 23 0:26 /docker/c1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  write("/proc/self/cgroup", "0::/docker/c1");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(cgroup_cpu_quota(root_), 2);
  write("/proc/self/cgroup", "0::/../elsewhere");
  EXPECT_EQ(cgroup_cpu_quota(root_), 2);
}

TEST_F(Quota, IgnoresFilesWithoutSense) {
  write("/proc/self/mountinfo", std::string(mount_v2) + "\nshort line\n29 23 0:26 / - cgroup2");
  for (const char* text : {"", "max", "1e400 1", "-5 100000", "100000 0", "x y", "100000 100000 7"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cgroup_cpu_quota(root_), 0) << text;
  }
}

using Links = FakeRoot;

TEST_F(Links, HaveSpeedAndState) {
  write("/sys/class/net/eth0/type", "1");
  write("/sys/class/net/eth0/speed", "25000");
  write("/sys/class/net/eth0/operstate", "up");
  write("/sys/class/net/eth1/type", "1");
  write("/sys/class/net/eth1/speed", "-1");
  write("/sys/class/net/eth1/operstate", "down");
  write("/sys/class/net/lo/type", "772");
  write("/sys/class/net/bonding_masters", "");
  EXPECT_EQ(network_interfaces(root_), (std::vector<std::string>{"eth0", "eth1"}));
  EXPECT_EQ(network_link("eth0", root_).bits_per_s, 25'000'000'000u);
  EXPECT_TRUE(network_link("eth0", root_).up);
  EXPECT_EQ(network_link("eth1", root_).bits_per_s, 0u);
  EXPECT_FALSE(network_link("eth1", root_).up);
}

TEST_F(Links, OfInfiniBandAreTheFastestPort) {
  write("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  EXPECT_EQ(infiniband_link("mlx5_0", root_).bits_per_s, 100'000'000'000u);
  EXPECT_FALSE(infiniband_link("mlx5_0", root_).up);
  write("/sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
  EXPECT_TRUE(infiniband_link("mlx5_0", root_).up);
  EXPECT_EQ(infiniband_devices(root_), std::vector<std::string>{"mlx5_0"});
}

TEST_F(Links, GpusOfTheDriverHaveModelAndBusId) {
  write("/proc/driver/nvidia/gpus/0000:8A:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 7");
  const auto gpus = nvidia_gpus(root_);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].pci, "0000:8a:00.0");
  EXPECT_EQ(gpus[0].model, "NVIDIA H100 80GB HBM3");
}

TEST(Affinity, HasACore) { EXPECT_FALSE(thread_affinity().empty()); }

}  // namespace
}  // namespace tutti
