// Recursive doubling: in round k every rank exchanges its sum with the rank at distance 2^k. Fewest rounds with one
// partner at a time.
#pragma once

#include <bit>

#include "schedule/algorithm.h"

namespace tutti {

// Ranks beyond the largest power of two hand their input to a partner first and get the result from it last. The lower
// rank's sum always stands first, so both partners compute the same expression.
template <class V>
constexpr void all_reduce_doubling(V& v, const Group& group) {
  const int rank = group.rank, power = int(std::bit_floor(unsigned(group.n))), extra = group.n - power;
  if (rank >= power) {
    v.send(rank - power, in(0));
    return v.recv(rank - power, out(0));
  }
  Slice sum = in(0);
  if (rank < extra) {
    v.recv_reduce(rank + power, sum, out(0));
    sum = out(0);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int partner = rank ^ distance;
    v.send(partner, sum);
    v.recv_reduce(partner, sum, out(0), partner < rank);
    sum = out(0);
  }
  if (group.n == 1) v.copy(in(0), out(0));
  v.finish(out(0));
  if (rank < extra) v.send(rank + power, out(0));
}

}  // namespace tutti
