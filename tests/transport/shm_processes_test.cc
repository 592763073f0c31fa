// Shared memory between processes: they meet, exchange, die by kill -9, sit behind a network namespace's border.
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transport/shm/shm.h"
#include "transport/traffic.h"

namespace tutti {
namespace {

constexpr int ranks_max = 8;
using Links = std::array<std::array<int, 2>, ranks_max>;  // rank 0 end, rank r end

// A bootstrap whose ranks are children of one process: all meet through rank 0.
class ProcessBootstrap final : public Bootstrap {
 public:
  ProcessBootstrap(const Links& links, int rank, int size) : links_(links), rank_(rank), size_(size) {
    for (int r = 0; r < size; ++r) names_.push_back("rank " + std::to_string(r));
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const Key& key() const noexcept override { return key_; }
  const std::string& describe(int rank) const noexcept override { return names_[size_t(rank)]; }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine) override {
    std::vector<Bytes> all(static_cast<size_t>(size_));
    all[size_t(rank_)].assign(mine.begin(), mine.end());
    if (rank_ != 0) {
      write(end(rank_), mine);
      for (Bytes& theirs : all) theirs = read(end(rank_));
      return all;
    }
    for (int r = 1; r < size_; ++r) all[size_t(r)] = read(end(r));
    for (int r = 1; r < size_; ++r)
      for (const Bytes& theirs : all) write(end(r), theirs);
    return all;
  }
  void barrier() override { all_gather({}); }
  std::vector<Fd> connect(std::span<const Wish>) override { return {}; }
  Presence presence(int) const noexcept override { return Presence::here; }
  const std::atomic<const Verdict*>& verdict_cell() const noexcept override { return no_verdict_; }
  void fail(Verdict) noexcept override {}
  void on_verdict(std::function<void()>) override {}
  Bytes agree(uint32_t, Bytes, TimeNs, const std::function<Bytes(const Ballot&)>&) override {
    throw Error(Code::internal_error, "no test asks for this");
  }
  void leave() noexcept override {}

 private:
  std::atomic<const Verdict*> no_verdict_{nullptr};
  int end(int rank) const { return links_[size_t(rank)][rank_ == 0 ? 0 : 1]; }
  static void write(int fd, std::span<const std::byte> data) {
    std::array<std::byte, 4096> packet{};  // the first byte marks it, as an empty packet would look like an end
    std::copy(data.begin(), data.end(), packet.begin() + 1);
    if (::send(fd, packet.data(), data.size() + 1, MSG_NOSIGNAL) < 0) throw system_error("test: send", errno);
  }
  static Bytes read(int fd) {
    std::array<std::byte, 4096> packet;
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 20'000) <= 0) throw Error(Code::timeout, "test: a process did not come");
    const ssize_t n = ::recv(fd, packet.data(), packet.size(), 0);
    if (n <= 0) throw Error(Code::remote_error, "test: a process ended");
    return Bytes(packet.begin() + 1, packet.begin() + n);
  }

  const Links& links_;
  int rank_, size_;
  Key key_{7};
  std::vector<std::string> names_;
};

// Starts `size` processes, each of which runs body(bootstrap) and ends with its value.
class Processes {
 public:
  Processes(int size, const std::function<int(Bootstrap&)>& body) {
    for (int r = 0; r < size; ++r) ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, links_[size_t(r)].data());
    for (int r = 0; r < size; ++r) {
      const pid_t child = ::fork();
      if (child != 0) {
        children_.push_back(child);
        continue;
      }
      try {
        ProcessBootstrap bootstrap(links_, r, size);
        ::_exit(body(bootstrap));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", r, error.what());
        ::_exit(99);
      }
    }
    for (int r = 0; r < size; ++r)
      for (const int fd : links_[size_t(r)]) ::close(fd);
  }
  ~Processes() {
    for (size_t r = 0; r < children_.size(); ++r) end(r);
  }

