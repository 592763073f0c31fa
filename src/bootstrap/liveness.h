// Who lives, who has left and why the communicator failed: a state machine without sockets, threads or clocks.
//
// Its driver (the control thread on real links, the simulator on simulated ones) tells it what happens, with the time,
// and then carries out take_actions(), in order, until none are left. Every method may be called after any other;
// nothing blocks. Not thread-safe: the driver serialises.
//
// The links. At the start the links form a binary tree over the ranks: the parent of r is (r - 1) / 2. Messages between
// two ranks on a link arrive in order; a closed link delivers what was sent before its end.
//
// Guarantees.
//  - All who live end with one verdict, also where several ranks find reasons at once, and where several die at once, the
//    top of the tree among them: the verdict is a Decision (decision.h). It names a rank that was found dead, if any
//    was, else it is what some rank has proposed.
//  - A rank that takes a verdict sends it on all its links before it is published, so whoever ends because of it has
//    passed it on first. A verdict never changes.
//  - A link that closes without "left" before it is that peer's death. A peer with no sign of life for silence_ns is given
//    up; so is one that should have linked here, did not, and does not answer when it is asked: it may have to try others
//    before. One's own pause (no tick for half of silence_ns: this process was stopped) counts for nobody's silence.
//  - Who has gone, and how, floods. Whoever lost its parent links to the nearest ancestor that lives, else to the lowest
//    rank that does: always towards a smaller number, hence a tree again. A new link begins with all that both ends know,
//    so what flooded during the repair is not lost. What comes from a rank that is taken for dead is not heard.
//  - A rank that left is never blamed. Links to ranks that left are closed once the repair here is done and the first
//    message has come over each new link, since until then the old one may be the only way by which a leave is told; a
//    leaver that waits for its links to close (a while) leaves no gap. Leavers keep the links among themselves while those
//    who stay need any of them. Where these links are a tree, they end from its leaves on. A repair adds links to the tree:
//    then leavers without a link to who stays tell each other so, and that they link to whom, and all of them that hang
//    together end. (They take on no new ones, so that this holds for good.)
//  - A parent-to-be that refuses the connection has vanished: its process has left, or died, and others may know which.
//    So a death within the repair of a leave may go unnoticed here, if every neighbour of the dead rank has left too; an
//    innocent rank is not blamed instead. A repaired link that ends before its first message is tried again.
//  - Which call a rank waits in for long floods too, once for each call, whoever waits in it; and so does, as a proposal, what
//    whoever has called another one says of that (waiting_calls.h).
//  - Calls that have waited for longer flood, each rank's own, and whoever finds that some wait for each other in a circle proposes the
//    end (stuck_calls.h).
//  - Who cannot reach those who might decide (while joining they are not known or not linked yet, or the driver's patience
//    has ended) decides alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/decision.h"
#include "bootstrap/stuck_calls.h"
#include "bootstrap/waiting_calls.h"

namespace tutti {

class ByteReader;

// "rank 2", "ranks 2, 5-7"; ranks ascending.
std::string rank_list(std::span<const int> ranks);
// A verdict as it travels. verdict_from throws Error(remote_error) where it is none.
Bytes to_bytes(const Verdict& verdict);
Verdict verdict_from(std::span<const std::byte> bytes);

class Liveness {
  enum class MessageType : uint8_t { alive = 1, gone, decision, closing, proposal, vote, idle, waiting, stuck };

 public:
  struct Action {
    enum class Kind : uint8_t {
      send,    // `message` to `peer`, over the link that is open
      close,   // the link to `peer`, after what was sent; link_closed need not be called for it
      dial,    // open a link to `peer`; answered by link_opened, link_refused, link_unreachable or link_unknown. A
               // dial before it that has not been answered is given up
      probe,   // ask again and again, while this expects(peer), whether it is there; answered by answered or
               // link_refused
      publish  // verdict() has become non-null
    };
    Kind kind;
    int peer = -1;
    Bytes message;
  };

