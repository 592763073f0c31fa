// One call of any collective on one rank, with guards around its buffers, against a naive reference.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory_resource>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/types.h"
#include "communicator/elsewhere.h"
#include "communicator/values.h"
#include "schedule/collective.h"
#include "tutti/tutti.h"

namespace tutti::test {

// One buffer with guard bytes around it, at an offset from alignment. Every second one that is large enough to be lent
// is memory of tuttiMemAlloc.
class Guarded {
 public:
  static constexpr std::byte guard{0xa5};
  Guarded(size_t bytes, size_t offset)
      : bytes_(bytes), offset_(64 + offset), store_(bytes + 192, guard, memory_for(bytes)) {}
  std::byte* data() { return store_.data() + offset_; }
  // Guards and all.
  std::span<std::byte> all() { return store_; }
  void expect_guards(const std::string& what) const {
    const auto clean = [](std::byte b) { return b == guard; };
    EXPECT_TRUE(std::all_of(store_.begin(), store_.begin() + long(offset_), clean)) << what;
    EXPECT_TRUE(std::all_of(store_.begin() + long(offset_ + bytes_), store_.end(), clean)) << what;
  }

 private:
  class Shared final : public std::pmr::memory_resource {
    void* do_allocate(size_t bytes, size_t) override {
      void* memory = nullptr;
      if (tuttiMemAlloc(&memory, bytes) != tuttiSuccess) throw std::bad_alloc();
      return memory;
    }
    void do_deallocate(void* memory, size_t, size_t) override { tuttiMemFree(memory); }
    bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  };
  static std::pmr::memory_resource* memory_for(size_t bytes) {
    static Shared shared;
    static std::atomic<unsigned> large{0};
    return bytes >= 65536 && large++ % 2 == 0 ? &shared : std::pmr::new_delete_resource();
  }

  size_t bytes_, offset_;
  std::pmr::vector<std::byte> store_;
};

struct EveryCase {
  Collective kind;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  size_t count = 0;
  int root = 0;
  bool in_place = false;
};

// One rank's view of a case: its buffers, and what they must hold.
class EveryCall {
 public:
  using Bytes = std::vector<uint8_t>;

  EveryCall(int n, int rank, const EveryCase& c)
      : n_(n), rank_(rank), case_(c), means_(meaning(c.kind)), block_bytes_(c.count * element_bytes(c.type)) {
    if (!means_.rooted) case_.root = 0;
    input_ = means_.input_of(rank == case_.root);
    output_ = means_.output_of(rank == case_.root);
  }

  // elsewhere: null for buffers of the host and calls on the calling thread.
  void run(tuttiComm_t comm, Elsewhere* elsewhere = nullptr) {
    const std::string what =
        fmt::format("{} {} {} count {} root {}{} rank {} of {}", name(case_.kind), name(case_.type), name(case_.op),
                    case_.count, case_.root, case_.in_place ? " in place" : "", rank_, n_);
    const Bytes input = input_of(rank_), expected = result();
    const bool one_buffer = case_.in_place && input_ != Part::none && output_ != Part::none;
    const bool in_input = one_buffer && output_ == Part::own;  // the output lies in the input
    const size_t own_at = means_.blocks && input_ != output_ ? size_t(rank_) * block_bytes_ : 0;
    const size_t width = element_bytes(case_.type);
    Guarded first(one_buffer ? std::max(input.size(), expected.size()) : input.size(), width * (case_.count % 3));
    Guarded second(expected.size(), 1);
    std::byte* send = first.data();
    std::byte* recv = second.data();
    if (in_input) recv = send + own_at;
    else if (one_buffer) recv = send, send += own_at;
    if (!input.empty()) std::memcpy(send, input.data(), input.size());

    const void* const sent = input_ == Part::none ? nullptr : send;
    void* const received = output_ == Part::none ? nullptr : recv;
    const auto here = [&] { return call(sent, received, comm, nullptr); };
    const auto there = [&] { return call_elsewhere(first, second, sent, received, comm, *elsewhere); };
    ASSERT_EQ(elsewhere == nullptr ? here() : there(), tuttiSuccess) << what << ": " << tuttiGetLastError(comm);
    ASSERT_TRUE(expected.empty() || std::memcmp(recv, expected.data(), expected.size()) == 0) << what;
    // What is input only is as it was: all of it, or what lies around the output.
    if (!one_buffer || in_input) {
      const size_t output_at = in_input ? own_at : input.size(), output_end = in_input ? own_at + expected.size() : input.size();
      ASSERT_TRUE(std::equal(input.begin(), input.begin() + long(output_at), reinterpret_cast<const uint8_t*>(send)) &&
                  std::equal(input.begin() + long(output_end), input.end(), reinterpret_cast<const uint8_t*>(send) + output_end))
          << what << ": the input has changed";
    }
    first.expect_guards(what);
    second.expect_guards(what);
  }

