// Interfaces: which are allowed, in which order their addresses are tried, how addresses read.
#include "bootstrap/address.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "bootstrap/sockets.h"

namespace tutti {
namespace {

TEST(Address, AFilterNamesInterfacesOrExcludesThem) {
  EXPECT_TRUE(interface_allowed("", "eth0"));
  EXPECT_TRUE(interface_allowed("eth0,ib0", "ib0"));
  EXPECT_FALSE(interface_allowed("eth0,ib0", "eth01"));
  EXPECT_TRUE(interface_allowed("eth*", "eth01"));
  EXPECT_FALSE(interface_allowed("^docker*,virbr0", "docker0"));
  EXPECT_FALSE(interface_allowed("^docker*,virbr0", "virbr0"));
  EXPECT_TRUE(interface_allowed("^docker*,virbr0", "virbr1"));
}

TEST(Address, LoopbackComesLast) {
  const std::vector<InterfaceAddress> all = interface_addresses("");
  ASSERT_FALSE(all.empty());
  const auto on_loopback = [](const InterfaceAddress& entry) { return is_loopback(entry.address); };
  EXPECT_TRUE(std::all_of(std::find_if(all.begin(), all.end(), on_loopback), all.end(), on_loopback));
}

TEST(Address, AForcedInterfaceGivesItsAddressesAlone) {
  for (const JobId::Address& address : reachable_addresses("lo", 4000, 16)) {
    EXPECT_TRUE(is_loopback(address));
    EXPECT_EQ(address.port, 4000);
  }
}

TEST(Address, AFilterThatLeavesNothingSaysWhatThereIs) {
  try {
    interface_addresses("nosuch0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_usage);
    EXPECT_NE(std::string(error.what()).find("nosuch0"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(" lo"), std::string::npos) << error.what();
  }
}

TEST(Address, AddressesReadAsUsual) {
  EXPECT_EQ(describe(resolve("192.0.2.7", 80).front()), "192.0.2.7:80");
  EXPECT_EQ(describe(resolve("fd00::1", 80).front()), "[fd00::1]:80");
  EXPECT_TRUE(is_link_local(resolve("fe80::1", 1).front()));
  EXPECT_TRUE(is_loopback(resolve("::1", 1).front()));
  EXPECT_THROW(resolve("no such host.", 1), Error);
}

TEST(Address, SocketAddressesComeBackAsTheyWere) {
  for (const char* text : {"192.0.2.7", "fd00::1"}) {
    const JobId::Address address = resolve(text, 4000).front();
    sockaddr_storage storage;
    to_sockaddr(address, storage);
    EXPECT_EQ(describe(from_sockaddr(storage)), describe(address));
  }
}

TEST(Sockets, AListenerHearsBothFamiliesOnOnePort) {
  const Fd listener = listen_everywhere(0, nullptr);
  for (const char* text : {"127.0.0.1", "::1"}) {
    int error = 0;
    const Fd fd = start_connect(resolve(text, local_port(listener)).front(), &error);
    if (!fd.valid()) {
      std::printf("skipped %s: %d\n", text, error);
      continue;
    }
    pollfd wait{listener.get(), POLLIN, 0};
    EXPECT_EQ(poll_until({&wait, 1}, now_ns() + 5 * ns_per_s), 1) << text;
    EXPECT_TRUE(accept_connection(listener, &error).valid()) << text;
  }
}

std::string congestion_control_of(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof name;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
  return name;
}

// An address of the loopback network that is not the one which calls it stands for another host's.
TEST(Sockets, TheSystemsCongestionControlIsOfOtherHosts) {
  const Fd listener = listen_everywhere(0, nullptr);
  const Fd untouched(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string usual = congestion_control_of(untouched.get());
  for (const bool within : {true, false}) {
    int error = 0;
    const Fd fd = start_connect(resolve(within ? "127.0.0.1" : "127.0.0.2", local_port(listener)).front(), &error);
    ASSERT_TRUE(fd.valid()) << error;
    pollfd wait{fd.get(), POLLOUT, 0};
    ASSERT_EQ(poll_until({&wait, 1}, now_ns() + 5 * ns_per_s), 1);
    ASSERT_EQ(connect_result(fd), 0);
    wait = {listener.get(), POLLIN, 0};
    ASSERT_EQ(poll_until({&wait, 1}, now_ns() + 5 * ns_per_s), 1);
    const Fd accepted = accept_connection(listener, &error);
    ASSERT_TRUE(accepted.valid()) << error;
    ASSERT_EQ(local_address(fd).ip == peer_address(fd).ip, within);
    EXPECT_EQ(congestion_control_of(fd.get()), within ? "reno" : usual);
    EXPECT_EQ(congestion_control_of(accepted.get()), within ? "reno" : usual);
  }
}

TEST(Sockets, AHeldPortIsToldNotThrown) {
  const Fd first = listen_everywhere(0, nullptr);
  bool in_use = false;
  EXPECT_FALSE(listen_everywhere(local_port(first), &in_use).valid());
  EXPECT_TRUE(in_use);
}

}  // namespace
}  // namespace tutti