  // No link is open yet; the driver opens those of the start: parent_of(rank), and its children theirs to here.
  Liveness(int rank, int size, TimeNs silence_ns, TimeNs now);

  // How sentences name a rank; "rank 3" until set.
  void set_names(std::function<std::string(int rank)> names) { names_ = std::move(names); }
  std::string name(int rank) const { return names_ ? names_(rank) : "rank " + std::to_string(rank); }

  // --- What happens.
  void link_opened(int peer, TimeNs now);  // by either side; replaces a link that was open
  void link_closed(int peer, TimeNs now);  // the peer's end, or a broken link
  void link_refused(int peer, TimeNs now);      // of a dial or a probe: nobody listens there any more
  void link_unreachable(int peer, TimeNs now);  // of a dial: no answer for silence_ns
  void link_unknown(int peer);                  // of a dial: its addresses are not known yet; link_opened may follow
  void answered(int peer, TimeNs now);          // a probe: it lives, and links as soon as it can
  void all_known() { all_known_ = true; }       // any rank may be dialled from now on
  void message(int peer, std::span<const std::byte> message, TimeNs now);
  void heard(int peer, TimeNs now);  // any other byte came over the link
  void tick(TimeNs now);             // at least every tick_interval_ns(), and best at wake_ns()
  // This rank's own reason. Where another rank is asked to decide, verdict() follows later.
  void fail(Verdict verdict, TimeNs now);
  void decide_alone();     // waits no longer for those who should decide on the verdict
  void compare_calls(OwnCalls own, TimeNs now);
  void wait_in(uint64_t number, uint64_t signature, TimeNs now);  // for long, in this collective call
  void stick_in(StuckCall call, std::vector<uint32_t> sent, TimeNs now);  // longer still (StuckCalls::stick)
  void leave(TimeNs now);  // this rank calls no more; it goes on relaying while its links are open

  // --- Decisions that the callers ask for, numbered from 1: all who live take part in each.
  void take_part(uint32_t number, Bytes wish, TimeNs now);
  // Not null once it has been decided.
  const Bytes* decided(uint32_t number) const;
  // Where it is this rank's to decide now.
  std::optional<Ballot> ballot(uint32_t number) const;
  void decide(uint32_t number, Bytes value, TimeNs now);
  // Who lives and has not taken part, as far as this rank knows.
  std::vector<int> missing(uint32_t number) const;

  // --- What follows.
  std::vector<Action> take_actions();
  bool waits_for_decision() const noexcept { return verdict() == nullptr && end_.asked(); }
  const Verdict* verdict() const noexcept { return verdict_.code == Code::success ? nullptr : &verdict_; }
  bool has_left(int rank) const { return manner_[size_t(rank)] == Manner::left; }
  bool lives(int rank) const { return lives_[size_t(rank)]; }
  bool dead(int rank) const { return manner_[size_t(rank)] >= Manner::unreachable && !has_left(rank); }
  // Every link of the tree is there, as far as is known.
  bool repaired() const { return dialing_ < 0 && expected_.empty(); }
  bool cut_off() const;
  // Whether the peer should link here, and has not.
  bool expects(int peer) const { return expected_.contains(peer); }
  bool linked(int peer) const { return links_.contains(peer); }
  size_t links() const noexcept { return links_.size(); }
  TimeNs tick_interval_ns() const noexcept { return silence_ns_ / 4; }
  // When to tick, where `now` it has been done.
  TimeNs wake_ns(TimeNs now) const;

  // Whether a message is a mere sign of life, which need not wait behind others in a full queue.
  static bool is_alive(std::span<const std::byte> message) noexcept {
    return message.size() == 1 && MessageType(message[0]) == MessageType::alive;
  }

  // The tree at the start.
  static int parent_of(int rank) noexcept { return rank == 0 ? -1 : (rank - 1) / 2; }
  static std::vector<int> children_of(int rank, int size);

