// A call of a random program (programs_test.cc) on one rank: what it reads, and what its buffers must hold afterwards.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "communicator/memory_pool.h"
#include "tutti/tutti.h"

namespace tutti::test {

enum class Kind : uint8_t {
  all_reduce, reduce, scan, exscan, broadcast,              // one vector
  all_gather, gather, reduce_scatter, scatter, all_to_all,  // a block for or from each rank
  all_gather_v, gather_v, reduce_scatter_v, scatter_v, all_to_all_v,
  barrier,
  shift,    // each rank sends to the one so many further
  pair,     // the root alone sends, to the one so many further
  exchange  // sends and receives of unlike sizes between all, themselves too, in any order
};
constexpr int kinds = 19;
constexpr const char* kind_names[kinds] = {
    "all_reduce", "reduce", "scan", "exscan", "broadcast",
    "all_gather", "gather", "reduce_scatter", "scatter", "all_to_all",
    "all_gather_v", "gather_v", "reduce_scatter_v", "scatter_v", "all_to_all_v",
    "barrier", "shift", "pair", "exchange"};

// What all ranks know of a call.
struct Played {
  Kind kind{};
  tuttiDataType_t type = tuttiInt32;
  tuttiRedOp_t op = tuttiSum;
  size_t count = 0;         // of one vector or block; the largest, where sizes are unlike
  uint32_t salt = 0;        // of unlike sizes, of root and distance
  size_t communicator = 0;  // its number in the program
};

// What a rank decides for itself.
struct Taste {
  bool in_place = false;
  size_t gap = 0;                       // elements between blocks that have displacements
  size_t offset = 0, other_offset = 0;  // of its buffers, in bytes
  bool backwards = false;               // the order of an exchange
};

constexpr uint32_t mixed(uint32_t a, uint32_t b) {
  uint32_t x = a * 2654435761u ^ (b + 0x9e3779b9u) * 2246822519u;
  x ^= x >> 15;
  return x * 3266489917u;
}

// Element i of what `rank` gives: small, so that sums of 16 ranks are exact in any type.
constexpr uint32_t given(uint32_t key, size_t rank, size_t i) {
  return ((uint32_t(i) + 1) * 2654435761u + mixed(key, uint32_t(rank))) >> 28;
}

class PlayedCall {
 public:
  PlayedCall(const Played& played, const Taste& taste, tuttiComm_t comm, MemoryPool& pool)
      : played_(played), taste_(taste), comm_(comm) {
    int n = 0, rank = 0;
    tuttiCommCount(comm, &n);
    tuttiCommUserRank(comm, &rank);
    n_ = size_t(n), me_ = size_t(rank);
    root_ = played.salt % n_;
    distance_ = n_ < 2 ? 0 : 1 + played.salt / 16 % (n_ - 1);
    find_blocks();
    if (taste.in_place && may_be_in_place() && sends() && receives()) {
      // Of one vector or of all blocks both are the same; else one is the own block of the other.
      both_ = true;
      own_at_ = given_.at.size() != received_.at.size() ? me_ * played.count : 0;
    }
    in_buffer_.emplace(pool, both_ ? bytes(std::max(given_.end, received_.end)) : bytes(given_.end), taste.offset);
    if (!both_) out_buffer_.emplace(pool, bytes(received_.end), taste.other_offset);
  }

  // As PooledBuffer's, of both.
  void lie_anew(bool alone) {
    in_buffer_->lie_anew(alone);
    if (!both_) out_buffer_->lie_anew(alone);
  }

  // Buffers as they are before the call, and what they must be after it. Other keys, other values.
  void fill(uint32_t key) {
    in_buffer_->blank();
    write_given(key, in_buffer_->image());
    in_buffer_->apply();
    if (!both_) {
      out_buffer_->blank();
      out_buffer_->apply();
    }
    write_received(key, both_ ? in_buffer_->image() : out_buffer_->image());
  }

