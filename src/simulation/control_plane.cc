// Letters, links and dials of simulated control planes.
#include "simulation/control_plane.h"

#include <algorithm>
#include <utility>

namespace tutti {

ControlPlane::ControlPlane(int n, const ControlTimes& times, Surroundings surroundings, SceneMistake mistake, int odd_one)
    : n_(n), times_(times), around_(std::move(surroundings)), mistake_(mistake), odd_one_(odd_one), ranks_(size_t(n)) {
  for (int rank = 0; rank < n; ++rank) {
    at(rank).liveness = std::make_unique<Liveness>(rank, n, times.silence_ns, around_.now());
    at(rank).liveness->all_known();
  }
  for (int rank = 1; rank < n; ++rank) open_link(rank, Liveness::parent_of(rank));
  for (int rank = 0; rank < n; ++rank)
    around_.after(rank, Event::tick, 0, around_.random->between(0, liveness(rank).tick_interval_ns()));
}

void ControlPlane::handle(int rank, Event event, uint32_t detail) {
  const Fate fate = around_.fate(rank);
  if (fate == Fate::ended || fate == Fate::lost) return;
  // A stopped process finds everything in its sockets when it goes on, in the order of sending.
  if (defers(rank, event)) return around_.after(rank, event, detail, times_.look_again_ns);
  switch (event) {
    case Event::tick:
      liveness(rank).tick(around_.now());
      around_.after(rank, Event::tick, 0, liveness(rank).wake_ns(around_.now()) - around_.now());
      break;
    case Event::letter: deliver(rank, int(detail)); break;
    case Event::dial: answer_dial(rank, detail); break;
    case Event::probe: answer_probe(rank, int(detail)); break;
  }
  act(rank);
}

bool ControlPlane::defers(int rank, Event event) const {
  const bool unaware = mistake_ == SceneMistake::pause_not_noticed && event == Event::tick;
  return around_.fate(rank) == Fate::stopped && !unaware;
}

void ControlPlane::act(int rank) {
  using Kind = Liveness::Action::Kind;
  Liveness& one = liveness(rank);
  // Whoever asks for votes decides without them.
  if (mistake_ == SceneMistake::votes_not_awaited) one.decide_alone();
  for (auto actions = one.take_actions(); !actions.empty(); actions = one.take_actions()) {
    for (Liveness::Action& action : actions) {
      switch (action.kind) {
        case Kind::send: post(rank, action.peer, {0, false, std::move(action.message)}); break;
        case Kind::close: post(rank, action.peer, {0, true, {}}); break;
        case Kind::dial: dial(rank, action.peer); break;
        case Kind::probe: around_.after(rank, Event::probe, uint32_t(action.peer), 2 * times_.latency_ns); break;
        case Kind::publish: around_.told(rank); break;
      }
    }
  }
}

void ControlPlane::end(int rank) {
  for (int peer = 0; peer < n_; ++peer)
    if (peer != rank && liveness(rank).linked(peer)) post(rank, peer, {0, true, {}});
}

void ControlPlane::lose_last_words(int rank) {
  for (Rank& peer : ranks_) {
    std::deque<Letter>& inbox = peer.inbox[rank];
    for (uint64_t lost = around_.random->below(inbox.size() + 1); lost > 0; --lost) inbox.pop_back();
  }
}

void ControlPlane::open_link(int a, int b) {
  at(a).link[b] = at(b).link[a] = ++links_;
  liveness(a).link_opened(b, around_.now());
  liveness(b).link_opened(a, around_.now());
  act(a);
  act(b);
}

void ControlPlane::post(int from, int to, Letter letter) {
  const bool sign_of_life = !letter.closes && Liveness::is_alive(letter.message);
  if (from == odd_one_ && mistake_ == SceneMistake::heartbeat_forgotten && sign_of_life) return;
  if (from == odd_one_ && mistake_ == SceneMistake::verdict_not_flooded && !letter.closes && !sign_of_life) return;
  letter.link = at(from).link[to];
  TimeNs& last = at(to).last_letter_at[from];
  const TimeNs latency = times_.latency_ns;
  last = std::max(last + 1, around_.now() + latency + around_.random->between(0, latency));
  at(to).inbox[from].push_back(std::move(letter));
  around_.after(to, Event::letter, uint32_t(from), last - around_.now());
}

void ControlPlane::deliver(int rank, int from) {
  std::deque<Letter>& inbox = at(rank).inbox[from];
  if (inbox.empty()) return;  // it was lost
  const Letter letter = std::move(inbox.front());
  inbox.pop_front();
  if (letter.link != at(rank).link[from]) return;
  if (letter.closes) liveness(rank).link_closed(mistaken_for(rank, from), around_.now());
  else liveness(rank).message(from, letter.message, around_.now());
}

int ControlPlane::mistaken_for(int rank, int peer) const {
  if (mistake_ != SceneMistake::wrong_verdict) return peer;
  for (int other = 0; other < n_; ++other)
    if (other != peer && liveness(rank).linked(other)) return other;
  return peer;
}

// --- Dials: there and back, and what the other side takes to prove itself.

void ControlPlane::dial(int rank, int peer) {
  Rank& one = at(rank);
  one.dials = peer;
  one.dialing_since = around_.now();
  around_.after(rank, Event::dial, ++one.dial, 3 * times_.latency_ns);
}

void ControlPlane::answer_dial(int rank, uint32_t number) {
  Rank& one = at(rank);
  if (number != one.dial || one.liveness->has_left(rank)) return;
  const TimeNs now = around_.now();
  switch (around_.fate(one.dials)) {
    case Fate::ended: return one.liveness->link_refused(one.dials, now);
    case Fate::lives: return open_link(rank, one.dials);
    case Fate::stopped:
    case Fate::lost: break;
  }
  if (now - one.dialing_since >= times_.silence_ns) return one.liveness->link_unreachable(one.dials, now);
  around_.after(rank, Event::dial, number, times_.look_again_ns);
}

void ControlPlane::answer_probe(int rank, int peer) {
  if (!liveness(rank).expects(peer)) return;
  if (around_.fate(peer) == Fate::ended) liveness(rank).link_refused(peer, around_.now());
  else around_.after(rank, Event::probe, uint32_t(peer), times_.look_again_ns);
  if (around_.fate(peer) == Fate::lives) liveness(rank).answered(peer, around_.now());
}

}  // namespace tutti
