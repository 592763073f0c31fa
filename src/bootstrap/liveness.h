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
//  - Who finds a reason to end proposes it upwards; the top of the tree, or of what is left of it, takes what reaches
//    it first. So where several ranks find something at once, all end with one verdict. Who is above and silent is
//    waited for no longer than silence_ns.
//  - The first verdict that reaches a rank wins and never changes. A rank that takes a verdict sends it on all its links before it is
//    published, so whoever ends because of it has passed it on first.
//  - A link that closes without "left" before it is that peer's death. A dead rank's neighbours see that each by
//    itself, so every part of the torn tree holds a witness, and all name the same rank, in the same words.
//  - A peer with no sign of life for silence_ns is given up; so is one that should have linked here and did not.
//    One's own pause (no tick for half of silence_ns: this process was stopped) counts for nobody's silence.
//  - A rank that left is never blamed. "left" floods as a verdict does. Whoever lost its parent links to the nearest
//    ancestor that has not left, else to the lowest rank that has not left: always towards a smaller number, hence a
//    tree again. A new link begins with all that both ends know, so what flooded during the repair is not lost. Links
//    to ranks that left are closed once the repair here is done and the first message has come over each new link,
//    since until then the old one may be the only way by which a leave is told; a leaver that waits for its links to
//    close (a while) leaves no gap. Leavers keep the links among themselves while those who stay need any of them.
//  - A parent-to-be that refuses the connection and cannot be asked is taken for gone, not for dead: it may have
//    left in the same moment. The same holds for a repaired link that ends before its first message: either end may
//    have left, or changed its mind, between the connection and the word. So a death within the repair of a leave may
//    go unnoticed here, if every neighbour of the dead rank has left too; an innocent rank is not blamed instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// "rank 2", "ranks 2, 5-7"; ranks ascending.
std::string rank_list(std::span<const int> ranks);

class Liveness {
  enum class MessageType : uint8_t { alive = 1, left, verdict, closing, proposal };

 public:
  struct Action {
    enum class Kind : uint8_t {
      send,    // `message` to `peer`, over the link that is open
      close,   // the link to `peer`, after what was sent; link_closed need not be called for it
      dial,    // open a link to `peer`; answered by link_opened, link_refused or link_unreachable. A dial before
               // it that has not been answered is given up
      publish  // verdict() has become non-null
    };
    Kind kind;
    int peer = -1;
    Bytes message;
  };

  // No link is open yet; the driver opens those of the start: parent_of(rank), and its children theirs to here.
  Liveness(int rank, int size, TimeNs silence_ns, TimeNs now);

  // How sentences name a rank; "rank 3" until told.
  void set_name(int rank, std::string name) { names_[size_t(rank)] = std::move(name); }
  const std::string& name(int rank) const { return names_[size_t(rank)]; }

  // --- What happens.
  void link_opened(int peer, TimeNs now);  // by either side; replaces a link that was open
  void link_closed(int peer, TimeNs now);  // the peer's end, or a broken link
  void link_refused(int peer, TimeNs now);      // of a dial: nobody listens there any more
  void link_unreachable(int peer, TimeNs now);  // of a dial: no answer for silence_ns
  void message(int peer, std::span<const std::byte> message, TimeNs now);
  void heard(int peer, TimeNs now);  // any other byte came over the link
  void tick(TimeNs now);             // at least every tick_interval_ns()
  // This rank's own reason. Where another rank is asked to decide, verdict() follows later.
  void fail(Verdict verdict, TimeNs now);
  void decide();  // waits no longer for who was asked: what was proposed is the verdict
  void leave(TimeNs now);                  // this rank calls no more; it goes on relaying while its links are open

  // --- What follows.
  std::vector<Action> take_actions();
  bool waits_for_decision() const noexcept { return verdict() == nullptr && proposed_.code != Code::success; }
  const Verdict* verdict() const noexcept { return verdict_.code == Code::success ? nullptr : &verdict_; }
  bool has_left(int rank) const { return left_[size_t(rank)]; }
  bool linked(int peer) const { return links_.contains(peer); }
  size_t links() const noexcept { return links_.size(); }
  TimeNs tick_interval_ns() const noexcept { return silence_ns_ / 4; }

  // Whether a message is a mere sign of life, which need not wait behind others in a full queue.
  static bool is_alive(std::span<const std::byte> message) noexcept {
    return message.size() == 1 && MessageType(message[0]) == MessageType::alive;
  }

  // The tree at the start.
  static int parent_of(int rank) noexcept { return rank == 0 ? -1 : (rank - 1) / 2; }
  static std::vector<int> children_of(int rank, int size);

 private:
  struct Link {
    TimeNs heard_ns = 0;
    bool closing = false;    // the peer has said that it closes this link, which it needs no more
    bool confirmed = false;  // of the start, or the peer has said something on it
  };
  void take(int peer, std::span<const std::byte> message, TimeNs now);
  bool gone(int rank, bool with_suspects) const;
  int lowest(bool with_suspects) const;
  int parent_now(int rank, bool with_suspects, int lowest) const;
  void repair(TimeNs now);
  void close_finished_links();
  void take_verdict(Verdict verdict, int except);
  void propose(Verdict verdict, int blamed, TimeNs now);
  int decider(int blamed) const;
  void blame(int peer, std::string_view reason, TimeNs now);
  void take_left(std::span<const int> ranks, int except, TimeNs now);
  void send(int peer, Bytes message);
  void send_all(const Bytes& message, int except);
  Bytes left_message(std::span<const int> ranks) const;
  static Bytes message_of(MessageType type, const Verdict& verdict);

  const int rank_;
  const int size_;
  const TimeNs silence_ns_;
  TimeNs last_tick_ns_;
  TimeNs last_alive_ns_;
  std::vector<std::string> names_;
  std::vector<bool> left_;
  std::vector<bool> suspect_;        // refused a connection: gone, by leaving or by death
  std::map<int, Link> links_;
  std::map<int, TimeNs> expected_;   // ranks that should link here since that time, because their parent left
  int dialing_ = -1;
  bool any_left_ = false;
  Verdict verdict_;                  // code success: none
  Verdict proposed_;                 // what the ranks above were asked to decide; code success: nothing
  TimeNs proposed_ns_ = 0;
  std::vector<Action> actions_;
};

}  // namespace tutti
