// The state machine of life and death on links in memory and a clock of its own: every rank killed, stopped, or
// leaving, in every order that the seeds give.
#include "bootstrap/liveness.h"

#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/signature.h"
#include "sanitizer.h"

namespace tutti {
namespace {

constexpr TimeNs silence_ns = ns_per_s;
constexpr TimeNs step_ns = 10 * ns_per_ms;
constexpr unsigned seeds = test::sanitized ? 10 : 60;

// All ranks of a job, their links, and a clock. Messages between two ranks arrive in order, after a random while.
class Network {
 public:
  Network(int size, unsigned seed) : random_(seed) {
    for (int rank = 0; rank < size; ++rank) {
      auto node = std::make_unique<Node>(Node{Liveness(rank, size, silence_ns, 0), {}, {}, {}, Fate::lives});
      node->liveness.all_known();
      nodes_.push_back(std::move(node));
    }
    for (int rank = 1; rank < size; ++rank) open(rank, Liveness::parent_of(rank));
    run(step_ns);
  }

  Liveness& operator[](int rank) { return nodes_[size_t(rank)]->liveness; }
  int size() const { return int(nodes_.size()); }
  TimeNs now() const { return now_; }

  void kill(int rank) { end(rank, Fate::dead); }
  void stop(int rank) { nodes_[size_t(rank)]->fate = Fate::stopped; }
  void resume(int rank) { nodes_[size_t(rank)]->fate = Fate::lives; }
  void leave(int rank) { nodes_[size_t(rank)]->liveness.leave(now_), act(rank); }
  void fail(int rank, Verdict verdict) { nodes_[size_t(rank)]->liveness.fail(std::move(verdict), now_), act(rank); }
  void take_part(int rank, uint32_t number, Bytes wish) {
    nodes_[size_t(rank)]->liveness.take_part(number, std::move(wish), now_), act(rank);
  }
  void decide(int rank, uint32_t number, Bytes value) {
    nodes_[size_t(rank)]->liveness.decide(number, std::move(value), now_), act(rank);
  }
  // The rank's collective calls so far.
  void call(int rank, std::vector<uint64_t> calls) {
    Node& node = *nodes_[size_t(rank)];
    node.calls = std::move(calls);
    node.liveness.compare_calls({[&node](uint64_t number) {
                                   return number < node.calls.size() ? std::optional(node.calls[number]) : std::nullopt;
                                 },
                                 {}},
                                now_);
    act(rank);
  }
  // Its last call is one of these, in which it waits for long.
  void wait(int rank) {
    Node& node = *nodes_[size_t(rank)];
    node.liveness.wait_in(node.calls.size() - 1, node.calls.back(), now_);
    act(rank);
  }
  size_t messages() const { return messages_; }  // sent so far, but for mere signs of life
  // The end of a process that has left: it goes once its links are closed.
  void close(int rank) { closing_.insert(rank); }
  bool closed(int rank) const { return nodes_[size_t(rank)]->fate == Fate::dead; }

  void run(TimeNs ns) {
    for (const TimeNs until = now_ + ns; now_ < until; now_ += step_ns) {
      for (int round = 0; round < 4; ++round) deliver();
      for (int rank = 0; rank < size(); ++rank) {
        if (!lives(rank)) continue;
        if (now_ % (*this)[rank].tick_interval_ns() == 0) (*this)[rank].tick(now_), act(rank);
        if (closing_.contains(rank) && nodes_[size_t(rank)]->inbox.empty()) end(rank, Fate::dead);
      }
    }
  }

 private:
  enum class Fate : uint8_t { lives, stopped, dead };
  struct Event {
    std::optional<Bytes> message;  // none: the link's end
  };
  struct Node {
    Liveness liveness;
    std::map<int, std::deque<Event>> inbox;  // of each open link, by peer
    std::map<int, TimeNs> dials;  // since when
    std::set<int> probes;
    Fate fate;
    std::vector<uint64_t> calls{};
  };

  bool lives(int rank) const { return nodes_[size_t(rank)]->fate == Fate::lives; }