 private:
  size_t bytes(Part part) const {
    if (part == Part::none) return 0;
    return part == Part::all && means_.blocks ? block_bytes_ * size_t(n_) : block_bytes_;
  }

  Bytes input_of(int rank) const { return input_of(rank, 0, bytes(means_.input_of(rank == case_.root))); }

  // Bytes [first, first + size) of a rank's input.
  Bytes input_of(int rank, size_t first, size_t size) const {
    if (means_.reduces) return reduce_input(case_.type, case_.op, rank, first / element_bytes(case_.type), size);
    Bytes input(size);
    fill_with_bytes(input.data(), first + size_t(rank) * 4099, size);
    return input;
  }

  // Where in another's input what this rank is to get of it begins: with its own block of it, or at the front.
  size_t part_for_me(int rank) const {
    const bool one_of_many = means_.blocks && means_.input_of(rank == case_.root) == Part::all;
    return one_of_many ? size_t(rank_) * block_bytes_ : 0;
  }

  Bytes result() const {
    if (output_ == Part::none) return {};
    if (means_.reduces)
      return reduce_result(case_.type, case_.op, means_.joined(uint32_t(rank_), uint32_t(n_)),
                           part_for_me(0) / element_bytes(case_.type), block_bytes_);
    const bool of_root = means_.rooted && means_.input == Part::none;
    if (of_root) return input_of(case_.root, part_for_me(case_.root), block_bytes_);
    Bytes all;
    for (int r = 0; r < n_; ++r) {
      const Bytes part = input_of(r, part_for_me(r), block_bytes_);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The same call on copies of both memories.
  tuttiResult_t call_elsewhere(Guarded& first, Guarded& second, const void* send, void* recv, tuttiComm_t comm,
                               Elsewhere& elsewhere) const {
    const std::span<std::byte> memories[2] = {first.all(), second.all()};
    std::byte* copies[2];
    for (int i = 0; i < 2; ++i) copies[i] = elsewhere.bring(memories[i]);
    const auto moved = [&](const void* pointer) -> std::byte* {
      for (int i = 0; i < 2; ++i) {
        const auto* const at = static_cast<const std::byte*>(pointer);
        if (at >= memories[i].data() && at < memories[i].data() + memories[i].size())
          return copies[i] + (at - memories[i].data());
      }
      return nullptr;
    };
    const tuttiResult_t result = call(moved(send), moved(recv), comm, elsewhere.stream());
    for (int i = 0; i < 2; ++i) elsewhere.fetch(copies[i], memories[i]);
    return result;
  }

  tuttiResult_t call(const void* send, void* recv, tuttiComm_t comm, tuttiStream_t stream) const {
    const auto type = tuttiDataType_t(case_.type);
    const auto op = tuttiRedOp_t(case_.op);
    const size_t count = case_.count;
    const int root = case_.root;
    switch (case_.kind) {
      case Collective::all_reduce: return tuttiAllReduce(send, recv, count, type, op, comm, stream);
      case Collective::broadcast: return tuttiBroadcast(send, recv, count, type, root, comm, stream);
      case Collective::reduce: return tuttiReduce(send, recv, count, type, op, root, comm, stream);
      case Collective::scan: return tuttiScan(send, recv, count, type, op, comm, stream);
      case Collective::exscan: return tuttiExScan(send, recv, count, type, op, comm, stream);
      case Collective::all_gather: return tuttiAllGather(send, recv, count, type, comm, stream);
      case Collective::reduce_scatter: return tuttiReduceScatter(send, recv, count, type, op, comm, stream);
      case Collective::gather: return tuttiGather(send, recv, count, type, root, comm, stream);
      case Collective::scatter: return tuttiScatter(send, recv, count, type, root, comm, stream);
      case Collective::all_to_all: return tuttiAlltoAll(send, recv, count, type, comm, stream);
      default: return tuttiInternalError;
    }
  }

  int n_, rank_;
  EveryCase case_;
  Meaning means_;
  size_t block_bytes_;
  Part input_ = Part::none, output_ = Part::none;
};

}  // namespace tutti::test
