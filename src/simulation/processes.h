// Processes on hosts in virtual time, as the control plane sees them: threads that take turns, sockets whose bytes are on
// their way for a while, descriptors that run out. The real bootstrap runs over them (bootstrap/system.h).
//
// All threads of all processes are fibers of one thread. A process that ends takes its sockets with it at once; what its
// threads have on their stacks runs out in a world of its own, where every wait is over and nobody answers, so that
// nothing leaks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/system.h"
#include "simulation/fiber.h"
#include "transport/simulated/random.h"

namespace tutti {

class SimulatedProcess;

struct ProcessesOptions {
  TimeNs latency_ns = 20 * ns_per_us;    // from send to receive; up to twice as much
  size_t buffer_bytes = 256 << 10;       // of a connection each way
  TimeNs wake_up_ns = 5 * ns_per_us;     // from something that a thread waits for to its running; up to that
};

// What goes wrong on purpose below the control plane, to see whether it is found.
enum class ProcessMistake : uint8_t {
  none,
  end_misrouted,    // another connection of a process is told of an end
  wake_up_lost,     // who has just begun to wait for a condition misses that it has come
  bytes_reordered,  // what is sent later overtakes
  refusal_lost,     // who connects where nobody listens is not told
  descriptor_kept   // closed, but not given back
};

class Processes {
 public:
  // What it needs of the world around it.
  struct Surroundings {
    std::function<TimeNs()> now;
    std::function<void(TimeNs delay, std::function<void()>)> after;
    Random* random = nullptr;
  };
  Processes(Surroundings surroundings, const ProcessesOptions& options);
  ~Processes();

  // A new one on that host; it may have `descriptors_max` open descriptors.
  SimulatedProcess& start(int host, size_t descriptors_max = 1 << 20);
  size_t size() const { return processes_.size(); }
  SimulatedProcess& at(size_t number) { return *processes_[number]; }

  // Neither side is told: what is on its way is lost, and nothing comes through any more, either way.
  void cut(int host, int other) { cut_.emplace_back(host, other); }
  void make_mistake(ProcessMistake mistake) { mistake_ = mistake; }

 private:
  friend class SimulatedProcess;
  struct Socket;
  struct Chunk {
    std::vector<std::byte> bytes;
    size_t done = 0;
  };
  enum class Kind : uint8_t { listener, stream, event };
  enum class Phase : uint8_t { connecting, open, refused };
  // A listener, one end of a connection, or an event.
  struct Socket {
    Kind kind = Kind::stream;
    SimulatedProcess* owner = nullptr;
    JobId::Address local, remote;
    Phase phase = Phase::open;
    bool rung = false;
    bool closed = false;       // here
    bool ended = false;        // the other side says no more, and all of it is here
    bool reset = false;        // the other side has gone
    bool output_ended = false;
    std::weak_ptr<Socket> peer;
    std::deque<Chunk> inbox;
    size_t inbox_bytes = 0;
    size_t on_the_way_bytes = 0;  // to the peer, or in its inbox
    size_t bytes_read = 0;
    TimeNs last_arrival = 0;      // at the peer
    std::deque<std::shared_ptr<Socket>> backlog;
    std::vector<std::pair<uint64_t, uint32_t>> watchers;  // threads of the owner and the waits they were in
  };
  using SocketRef = std::shared_ptr<Socket>;

  bool connected(int host, int other) const;
  void carry(const SocketRef& from, std::function<void(const SocketRef& to)> arrive);
  void begin_connection(const SocketRef& from);
  void end_connection(const SocketRef& socket);