  void open(int a, int b) {
    for (const auto& [here, there] : {std::pair{a, b}, std::pair{b, a}}) {
      nodes_[size_t(here)]->inbox[there].clear();
      (*this)[here].link_opened(there, now_);
    }
    act(a);
    act(b);
  }

  // The connection is there, but the one who asked for it has ended meanwhile.
  void give_up_dial(int from, int to) {
    nodes_[size_t(to)]->inbox[from].clear();
    (*this)[to].link_opened(from, now_);
    act(to);
    hang_up(from, to);
  }

  void hang_up(int from, int to) {
    Node& peer = *nodes_[size_t(to)];
    const auto box = peer.inbox.find(from);
    if (box != peer.inbox.end()) box->second.push_back({});
  }

  void end(int rank, Fate fate) {
    Node& node = *nodes_[size_t(rank)];
    node.fate = fate;
    for (auto& [peer, box] : node.inbox) hang_up(rank, peer);
    node.inbox.clear();
  }

  void deliver() {
    for (int rank = 0; rank < size(); ++rank) {
      if (!lives(rank)) continue;
      Node& node = *nodes_[size_t(rank)];
      std::vector<int> peers;
      for (const auto& [peer, box] : node.inbox) peers.push_back(peer);
      for (const int peer : peers) {
        const auto box = node.inbox.find(peer);
        if (box == node.inbox.end() || box->second.empty() || random_() % 3 == 0) continue;
        const Event event = std::move(box->second.front());
        box->second.pop_front();
        if (event.message) {
          node.liveness.message(peer, *event.message, now_);
        } else {
          node.inbox.erase(peer);
          node.liveness.link_closed(peer, now_);
        }
        act(rank);
      }
      for (const int peer : std::exchange(node.probes, {})) {
        if (!node.liveness.expects(peer)) continue;
        if (nodes_[size_t(peer)]->fate == Fate::dead) node.liveness.link_refused(peer, now_), act(rank);
        else node.probes.insert(peer);
        if (lives(peer)) node.liveness.answered(peer, now_);
      }
      for (const auto& [peer, since] : std::exchange(node.dials, {})) {
        const bool answers = nodes_[size_t(peer)]->fate != Fate::stopped;
        if (!answers && now_ - since > silence_ns) node.liveness.link_unreachable(peer, now_), act(rank);
        else if (!answers || random_() % 3 == 0) node.dials.insert({peer, since});
        else if (nodes_[size_t(peer)]->fate == Fate::dead) node.liveness.link_refused(peer, now_), act(rank);
        else if (!node.liveness.has_left(rank)) open(rank, peer);
        else if (random_() % 2 == 0) give_up_dial(rank, peer);
      }
    }
  }

  void act(int rank) {
    using Kind = Liveness::Action::Kind;
    Node& node = *nodes_[size_t(rank)];
    for (auto actions = node.liveness.take_actions(); !actions.empty(); actions = node.liveness.take_actions())
      for (Liveness::Action& action : actions) {
        if (action.kind == Kind::send) {
          messages_ += !Liveness::is_alive(action.message);
          Node& peer = *nodes_[size_t(action.peer)];
          const auto box = peer.inbox.find(rank);
          if (box != peer.inbox.end()) box->second.push_back({std::move(action.message)});
        } else if (action.kind == Kind::close) {
          hang_up(rank, action.peer);
          node.inbox.erase(action.peer);
        } else if (action.kind == Kind::dial) {
          node.dials = {{action.peer, now_}};
        } else if (action.kind == Kind::probe) {
          node.probes.insert(action.peer);
        }
      }
  }

