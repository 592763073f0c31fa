// What ranks of a simulated communicator have in place of a process's surroundings: clock, bootstrap, transport. A world has
// one session after the other: the first communicator, and those of survivors.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "communicator/communicator.h"
#include "simulation/scene.h"

namespace tutti {

// What they ask of the world, on the process's fiber.
class SessionWorld {
 public:
  virtual TimeNs now() const = 0;
  virtual void spin(int process) = 0;
  virtual void sleep(int process, pollfd* fds, size_t n, int timeout_ms) = 0;
  virtual const std::string& name_of(int rank) const = 0;
  virtual void fail(int session, int rank, Verdict verdict) = 0;
  virtual void tell_waiting(int session, int rank, uint64_t number, uint64_t signature) = 0;
  virtual void tell_stuck(int session, int rank, StuckCall call, std::vector<uint32_t> sent) = 0;
  virtual Bytes agree(int session, int rank, uint32_t number, Bytes wish, TimeNs deadline,
                      const std::function<Bytes(const Ballot&)>& make) = 0;

 protected:
  ~SessionWorld() = default;
};

class ProcessClock final : public Clock {
 public:
  ProcessClock(SessionWorld& world, int process) : world_(world), process_(process) {}
  TimeNs now() noexcept override;
  void yield() noexcept override {}  // time passes when it is asked for
  void sleep(pollfd* fds, size_t n, int timeout_ms) noexcept override;

 private:
  SessionWorld& world_;
  const int process_;
};

// A rank's bootstrap in one session.
class RankBootstrap final : public Bootstrap {
 public:
  RankBootstrap(SessionWorld& world, int session, int rank, int size)
      : world_(world), session_(session), rank_(rank), size_(size) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const Key& key() const noexcept override { return key_; }
  const std::string& describe(int rank) const noexcept override { return world_.name_of(rank); }
  std::vector<Bytes> all_gather(std::span<const std::byte>) override { refuse(); }
  void barrier() override { refuse(); }
  std::vector<Fd> connect(std::span<const Wish>) override { refuse(); }
  Presence presence(int) const noexcept override { return Presence::here; }  // nobody joins from here
  const std::atomic<const Verdict*>& verdict_cell() const noexcept override { return verdict_; }
  void fail(Verdict verdict) noexcept override { world_.fail(session_, rank_, std::move(verdict)); }
  void on_verdict(std::function<void()> wake) override { wake_ = std::move(wake); }
  Bytes agree(uint32_t number, Bytes wish, TimeNs deadline, const std::function<Bytes(const Ballot&)>& make) override {
    return world_.agree(session_, rank_, number, std::move(wish), deadline, make);
  }
  void compare_calls(OwnCalls own) noexcept override { own_calls_ = std::move(own); }
  void tell_waiting(uint64_t number, uint64_t signature) noexcept override {
    world_.tell_waiting(session_, rank_, number, signature);
  }
  void tell_stuck(StuckCall call, std::vector<uint32_t> sent) noexcept override {
    world_.tell_stuck(session_, rank_, std::move(call), std::move(sent));
  }
  void leave() noexcept override {}

  // For its liveness, which is made later.
  const OwnCalls& own_calls() const noexcept { return own_calls_; }
  void publish(const Verdict* verdict, bool rings);

 private:
  [[noreturn]] static void refuse();
  SessionWorld& world_;
  const int session_, rank_, size_;
  const Key key_{};
  std::atomic<const Verdict*> verdict_{nullptr};
  std::function<void()> wake_;
  OwnCalls own_calls_;
};

// A rank's communicator over links of the network, whose ranks are the world's processes: `members` says which are in the
// session. Its channels come after those of the sessions before. `transport` and `clock` outlive it.
std::unique_ptr<Communicator> session_communicator(const Scene& scene, int session, const std::vector<int>& members,
                                                   Transport& transport, Clock& clock,
                                                   std::unique_ptr<RankBootstrap> bootstrap);

}  // namespace tutti