  tuttiResult_t make(tuttiStream_t stream) const {
    const auto [type, op, count] = std::tuple(played_.type, played_.op, played_.count);
    const int root = int(root_);
    const void* const in = sends() ? this->in() : nullptr;
    void* const out = receives() ? this->out() : nullptr;
    const std::vector<size_t>&gs = given_.sizes, &rs = received_.sizes;
    const size_t* const gd = taste_.gap > 0 ? given_.at.data() : nullptr;
    const size_t* const rd = taste_.gap > 0 ? received_.at.data() : nullptr;
    switch (played_.kind) {
      case Kind::all_reduce: return tuttiAllReduce(in, out, count, type, op, comm_, stream);
      case Kind::reduce: return tuttiReduce(in, out, count, type, op, root, comm_, stream);
      case Kind::scan: return tuttiScan(in, out, count, type, op, comm_, stream);
      case Kind::exscan: return tuttiExScan(in, out, count, type, op, comm_, stream);
      case Kind::broadcast: return tuttiBroadcast(in, out, count, type, root, comm_, stream);
      case Kind::all_gather: return tuttiAllGather(in, out, count, type, comm_, stream);
      case Kind::gather: return tuttiGather(in, out, count, type, root, comm_, stream);
      case Kind::reduce_scatter: return tuttiReduceScatter(in, out, count, type, op, comm_, stream);
      case Kind::scatter: return tuttiScatter(in, out, count, type, root, comm_, stream);
      case Kind::all_to_all: return tuttiAlltoAll(in, out, count, type, comm_, stream);
      case Kind::all_gather_v: return tuttiAllGatherV(in, gs[0], out, rs.data(), rd, type, comm_, stream);
      case Kind::gather_v: return tuttiGatherV(in, gs[0], out, rs.data(), rd, type, root, comm_, stream);
      case Kind::reduce_scatter_v: return tuttiReduceScatterV(in, gs.data(), gd, out, rs[0], type, op, comm_, stream);
      case Kind::scatter_v: return tuttiScatterV(in, gs.data(), gd, out, rs[0], type, root, comm_, stream);
      case Kind::all_to_all_v: return tuttiAlltoAllV(in, gs.data(), gd, out, rs.data(), rd, type, comm_, stream);
      case Kind::barrier: return tuttiBarrier(comm_, stream);
      case Kind::shift:
        return tuttiSendRecv(in, count, after(me_), out, count, before(me_), type, comm_, stream);
      case Kind::pair:
        if (sends()) return tuttiSend(in, count, type, after(me_), comm_, stream);
        return receives() ? tuttiRecv(out, count, type, root, comm_, stream) : tuttiSuccess;
      case Kind::exchange: return exchange(stream);
    }
    return tuttiInternalError;
  }

  // Empty: all is as it must be.
  std::string wrong() const {
    std::string what = in_buffer_->wrong();
    if (what.empty() && !both_) what = out_buffer_->wrong();
    return what.empty() ? what : fmt::format("{}: {}", describe(), what);
  }
  std::string describe() const {
    return fmt::format("{} of {} elements of type {}, op {}, root {}, distance {}{}{}, rank {} of {}",
                       kind_names[size_t(played_.kind)], played_.count, int(played_.type), int(played_.op), root_, distance_,
                       both_ ? ", in place" : "", taste_.gap > 0 ? ", with gaps" : "", me_, n_);
  }

 private:
  struct Blocks {
    std::vector<size_t> sizes, at;  // in elements
    size_t end = 0;
    void add(size_t size, size_t gap) {
      at.push_back(end);
      sizes.push_back(size);
      end += size + gap;
    }
  };
  enum class Parts : uint8_t { none, own, all };

  static bool is_v(Kind kind) { return kind >= Kind::all_gather_v && kind <= Kind::all_to_all_v; }
  // The same kind with blocks of one size.
  static Kind plain(Kind kind) {
    if (kind == Kind::exchange) return Kind::all_to_all;
    return is_v(kind) ? Kind(int(kind) - int(Kind::all_gather_v) + int(Kind::all_gather)) : kind;
  }
  bool sends() const { return in_ != Parts::none; }
  bool receives() const { return out_ != Parts::none; }
  bool may_be_in_place() const { return played_.kind <= Kind::all_to_all; }
  size_t width() const { return tuttiTypeSize(played_.type); }
  size_t bytes(size_t elements) const { return elements * width(); }
  bool one_vector() const {
    return played_.kind <= Kind::broadcast || played_.kind == Kind::shift || played_.kind == Kind::pair;
  }
  // Whom a rank sends to in a shift, and whom it receives from.
  int after(size_t rank) const { return int((rank + distance_) % n_); }
  int before(size_t rank) const { return int((rank + n_ - distance_) % n_); }