  std::mt19937 random_;
  TimeNs now_ = 0;
  size_t messages_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::set<int> closing_;
};

std::vector<int> shuffled_ranks(int size, std::mt19937& random) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  return ranks;
}

class LivenessOf : public ::testing::TestWithParam<int> {};

TEST_P(LivenessOf, NobodyIsBlamedWhileAllLive) {
  Network network(GetParam(), 1);
  network.run(10 * silence_ns);
  for (int rank = 0; rank < network.size(); ++rank) EXPECT_EQ(network[rank].verdict(), nullptr);
}

TEST_P(LivenessOf, EveryKilledRankIsNamedByAllSurvivorsAtOnce) {
  for (int victim = 0; victim < GetParam(); ++victim) {
    Network network(GetParam(), unsigned(victim));
    network.kill(victim);
    network.run(silence_ns / 4);
    for (int rank = 0; rank < network.size(); ++rank) {
      if (rank == victim) continue;
      const Verdict* verdict = network[rank].verdict();
      ASSERT_NE(verdict, nullptr) << "rank " << rank << " of " << GetParam() << ", victim " << victim;
      EXPECT_EQ(verdict->rank, victim);
      EXPECT_EQ(verdict->code, Code::remote_error);
      EXPECT_EQ(verdict->sentence, fmt::format("rank {} died: its control connection closed", victim));
    }
  }
}

TEST_P(LivenessOf, EveryStoppedRankIsNamedAfterTheSilence) {
  for (int victim = 0; victim < GetParam() && GetParam() > 1; ++victim) {
    Network network(GetParam(), unsigned(victim));
    network.stop(victim);
    network.run(silence_ns / 2);
    EXPECT_EQ(network[(victim + 1) % network.size()].verdict(), nullptr);
    network.run(silence_ns);
    for (int rank = 0; rank < network.size(); ++rank)
      if (rank != victim) {
        ASSERT_NE(network[rank].verdict(), nullptr) << rank;
        EXPECT_EQ(network[rank].verdict()->rank, victim);
        EXPECT_NE(network[rank].verdict()->sentence.find("is silent"), std::string::npos);
      }
    network.resume(victim);
    network.run(silence_ns);
    ASSERT_NE(network[victim].verdict(), nullptr);
    EXPECT_EQ(network[victim].verdict()->rank, victim);
  }
}

TEST_P(LivenessOf, TheFirstVerdictReachesAllAndStays) {
  Network network(GetParam(), 3);
  network.fail(GetParam() / 2, {Code::aborted, GetParam() / 2, "enough"});
  network.run(silence_ns / 4);
  network.kill(0);
  network.run(silence_ns);
  for (int rank = 1; rank < network.size(); ++rank) EXPECT_EQ(network[rank].verdict()->sentence, "enough");
}

// Ranks leave one after another, in a random order and at random times, and their processes end.
// Deadlines pass together, and a broken link has two ends.
TEST_P(LivenessOf, SeveralReasonsAtOnceEndInOneVerdict) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Network network(GetParam(), seed);
    for (int rank = int(seed % 2); rank < network.size(); rank += 1 + int(seed % 3))
      network.fail(rank, {Code::timeout, -1, fmt::format("rank {} has waited", rank)});
    network.run(silence_ns / 4);
    if (network.size() == 1 && seed % 2 == 1) continue;  // nobody found anything
    for (int rank = 0; rank < network.size(); ++rank) {
      ASSERT_NE(network[rank].verdict(), nullptr) << "rank " << rank << " seed " << seed;
      EXPECT_EQ(network[rank].verdict()->sentence, network[0].verdict()->sentence) << "rank " << rank << " seed " << seed;
    }
  }
}

TEST_P(LivenessOf, WhoIsAboveAndSilentIsNotWaitedForLong) {
  for (int stopped = 0; stopped + 1 < GetParam(); ++stopped) {
    Network network(GetParam(), unsigned(stopped));
    network.stop(stopped);
    network.fail(GetParam() - 1, {Code::timeout, -1, "the last rank has waited"});
    network.run(2 * silence_ns);
    for (int rank = 0; rank < network.size(); ++rank)
      EXPECT_TRUE(rank == stopped || network[rank].verdict() != nullptr) << rank << " while " << stopped << " is stopped";
  }
}

// The verdict of every survivor; they must be alike, and blame one of `guilty`.
void expect_one_verdict(Network& network, const std::set<int>& guilty, const std::string& what) {
  const Verdict* first = nullptr;
  for (int rank = 0; rank < network.size(); ++rank) {
    if (guilty.contains(rank)) continue;
    const Verdict* verdict = network[rank].verdict();
    ASSERT_NE(verdict, nullptr) << "rank " << rank << ", " << what;
    EXPECT_TRUE(guilty.contains(verdict->rank)) << "rank " << rank << " says " << verdict->sentence << ", " << what;
    if (first == nullptr) first = verdict;
    EXPECT_EQ(verdict->sentence, first->sentence) << "rank " << rank << ", " << what;
  }
}

