// A network that exists in virtual time: links with latency, bandwidth and bounded slots between n ranks, driven by one
// thread, with faults at will. One seed, one run.
//
// The driver asks for the next event, which moves the clock, and lets the rank that it wakes move what it can. A rank
// is woken when a message can be read, when a slot of a full link is free again, and when the simulation made it stop
// half-way. Whatever happens at one instant happens in random order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "base/clock.h"
#include "transport/simulated/random.h"
#include "transport/transport.h"

namespace tutti {

// The sender is busy for message_ns + bytes × byte_ns; latency_ns later the message can be read. As the cost model of
// the planner has it.
struct SimulatedLink {
  double latency_ns = 1000;
  double message_ns = 100;
  double byte_ns = 0.1;
};

// What a link does to messages that are sent from now on, each with its probability.
struct SimulatedNoise {
  double flip = 0;       // one bit of it changes on its way
  double reorder = 0;    // it may be there before an earlier one is
  double duplicate = 0;  // it comes once more, some time later
  TimeNs delay_ns_max = 0;
};

// A mistake that the simulated transport makes on purpose, to see whether it is found.
enum class SimulatedMistake : uint8_t {
  none,
  slot_reused_early,      // a slot is free as soon as it is looked at
  reorder_not_handled,    // what comes first is taken for the next
  duplicate_not_dropped,  // what comes again is written where it was
  flip_not_noticed,       // no checksum is looked at
  short_send_as_whole,    // a send that stopped half-way says that it is done
  signature_not_compared,
  lent_returned_early,    // flush says that nobody reads any more what somebody reads
  ring_lost               // who has not fallen asleep yet is not rung
};

struct SimulatedOptions {
  int n = 2;
  int channels = 1;
  int slots = 2;                          // messages of one link that are sent and not yet released
  size_t outbox_messages = 0;             // messages to several peers under way that lie there once; 0: there is no outbox
  size_t message_bytes_max = 256 * 1024;
  size_t lent_bytes_min = tutti::lent_bytes_min;
  uint64_t seed = 0;
  SimulatedLink link;                     // of every pair, unless link_of says otherwise
  std::function<SimulatedLink(int from, int to)> link_of;
  // Over links that pairs share: when a message of so many bytes, which begins to leave its sender and has left it at
  // these times, is there. Null: at once. The link's own latency comes on top.
  std::function<TimeNs(int from, int to, size_t bytes, TimeNs begins, TimeNs left)> cross;
  double short_probability = 0;           // that a send, recv, reserve or view stops half-way or before it starts
  TimeNs delay_ns_max = 0;                // each message is late by a random time up to this
  bool checksums = false;                 // of every message that is not lent
  SimulatedMistake mistake = SimulatedMistake::none;
  // Where a rank's process might lose its core: the driver may let time pass and others run before it returns.
  std::function<void(int rank)> interrupted;
  std::function<void(int rank)> entered;  // a rank's code has called the network, which allocates where others do not
};

struct SimulatedEvent {
  TimeNs time = 0;
  int rank = -1;          // to be driven now; -1: an event of the driver's own
  uint64_t argument = 0;  // as the driver gave it
};

class SimulatedTransport;

// Single-threaded. Allocates when a link is first used and when its messages grow.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(const SimulatedOptions& options);
  ~SimulatedNetwork();

  const SimulatedOptions& options() const { return options_; }
  Transport& transport(int rank);
  TimeNs now() const { return now_; }
  Random& random() { return random_; }

  // The next event, to whose time the clock jumps; nullopt: nothing will ever happen again.
  std::optional<SimulatedEvent> next();
  void wake(int rank, TimeNs at);
  void call(uint64_t argument, TimeNs at);  // an event of the driver's own

  // The rank ends: it is never woken again. What it sent still arrives. After close_after its peers' links to it fail
  // as closed; negative: they go silent.
  void kill(int rank, TimeNs close_after);
  // The rank is not woken until it is resumed; its links stay open.
  void stop(int rank);
  void resume(int rank);
  // Messages between a and b get lost from now on, in one direction or in both. After close_after both sides' links fail
  // as closed; negative: nobody is told.
  void cut(int from, int to, bool both, TimeNs close_after);
  void disturb(int from, int to, const SimulatedNoise& noise);
  // Messages that were sent and not taken, on all links.
  size_t messages_left() const;

  // From now on the rank is driven late by up to this much.
  void slow(int rank, TimeNs late_max) { state_[size_t(rank)].late_max = late_max; }

  bool dead(int rank) const { return state_[size_t(rank)].dead; }
  bool stopped(int rank) const { return state_[size_t(rank)].stopped; }
  // Whether arm() was called and disarm() was not since.
  bool armed(int rank) const { return state_[size_t(rank)].armed; }
  // What the rank has done so far keeps it busy until then.
  TimeNs busy_until(int rank) const { return state_[size_t(rank)].busy_until; }

 private:
  friend class SimulatedTransport;
  friend class SimulatedEndpoint;
  friend class SimulatedOutbox;

  // One direction of one pair on one channel.
  struct Link;
  struct RankState {
    bool dead = false;
    bool stopped = false;
    bool closed = false;       // its peers know
    bool armed = false;
    TimeNs busy_until = 0;
    TimeNs postponed_to = -1;  // an event is there already that wakes it when it is no longer busy
    TimeNs late_max = 0;
  };
  enum class EventKind : uint8_t { wake, closed, driver, credit, duplicate };
  struct Duplicate;
  struct Event {
    TimeNs time;
    uint64_t order;  // random: breaks ties
    uint64_t argument;
    int rank;
    EventKind kind;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  Link& link(int from, int to, int channel);
  void push(EventKind kind, int rank, uint64_t argument, TimeNs at);
  void sent(Link& link);
  void released(Link& link);
  void repeat(const Duplicate& duplicate);
  Link& link_at(size_t index) { return *links_[index]; }
  size_t index_of(int from, int to, int channel) const {
    return (size_t(channel) * size_t(options_.n) + size_t(from)) * size_t(options_.n) + size_t(to);
  }
  bool makes(SimulatedMistake mistake) const { return options_.mistake == mistake; }
  void enter(int rank) {
    if (options_.entered) options_.entered(rank);
  }
  void interrupt(int rank) {
    if (options_.interrupted) options_.interrupted(rank);
  }
  // Whether to stop half-way now; the rank is woken again soon.
  bool stumbles(int rank);

  SimulatedOptions options_;
  Random random_;
  TimeNs now_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<RankState> state_;
  std::vector<std::unique_ptr<Link>> links_;  // [(channel × n + from) × n + to]
  std::vector<Duplicate> duplicates_;
  std::vector<std::unique_ptr<SimulatedTransport>> transports_;
};

}  // namespace tutti