 private:
  // How a rank has gone; what is known more surely is higher, and replaces the lower.
  enum class Manner : uint8_t { lives, vanished, unreachable, silent, died, left };
  struct Link {
    TimeNs heard_ns = 0;
    bool closing = false;    // the peer has said that it closes this link, which it needs no more
    bool confirmed = false;  // of the start, or the peer has said something on it
  };
  struct Gone {
    int rank;
    Manner manner;
  };
  void take(int peer, std::span<const std::byte> message, TimeNs now);
  void take_gone(std::span<const Gone> ranks, int except, TimeNs now);
  void take_decision(uint32_t number, int decider, Bytes value, int except);
  void lose(int rank, Manner manner, TimeNs now);
  Decision& decision(uint32_t number);
  const Decision* find_decision(uint32_t number) const;
  int lowest() const;
  int parent_now(int rank) const;
  std::vector<int> children_now() const;
  void repair(TimeNs now);
  void dial(int peer);
  void close_finished_links();
  void close(int peer);
  bool all_idle() const;
  void tell_idle();
  void take_idle(int rank, std::vector<int> near, int except);
  bool is_of_start(int peer) const noexcept { return parent_of(peer) == rank_ || parent_of(rank_) == peer; }
  void take_waiting(std::span<const WaitingCall> calls, int except, TimeNs now);
  void look_at_calls(TimeNs now);
  void take_stuck(std::span<const StuckCall> calls, int except, TimeNs now);
  std::string describe_circle(std::span<const StuckCall> calls) const;
  void ask_for_end(Bytes wish, int except, TimeNs now);
  void advance();
  void advance(uint32_t number, Decision& decision, std::span<const int> children, int parent);
  void send_vote(uint32_t number, const Decision& decision, int parent);
  std::optional<int> guilty() const;
  Verdict verdict_of(int rank) const;
  Bytes end_value() const;
  void publish();
  void send(int peer, Bytes message);
  void send_all(const Bytes& message, int except);

  static Bytes gone_message(std::span<const Gone> ranks);
  static Bytes idle_message(int rank, std::span<const int> near);
  static Bytes decision_message(uint32_t number, const Decision& decision);
  static Bytes proposal_message(const Bytes& wish);
  static Bytes waiting_message(std::span<const WaitingCall> calls);
  static Bytes stuck_message(std::span<const StuckCall> calls);
  // What is left of such messages. Throw Error(remote_error) where they tell of what does not exist.
  std::vector<WaitingCall> read_waiting(ByteReader& reader) const;
  std::vector<StuckCall> read_stuck(ByteReader& reader) const;

  const int rank_;
  const int size_;
  const TimeNs silence_ns_;
  TimeNs last_tick_ns_;
  TimeNs last_alive_ns_;
  std::function<std::string(int rank)> names_;
  std::vector<Manner> manner_;
  std::vector<bool> lives_;         // manner_ is lives
  int gone_count_ = 0;
  int dead_count_ = 0;              // of those, who did not leave
  std::map<int, std::vector<int>> idle_;  // leavers that link to nobody who stays, and to which leavers they do
  std::vector<int> found_dead_;     // in the order in which this rank heard of them
  std::map<int, Link> links_;
  std::map<int, TimeNs> expected_;  // ranks that should link here since that time, because their parent has gone
  int dialing_ = -1;
  bool stopped_while_dialing_ = false;
  std::map<int, int> early_ends_;   // of parents-to-be: links that ended before their first message
  bool dialing_unknown_ = false;
  bool all_known_ = false;
  Verdict verdict_;                 // code success: none
  Bytes proposed_;                  // the first wish that was heard of: how it should end
  TimeNs asked_ns_ = 0;
  Decision end_;                    // number 0: the verdict
  std::map<uint32_t, Decision> decisions_;  // those with numbers from 1
  struct SentVote {
    int parent = -1;
    Bytes vote;
  };
  std::map<uint32_t, SentVote> sent_votes_;
  WaitingCalls waiting_;
  StuckCalls stuck_;
  std::vector<Action> actions_;
};

}  // namespace tutti
