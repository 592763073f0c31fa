// The verbs read as data (Recorder), and renaming, by which algorithms compose.
#pragma once

#include <utility>

#include "schedule/step.h"

namespace tutti {

// Algorithms are templates over a type V with these six functions. Other readings: symbolic execution, a price, a
// CUDA kernel.
class Recorder {
 public:
  explicit Recorder(Schedule& schedule) : schedule_(&schedule) {}

  void send(int to, Slice a) { schedule_->push_back({Verb::send, false, uint32_t(to), a, {}, {}}); }
  void recv(int from, Slice dst) { schedule_->push_back({Verb::recv, false, uint32_t(from), {}, {}, dst}); }
  void recv_reduce(int from, Slice a, Slice dst, bool incoming_first = false) {
    schedule_->push_back({Verb::recv_reduce, incoming_first, uint32_t(from), a, {}, dst});
  }
  void reduce(Slice a, Slice b, Slice dst) { schedule_->push_back({Verb::reduce, false, 0, a, b, dst}); }
  void copy(Slice a, Slice dst) { schedule_->push_back({Verb::copy, false, 0, a, {}, dst}); }
  void finish(Slice dst) { schedule_->push_back({Verb::finish, false, 0, {}, {}, dst}); }

 private:
  Schedule* schedule_;
};

// Runs an algorithm of a smaller group inside a larger one: its ranks and its slices get other names.
template <class V, class PeerName, class SliceName>
class Renamed {
 public:
  constexpr Renamed(V& verbs, PeerName peer, SliceName slice)
      : verbs_(&verbs), peer_(std::move(peer)), slice_(std::move(slice)) {}

  constexpr void send(int to, Slice a) { verbs_->send(peer_(to), slice_(a)); }
  constexpr void recv(int from, Slice dst) { verbs_->recv(peer_(from), slice_(dst)); }
  constexpr void recv_reduce(int from, Slice a, Slice dst, bool incoming_first = false) {
    verbs_->recv_reduce(peer_(from), slice_(a), slice_(dst), incoming_first);
  }
  constexpr void reduce(Slice a, Slice b, Slice dst) { verbs_->reduce(slice_(a), slice_(b), slice_(dst)); }
  constexpr void copy(Slice a, Slice dst) {
    const Slice from = slice_(a), to = slice_(dst);
    if (!(from == to)) verbs_->copy(from, to);
  }
  constexpr void finish(Slice dst) { verbs_->finish(slice_(dst)); }

 private:
  V* verbs_;
  PeerName peer_;
  SliceName slice_;
};

}  // namespace tutti