// Two or three end in the same moment or one after the other, killed or stopped, and others propose reasons of their own.
TEST_P(LivenessOf, SeveralEndsAtOnceGiveOneVerdictThatNamesOneOfThem) {
  for (unsigned seed = 0; seed < 3 * seeds; ++seed) {
    if (GetParam() < 3) continue;
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    std::set<int> victims;
    const size_t wanted = std::min<size_t>(2 + random() % 2, size_t(GetParam() - 1));
    if (seed % 3 == 0) victims.insert(0);
    while (victims.size() < wanted) victims.insert(int(random() % unsigned(GetParam())));
    std::string what = fmt::format("{} ranks, seed {}:", GetParam(), seed);
    for (const int victim : victims) {
      const bool stops = random() % 2 == 0;
      if (stops) network.stop(victim);
      else network.kill(victim);
      what += fmt::format(" {} {}", stops ? "stopped" : "killed", victim);
      if (random() % 2 == 0) network.run(step_ns * TimeNs(random() % 8));
    }
    network.run(6 * silence_ns);
    expect_one_verdict(network, victims, what);
    if (HasFailure()) return;
  }
}

// Who has the verdict may leave and end, once its links are mended; those who lost their way still end alike, and soon.
TEST_P(LivenessOf, WhoLeavesWithTheVerdictLeavesNobodyWithoutIt) {
  for (unsigned seed = 0; seed < 3 * seeds && GetParam() > 2; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    std::set<int> victims = {int(random() % unsigned(GetParam()))};
    if (seed % 2 == 0) victims.insert(int(random() % unsigned(GetParam() - 1)));
    for (const int victim : victims) network.kill(victim);
    std::vector<int> steps_left(size_t(network.size()), -1);
    for (int step = 0; step < int(silence_ns / step_ns); ++step) {
      network.run(step_ns);
      for (int rank = 0; rank < network.size(); ++rank) {
        if (network.closed(rank) || network[rank].verdict() == nullptr) continue;
        int& left = steps_left[size_t(rank)];
        if (left < 0 && random() % 3 == 0) network.leave(rank), left = 50;
        else if (left >= 0 && (--left == 0 || network[rank].repaired())) network.close(rank);
      }
    }
    expect_one_verdict(network, victims, fmt::format("{} ranks, seed {}", GetParam(), seed));
    if (HasFailure()) return;
  }
}

// Each pair of ranks, killed in one moment: all know at once.
TEST_P(LivenessOf, EveryPairThatIsKilledAtOnceIsFoundWithoutWaiting) {
  for (int a = 0; a < GetParam() && GetParam() <= 9; ++a)
    for (int b = a + 1; b < GetParam(); ++b) {
      Network network(GetParam(), unsigned(a * 100 + b));
      network.kill(a);
      network.kill(b);
      network.run(silence_ns / 2);
      expect_one_verdict(network, {a, b}, fmt::format("{} and {} of {}", a, b, GetParam()));
    }
}

