// Pairs, one after another: who reaches whom by what, the time of a small message and the speed of large ones.
#include "tools/doctor/pairs.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "base/environment.h"
#include "topology/system.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

// What a rank tells all of itself, and of its way to one peer.
struct Member {
  std::array<char, 64> host;
  int32_t rdma_ports_up;
};
struct Way {
  std::array<char, 16> transport;
  double half_us, mib_per_s;
};

void check(tuttiResult_t result, tuttiComm_t comm) {
  if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(comm));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Pairs {
 public:
  Pairs(tuttiComm_t comm, int rank, int n) : comm_(comm), rank_(rank), n_(n), large_(large_bytes) {}

  std::vector<Finding> examine() {
    Member mine{};
    ::gethostname(mine.host.data(), mine.host.size() - 1);
    for (const std::string& device : infiniband_devices()) mine.rdma_ports_up += infiniband_link(device).up ? 1 : 0;
    std::vector<Member> members(static_cast<size_t>(n_));
    check(tuttiAllGather(&mine, members.data(), sizeof mine, tuttiUint8, comm_, nullptr), comm_);
    std::vector<Finding> findings;
    for (int a = 0; a < n_; ++a)
      for (int b = a + 1; b < n_; ++b) {
        Way way{};
        if (rank_ == a || rank_ == b) way = measure(rank_ == a ? b : a);
        check(tuttiBroadcast(&way, &way, sizeof way, tuttiUint8, a, comm_, nullptr), comm_);
        const auto end = [&](int rank) {
          const Member& member = members[size_t(rank)];
          return PairEnd{rank, member.host.data(), member.rdma_ports_up};
        };
        findings.push_back(judge_pair(end(a), end(b), {way.transport.data(), way.half_us, way.mib_per_s},
                                      environment_text("TUTTI_TRANSPORT").value_or("")));
      }
    if (findings.empty()) findings.push_back({"pairs", Severity::ok, "one rank: there are no pairs", ""});
    return findings;
  }

 private:
  static constexpr size_t large_bytes = 1 << 20;

  void play(int peer, size_t bytes, int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const bool sends : {rank_ < peer, rank_ > peer})
        check(sends ? tuttiSend(large_.data(), bytes, tuttiUint8, peer, comm_, nullptr)
                    : tuttiRecv(large_.data(), bytes, tuttiUint8, peer, comm_, nullptr), comm_);
  }

  Way measure(int peer) {
    constexpr int small_rounds = 100, large_rounds = 4;
    Way way{};
    const char* name = nullptr;
    check(tuttiCommTransport(comm_, peer, &name), comm_);
    std::strncpy(way.transport.data(), name, way.transport.size() - 1);
    play(peer, 8, 10);
    auto start = std::chrono::steady_clock::now();
    play(peer, 8, small_rounds);
    way.half_us = seconds_since(start) * 1e6 / small_rounds / 2;
    play(peer, large_bytes, 1);
    start = std::chrono::steady_clock::now();
    play(peer, large_bytes, large_rounds);
    way.mib_per_s = 2 * large_rounds / seconds_since(start);
    return way;
  }

  tuttiComm_t comm_;
  int rank_, n_;
  std::vector<char> large_;
};

}  // namespace

Finding judge_pair(const PairEnd& one, const PairEnd& other, const PairSpeed& speed, const std::string& allowed) {
  const std::string check_name = fmt::format("pair {}-{}", one.rank, other.rank);
  const std::string sentence =
      fmt::format("rank {} (host {}) and rank {} (host {}): {}, {:.1f} us, {:.0f} MiB/s", one.rank, one.host, other.rank,
                  other.host, speed.transport, speed.half_us, speed.mib_per_s);
  if (!allowed.empty())
    return {check_name, Severity::ok, fmt::format("{} (TUTTI_TRANSPORT={})", sentence, allowed), ""};
  if (speed.transport != "tcp") return {check_name, Severity::ok, sentence, ""};
  if (one.host == other.host)
    return {check_name, Severity::note, sentence + "; they are on one host and do not share memory",
            "let containers of one host share a network namespace, or allow abstract Unix sockets between them"};
  if (one.rdma_ports_up > 0 && other.rdma_ports_up > 0)
    return {check_name, Severity::note, sentence + "; both have RDMA ports that are up, and none of them connects",
            "run with TUTTI_LOG=info, which says what was tried; compare subnets, VLANs and MTUs of the ports"};
  if (one.rdma_ports_up == 0 && other.rdma_ports_up == 0) return {check_name, Severity::ok, sentence, ""};
  const bool first = one.rdma_ports_up > 0;
  return {check_name, Severity::note,
          fmt::format("{}; only host {} has RDMA ports that are up", sentence, first ? one.host : other.host),
          "run tutti-doctor alone on host " + (first ? other.host : one.host)};
}

std::vector<Finding> examine_pairs(int& rank) {
  rank = 0;
  tuttiComm_t comm = nullptr;
  tuttiEnvRank(&rank, nullptr, nullptr);
  try {
    check(tuttiCommInitEnv(&comm, nullptr), nullptr);
    int n = 0;
    check(tuttiCommUserRank(comm, &rank), comm);
    check(tuttiCommCount(comm, &n), comm);
    const std::vector<Finding> findings = Pairs(comm, rank, n).examine();
    tuttiCommDestroy(comm);
    return findings;
  } catch (const std::runtime_error& error) {
    if (comm != nullptr) tuttiCommAbort(comm);
    const bool chosen = !environment_text("TUTTI_TRANSPORT").value_or("").empty();
    return {{"pairs", Severity::problem, fmt::format("the ranks do not work together: {}", error.what()),
             fmt::format("{}run tutti-doctor alone on each host; see that the ranks may connect to each other's ports (firewalls)",
                         chosen ? "unset TUTTI_TRANSPORT, which allows few ways; " : "")}};
  }
}

}  // namespace tutti
