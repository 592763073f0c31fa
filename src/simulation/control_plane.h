// The control links of one simulated communicator: the real Liveness of each of its ranks, over letters that arrive late
// but in order, and dials that are answered, refused, or not at all.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/liveness.h"
#include "simulation/scene.h"
#include "transport/simulated/random.h"

namespace tutti {

// What has become of a rank's process, as others can see it.
enum class Fate : uint8_t {
  lives,
  stopped,  // it answers nothing, now or for good
  ended,    // nobody listens any more
  lost      // its host has gone: nothing answers
};

// Times of control links.
struct ControlTimes {
  TimeNs silence_ns = 0;
  TimeNs latency_ns = 0;     // of a letter; up to twice as much
  TimeNs look_again_ns = 0;  // how often a stopped process is tried anew
};

class ControlPlane {
 public:
  enum class Event : uint8_t { tick, letter, dial, probe };
  // What it needs of the world around it.
  struct Surroundings {
    std::function<TimeNs()> now;
    std::function<void(int rank, Event, uint32_t detail, TimeNs delay)> after;  // handle() is called then
    std::function<Fate(int rank)> fate;
    std::function<void(int rank)> told;  // the rank's verdict is there
    Random* random = nullptr;
  };

  // The links of the start are open. `odd_one` makes the mistake.
  ControlPlane(int n, const ControlTimes& times, Surroundings surroundings, SceneMistake mistake, int odd_one);

  Liveness& liveness(int rank) { return *ranks_[size_t(rank)].liveness; }
  const Liveness& liveness(int rank) const { return *ranks_[size_t(rank)].liveness; }
  void handle(int rank, Event event, uint32_t detail);
  // Carries out what the rank's liveness wants done; after every call of it from outside.
  void act(int rank);
  // The rank's process has ended, and its sockets with it.
  void end(int rank);
  // Some of what the rank has sent last on each link is lost: it ended before all was on its way.
  void lose_last_words(int rank);

 private:
  struct Letter {
    uint32_t link = 0;  // by its number: letters of links that were replaced are lost
    bool closes = false;
    Bytes message;
  };
  struct Rank {
    std::unique_ptr<Liveness> liveness;
    std::map<int, std::deque<Letter>> inbox;  // of each peer, in order
    std::map<int, TimeNs> last_letter_at;
    std::map<int, uint32_t> link;  // number of the open link to each peer
    int dials = -1;
    uint32_t dial = 0;             // number of the last dial
    TimeNs dialing_since = 0;
  };

  Rank& at(int rank) { return ranks_[size_t(rank)]; }
  void open_link(int a, int b);
  void post(int from, int to, Letter letter);
  void deliver(int rank, int from);
  int mistaken_for(int rank, int peer) const;
  void dial(int rank, int peer);
  void answer_dial(int rank, uint32_t number);
  void answer_probe(int rank, int peer);
  bool defers(int rank, Event event) const;

  const int n_;
  const ControlTimes times_;
  const Surroundings around_;
  const SceneMistake mistake_;
  const int odd_one_;
  uint32_t links_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace tutti