// All who live take part in decisions, whoever dies meanwhile; none misses one, and none knows another.
TEST_P(LivenessOf, DecisionsAreOneWhoeverDiesWhileTheyAreMade) {
  for (unsigned seed = 0; seed < 3 * seeds; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    std::set<int> victims;
    for (unsigned i = GetParam() > 3 ? random() % 3 : 0; victims.size() < i;) victims.insert(int(random() % unsigned(GetParam())));
    std::set<int> left = victims;
    int callers = 0;
    for (int step = 0; step < 2000; ++step) {
      // They call one after the other, or all at once.
      for (; callers < network.size() && (seed % 2 == 0 || random() % 3 > 0); ++callers) {
        const int rank = (callers * 31 + int(seed)) % network.size();
        if (!network.closed(rank)) network.take_part(rank, 1, rank % 3 == 0 ? Bytes{std::byte(rank)} : Bytes{});
      }
      network.run(step_ns);
      if (step > int(random() % 20) && !left.empty()) network.kill(*left.begin()), left.erase(left.begin());
      for (int rank = 0; rank < network.size(); ++rank) {
        if (network.closed(rank)) continue;
        if (const auto ballot = network[rank].ballot(1)) {
          EXPECT_FALSE(ballot->members.empty());
          network.decide(rank, 1, Bytes{std::byte(rank), std::byte(random() % 256)});
        }
      }
      if (callers == network.size() && left.empty() && step > 30 && step_ns * step > silence_ns) break;
    }
    const Bytes* first = nullptr;
    for (int rank = 0; rank < network.size(); ++rank) {
      if (victims.contains(rank)) continue;
      const Bytes* value = network[rank].decided(1);
      ASSERT_NE(value, nullptr) << "rank " << rank << " of " << GetParam() << ", seed " << seed;
      if (first == nullptr) first = value;
      EXPECT_EQ(*value, *first) << "rank " << rank << " of " << GetParam() << ", seed " << seed;
    }
  }
}

TEST(Liveness, WhoCannotWaitForTheRanksAboveDecidesItself) {
  Liveness child(1, 2, silence_ns, 0);
  child.all_known();
  child.link_opened(0, 0);
  child.fail({Code::aborted, -1, "enough"}, 0);
  EXPECT_TRUE(child.waits_for_decision());
  EXPECT_EQ(child.verdict(), nullptr);
  child.decide_alone();
  EXPECT_FALSE(child.waits_for_decision());
  ASSERT_NE(child.verdict(), nullptr);
  EXPECT_EQ(child.verdict()->sentence, "enough");
  child.decide_alone();  // nothing more
}

// While joining: the rank above died before it was linked, which others have told; nobody here will ever hear from it.
TEST(Liveness, WhoHasNotReachedTheRankAboveYetDecidesItself) {
  for (const bool all_known : {false, true}) {
    Liveness joining(1, 2, 10 * ns_per_s, 0);
    if (all_known) joining.all_known();
    joining.fail({Code::remote_error, 1, "rank 0 has gone, and is waited for in vain"}, 0);
    ASSERT_NE(joining.verdict(), nullptr) << all_known;
    EXPECT_FALSE(joining.waits_for_decision());
  }
}

TEST_P(LivenessOf, LeavingInAnyOrderIsNoDeath) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    const std::vector<int> order = shuffled_ranks(network.size(), random);
    for (const int rank : order) {
      network.leave(rank);
      network.run(step_ns * TimeNs(random() % 5));
      network.close(rank);
      network.run(step_ns * TimeNs(random() % 100));
    }
    network.run(3 * silence_ns);
    for (int rank = 0; rank < network.size(); ++rank) {
      EXPECT_TRUE(network.closed(rank)) << "rank " << rank << " of " << GetParam() << ", seed " << seed;
      EXPECT_EQ(network[rank].verdict(), nullptr)
          << "rank " << rank << " of " << GetParam() << ", seed " << seed << ": " << network[rank].verdict()->sentence;
    }
  }
}

// As at the end of most programs. Nobody stays longer than it takes to tell all.
TEST_P(LivenessOf, AllWhoLeaveAtAboutTheSameTimeGoSoon) {
  for (unsigned seed = 0; seed < 5 * seeds; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    const std::vector<int> order = shuffled_ranks(network.size(), random);
    for (const int rank : order) {
      network.leave(rank);
      network.close(rank);
      if (random() % 2 == 0) network.run(step_ns);
    }
    network.run(silence_ns / 2);
    for (int rank = 0; rank < network.size(); ++rank) {
      EXPECT_TRUE(network.closed(rank)) << "rank " << rank << " of " << GetParam() << ", seed " << seed;
      EXPECT_EQ(network[rank].verdict(), nullptr) << "rank " << rank << " of " << GetParam() << ", seed " << seed;
    }
  }
}

// Some leave, the tree is mended; then one of the rest is killed, or stopped, and all of the rest say so.
class LivenessOfThree : public LivenessOf {};

