// Places: what a rank sees of its host, and how they travel.
#include <gtest/gtest.h>
#include <sched.h>

#include <random>

#include "base/error.h"
#include "topology/topology.h"

namespace tutti {
namespace {

Host two_sockets() { return load_host(std::string(TOPOLOGIES) + "/2socket-1gpu-1ib.xml"); }

TEST(Place, OfARankOnTheWholeHostHasNoNumaNodeAndNoCache) {
  const Place place = place_of(two_sockets());
  EXPECT_EQ(place.cores_allowed.size(), 32u);
  EXPECT_EQ(place.numa, -1);
  EXPECT_EQ(place.last_cache, -1);
}

TEST(Place, OfARankOnOneSocketHasItsNumaNodeAndItsLastCache) {
  Host host = two_sockets();
  host.cores_allowed = {8, 9, 24};
  const Place place = place_of(host);
  EXPECT_EQ(place.numa, 1);
  ASSERT_GE(place.last_cache, 0);
  EXPECT_EQ(host.caches[size_t(place.last_cache)].level, 3);
  EXPECT_EQ(host.caches[size_t(place.last_cache)].cores, host.packages[1].cores);
}

TEST(Place, SeesTheAffinityOfItsThread) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Place place = place_of(discover_host());
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(place.cores_allowed, std::vector<int>{core});
}

TEST(Place, KnowsItsFastestInterfaceThatIsUp) {
  Host host = two_sockets();
  for (HostDevice& d : host.devices) {
    if (d.name == "eth0") d.bits_per_s = 1'000'000'000;
    if (d.name == "eth1") d.bits_per_s = 10'000'000'000, d.up = false;
    if (d.kind == DeviceKind::hca) d.bits_per_s = 100'000'000'000;
  }
  EXPECT_EQ(place_of(host).nic_bits_per_s, 1'000'000'000u);
}

Place sample() {
  Place place;
  place.host = 7;
  place.cores_allowed = {0, 1, 2, 3, 8, 64, 65};
  place.numa = 3;
  place.last_cache = 12;
  place.cpu_quota = 1.5;
  place.nic_bits_per_s = 200'000'000'000;
  return place;
}

TEST(Place, TravelsAsBytes) {
  EXPECT_TRUE(decode_place(encode(sample())) == sample());
  EXPECT_TRUE(decode_place(encode(Place{})) == Place{});
}

TEST(Place, BytesThatAreNoPlaceAreRefused) {
  const auto good = encode(sample());
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(decode_place(std::span(good).first(n)), Error) << n << " bytes";
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_place(longer), Error);
  auto other_version = good;
  other_version[0] ^= std::byte{1};
  EXPECT_THROW(decode_place(other_version), Error);
}

TEST(Place, GarbageIsRefusedOrReadWithinLimits) {
  std::mt19937 random(20240501);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = encode(sample());
    for (int flips = 1 + int(random() % 4); flips > 0; --flips)
      bytes[4 + random() % (bytes.size() - 4)] = std::byte(random());
    try {
      EXPECT_LE(decode_place(bytes).cores_allowed.size(), 65536u);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tutti
