// Machines recorded by hwloc are read right, and so is this one.
#include "topology/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"

namespace tutti {
namespace {

Host machine(const std::string& name) { return load_host(std::string(TOPOLOGIES) + "/" + name + ".xml"); }

std::vector<HostDevice> devices(const Host& host, DeviceKind kind) {
  std::vector<HostDevice> found;
  for (const HostDevice& d : host.devices)
    if (d.kind == kind) found.push_back(d);
  return found;
}

const LinkMatrix& matrix(const Host& host, const std::string& name) {
  for (const LinkMatrix& m : host.links)
    if (m.name == name) return m;
  throw std::runtime_error("no matrix " + name);
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(testing::TempDir() + "tutti_topology_" + std::to_string(::getpid()) + ".xml") {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Topology, TwoSocketsWithAGpuAndAnHcaOnTheSecond) {
  const Host host = machine("2socket-1gpu-1ib");
  EXPECT_EQ(host.name, "2socket-1gpu-1ib");
  EXPECT_EQ(host.model, "X9DRG-HF");
  EXPECT_EQ(host.packages.size(), 2u);
  EXPECT_EQ(host.packages[1].model, "Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz");
  EXPECT_EQ(host.numa.size(), 2u);
  EXPECT_EQ(host.numa[0].bytes, 34330173440u);
  EXPECT_EQ(host.physical_cores.size(), 16u);
  EXPECT_EQ(host.cores.size(), 32u);
  EXPECT_EQ(host.cores_allowed, host.cores);
  EXPECT_EQ(host.physical_cores[0], (std::vector<int>{0, 16}));
  const auto gpus = devices(host, DeviceKind::gpu);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].name, "cuda0");
  EXPECT_EQ(gpus[0].model, "Tesla K40m");
  EXPECT_EQ(gpus[0].numa, 1);
  EXPECT_EQ(gpus[0].pci, "0000:84:00.0");
  const auto hcas = devices(host, DeviceKind::hca);
  ASSERT_EQ(hcas.size(), 1u);
  EXPECT_EQ(hcas[0].name, "mlx5_0");
  EXPECT_EQ(hcas[0].numa, 1);  // though a bus id of the other package is the same
  EXPECT_EQ(hcas[0].model, "Mellanox Technologies MT27700 Family [ConnectX-4]");
  const auto nics = devices(host, DeviceKind::nic);
  ASSERT_EQ(nics.size(), 3u);  // disks and DMA channels are none
  EXPECT_EQ(nics[0].name, "eth0");
  EXPECT_EQ(nics[2].name, "ib0");
  const LinkMatrix& latency = matrix(host, "NUMALatency");
  EXPECT_FALSE(latency.bandwidth);
  EXPECT_EQ(latency.ends, (std::vector<std::string>{"numa0", "numa1"}));
  EXPECT_EQ(latency.values, (std::vector<uint64_t>{10, 20, 20, 10}));
}

TEST(Topology, NinetySixCoresOnFourNumaNodes) {
  const Host host = machine("4socket-96core");
  EXPECT_EQ(host.packages.size(), 16u);
  EXPECT_EQ(host.numa.size(), 4u);
  EXPECT_EQ(host.physical_cores.size(), 96u);
  EXPECT_EQ(host.cores.size(), 96u);
  EXPECT_EQ(std::count_if(host.caches.begin(), host.caches.end(), [](const Cache& c) { return c.level == 3; }), 16);
  EXPECT_EQ(host.caches[0].bytes, 16u << 20);
  EXPECT_TRUE(devices(host, DeviceKind::gpu).empty());  // a console's VGA chip is none
  EXPECT_EQ(devices(host, DeviceKind::nic).size(), 8u);
  EXPECT_EQ(devices(host, DeviceKind::nic)[7].numa, 3);
  EXPECT_EQ(matrix(host, "NUMALatency").ends.size(), 4u);
}

TEST(Topology, CachesOfACoreAloneAndOfAll) {
  const CacheSizes xeon = cache_sizes(machine("2socket-1gpu-1ib"));
  EXPECT_EQ(xeon.own_bytes, 256u << 10) << "two threads of one core share it";
  EXPECT_EQ(xeon.last_bytes, 20u << 20);
  const CacheSizes pairs = cache_sizes(machine("4socket-96core"));
  EXPECT_EQ(pairs.own_bytes, 32u << 10) << "two cores share a second-level cache";
  EXPECT_EQ(pairs.last_bytes, 16u << 20);
  Host host;
  host.physical_cores = {{0}, {1}, {2}};
  host.cores_allowed = {0, 1};
  host.caches = {{3, 9000, {0, 1}}, {2, 500, {0}}, {2, 300, {1}}, {1, 50, {0}}, {3, 99999, {2}}, {2, 100, {2}}};
  EXPECT_EQ(cache_sizes(host).own_bytes, 300u) << "the least of two cores";
  EXPECT_EQ(cache_sizes(host).last_bytes, 9000u) << "of the cores that are allowed";
  EXPECT_EQ(cache_sizes(Host()).own_bytes, 0u);
  EXPECT_EQ(cache_sizes(Host()).last_bytes, 0u);
  EXPECT_EQ(cache_sizes(Host()).likely_bytes, 0u);
}

// A virtual machine is shown a last cache that cores which are not its own fill too.
TEST(Topology, WhatFewCoresHaveOfALargeCache) {
  constexpr uint64_t mib = 1 << 20;
  const auto sizes_of = [](int cores, uint64_t last_bytes) {
    Host host;
    Cache last{3, last_bytes, {}};
    for (int core = 0; core < cores; ++core) {
      host.physical_cores.push_back({core});
      host.cores_allowed.push_back(core);
      host.caches.push_back({2, 2 * mib, {core}});
      last.cores.push_back(core);
    }
    host.caches.push_back(last);
    return cache_sizes(host);
  };
  EXPECT_EQ(sizes_of(2, 300 * mib).last_bytes, 96 * mib) << "no core has more than 48 MiB";
  EXPECT_EQ(sizes_of(2, 300 * mib).likely_bytes, 12 * mib) << "2 MiB of its own and 4 of the last one for each";
  EXPECT_EQ(sizes_of(60, 300 * mib).last_bytes, 300 * mib);
  EXPECT_EQ(sizes_of(60, 300 * mib).likely_bytes, 300 * mib) << "all are here";
  EXPECT_EQ(sizes_of(2, 8 * mib).likely_bytes, 8 * mib) << "never more than there is";
}

TEST(Topology, AVirtualMachineHasPartOfTheCacheItIsShown) {
  Host host;
  host.physical_cores = {{0, 2}, {1, 3}};
  host.cores_allowed = {1};
  host.caches = {{3, uint64_t{260} << 20, {0, 1, 2, 3}}, {2, uint64_t{2} << 20, {1, 3}}};
  EXPECT_EQ(cache_sizes(host).last_bytes, uint64_t{96} << 20) << "of two cores, whether or not both are allowed";
  host.caches[0].bytes = uint64_t{96} << 20;
  EXPECT_EQ(cache_sizes(host).last_bytes, uint64_t{96} << 20);
  EXPECT_EQ(cache_sizes(host).own_bytes, uint64_t{2} << 20);
}

TEST(Topology, SixteenGpusBehindTwelveSwitches) {
  const Host host = machine("dgx2-16gpu-nvswitch");
  EXPECT_EQ(host.packages.size(), 2u);
  EXPECT_EQ(host.numa.size(), 2u);
  EXPECT_EQ(host.cores, (std::vector<int>{0, 1, 24, 25}));
  const auto gpus = devices(host, DeviceKind::gpu);
  ASSERT_EQ(gpus.size(), 16u);
  EXPECT_EQ(gpus[0].model, "Tesla V100-SXM3-32GB-H");
  EXPECT_EQ(gpus[7].numa, 0);
  EXPECT_EQ(gpus[8].numa, 1);
  EXPECT_EQ(devices(host, DeviceKind::gpu_switch).size(), 12u);
  const LinkMatrix& nvlink = matrix(host, "NVLinkBandwidth");
  EXPECT_TRUE(nvlink.bandwidth);
  ASSERT_EQ(nvlink.ends.size(), 28u);
  int links = 0;
  for (size_t from = 0; from < 28; ++from)
    for (size_t to = 0; to < 28; ++to) {
      EXPECT_EQ(nvlink.at(from, to), nvlink.at(to, from));
      if (from < to && nvlink.at(from, to) > 0) {
        EXPECT_EQ(nvlink.at(from, to), 25000u);
        EXPECT_TRUE(nvlink.ends[from].starts_with("nvml")) << nvlink.ends[from];
        EXPECT_TRUE(nvlink.ends[to].starts_with("nvswitch")) << nvlink.ends[to];
        ++links;
      }
    }
  EXPECT_EQ(links, 16 * 6);  // each GPU reaches the six switches of its board
}

TEST(Topology, XmlOfALoadedMachineLoadsAsTheSameMachine) {
  for (const char* name : {"2socket-1gpu-1ib", "4socket-96core", "dgx2-16gpu-nvswitch"}) {
    std::string xml;
    const Host host = load_host(std::string(TOPOLOGIES) + "/" + name + ".xml", &xml);
    const TemporaryFile file(xml);
    EXPECT_TRUE(load_host(file.path()) == host) << name;
  }
}

TEST(Topology, XmlOfThisMachineLoadsAsThisMachine) {
  std::string xml;
  const Host host = discover_host(&xml);
  const TemporaryFile file(xml);
  EXPECT_TRUE(load_host(file.path()) == host) << xml;
}

// What was found once is kept, but not beyond what it depends on.
TEST(Topology, ThisMachineIsAskedAgainWhereHwlocIsToldOtherwise) {
  const Host here = discover_host();
  EXPECT_TRUE(discover_host() == here);
  ::setenv("HWLOC_XMLFILE", (std::string(TOPOLOGIES) + "/4socket-96core.xml").c_str(), 1);
  const Host other = discover_host();
  ::unsetenv("HWLOC_XMLFILE");
  EXPECT_TRUE(other.packages == machine("4socket-96core").packages);
  EXPECT_TRUE(discover_host() == here);
}

TEST(Topology, TheCoresAllowedAreTheCallingThreadsOwn) {
  const Host here = discover_host();
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(size_t(here.cores_allowed.back()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(discover_host().cores_allowed, std::vector{here.cores_allowed.back()});
  }).join();
  EXPECT_EQ(discover_host().cores_allowed, here.cores_allowed);
}

TEST(Topology, ThisMachineHasAnAllowedCore) {
  const Host host = discover_host();
  EXPECT_FALSE(host.cores_allowed.empty());
  const auto& allowed = host.cores_allowed;
  EXPECT_TRUE(std::includes(host.cores.begin(), host.cores.end(), allowed.begin(), allowed.end()));
  EXPECT_FALSE(host.physical_cores.empty());
  EXPECT_FALSE(host.name.empty());
}

std::string refusal(const std::string& path) {
  try {
    load_host(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Topology, AFileThatIsMissingOrNoTopologyIsNamed) {
  EXPECT_EQ(refusal("/nowhere/machine.xml"),
            "cannot read topology file /nowhere/machine.xml: No such file or directory (errno 2)");
  EXPECT_EQ(refusal("/"), "cannot read topology file /: Is a directory (errno 21)");
  for (const char* text : {"", "garbage", "<?xml version=\"1.0\"?>\n<a/>", "<topology version=\"2.0\">"}) {
    const TemporaryFile file(text);
    EXPECT_EQ(refusal(file.path()), file.path() + " is not a topology in hwloc's XML format") << text;
  }
}

}  // namespace
}  // namespace tutti
