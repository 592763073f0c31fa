// Ranks as processes that are killed, stopped, or end with and without leave: what the others say, and how soon.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "support.h"

namespace tutti::test {
namespace {

// A job of forked ranks. Each joins, says "ready", and then does what `body` does.
class Job {
 public:
  using Body = std::function<std::string(Process&, Bootstrap&)>;

  Job(int size, TimeNs silence_ns, const Body& body) : place_([&](Process& self) { return hold_place(self); }) {
    const std::string line = place_.line();
    std::copy_n(line.begin(), std::min<size_t>(line.size(), 256), hex_.begin());
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Process>([&](Process& self) {
        BootstrapOptions options = quick_options();
        options.silence_ns = silence_ns;
        const auto bootstrap = join(id(), rank, size, options);
        self.say("ready\n");
        return body(self, *bootstrap);
      }));
    for (const auto& rank : ranks_) EXPECT_EQ(rank->line(), "ready");
  }

  Process& operator[](int rank) { return *ranks_[size_t(rank)]; }
  int size() const { return int(ranks_.size()); }

 private:
  // The meeting place lives in a process of its own, so that no rank's death is the place's.
  static std::string hold_place(Process& self) {
    std::array<char, 128> bytes{};
    encode(open_place(), bytes);
    std::string hex;
    for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    self.say(hex + "\n");
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return "";
  }

  JobId id() const {
    std::array<char, 128> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(std::stoi(hex_.substr(2 * i, 2), nullptr, 16));
    return decode(bytes);
  }

  std::string hex_ = std::string(256, '0');
  Process place_;
  std::vector<std::unique_ptr<Process>> ranks_;
};

// "TIME rank N: sentence", TIME in ns on the clock that all processes of a host share.
std::string say_verdict(const Bootstrap& bootstrap) {
  const Verdict* verdict = await_verdict(bootstrap, 10 * ns_per_s);
  if (verdict == nullptr) return "0 none";
  return fmt::format("{} {} {} {}", now_ns(), int(verdict->code), verdict->rank, verdict->sentence);
}

struct Heard {
  TimeNs at_ns = 0;
  int code = 0;
  int rank = -2;
  std::string sentence;
};

Heard hear(Process& process) {
  const std::string line = process.line();
  Heard heard;
  int used = 0;
  if (std::sscanf(line.c_str(), "%ld %d %d %n", &heard.at_ns, &heard.code, &heard.rank, &used) == 3)
    heard.sentence = line.substr(size_t(used));
  return heard;
}

TEST(Death, EachKilledRankIsNamedByEverySurvivor) {
  TimeNs slowest_ns = 0;
  for (int size = 2; size <= 8; size += 2)
    for (int victim = 0; victim < size; ++victim) {
      Job job(size, 10 * ns_per_s, [](Process&, Bootstrap& bootstrap) { return say_verdict(bootstrap); });
      const TimeNs start = now_ns();
      job[victim].send(SIGKILL);
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        const Heard heard = hear(job[rank]);
        EXPECT_EQ(heard.rank, victim) << "rank " << rank << " of " << size;
        EXPECT_EQ(heard.code, int(Code::remote_error));
        EXPECT_TRUE(heard.sentence.starts_with(fmt::format("rank {} (host ", victim))) << heard.sentence;
        EXPECT_TRUE(heard.sentence.ends_with(
            fmt::format("pid {}) died: its control connection closed", job[victim].pid())))
            << heard.sentence;
        slowest_ns = std::max(slowest_ns, heard.at_ns - start);
      }
    }
  std::printf("slowest from kill to verdict: %.2f ms\n", double(slowest_ns) / double(ns_per_ms));
}

// Two or three processes killed in one moment, the top of the tree and whole branches among them: what each survivor says
// is the same, and names one of them. The others stay until all have heard, as ranks that go on do.
TEST(Death, SeveralKilledAtOnceGiveOneVerdict) {
  TimeNs slowest_ns = 0;
  const std::vector<std::vector<int>> all_victims = {{0, 1}, {0, 2}, {1, 2}, {3, 7}, {1, 3}, {0, 7}, {2, 6}, {4, 5},
                                                     {0, 1, 2}, {1, 3, 7}, {0, 3, 7}, {2, 5, 6}};
  for (const std::vector<int>& victims : all_victims) {
    Job job(8, 10 * ns_per_s, [](Process& self, Bootstrap& bootstrap) {
      self.say(say_verdict(bootstrap) + "\n");
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return std::string();
    });
    const TimeNs start = now_ns();
    for (const int victim : victims) job[victim].send(SIGKILL);
    std::string first;
    for (int rank = 0; rank < 8; ++rank) {
      if (std::ranges::find(victims, rank) != victims.end()) continue;
      const Heard heard = hear(job[rank]);
      EXPECT_NE(std::ranges::find(victims, heard.rank), victims.end()) << "rank " << rank << ": " << heard.sentence;
      if (first.empty()) first = heard.sentence;
      EXPECT_EQ(heard.sentence, first) << "rank " << rank << " of victims " << victims[0] << ", " << victims[1];
      slowest_ns = std::max(slowest_ns, heard.at_ns - start);
    }
  }
  std::printf("slowest from kills to verdict: %.2f ms\n", double(slowest_ns) / double(ns_per_ms));
}

