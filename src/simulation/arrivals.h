// Messages on their way to ranks that have not asked for them yet, of a million ranks and more.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tutti {

// Between two ranks they stay in order. The first few of a rank lie beside each other, the rest in a table of all.
class Arrivals {
 public:
  explicit Arrivals(size_t n) : ranks_(n) {}

  void add(uint32_t to, uint32_t from, double time) {
    Rank& rank = ranks_[to];
    // One that has a message in the table keeps its order there.
    const bool full = rank.near == near_max || (rank.far > 0 && far_.contains(key(to, from)));
    if (!full) {
      rank.places[rank.near++] = {time, from};
      return;
    }
    ++rank.far;
    far_[key(to, from)].push_back(time);
  }

  // The time of the next message; nullopt: none has been sent.
  std::optional<double> take(uint32_t to, uint32_t from) {
    Rank& rank = ranks_[to];
    for (uint32_t i = 0; i < rank.near; ++i) {
      if (rank.places[i].from != from) continue;
      const double time = rank.places[i].time;
      --rank.near;
      for (; i < rank.near; ++i) rank.places[i] = rank.places[i + 1];
      return time;
    }
    if (rank.far == 0) return std::nullopt;
    const auto found = far_.find(key(to, from));
    if (found == far_.end()) return std::nullopt;
    const double time = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) far_.erase(found);
    --rank.far;
    return time;
  }

 private:
  static constexpr uint32_t near_max = 3;
  struct Place {
    double time;
    uint32_t from;
  };
  struct alignas(64) Rank {
    std::array<Place, near_max> places;
    uint32_t near = 0, far = 0;
  };
  static uint64_t key(uint32_t to, uint32_t from) { return uint64_t{to} << 32 | from; }
  // Queues are short: a deque would take half a kilobyte for each.
  struct Queue {
    std::vector<double> times;
    size_t first = 0;
    void push_back(double time) { times.push_back(time); }
    double front() const { return times[first]; }
    void pop_front() {
      if (++first == times.size()) times.clear(), first = 0;
    }
    bool empty() const { return times.empty(); }
  };

  std::vector<Rank> ranks_;
  std::unordered_map<uint64_t, Queue> far_;
};

}  // namespace tutti