  const Surroundings around_;
  const ProcessesOptions options_;
  ProcessMistake mistake_ = ProcessMistake::none;
  std::vector<std::pair<int, int>> cut_;
  std::vector<std::unique_ptr<SimulatedProcess>> processes_;
  std::map<std::pair<int, uint16_t>, std::weak_ptr<Socket>> listeners_;  // by host and port
  std::map<int, uint16_t> next_port_;
};

// One process: what its threads ask for, and what befalls it.
class SimulatedProcess final : public System {
 public:
  enum class State : uint8_t {
    runs,
    stopped,  // its sockets live on
    ended,    // nobody listens any more
    lost      // its host has gone: nothing answers
  };

  int host() const { return host_; }
  State state() const { return state_; }
  void stop();
  void go_on();
  void end();
  void lose_host();
  // From now on so many descriptors may be open.
  void limit_descriptors(size_t most) { descriptors_max_ = most; }
  size_t open_descriptors() const { return open_; }
  size_t threads() const { return threads_.size(); }  // that have not ended
  // Messages (calls of send that sent) and their bytes.
  size_t messages_sent() const { return messages_sent_; }
  size_t messages_received() const { return messages_received_; }
  // Of a stranger's process: the most bytes that the other side has read of one of its connections.
  size_t most_bytes_read_by_others() const { return read_by_others_max_; }
  // Addresses of other processes' listeners on a host.
  std::vector<JobId::Address> listeners_of(int host) const;

  TimeNs now() noexcept override;
  void sleep_until(TimeNs time) noexcept override;
  std::string host_name() override;
  int64_t process_id() override { return 1000 + number_; }
  std::vector<JobId::Address> addresses() override;
  int listen(uint16_t port) noexcept override;
  int accept(int listener) noexcept override;
  int connect(const JobId::Address& address) noexcept override;
  int connect_result(int fd) noexcept override;
  ssize_t send(int fd, const std::byte* data, size_t bytes) noexcept override;
  ssize_t recv(int fd, std::byte* data, size_t bytes) noexcept override;
  void finish_output(int fd) noexcept override;
  JobId::Address local_address(int fd) noexcept override;
  JobId::Address peer_address(int fd) noexcept override;
  int make_event() noexcept override;
  void ring(int event) noexcept override;
  void clear(int event) noexcept override;
  int poll(std::span<pollfd> fds, TimeNs deadline) noexcept override;
  void close(int fd) noexcept override;
  uint64_t start(std::function<void()> body) override;
  void join(uint64_t thread) noexcept override;
  void wait(const void* condition, TimeNs deadline) noexcept override;
  void wake(const void* condition) noexcept override;

 private:
  friend class Processes;
  using Socket = Processes::Socket;
  using SocketRef = Processes::SocketRef;
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    uint32_t wait = 0;                   // number of the wait that it is in
    const void* condition = nullptr;
    std::vector<uint64_t> joined_by;
    bool wants_to_run = false;           // but its process is stopped
  };

  SimulatedProcess(Processes& world, int number, int host, size_t descriptors_max)
      : world_(world), number_(number), host_(host), descriptors_max_(descriptors_max) {}

  bool alone() const { return state_ == State::ended || state_ == State::lost; }
  int add(SocketRef socket) noexcept;
  SocketRef find(int fd) const noexcept;
  static short ready(const Socket& socket);
  void changed(const SocketRef& socket);
  void block(TimeNs until);
  void resume_later(uint64_t number, uint32_t wait, TimeNs delay);
  void resume(uint64_t number);
  void reap(uint64_t number);
  void drop(const SocketRef& socket);
  TimeNs wake_up_delay();

  Processes& world_;
  const int number_;
  const int host_;
  size_t descriptors_max_;
  State state_ = State::runs;
  TimeNs own_time_ = 0;  // of a process that is alone
  std::vector<SocketRef> descriptors_;
  size_t open_ = 0;
  std::map<uint64_t, Thread> threads_;
  uint64_t last_thread_ = 0;
  uint64_t current_ = 0;  // 0: none
  uint32_t looks_ = 0;
  size_t messages_sent_ = 0, messages_received_ = 0;
  size_t read_by_others_max_ = 0;
};

}  // namespace tutti