TEST_P(LivenessOfThree, TheMendedTreeStillFindsTheDead) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    const std::vector<int> order = shuffled_ranks(network.size(), random);
    const size_t leavers = 1 + random() % unsigned(GetParam() - 2);
    for (size_t i = 0; i < leavers; ++i) {
      network.leave(order[i]);
      if (random() % 2 == 0) network.close(order[i]);
      network.run(step_ns * TimeNs(random() % 4));
    }
    network.run(silence_ns);
    const int victim = order[leavers];
    const bool stops = seed % 2 == 1;
    if (stops) network.stop(victim);
    else network.kill(victim);
    network.run(stops ? 2 * silence_ns : silence_ns / 4);
    for (size_t i = leavers + 1; i < order.size(); ++i) {
      const Verdict* verdict = network[order[i]].verdict();
      ASSERT_NE(verdict, nullptr) << "rank " << order[i] << " of " << GetParam() << ", seed " << seed << ", victim "
                                  << victim;
      EXPECT_EQ(verdict->rank, victim) << verdict->sentence;
    }
  }
}

// Leaves and one death in the same moments: whatever is seen, no innocent is blamed.
TEST_P(LivenessOf, AmongLeavesADeathNeverBlamesAnother) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    Network network(GetParam(), seed);
    const int victim = int(random() % unsigned(GetParam()));
    const int moment = int(random() % unsigned(GetParam()));
    for (int i = 0; i < GetParam(); ++i) {
      const int rank = (i * 7 + int(seed)) % GetParam();
      if (i == moment) network.kill(victim);
      if (rank != victim && random() % 2 == 0) {
        network.leave(rank);
        network.close(rank);
      }
      network.run(step_ns * TimeNs(random() % 3));
    }
    network.run(3 * silence_ns);
    for (int rank = 0; rank < network.size(); ++rank) {
      const Verdict* verdict = network[rank].verdict();
      EXPECT_TRUE(rank == victim || verdict == nullptr || verdict->rank == victim)
          << "rank " << rank << " of " << GetParam() << ", seed " << seed << ": " << verdict->sentence;
    }
  }
}

uint64_t broadcast_from(int root) { return pack({Collective::broadcast, DataType::int8, ReduceOp::sum, uint32_t(root), 8}); }

// However many wait, and however often: as where all of them wait for a slow rank.
TEST_P(LivenessOf, ACallThatManyWaitInIsToldOnceOverEachLink) {
  const int size = GetParam();
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Network ranks(size, seed);
    std::mt19937 random(seed);
    const int late = int(random() % unsigned(size));
    for (int rank = 0; rank < size; ++rank) ranks.call(rank, {broadcast_from(0)});
    for (const uint64_t number : {1, 2}) {
      const size_t before = ranks.messages();
      std::vector<uint64_t> calls(number, broadcast_from(0));
      calls.push_back(broadcast_from(1));
      for (const int rank : shuffled_ranks(size, random)) {
        if (rank == late) continue;
        ranks.call(rank, calls);
        ranks.wait(rank);
        if (random() % 2 == 0) ranks.run(step_ns);
      }
      ranks.run(3 * silence_ns);
      for (int rank = 0; rank < size; ++rank)
        if (rank != late) ranks.wait(rank);
      ranks.call(late, calls);
      ranks.wait(late);
      ranks.run(3 * silence_ns);
      EXPECT_LE(ranks.messages() - before, 2 * size_t(size - 1));
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks[rank].verdict(), nullptr);
    }
  }
}

