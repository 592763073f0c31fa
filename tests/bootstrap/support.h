// Ranks of a test: as threads of this process, or as forked processes that report what they saw.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/bootstrap.h"

namespace tutti::test {

inline BootstrapOptions quick_options(TimeNs timeout_ns = 20 * ns_per_s) {
  BootstrapOptions options;
  options.timeout_ns = timeout_ns;
  return options;
}

inline std::unique_ptr<Bootstrap> join(const JobId& id, int rank, int size,
                                       const BootstrapOptions& options = quick_options()) {
  return Bootstrap::join(id, rank, size, options, Log("rank " + std::to_string(rank)));
}

inline JobId open_place() { return open_meeting_place("", now_ns() + 20 * ns_per_s); }

inline Bytes bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

inline std::string text_of(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// What a rank's body threw, or success.
struct Outcome {
  Code code = Code::success;
  std::string sentence;
};

// Runs body(rank) on a thread per rank; what each threw.
inline std::vector<Outcome> on_threads(int size, const std::function<void(int)>& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        outcomes[size_t(rank)] = {error.code(), error.what()};
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline void expect_all_succeed(const std::vector<Outcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_EQ(outcomes[rank].code, Code::success) << "rank " << rank << ": " << outcomes[rank].sentence;
}

// Waits until the rank has a verdict. Null: not in time.
inline const Verdict* await_verdict(const Bootstrap& bootstrap, TimeNs timeout_ns) {
  const TimeNs deadline = now_ns() + timeout_ns;
  while (bootstrap.verdict() == nullptr && now_ns() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  return bootstrap.verdict();
}

// A forked rank: runs its body and writes one text back through a pipe. Fork before this process has threads of its
// own that matter to the child.
class Process {
 public:
  explicit Process(const std::function<std::string(Process&)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      write_ = ends[1];
      std::string text;
      try {
        text = body(*this);
      } catch (const std::exception& error) {
        text = std::string("threw: ") + error.what();
      }
      say(text + "\n");
      ::_exit(0);
    }
    ::close(ends[1]);
    read_ = ends[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0 && !waited_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (read_ >= 0) ::close(read_);
  }

  pid_t pid() const { return pid_; }
  void say(const std::string& text) const {
    if (::write(write_, text.data(), text.size()) < 0) ::_exit(9);
  }
  // The next line that the child said; "" at its end.
  std::string line() const {
    std::string text;
    for (char c; ::read(read_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  void send(int signal) const { ::kill(pid_, signal); }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int read_ = -1;
  int write_ = -1;
  bool waited_ = false;
};

}  // namespace tutti::test
