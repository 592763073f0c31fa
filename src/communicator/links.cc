// Making a rank's links: shared memory where it reaches, TCP to the others.
#include "communicator/links.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

namespace tutti {
namespace {

struct AllowedTransports {
  bool shm = true;
  bool verbs = true;
  bool tcp = true;
};

AllowedTransports parse_transports(const std::string& list) {
  if (list.empty()) return {};
  AllowedTransports allowed{false, false, false};
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (name == "shm") allowed.shm = true;
    else if (name == "verbs") allowed.verbs = true;
    else if (name == "tcp") allowed.tcp = true;
    else throw Error(Code::invalid_argument, fmt::format("transport \"{}\" is not shm, verbs or tcp", name));
    begin = end + 1;
  }
  return allowed;
}

// Gives the transport the peers that it reaches and no other before it did.
void take(Links& links, std::unique_ptr<Transport> transport, int channels) {
  const size_t n = links.names.size();
  bool used = false;
  for (size_t peer = 0; peer < n; ++peer) {
    if (links.names[peer] != nullptr || transport->endpoint(int(peer), 0) == nullptr) continue;
    links.names[peer] = transport->name().data();
    for (int c = 0; c < channels; ++c) links.endpoints[size_t(c) * n + peer] = transport->endpoint(int(peer), c);
    used = true;
  }
  if (!used) return;
  links.message_bytes_max = std::min(links.message_bytes_max, transport->message_bytes_max());
  links.spread_bytes_max = std::min(links.spread_bytes_max, transport->spread_bytes_max());
  links.transports.push_back(std::move(transport));
}

}  // namespace

void settle_broken_link(Bootstrap& bootstrap, const Links& links, int peer, const Fault& fault,
                        std::string_view of_what) noexcept {
  const auto now = [&] { return links.clock == nullptr ? now_ns() : links.clock->now(); };
  for (const TimeNs start = now(); bootstrap.verdict() == nullptr && now() - start < links.grace_ns;) {
    if (links.clock == nullptr) ::sched_yield();
    else links.clock->yield();
  }
  if (bootstrap.verdict() != nullptr) return;
  try {
    const std::string_view reason = fault.kind == FaultKind::closed   ? "was closed by the other side"
                                    : !fault.text.empty()             ? fault.text
                                    : fault.kind == FaultKind::system ? std::strerror(fault.error_number)
                                                                      : "it brought what nobody sends";
    bootstrap.fail({Code::remote_error, -1,
                    fmt::format("{}: the {} link{} to {} failed: {}", bootstrap.describe(bootstrap.rank()),
                                links.names[size_t(peer)], of_what, bootstrap.describe(peer), reason)});
  } catch (const std::exception& error) {
    bootstrap.fail({Code::internal_error, -1, error.what()});
  }
}

void check_transports(const std::string& list) { parse_transports(list); }

Links make_links(Bootstrap& bootstrap, const LinksOptions& options, Doorbell& doorbell) {
  const AllowedTransports allowed = parse_transports(options.transports);
  const Log log = options.log != nullptr ? *options.log : Log(bootstrap.describe(bootstrap.rank()));
  Links links;
  links.grace_ns = std::min(links.grace_ns, options.timeout_ns / 2);
  links.endpoints.assign(size_t(options.channels) * size_t(bootstrap.size()), nullptr);
  links.names.assign(size_t(bootstrap.size()), nullptr);
  links.names[size_t(bootstrap.rank())] = "self";
  std::deque<std::pair<const char*, WhyNotReached>> why_not;  // of each transport that was asked
  if (allowed.shm) {
    ShmOptions shm = shm_options_from_environment();
    shm.channels = options.channels;
    shm.doorbell = &doorbell;
    shm.timeout_ns = options.timeout_ns;
    if (options.host != nullptr) {
      const CacheSizes caches = cache_sizes(*options.host);
      if (caches.own_bytes > 0) shm.own_cache_bytes = caches.own_bytes;
      if (caches.last_bytes > 0) shm.last_cache_bytes = caches.last_bytes;
    }
    shm.why_not = &why_not.emplace_back("shm", WhyNotReached(size_t(bootstrap.size()))).second;
    take(links, make_shm(bootstrap, shm), options.channels);
  }
  const auto still_unreached = [&links] {
    std::vector<bool> peers;
    for (const char* name : links.names) peers.push_back(name == nullptr);
    return peers;
  };
  if (allowed.verbs) {
    VerbsOptions verbs = verbs_options_from_environment();
    verbs.channels = options.channels;
    verbs.peers = still_unreached();
    const auto me = verbs.peers.begin() + bootstrap.rank();
    verbs.turn = int(std::count(verbs.peers.begin(), me, false));  // whom memory reaches is of this host
    verbs.tcp = allowed.tcp;
    verbs.why_not = &why_not.emplace_back("verbs", WhyNotReached(size_t(bootstrap.size()))).second;
    if (std::unique_ptr<Transport> made = make_verbs(bootstrap, verbs, log))
      take(links, std::move(made), options.channels);
  }
  if (allowed.tcp) {
    TcpOptions tcp;
    tcp.channels = options.channels;
    tcp.peers = still_unreached();
    take(links, make_tcp(bootstrap, tcp), options.channels);
  }
  const auto unreached = std::find(links.names.begin(), links.names.end(), nullptr);
  if (unreached == links.names.end()) return links;
  const auto peer = unreached - links.names.begin();
  std::string why;
  for (const auto& [name, of_peers] : why_not)
    if (const std::string& one = of_peers[size_t(peer)]; !one.empty()) why += fmt::format("; not {}, since {}", name, one);
  if (!why.empty()) why[0] = ':';
  throw Error(Code::invalid_usage,
              fmt::format("no allowed transport ({}) reaches {}{}", options.transports, bootstrap.describe(int(peer)), why));
}

}  // namespace tutti