// Of each two ranks one tells, and the other one has called something else, goes on and waits for nothing; or comes to it only later.
TEST_P(LivenessOf, WhoHasCalledAnotherOneThanTheOneThatIsWaitedInEndsAllWithBoth) {
  const int size = GetParam();
  unsigned seed = 0;
  for (int waits = 0; waits < size; ++waits)
    for (int other = 0; other < size; ++other) {
      if (other == waits || (test::sanitized && size > 9 && (5 * waits + other) % 8 != 0)) continue;
      Network ranks(size, ++seed);
      const bool later = seed % 2 == 0;
      for (int rank = 0; rank < size; ++rank) ranks.call(rank, {broadcast_from(7)});
      ranks.call(waits, {broadcast_from(7), broadcast_from(1)});
      if (!later) ranks.call(other, {broadcast_from(7), broadcast_from(2), broadcast_from(3)});
      ranks.wait(waits);
      ranks.run(silence_ns);
      for (int rank = 0; later && rank < size; ++rank) EXPECT_EQ(ranks[rank].verdict(), nullptr);
      if (later) ranks.call(other, {broadcast_from(7), broadcast_from(2), broadcast_from(3)});
      ranks.run(silence_ns);
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_NE(ranks[rank].verdict(), nullptr) << rank;
        EXPECT_EQ(ranks[rank].verdict()->code, Code::mismatch);
        const auto called = [](int one, int root) { return fmt::format("rank {} called broadcast(count 8, int8, root {})", one, root); };
        const std::string first = waits < other ? called(waits, 1) : called(other, 2);
        const std::string second = waits < other ? called(other, 2) : called(waits, 1);
        EXPECT_EQ(ranks[rank].verdict()->sentence, first + " while " + second + ", both as collective call 2 of this communicator");
      }
    }
}

TEST_P(LivenessOf, EachRankInAnotherCallIsOneVerdictAndNoStorm) {
  const int size = GetParam();
  for (unsigned seed = 0; size > 1 && seed < seeds; ++seed) {
    Network ranks(size, seed);
    const size_t before = ranks.messages();
    for (int rank = 0; rank < size; ++rank) ranks.call(rank, {broadcast_from(rank)});
    for (int rank = 0; rank < size; ++rank) ranks.wait(rank);
    ranks.run(silence_ns);
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_NE(ranks[rank].verdict(), nullptr);
      EXPECT_EQ(ranks[rank].verdict()->sentence, ranks[0].verdict()->sentence);
    }
    // Of each rank over each link: its call, a proposal, the decision.
    EXPECT_LE(ranks.messages() - before, 6 * size_t(size - 1));
  }
}

// A link that is there only later begins with what was told before.
TEST_P(LivenessOfThree, CallsThatAreWaitedInAreKnownBehindMendedLinksToo) {
  const int size = GetParam();
  for (unsigned seed = 0; seed < 10 * seeds; ++seed) {
    std::mt19937 random(seed);
    const std::vector<int> some = shuffled_ranks(size, random);
    const int leaver = some[0], waits = some[1], other = some[2];
    Network ranks(size, seed);
    ranks.call(waits, {broadcast_from(1)});
    ranks.call(other, {broadcast_from(2)});
    ranks.leave(leaver);
    ranks.close(leaver);
    ranks.run(random() % 3 * step_ns);
    ranks.wait(waits);
    ranks.run(3 * silence_ns);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == leaver) continue;
      ASSERT_NE(ranks[rank].verdict(), nullptr) << seed << ": rank " << rank;
      EXPECT_EQ(ranks[rank].verdict()->code, Code::mismatch);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LivenessOf, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 16, 33));
INSTANTIATE_TEST_SUITE_P(Sizes, LivenessOfThree, ::testing::Values(3, 4, 5, 7, 8, 9, 16, 33));

TEST(Liveness, AProcessThatWasStoppedBlamesNobody) {
  Liveness liveness(0, 2, silence_ns, 0);
  liveness.link_opened(1, 0);
  liveness.tick(0);
  liveness.tick(100 * silence_ns);
  EXPECT_EQ(liveness.verdict(), nullptr);
  for (int i = 1; i <= 6; ++i) liveness.tick(100 * silence_ns + i * silence_ns / 4);
  ASSERT_NE(liveness.verdict(), nullptr);
  EXPECT_EQ(liveness.verdict()->rank, 1);
}

// Rank 3's parent is 1; it links to 0 because 1 left, and may have left as well before its first word.
TEST(Liveness, ARepairedLinkThatEndsBeforeItsFirstWordIsNoDeath) {
  Liveness liveness(0, 4, silence_ns, 0);
  liveness.link_opened(1, 0);
  liveness.link_opened(3, 0);
  liveness.link_closed(3, 0);
  EXPECT_EQ(liveness.verdict(), nullptr);
  liveness.link_opened(3, 0);
  liveness.message(3, Bytes{std::byte{1}}, 0);
  liveness.link_closed(3, 0);
  ASSERT_NE(liveness.verdict(), nullptr);
  EXPECT_EQ(liveness.verdict()->rank, 3);
}

