// One rank's control thread: its listener, its links in the tree, and what travels over them.
//
// One mutex guards everything. The control thread holds it while it handles what came, never while it sleeps; other
// threads enter with it too, so a verdict or a leave is with the kernel when the call returns. All sockets are
// non-blocking; what does not fit at once waits in the link's queue for the control thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/doorkeeper.h"
#include "bootstrap/liveness.h"
#include "bootstrap/messages.h"
#include "bootstrap/sockets.h"
#include "bootstrap/system.h"
#include "bootstrap/wire.h"

namespace tutti {

// Data connections that came before they were asked for.
inline constexpr size_t parked_max = 65536;

class Control {
 public:
  // Listens and starts the thread. secret.identity is this rank's.
  Control(int rank, int size, const Secret& secret, const BootstrapOptions& options, const Log& log);
  // As bootstrap.h says at leave().
  ~Control();

  uint16_t port() const noexcept { return port_; }

  // --- Joining, on the joining thread.
  void know(int rank, std::span<const std::byte> member);  // as encode(member) has it
  std::string describe(int rank) const;
  Member member(int rank) const;
  void adopt_link(int peer, Fd fd);
  void adopt_meeting(FramedSocket meeting);  // its failures become this rank's verdict
  bool meets() const;                        // it has not ended
  void wait_linked(TimeNs deadline);         // to the parent and all children; throws Error
  void finish_meeting(FrameType last_word, const Bytes& payload);

  // --- Set-up.
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, TimeNs deadline);
  // The next data connection that `peer` opened with `tag`.
  Fd take_data(int peer, uint32_t tag, TimeNs deadline, bool although_failed);

  // --- Liveness; any thread.
  const Verdict* verdict() const noexcept { return verdict_.load(std::memory_order_acquire); }  // pairs: publish()
  const std::atomic<const Verdict*>& verdict_cell() const noexcept { return verdict_; }
  Presence presence(int rank) const noexcept;
  void fail(Verdict verdict) noexcept;
  Bytes agree(uint32_t number, Bytes wish, TimeNs deadline, const std::function<Bytes(const Ballot&)>& make);
  void compare_calls(OwnCalls own) noexcept;
  void tell_waiting(uint64_t number, uint64_t signature) noexcept;
  void tell_stuck(StuckCall call, std::vector<uint32_t> sent) noexcept;
  void leave() noexcept;
  void on_verdict(std::function<void()> wake);
  // As bootstrap.h says. Between the two the control thread changes nothing.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork(bool in_child) noexcept;

 private:
  using Lock = Condition::Lock;
  // An all_gather under way: parts go up the tree together, once a rank has those of all below it, and what it has of
  // them now and then, so that the root can say who is missing.
  struct Round {
    TimeNs first_ns = 0;
    size_t count = 0;                         // of parts that came
    std::vector<std::optional<Bytes>> parts;  // root only
    Bytes waiting;                            // not yet sent up
    TimeNs next_ns = 0, interval_ns = 0;      // when they go, though some are missing
  };
  // A link that is needed no more, until the other side has closed it too: a socket that is closed with something unread
  // takes back what was sent over it.
  struct Parting {
    FramedSocket socket;
    TimeNs deadline;
  };
  struct Relink {
    std::shared_ptr<std::atomic<bool>> stop;
    bool probes = false;  // asks only whether somebody is there
    Thread thread;
  };

  // The control thread's loop and its parts; all but run() and sleep() hold the mutex.
  void run() noexcept;
  void sleep();
  void handle(TimeNs now);
  void let_in(Doorkeeper::Guest guest, TimeNs now);
  void read_link(int peer, TimeNs now);
  void read_meeting(TimeNs now);
  void take(int peer, Frame frame, TimeNs now);
  void call_wake(Lock& lock);

  void perform();
  void part(int peer);
  void serve_partings(TimeNs now);
  void publish();
  void kick() noexcept { ring(wakeup_); }
  void relink(int peer);
  void probe(int peer);
  void start_dial(int peer, Purpose purpose);
  void relinked(int peer, Fd fd, int kind, int error_number);
  void stop_relink();
  void send(int peer, const SharedBytes& frame);
  void send_up(const SharedBytes& frame);

  void contribute(uint64_t sequence, int rank, std::span<const std::byte> part, TimeNs now);
  void send_waiting(uint64_t sequence, Round& round, TimeNs now);
  void finish_round(uint64_t sequence, Round& round);
  void take_result(const Bytes& payload);
  void check_rounds(TimeNs now);
  bool parent_gone() const;
  void throw_verdict() const;
  void throw_accept_error() const;
  void close_links() noexcept;

  const int rank_;
  const int size_;
  const Secret secret_;
  const BootstrapOptions options_;
  System* const system_;
  const Log log_;
  const int parent_;
  const std::vector<int> children_;
  const size_t below_;  // ranks of this rank's part of the tree, itself among them
  Fd wakeup_;  // an eventfd: look again
  uint16_t port_ = 0;

  mutable std::mutex mutex_;
  Condition changed_;  // any of what is below
  Doorkeeper doorkeeper_;
  Liveness liveness_;
  std::atomic<const Verdict*> verdict_{nullptr};
  std::function<void()> wake_;
  bool woken_ = false;
  bool stopping_ = false;
  MemberTable members_;
  std::map<int, FramedSocket> links_;
  std::vector<Parting> partings_;
  bool parent_linked_ = false;      // has been, at least
  std::vector<SharedBytes> early_;  // for the parent, from before
  FramedSocket meeting_;
  std::map<std::pair<int, uint32_t>, std::deque<Fd>> parked_;
  size_t parked_count_ = 0;
  uint64_t sequence_ = 0;                             // all_gathers begun here
  std::map<uint64_t, Round> rounds_;
  std::map<uint64_t, std::vector<Bytes>> results_;    // not yet fetched
  std::vector<Relink> relinks_;
  int unknown_parent_ = -1;  // to be dialled as soon as its addresses are known
  Thread thread_;
};

// "within 2.5 s"
std::string within(TimeNs ns);

}  // namespace tutti
