// Enumerates, filters, orders, resolves and prints addresses.
#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

constexpr std::array<unsigned char, 12> mapped_prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
// Interfaces that seldom lead to another host.
constexpr std::array<std::string_view, 8> virtual_prefixes = {"docker", "br-", "virbr", "veth",
                                                              "cni",    "lxc", "tap",   "podman"};

struct Candidate {
  InterfaceAddress found;
  int rank = 0;  // smaller is tried earlier
};

int preference(const ifaddrs& entry, const JobId::Address& address) {
  const std::string_view name = entry.ifa_name;
  int rank = is_ipv4(address) ? 0 : 1;
  const bool is_virtual = std::any_of(virtual_prefixes.begin(), virtual_prefixes.end(),
                                      [&](std::string_view prefix) { return name.starts_with(prefix); });
  if (is_virtual) rank += 2;
  if ((entry.ifa_flags & IFF_RUNNING) == 0) rank += 4;
  if (is_link_local(address)) rank += 8;
  if (is_loopback(address)) rank += 16;
  return rank;
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

struct Interfaces {
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list{nullptr, &::freeifaddrs};
};

Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw descriptor_error("cannot list the network interfaces", errno);
  Interfaces interfaces;
  interfaces.list.reset(list);
  return interfaces;
}

[[noreturn]] void refuse_filter(const std::string& filter, const Interfaces& interfaces) {
  std::set<std::string> names;
  for (const ifaddrs* entry = interfaces.list.get(); entry != nullptr; entry = entry->ifa_next)
    if ((entry->ifa_flags & IFF_UP) != 0) names.insert(entry->ifa_name);
  std::string there;
  for (const std::string& name : names) there += " " + name;
  throw Error(Code::invalid_usage, fmt::format("no interface that is up and has an address is allowed by \"{}\"; this "
                                               "host has:{}",
                                               filter, there));
}

}  // namespace

bool interface_allowed(std::string_view filter, std::string_view interface_name) {
  if (filter.empty()) return true;
  const bool excludes = filter.front() == '^';
  if (excludes) filter.remove_prefix(1);
  bool named = false;
  while (!filter.empty()) {
    const size_t comma = std::min(filter.find(','), filter.size());
    named = named || name_matches(filter.substr(0, comma), interface_name);
    filter.remove_prefix(std::min(comma + 1, filter.size()));
  }
  return named != excludes;
}

std::vector<InterfaceAddress> interface_addresses(const std::string& filter) {
  const Interfaces interfaces = list_interfaces();
  std::vector<Candidate> candidates;
  for (const ifaddrs* entry = interfaces.list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || !interface_allowed(filter, entry->ifa_name)) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const JobId::Address address = from_sockaddr(storage);
    candidates.push_back({{entry->ifa_name, address}, preference(*entry, address)});
  }
  if (candidates.empty()) refuse_filter(filter, interfaces);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
  const bool has_better = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& c) {
    return !is_link_local(c.found.address) && !is_loopback(c.found.address);
  });
  std::vector<InterfaceAddress> found;
  for (Candidate& candidate : candidates)
    if (!has_better || !is_link_local(candidate.found.address)) found.push_back(std::move(candidate.found));
  return found;
}

std::vector<JobId::Address> reachable_addresses(const std::string& filter, uint16_t port, size_t address_max,
                                                System* system) {
  if (system != nullptr) {
    std::vector<JobId::Address> simulated = system->addresses();
    for (JobId::Address& address : simulated) address.port = port;
    return simulated;
  }
  std::vector<InterfaceAddress> rest = interface_addresses(filter);
  std::vector<JobId::Address> chosen;
  // Each turn takes the first remaining address of each interface; loopback has its turn after all others.
  for (const bool loopback : {false, true}) {
    bool took = true;
    while (took) {
      took = false;
      std::set<std::string> served;
      for (auto it = rest.begin(); it != rest.end();) {
        const bool takes = is_loopback(it->address) == loopback && served.insert(it->interface_name).second;
        if (!takes) {
          ++it;
          continue;
        }
        if (chosen.size() < address_max) chosen.push_back(it->address);
        it = rest.erase(it);
        took = true;
      }
    }
  }
  for (JobId::Address& address : chosen) address.port = port;
  return chosen;
}

std::vector<JobId::Address> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<JobId::Address> found;
  for (const addrinfo* entry = list; error == 0 && entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ai_addr, std::min<size_t>(entry->ai_addrlen, sizeof storage));
    JobId::Address address = from_sockaddr(storage);
    address.port = port;
    found.push_back(address);
  }
  if (found.empty())
    throw Error(Code::invalid_usage, fmt::format("host \"{}\" has no address: {}", host,
                                                 error != 0 ? ::gai_strerror(error) : "no IPv4 or IPv6 among them"));
  return found;
}

bool is_ipv4(const JobId::Address& address) noexcept {
  return std::equal(mapped_prefix.begin(), mapped_prefix.end(), address.ip.begin());
}

bool is_loopback(const JobId::Address& address) noexcept {
  if (is_ipv4(address)) return address.ip[12] == 127;
  return std::all_of(address.ip.begin(), address.ip.end() - 1, [](unsigned char c) { return c == 0; }) &&
         address.ip[15] == 1;
}

bool is_link_local(const JobId::Address& address) noexcept {
  if (is_ipv4(address)) return address.ip[12] == 169 && address.ip[13] == 254;
  return address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

bool same_host_address(const JobId::Address& a, const JobId::Address& b) noexcept { return a.ip == b.ip; }

std::string describe(const JobId::Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(address)) {
    ::inet_ntop(AF_INET, address.ip.data() + mapped_prefix.size(), text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, address.ip.data(), text, sizeof text);
  }
  std::string line = is_ipv4(address) ? "" : "[";
  line += text;
  line += is_ipv4(address) ? ":" : "]:";
  line += std::to_string(address.port);
  return line;
}

socklen_t to_sockaddr(const JobId::Address& address, sockaddr_storage& storage) noexcept {
  storage = {};
  if (is_ipv4(address)) {
    auto& in = reinterpret_cast<sockaddr_in&>(storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.ip.data() + mapped_prefix.size(), sizeof in.sin_addr);
    return sizeof in;
  }
  auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(address.port);
  in6.sin6_scope_id = address.scope;
  std::memcpy(&in6.sin6_addr, address.ip.data(), sizeof in6.sin6_addr);
  return sizeof in6;
}

JobId::Address from_sockaddr(const sockaddr_storage& storage) noexcept {
  JobId::Address address;
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    std::copy(mapped_prefix.begin(), mapped_prefix.end(), address.ip.begin());
    std::memcpy(address.ip.data() + mapped_prefix.size(), &in.sin_addr, sizeof in.sin_addr);
    address.port = ntohs(in.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    std::memcpy(address.ip.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
    address.port = ntohs(in6.sin6_port);
    address.scope = in6.sin6_scope_id;
  }
  return address;
}

void write(ByteWriter& writer, const JobId::Address& address) {
  writer.raw(std::as_bytes(std::span(address.ip)));
  writer.u16(address.port);
  writer.u32(address.scope);
}

JobId::Address read_address(ByteReader& reader) {
  JobId::Address address;
  const std::span<const std::byte> ip = reader.raw(address.ip.size());
  std::transform(ip.begin(), ip.end(), address.ip.begin(), [](std::byte b) { return static_cast<unsigned char>(b); });
  address.port = reader.u16();
  address.scope = reader.u32();
  return address;
}

}  // namespace tutti