  // Elements that `from` gives for `to`, and which of its elements is the first of them.
  size_t size(size_t from, size_t to) const {
    if (plain(played_.kind) == played_.kind) return played_.count;
    const Kind kind = plain(played_.kind);
    const size_t a = kind == Kind::reduce_scatter || kind == Kind::scatter ? 0 : from + 1;
    const size_t b = kind == Kind::all_gather || kind == Kind::gather ? 0 : to + 1;
    const uint32_t drawn = mixed(played_.salt, uint32_t(a * 64 + b));
    return drawn % 5 == 0 ? 0 : drawn % 5 == 1 ? played_.count : drawn / 5 % (played_.count + 1);
  }
  size_t first(size_t from, size_t to) const {
    const Kind kind = plain(played_.kind);
    if (one_vector() || kind == Kind::all_gather || kind == Kind::gather) return 0;
    size_t sum = 0;
    for (size_t rank = 0; rank < to; ++rank) sum += size(from, rank);
    return sum;
  }
  // The ranks whose inputs a result joins.
  std::vector<size_t> joined() const {
    std::vector<size_t> all;
    switch (plain(played_.kind)) {
      case Kind::broadcast:
      case Kind::scatter:
      case Kind::pair: return {root_};
      case Kind::shift: return {size_t(before(me_))};
      case Kind::scan: all.resize(me_ + 1); break;
      case Kind::exscan: all.resize(me_); break;
      default: all.resize(n_);
    }
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  void find_blocks() {
    const bool is_root = me_ == root_;
    Parts in = Parts::own, out = Parts::own;
    switch (plain(played_.kind)) {
      case Kind::barrier: in = out = Parts::none; break;
      case Kind::all_gather: out = Parts::all; break;
      case Kind::gather: out = is_root ? Parts::all : Parts::none; break;
      case Kind::reduce_scatter: in = Parts::all; break;
      case Kind::scatter: in = is_root ? Parts::all : Parts::none; break;
      case Kind::all_to_all: in = out = Parts::all; break;
      case Kind::reduce: out = is_root ? Parts::own : Parts::none; break;
      case Kind::broadcast: in = is_root ? Parts::own : Parts::none; break;
      case Kind::exscan: out = me_ > 0 ? Parts::own : Parts::none; break;
      case Kind::pair:
        if (distance_ == 0) in = out = Parts::none;  // there is no other
        else if (!is_root) in = Parts::none;
        if (me_ != size_t(after(root_))) out = Parts::none;
        break;
      default: break;
    }
    in_ = in, out_ = out;
    const size_t gap = is_v(played_.kind) ? taste_.gap : 0;
    if (in == Parts::own) given_.add(size(me_, me_), 0);
    for (size_t rank = 0; rank < n_ && in == Parts::all; ++rank) given_.add(size(me_, rank), gap);
    if (out == Parts::own) received_.add(size(me_, me_), 0);
    for (size_t rank = 0; rank < n_ && out == Parts::all; ++rank) received_.add(size(rank, me_), gap);
  }

  std::byte* in() const { return in_buffer_->data() + bytes(given_.end < received_.end ? own_at_ : 0); }
  std::byte* out() const {
    return both_ ? in_buffer_->data() + bytes(given_.end > received_.end ? own_at_ : 0) : out_buffer_->data();
  }

  template <typename Function>
  void with_type(Function&& function) const {
    switch (played_.type) {
      case tuttiUint8: return function(uint8_t{});
      case tuttiInt64: return function(int64_t{});
      case tuttiFloat32: return function(float{});
      case tuttiFloat64: return function(double{});
      default: return function(int32_t{});
    }
  }

  void write_given(uint32_t key, std::byte* image) const {
    const size_t shift = both_ && given_.end < received_.end ? own_at_ : 0;
    with_type([&]<typename T>(T) {
      for (size_t block = 0; block < given_.at.size(); ++block) {
        const size_t from = given_.at.size() == 1 ? 0 : first(me_, block);
        std::byte* const target = image + bytes(shift + given_.at[block]);
        for (size_t i = 0; i < given_.sizes[block]; ++i) {
          const T value = T(given(key, me_, from + i));
          std::memcpy(target + i * sizeof value, &value, sizeof value);
        }
      }
    });
  }

  void write_received(uint32_t key, std::byte* image) const {
    const size_t shift = both_ && given_.end > received_.end ? own_at_ : 0;
    const std::vector<size_t> ranks = joined();
    with_type([&]<typename T>(T) {
      for (size_t block = 0; block < received_.at.size(); ++block) {
        std::byte* const target = image + bytes(shift + received_.at[block]);
        const auto write = [&](size_t i, uint32_t of) {
          const T value = T(of);
          std::memcpy(target + i * sizeof value, &value, sizeof value);
        };
        if (out_ == Parts::all) {
          const size_t from = first(block, me_);
          for (size_t i = 0; i < received_.sizes[block]; ++i) write(i, given(key, block, from + i));
        } else {
          for (size_t i = 0; i < received_.sizes[block]; ++i) write(i, result(key, ranks, i));
        }
      }
    });
  }
  uint32_t result(uint32_t key, std::span<const size_t> ranks, size_t i) const {
    uint32_t sum = 0, least = ~0u, most = 0;
    for (const size_t rank : ranks) {
      const uint32_t value = given(key, rank, first(rank, me_) + i);
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    return played_.op == tuttiMin ? least : played_.op == tuttiMax ? most : sum;
  }

  tuttiResult_t exchange(tuttiStream_t stream) const {
    tuttiResult_t first_error = tuttiGroupStart();
    const auto note = [&](tuttiResult_t result) {
      if (first_error == tuttiSuccess) first_error = result;
    };
    for (size_t i = 0; i < n_; ++i) {
      const size_t peer = taste_.backwards ? n_ - 1 - i : i;
      const auto send = [&] {
        note(tuttiSend(in() + bytes(given_.at[peer]), given_.sizes[peer], played_.type, int(peer), comm_, stream));
      };
      const auto receive = [&] {
        note(tuttiRecv(out() + bytes(received_.at[peer]), received_.sizes[peer], played_.type, int(peer), comm_, stream));
      };
      if (taste_.backwards) receive(), send();
      else send(), receive();
    }
    note(tuttiGroupEnd());
    return first_error;
  }

  Played played_;
  Taste taste_;
  tuttiComm_t comm_;
  size_t n_ = 1, me_ = 0, root_ = 0, distance_ = 0, own_at_ = 0;
  Parts in_{}, out_{};
  bool both_ = false;
  Blocks given_, received_;
  std::optional<PooledBuffer> in_buffer_, out_buffer_;  // in place all lies in the first
};

}  // namespace tutti::test
