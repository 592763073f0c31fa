// Simulated control links by themselves: deaths are told by closed links and refused dials, silence by time.
#include "simulation/control_plane.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr ControlTimes times = {20 * ns_per_ms, 20 * ns_per_us, ns_per_ms};

// A clock and an order of events for one control plane.
class Stage {
 public:
  explicit Stage(int n) : fates_(size_t(n), Fate::lives) {
    ControlPlane::Surroundings around;
    around.now = [this] { return now_; };
    around.after = [this](int rank, ControlPlane::Event event, uint32_t detail, TimeNs delay) {
      events_.insert({now_ + delay, {rank, event, detail}});
    };
    around.fate = [this](int rank) { return fates_[size_t(rank)]; };
    around.told = [this](int rank) { told_at_[rank] = now_; };
    around.random = &random_;
    plane_ = std::make_unique<ControlPlane>(n, times, std::move(around), SceneMistake::none, 0);
  }

  void end(int rank, Fate fate) {
    fates_[size_t(rank)] = fate;
    if (fate == Fate::ended) plane_->end(rank);
  }
  void run(TimeNs ns) {
    const TimeNs until = now_ + ns;
    while (!events_.empty() && events_.begin()->first <= until) {
      const auto [at, event] = *events_.begin();
      events_.erase(events_.begin());
      now_ = at;
      plane_->handle(event.rank, event.kind, event.detail);
    }
    now_ = until;
  }
  // Who all others than these blame; -2: they do not say the same, or nothing.
  int blamed_by_others(const std::set<int>& ended) {
    std::set<int> blamed;
    for (int rank = 0; rank < int(fates_.size()); ++rank) {
      if (ended.contains(rank)) continue;
      const Verdict* verdict = plane_->liveness(rank).verdict();
      blamed.insert(verdict == nullptr ? -2 : verdict->rank);
      EXPECT_EQ(verdict != nullptr, told_at_.contains(rank));
    }
    return blamed.size() == 1 ? *blamed.begin() : -2;
  }

 private:
  struct Event {
    int rank;
    ControlPlane::Event kind;
    uint32_t detail;
  };
  Random random_{1};
  TimeNs now_ = 0;
  std::vector<Fate> fates_;
  std::multimap<TimeNs, Event> events_;
  std::map<int, TimeNs> told_at_;
  std::unique_ptr<ControlPlane> plane_;
};

TEST(ControlPlane, AnEndIsKnownAtOnceAlsoWhereTheNextParentRefuses) {
  Stage stage(8);
  stage.run(2 * times.silence_ns);
  for (const int victim : {0, 1}) stage.end(victim, Fate::ended);
  stage.run(ns_per_ms);
  EXPECT_TRUE((std::set{0, 1}).contains(stage.blamed_by_others({0, 1})));
}

TEST(ControlPlane, WhoIsLostIsFoundByItsSilence) {
  for (const Fate fate : {Fate::lost, Fate::stopped}) {
    Stage stage(8);
    stage.end(1, fate);
    stage.run(times.silence_ns / 2);
    EXPECT_EQ(stage.blamed_by_others({1}), -2);
    stage.run(times.silence_ns);
    EXPECT_EQ(stage.blamed_by_others({1}), 1);
  }
}

}  // namespace
}  // namespace tutti