TEST(Death, AStoppedRankIsNamedAfterTheSilenceAndLearnsOfItWhenItGoesOn) {
  for (const int victim : {0, 1, 4}) {
    Job job(5, ns_per_s, [](Process&, Bootstrap& bootstrap) { return say_verdict(bootstrap); });
    job[victim].send(SIGSTOP);
    for (int rank = 0; rank < 5; ++rank) {
      if (rank == victim) continue;
      const Heard heard = hear(job[rank]);
      EXPECT_EQ(heard.rank, victim) << heard.sentence;
      EXPECT_NE(heard.sentence.find("is silent"), std::string::npos) << heard.sentence;
    }
    job[victim].send(SIGCONT);
    EXPECT_EQ(hear(job[victim]).rank, victim);
  }
}

TEST(Death, AShortDeadlineMakesNoSilenceOfLessThanASecond) {
  EXPECT_EQ(silence_within(300 * ns_per_ms, 10 * ns_per_s), ns_per_s);
  EXPECT_EQ(silence_within(6 * ns_per_s, 10 * ns_per_s), 3 * ns_per_s);
  EXPECT_EQ(silence_within(300 * ns_per_s, 10 * ns_per_s), 10 * ns_per_s);
  EXPECT_EQ(silence_within(300 * ns_per_s, 200 * ns_per_ms), 200 * ns_per_ms);  // as it was asked for
}

TEST(Death, AnEndWithoutLeaveIsADeath) {
  for (const int victim : {0, 2}) {
    Job job(4, 10 * ns_per_s, [&](Process&, Bootstrap& bootstrap) {
      if (bootstrap.rank() == victim) ::_exit(0);
      return say_verdict(bootstrap);
    });
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_TRUE(rank == victim || hear(job[rank]).rank == victim);
  }
}

// Half of the ranks leave, some by destruction, some by plain exit right after; the rest goes on, and still learns of
// a death among them.
TEST(Death, AmongThoseWhoStayADeathIsSeenAfterOthersLeft) {
  for (const int victim : {1, 6}) {
    Job job(7, 2 * ns_per_s, [&](Process& self, Bootstrap& bootstrap) -> std::string {
      const int rank = bootstrap.rank();
      if (rank == 0 || rank == 2 || rank == 5) {
        bootstrap.leave();
        if (rank == 5) ::_exit(0);
        return "left";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      self.say(bootstrap.verdict() == nullptr ? "well\n" : bootstrap.verdict()->sentence + "\n");
      return say_verdict(bootstrap);
    });
    for (const int rank : {1, 3, 4, 6}) EXPECT_EQ(job[rank].line(), "well") << rank;
    job[victim].send(SIGKILL);
    for (const int rank : {1, 3, 4, 6}) {
      if (rank == victim) continue;
      const Heard heard = hear(job[rank]);
      EXPECT_EQ(heard.rank, victim) << "rank " << rank << ": " << heard.sentence;
    }
  }
}

// Ranks that leave as soon as they have joined are gone before others know all members; those still find each other.
TEST(Death, ALeaveRightAfterTheJoinCutsNobodyOff) {
  for (int i = 0; i < 20; ++i) {
    Job job(7, 2 * ns_per_s, [](Process& self, Bootstrap& bootstrap) -> std::string {
      if (bootstrap.rank() == 0 || bootstrap.rank() == 2) {
        bootstrap.leave();
        return "left";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      self.say("well\n");
      return say_verdict(bootstrap);
    });
    for (const int rank : {1, 3, 4, 5, 6}) EXPECT_EQ(job[rank].line(), "well") << rank;
    job[1].send(SIGKILL);
    for (const int rank : {3, 4, 5, 6}) {
      const Heard heard = hear(job[rank]);
      EXPECT_EQ(heard.rank, 1) << "rank " << rank << ": " << heard.sentence;
    }
    if (HasFailure()) return;
  }
}

TEST(Death, LeavingAllAtOnceIsQuickAndNoDeath) {
  Job job(8, 10 * ns_per_s, [](Process&, Bootstrap& bootstrap) {
    bootstrap.leave();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return std::string(bootstrap.verdict() == nullptr ? "well" : bootstrap.verdict()->sentence);
  });
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(job[rank].line(), "well");
}

TEST(Death, TheWakeIsCalledOnceFromTheControlThread) {
  const JobId id = open_place();
  expect_all_succeed(on_threads(3, [&](int rank) {
    std::atomic<int> calls{0};
    const auto bootstrap = join(id, rank, 3);
    bootstrap->on_verdict([&] { calls.fetch_add(1); });
    bootstrap->barrier();
    if (rank == 1) bootstrap->fail({Code::aborted, 1, "rank 1 aborted"});
    const TimeNs deadline = now_ns() + 10 * ns_per_s;
    while (calls.load() == 0 && now_ns() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(calls.load(), 1);
    EXPECT_EQ(bootstrap->verdict()->sentence, "rank 1 aborted");
  }));
}

}  // namespace
}  // namespace tutti::test
