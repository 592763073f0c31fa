// Addresses of this host's interfaces and of others: which there are, in which order they are tried, how they read.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

namespace tutti {

// Most addresses that a rank tells others.
inline constexpr size_t rank_address_max = 16;

// An address of a network interface of this host; port 0.
struct InterfaceAddress {
  std::string interface_name;
  JobId::Address address;
};

// Whether `filter` allows an interface: "" allows all; "eth0,ib*" those named ('*' at the end stands for anything);
// "^docker*,virbr0" all but those named.
bool interface_allowed(std::string_view filter, std::string_view interface_name);

// Addresses of interfaces that are up and allowed, the likeliest first: physical before virtual (bridges, tunnels),
// IPv4 before IPv6, link-local addresses only where there is nothing better, loopback last. Throws Error(invalid_usage)
// that lists the interfaces there are, where the filter leaves none; Error(system_error).
std::vector<InterfaceAddress> interface_addresses(const std::string& filter);
// The same with a port, at most address_max of them. Every interface has its first turn before any has its second.
std::vector<JobId::Address> reachable_addresses(const std::string& filter, uint16_t port, size_t address_max,
                                                System* system = nullptr);

// Of a host name or a numeric address; IPv4 and IPv6. Throws Error(invalid_usage) that says why there is none.
std::vector<JobId::Address> resolve(const std::string& host, uint16_t port);

bool is_ipv4(const JobId::Address& address) noexcept;
bool is_loopback(const JobId::Address& address) noexcept;
bool is_link_local(const JobId::Address& address) noexcept;
bool same_host_address(const JobId::Address& a, const JobId::Address& b) noexcept;  // port and scope aside

// "192.0.2.1:4000", "[fd00::1]:4000".
std::string describe(const JobId::Address& address);

socklen_t to_sockaddr(const JobId::Address& address, sockaddr_storage& storage) noexcept;
JobId::Address from_sockaddr(const sockaddr_storage& storage) noexcept;

// As others are told it. read_address throws as ByteReader does.
void write(ByteWriter& writer, const JobId::Address& address);
JobId::Address read_address(ByteReader& reader);

}  // namespace tutti
