// Simulated processes behave as an operating system's do: connections, refusals, ends, resets, descriptors, threads.
#include "simulation/processes.h"

#include <cerrno>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

class SimulatedProcesses : public testing::Test {
 protected:
  SimulatedProcesses() : processes_({[this] { return now_; }, [this](TimeNs delay, std::function<void()> action) {
                                       events_.emplace(now_ + delay, std::move(action));
                                     }, &random_}, {}) {}
  void run() {
    while (!events_.empty()) {
      now_ = events_.begin()->first;
      const std::function<void()> action = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      action();
    }
  }
  static void wait_for(SimulatedProcess& process, const Fd& fd, short events) {
    pollfd wait{fd.get(), events, 0};
    EXPECT_EQ(poll_until({&wait, 1}, process.now() + ns_per_s, &process), 1);
  }
  static std::string receive(SimulatedProcess& process, const Fd& fd) {
    wait_for(process, fd, POLLIN);
    std::string text(64, ' ');
    const ssize_t count = receive_some(fd, reinterpret_cast<std::byte*>(text.data()), text.size());
    return count < 0 ? "error" : text.substr(0, size_t(count));
  }
  static void send(const Fd& fd, const std::string& text) {
    EXPECT_EQ(send_some(fd, reinterpret_cast<const std::byte*>(text.data()), text.size()), ssize_t(text.size()));
  }
  // A connection from `from` to `to`, made on one thread of each, which then do what is said.
  void connect(SimulatedProcess& from, SimulatedProcess& to, std::function<void(const Fd&)> at_from,
               std::function<void(const Fd&)> at_to) {
    to.start([&to, at_to] {
      const Fd listener = listen_everywhere(400, nullptr, &to);
      wait_for(to, listener, POLLIN);
      int error = 0;
      at_to(accept_connection(listener, &error));
    });
    from.start([&from, &to, at_from] {
      from.sleep_until(ns_per_ms);
      JobId::Address address = to.addresses()[0];
      address.port = 400;
      int error = 0;
      const Fd fd = start_connect(address, &error, &from);
      wait_for(from, fd, POLLOUT);
      EXPECT_EQ(connect_result(fd), 0);
      at_from(fd);
    });
    run();
    EXPECT_EQ(from.threads() + to.threads(), 0u);
    EXPECT_EQ(from.open_descriptors() + to.open_descriptors(), 0u);
  }

  Random random_{1};
  TimeNs now_ = 0;
  std::multimap<TimeNs, std::function<void()>> events_;
  Processes processes_;
};

TEST_F(SimulatedProcesses, CarryBytesInOrderAndTellOfTheEnd) {
  SimulatedProcess &a = processes_.start(1), &b = processes_.start(2);
  connect(a, b, [&](const Fd& fd) {
        send(fd, "one");
        a.sleep_until(a.now() + ns_per_ms);
        send(fd, "two");
      },
      [&](const Fd& fd) {
        EXPECT_EQ(receive(b, fd), "one");
        EXPECT_EQ(receive(b, fd), "two");
        EXPECT_EQ(receive(b, fd), "");
      });
  EXPECT_EQ(a.messages_sent(), 2u);
  EXPECT_EQ(b.messages_received(), 2u);
  EXPECT_EQ(a.most_bytes_read_by_others(), 6u);
}

TEST_F(SimulatedProcesses, ResetWhereSomethingIsLeftUnread) {
  SimulatedProcess &a = processes_.start(1), &b = processes_.start(2);
  connect(a, b, [&](const Fd& fd) {
        send(fd, "never read");
        EXPECT_EQ(receive(a, fd), "error");
        EXPECT_EQ(errno, ECONNRESET);
      },
      [&](const Fd& fd) { wait_for(b, fd, POLLIN); });
}

TEST_F(SimulatedProcesses, AreSeenToEndAndRunOutBehindTheScenes) {
  SimulatedProcess &a = processes_.start(1), &b = processes_.start(2);
  connect(a, b, [&](const Fd& fd) { EXPECT_EQ(receive(a, fd), ""); },
          [&](const Fd& fd) {
            b.end();
            EXPECT_EQ(send_some(fd, nullptr, 1), -1);
            b.sleep_until(b.now() + 3600 * ns_per_s);  // its time is over at once
          });
  EXPECT_LT(now_, 2 * ns_per_s);
}

TEST_F(SimulatedProcesses, AreRefusedWhereNobodyListensAndHaveOnlySoManyDescriptors) {
  SimulatedProcess &a = processes_.start(1, 2), &b = processes_.start(2);
  a.start([&] {
    int error = 0;
    const Fd fd = start_connect(b.addresses()[0], &error, &a);
    wait_for(a, fd, POLLOUT);
    EXPECT_EQ(connect_result(fd), ECONNREFUSED);
    const Fd last = make_event(&a);
    EXPECT_FALSE(start_connect(b.addresses()[0], &error, &a).valid());
    EXPECT_EQ(error, EMFILE);
    bool in_use = false;
    EXPECT_THROW(listen_everywhere(1, &in_use, &a), Error);
  });
  run();
  EXPECT_EQ(a.threads(), 0u);
}

TEST_F(SimulatedProcesses, HaveThreadsThatWaitForEachOther) {
  SimulatedProcess& a = processes_.start(1);
  std::string order;
  a.start([&] {
    std::mutex mutex;
    Condition condition(&a);
    bool ready = false;
    Thread other(&a, [&] {
      a.sleep_until(ns_per_ms);
      const Condition::Lock lock(mutex);
      order += 'a';
      ready = true;
      condition.notify_all();
    });
    {
      Condition::Lock lock(mutex);
      EXPECT_FALSE(condition.wait_until(lock, ns_per_ms / 2, [&] { return ready; }));
      EXPECT_TRUE(condition.wait_until(lock, ns_per_s, [&] { return ready; }));
      order += 'b';
    }
    other.join();
  });
  run();
  EXPECT_EQ(order, "ab");
}

TEST_F(SimulatedProcesses, ThrowAndCatchInTurns) {
  SimulatedProcess& a = processes_.start(1);
  std::string seen;
  for (const char* name : {"x", "y"})
    a.start([&, name] {
      try {
        throw Error(Code::timeout, name);
      } catch (const Error&) {
        a.sleep_until(a.now() + ns_per_ms);  // the other handles its own meanwhile
        try {
          throw;
        } catch (const Error& again) {
          seen += again.what() == std::string(name) ? 'r' : 'w';
        }
      }
    });
  run();
  EXPECT_EQ(seen, "rr");
}

}  // namespace
}  // namespace tutti