// Rank 0 left; rank 2 dials its new parent 1 and leaves before its first word there. Rank 0 alone can tell it.
TEST(Liveness, AnOldLinkStaysOpenUntilTheFirstWordOverTheNewOne) {
  const auto leave_of = [](int rank) { return Bytes{std::byte{2}, std::byte(rank), {}, {}, {}, std::byte{5}}; };
  Liveness liveness(1, 3, silence_ns, 0);
  liveness.link_opened(0, 0);
  liveness.message(0, leave_of(0), 0);
  liveness.link_opened(2, 0);
  EXPECT_TRUE(liveness.linked(0));
  liveness.link_closed(2, 0);
  EXPECT_TRUE(liveness.linked(0));
  liveness.message(0, leave_of(2), 0);
  EXPECT_FALSE(liveness.linked(0));
  for (TimeNs now = 0; now < 3 * silence_ns; now += step_ns) liveness.tick(now);
  EXPECT_EQ(liveness.verdict(), nullptr);
}

TEST(Liveness, ALinkOfTheStartThatEndsAtOnceIsADeath) {
  Liveness liveness(0, 4, silence_ns, 0);
  liveness.link_opened(1, 0);
  liveness.link_closed(1, 0);
  ASSERT_NE(liveness.verdict(), nullptr);
  EXPECT_EQ(liveness.verdict()->rank, 1);
}

TEST(Liveness, NonsenseIsThrownNotFollowed) {
  Liveness liveness(0, 2, silence_ns, 0);
  liveness.link_opened(1, 0);
  EXPECT_THROW(liveness.message(1, {}, 0), Error);
  const Bytes unknown{std::byte{10}};
  EXPECT_THROW(liveness.message(1, unknown, 0), Error);
  Bytes waiting(1 + 4 + 8 + 8 + 1, std::byte{0}), short_of_a_byte(1 + 4 + 8 + 8, std::byte{0});
  waiting[0] = short_of_a_byte[0] = std::byte{8};
  waiting[1] = std::byte{5};
  EXPECT_THROW(liveness.message(1, waiting, 0), Error) << "there is no rank 5";
  EXPECT_THROW(liveness.message(1, short_of_a_byte, 0), Error);
  waiting[1] = std::byte{1};
  waiting.back() = std::byte{1};
  waiting.resize(waiting.size() + 8);
  EXPECT_THROW(liveness.message(1, waiting, 0), Error) << "before the first call there is none";
  const size_t end_at = 1 + 4 + 4 + 8 + 1 + 4, receivers_at = end_at + 4 + 8 + 8;
  Bytes stuck(receivers_at + 4, std::byte{0});
  stuck[0] = std::byte{9};
  EXPECT_NO_THROW(liveness.message(1, stuck, 0));
  stuck[end_at] = std::byte{3};
  EXPECT_THROW(liveness.message(1, stuck, 0), Error) << "there is no rank 2";
  stuck[end_at] = std::byte{2};
  stuck[receivers_at] = std::byte{1};
  EXPECT_THROW(liveness.message(1, stuck, 0), Error) << "one who waits is told of, and missing";
  stuck.resize(stuck.size() + 8);
  EXPECT_NO_THROW(liveness.message(1, stuck, 0));
  stuck[receivers_at + 4] = std::byte{2};
  EXPECT_THROW(liveness.message(1, stuck, 0), Error) << "nor one who waits";
}

TEST(RankList, IsCompressed) {
  EXPECT_EQ(rank_list(std::vector{2}), "rank 2");
  EXPECT_EQ(rank_list(std::vector{2, 5, 6, 7}), "ranks 2, 5-7");
  EXPECT_EQ(rank_list(std::vector{0, 1}), "ranks 0-1");
}

}  // namespace
}  // namespace tutti