  // The exit code of a rank, or minus the signal that ended it.
  int wait(size_t rank) {
    int status = 0;
    if (children_[rank] <= 0 || ::waitpid(children_[rank], &status, 0) < 0) return -1000;
    children_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void end(size_t rank) {
    if (children_[rank] <= 0) return;
    ::kill(children_[rank], SIGKILL);
    wait(rank);
  }

 private:
  Links links_{};
  std::vector<pid_t> children_;
};

// Every rank sends a seeded stream to every other and checks what comes; sleeps where nothing moves.
int exchange_with_all(Bootstrap& bootstrap, uint64_t count) {
  const std::unique_ptr<Transport> transport = make_shm(bootstrap, {});
  const size_t bytes_max = 64 * 1024;
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  const auto seed = [](int from, int to) { return uint64_t(from * 100 + to); };
  for (int peer = 0; peer < bootstrap.size(); ++peer) {
    if (peer == bootstrap.rank()) continue;
    Endpoint* endpoint = transport->endpoint(peer, 0);
    if (endpoint == nullptr) return 3;
    senders.emplace_back(*endpoint, Traffic(seed(bootstrap.rank(), peer), bytes_max), count, 1, bytes_max);
    receivers.emplace_back(*endpoint, Traffic(seed(peer, bootstrap.rank()), bytes_max), count, 2, bytes_max);
  }
  const auto move = [&] {
    bool moved = false;
    for (Sender& sender : senders) moved = sender.step() || moved;
    for (Receiver& receiver : receivers) moved = receiver.step() || moved;
    return moved;
  };
  const auto finished = [&] {
    return std::all_of(senders.begin(), senders.end(), [](const Sender& s) { return s.finished(); }) &&
           std::all_of(receivers.begin(), receivers.end(), [](const Receiver& r) { return r.finished(); });
  };
  while (!finished()) {
    if (move()) continue;
    transport->arm();
    pollfd fd{};
    const size_t n = transport->poll_fds({&fd, 1});
    if (!move() && ::poll(&fd, n, 20'000) == 0) return 4;
    transport->disarm();
  }
  for (const Receiver& receiver : receivers)
    if (receiver.received() != count) return 5;
  bootstrap.barrier();
  return ::testing::Test::HasFailure() ? 6 : 0;
}

// Abstract sockets of ours that exist on this machine.
size_t sockets_left() {
  size_t count = 0;
  std::string line;
  for (std::ifstream file("/proc/net/unix"); std::getline(file, line);)
    count += line.find("@tutti-") != std::string::npos;
  return count;
}

TEST(ShmProcesses, ExchangeWithAllOthers) {
  for (const int size : {2, 5}) {
    Processes processes(size, [](Bootstrap& bootstrap) { return exchange_with_all(bootstrap, 300); });
    for (int r = 0; r < size; ++r) EXPECT_EQ(processes.wait(size_t(r)), 0) << "rank " << r;
  }
}

TEST(ShmProcesses, AKilledPeerHarmsNobodysMemoryAndLeavesNothing) {
  Processes processes(3, [](Bootstrap& bootstrap) {
    const std::unique_ptr<Transport> transport = make_shm(bootstrap, {});
    bootstrap.barrier();
    if (bootstrap.rank() == 2) ::raise(SIGKILL);
    std::vector<std::byte> data(4096);
    size_t done = 0;
    // Its inbox outlives it: sending works until the FIFO is full, then says again.
    for (int i = 0; i < 100'000; ++i)
      if (transport->endpoint(2, 0)->send(data.data(), data.size(), 1, done) == Status::failed) return 1;
    const int peer = 1 - bootstrap.rank();
    if (transport->endpoint(peer, 0)->send(data.data(), 8, 1, done) != Status::done) return 2;
    while (transport->endpoint(peer, 0)->recv(data.data(), 8, 1, done) == Status::again) ::sched_yield();
    return 0;
  });
  EXPECT_EQ(processes.wait(2), -SIGKILL);
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
}

TEST(ShmProcesses, KilledWhileTheyMeetTheyLeaveNoSocket) {
  const size_t before = sockets_left();
  for (int round = 0; round < 10; ++round) {
    Processes processes(3, [](Bootstrap& bootstrap) { return exchange_with_all(bootstrap, 1'000'000); });
    ::usleep(useconds_t(round * 1000));
    for (size_t r = 0; r < 3; ++r) processes.end(r);
  }
  EXPECT_LE(sockets_left(), before);
}

TEST(ShmProcesses, AnotherNetworkNamespaceIsNotReachedFromEitherSide) {
  Processes processes(3, [](Bootstrap& bootstrap) {
    int allowed = 1;
    if (bootstrap.rank() == 1) allowed = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWNET) == 0;
    const std::byte mine{static_cast<unsigned char>(allowed)};
    if (bootstrap.all_gather({&mine, 1})[1][0] == std::byte{0}) return 77;
    const std::unique_ptr<Transport> transport = make_shm(bootstrap, {});
    const bool zero = transport->endpoint(0, 0) != nullptr, one = transport->endpoint(1, 0) != nullptr,
               two = transport->endpoint(2, 0) != nullptr;
    bootstrap.barrier();
    if (bootstrap.rank() == 0) return !one && two ? 0 : 1;
    if (bootstrap.rank() == 1) return !zero && !two ? 0 : 1;
    return zero && !one ? 0 : 1;
  });
  const std::array<int, 3> results{processes.wait(0), processes.wait(1), processes.wait(2)};
  if (results[1] == 77) GTEST_SKIP() << "no network namespace may be made here";
  EXPECT_EQ(results, (std::array{0, 0, 0}));
}

}  // namespace
}  // namespace tutti
