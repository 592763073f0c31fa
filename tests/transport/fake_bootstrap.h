// A bootstrap among the threads of one process, for tests of transports: no tree, no control thread.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// A connected pair of TCP sockets over loopback, close-on-exec, Nagle off.
inline std::pair<Fd, Fd> loopback_pair() {
  const auto check = [](int result) {
    if (result < 0) throw system_error("fake bootstrap: loopback connection", errno);
    return result;
  };
  const Fd listener(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  check(::bind(listener.get(), generic, length));
  check(::listen(listener.get(), 1));
  check(::getsockname(listener.get(), generic, &length));
  Fd a(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  check(::connect(a.get(), generic, length));
  Fd b(check(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  const int on = 1;
  for (const Fd* fd : {&a, &b}) check(::setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  return {std::move(a), std::move(b)};
}

// What the ranks of one fake job share.
class FakeJob {
 public:
  explicit FakeJob(int size, TimeNs timeout_ns = 20 * ns_per_s)
      : size_(size), timeout_(timeout_ns), gathered_(size_t(size)), wakes_(size_t(size)) {
    for (size_t i = 0; i < key_.size(); ++i) key_[i] = static_cast<unsigned char>(i * 7 + 1);
    for (int r = 0; r < size; ++r) names_.push_back("rank " + std::to_string(r) + " (thread)");
  }

  int size() const { return size_; }
  const Key& key() const { return key_; }
  const std::string& name(int rank) const { return names_[size_t(rank)]; }

  std::vector<Bytes> all_gather(int rank, std::span<const std::byte> mine) {
    std::unique_lock lock(mutex_);
    gathered_[size_t(rank)].assign(mine.begin(), mine.end());
    const uint64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      result_ = gathered_;
      ++round_;
      changed_.notify_all();
    }
    wait(lock, [&] { return round_ != round; });
    return result_;
  }

  Fd connect(int rank, Bootstrap::Wish wish) {
    std::unique_lock lock(mutex_);
    if (rank < wish.peer) {
      auto [mine, theirs] = loopback_pair();
      pending_[{rank, wish.peer, wish.tag}].push_back(std::move(theirs));
      changed_.notify_all();
      return std::move(mine);
    }
    std::vector<Fd>& there = pending_[{wish.peer, rank, wish.tag}];
    wait(lock, [&] { return !there.empty(); });
    Fd fd = std::move(there.front());
    there.erase(there.begin());
    return fd;
  }

  const Verdict* verdict() const noexcept { return verdict_.load(std::memory_order_acquire); }  // pairs with fail()
  const std::atomic<const Verdict*>& verdict_cell() const noexcept { return verdict_; }
  void fail(Verdict verdict) {
    std::vector<std::function<void()>> wakes;
    {
      const std::scoped_lock lock(mutex_);
      if (verdict_.load(std::memory_order_relaxed) != nullptr) return;
      verdict_store_ = std::make_unique<Verdict>(std::move(verdict));
      verdict_.store(verdict_store_.get(), std::memory_order_release);  // pairs with verdict()
      wakes = wakes_;
      changed_.notify_all();
    }
    for (const auto& wake : wakes)
      if (wake) wake();
  }
  void on_verdict(int rank, std::function<void()> wake) {
    const std::scoped_lock lock(mutex_);
    wakes_[size_t(rank)] = std::move(wake);
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    const bool in_time = changed_.wait_for(lock, std::chrono::nanoseconds(timeout_),
                                           [&] { return condition() || verdict() != nullptr; });
    if (condition()) return;
    if (in_time) throw Error(verdict()->code, verdict()->sentence);
    throw Error(Code::timeout, "fake bootstrap: not all ranks came in time");
  }

  int size_;
  TimeNs timeout_;
  Key key_{};
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> gathered_, result_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  std::map<std::tuple<int, int, uint32_t>, std::vector<Fd>> pending_;
  std::unique_ptr<Verdict> verdict_store_;
  std::atomic<const Verdict*> verdict_{nullptr};
  std::vector<std::function<void()>> wakes_;
};

class FakeBootstrap final : public Bootstrap {
 public:
  FakeBootstrap(std::shared_ptr<FakeJob> job, int rank) : job_(std::move(job)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return job_->size(); }
  const Key& key() const noexcept override { return job_->key(); }
  const std::string& describe(int rank) const noexcept override { return job_->name(rank); }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine) override { return job_->all_gather(rank_, mine); }
  void barrier() override { job_->all_gather(rank_, {}); }
  std::vector<Fd> connect(std::span<const Wish> wishes) override {
    // Wishes for higher ranks first: those never wait, so no order of wishes can lock two ranks.
    std::vector<Fd> fds(wishes.size());
    for (const bool higher : {true, false})
      for (size_t i = 0; i < wishes.size(); ++i)
        if ((wishes[i].peer > rank_) == higher) fds[i] = job_->connect(rank_, wishes[i]);
    return fds;
  }

  Presence presence(int) const noexcept override { return Presence::here; }
  const std::atomic<const Verdict*>& verdict_cell() const noexcept override { return job_->verdict_cell(); }
  void fail(Verdict verdict) noexcept override { job_->fail(std::move(verdict)); }
  void on_verdict(std::function<void()> wake) override { job_->on_verdict(rank_, std::move(wake)); }
  Bytes agree(uint32_t, Bytes, TimeNs, const std::function<Bytes(const Ballot&)>&) override {
    throw Error(Code::internal_error, "no test asks for this");
  }
  void leave() noexcept override {}

 private:
  std::shared_ptr<FakeJob> job_;
  int rank_;
};

// The bootstraps of all ranks of a new fake job.
inline std::vector<std::shared_ptr<FakeBootstrap>> fake_bootstraps(int size) {
  const auto job = std::make_shared<FakeJob>(size);
  std::vector<std::shared_ptr<FakeBootstrap>> all;
  for (int r = 0; r < size; ++r) all.push_back(std::make_shared<FakeBootstrap>(job, r));
  return all;
}

// make(rank) on a thread per rank, as a collective constructor needs it; results by rank. Where some throw, the job
// fails (so that nobody waits for them) and the first exception is thrown here.
template <class Make>
auto on_each_rank(const std::vector<std::shared_ptr<FakeBootstrap>>& bootstraps, Make make) {
  std::vector<decltype(make(0))> results(bootstraps.size());
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < bootstraps.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          results[r] = make(int(r));
        } catch (const std::exception& error) {
          {
            const std::scoped_lock lock(mutex);
            if (!first) first = std::current_exception();
          }
          bootstraps[r]->fail({Code::internal_error, int(r), error.what()});
        }
      });
  }
  if (first) std::rethrow_exception(first);
  return results;
}

}  // namespace tutti
