// Calls that are made again take a shorter way: it must refuse, defer and fail just as the long one does.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "communicator/ranks.h"
#include "communicator/request.h"
#include "communicator/v_form_call.h"
#include "sanitizer.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

// A communicator of one, with a call that has been made before.
class Repeated : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tuttiCommInitAll(&comm_, 1, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
  }
  tuttiResult_t call(const void* send, void* recv, tuttiDataType_t type = tuttiFloat32, tuttiRedOp_t op = tuttiSum) {
    return tuttiAllReduce(send, recv, 4, type, op, comm_, nullptr);
  }
  void expect_refused(tuttiResult_t result, const char* words) {
    EXPECT_EQ(result, tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  }
  tuttiComm_t comm_ = nullptr;
  std::array<float, 16> in_{1, 2, 3, 4, 5}, out_{};
};

// Programs make calls in turns, as sums of two float32 and of one float64.
TEST(PlacesOfRepeats, FewOfTheCallsThatDifferShareOne) {
  std::set<uint64_t> keys;
  std::array<size_t, 8> calls_of_place{};
  for (const Collective kind : {Collective::all_reduce, Collective::broadcast, Collective::all_gather, Collective::send_recv})
    for (const DataType type : {DataType::int8, DataType::int32, DataType::float32, DataType::float64})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
        for (const uint32_t root : {0u, 1u, 2u, 255u})
          for (const uint64_t count : {1u, 2u, 3u, 4u, 8u, 1024u, 4096u}) {
            const uint64_t key = key_of_repeat({.kind = kind, .type = type, .op = op, .root = root, .count = count});
            EXPECT_TRUE(keys.insert(key).second) << int(kind) << ' ' << int(type) << ' ' << int(op) << ' ' << root << ' ' << count;
            ++calls_of_place[number_of_repeat(key, calls_of_place.size())];
          }
  for (const size_t calls : calls_of_place) EXPECT_LE(calls, 2 * keys.size() / calls_of_place.size());
}

// Of calls that share their places, two stay while they are made in turns, and a third one takes the place of the older.
TEST(PlacesOfRepeats, KeepTwoCallsThatShareThem) {
  Repeats<16> repeats;
  const auto keep = [&](const Call& call) {
    Repeat& repeat = repeats.place_for(call);
    repeat.call = call;
    repeat.mode = Repeat::Mode::disjoint;
  };
  const auto is_kept = [&](const Call& call) { return repeats.find(call).call == call; };
  const auto number = [](const Call& call) { return number_of_repeat(key_of_repeat(call), 8); };
  std::vector<Call> alike;
  for (uint64_t count = 1; alike.size() < 3; ++count) {
    const Call call{.kind = Collective::all_reduce, .type = DataType::float32, .count = count};
    if (alike.empty() || number(call) == number(alike[0])) alike.push_back(call);
  }
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < 2; ++i) keep(alike[size_t(i)]);
  EXPECT_TRUE(is_kept(alike[0]) && is_kept(alike[1]));
  keep(alike[2]);
  EXPECT_TRUE(!is_kept(alike[0]) && is_kept(alike[1]) && is_kept(alike[2]));
  keep(alike[0]);
  EXPECT_TRUE(is_kept(alike[0]) && !is_kept(alike[1]) && is_kept(alike[2]));
  repeats.forget();
  EXPECT_EQ(repeats.find(alike[2]).mode, Repeat::Mode::none);
}

TEST_F(Repeated, ANullBufferIsStillRefused) {
  expect_refused(call(nullptr, out_.data()), "sendbuff is NULL with count 4");
  expect_refused(call(in_.data(), nullptr), "recvbuff is NULL with count 4");
  expect_refused(call(nullptr, nullptr), "sendbuff is NULL with count 4");
}

TEST_F(Repeated, OverlappingBuffersAreStillRefusedOnEitherSide) {
  for (size_t shift = 1; shift < 4; ++shift) {
    expect_refused(call(in_.data(), in_.data() + shift), "overlap");
    expect_refused(call(in_.data() + shift, in_.data()), "overlap");
  }
  EXPECT_EQ(in_[1], 2);
  EXPECT_EQ(call(in_.data(), in_.data() + 4), tuttiSuccess);  // side by side
  EXPECT_EQ(in_[5], 2);
}

TEST_F(Repeated, OverlappingBuffersOfBlocksAreStillRefused) {
  tuttiComm_t comm = comm_;
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(tuttiAllGather(in_.data(), out_.data(), 4, tuttiFloat32, comm, nullptr), tuttiSuccess);
  for (size_t shift = 1; shift < 4; ++shift) {
    expect_refused(tuttiAllGather(in_.data(), in_.data() + shift, 4, tuttiFloat32, comm, nullptr), "overlap");
    expect_refused(tuttiAllGather(in_.data() + shift, in_.data(), 4, tuttiFloat32, comm, nullptr), "overlap");
  }
  expect_refused(tuttiAllGather(nullptr, out_.data(), 4, tuttiFloat32, comm, nullptr), "sendbuff is NULL with count 4");
  EXPECT_EQ(tuttiAllGather(in_.data(), in_.data() + 4, 4, tuttiFloat32, comm, nullptr), tuttiSuccess);
}

TEST_F(Repeated, ATypeOrOperatorThatIsTheSameInItsLowBitsIsAnother) {
  expect_refused(call(in_.data(), out_.data(), tuttiDataType_t(256 + int(tuttiFloat32))), "datatype is");
  expect_refused(call(in_.data(), out_.data(), tuttiFloat32, tuttiRedOp_t(256 + int(tuttiSum))), "op is");
}

// Of one rank, in place is one buffer. What lies a block further is the next rank's place, of which there is none.
TEST_F(Repeated, OtherPlacesThanTheOwnBlockAreStillRefused) {
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(tuttiAllGather(in_.data(), in_.data(), 4, tuttiFloat32, comm_, nullptr), tuttiSuccess);
  expect_refused(tuttiAllGather(in_.data() + 1, in_.data(), 4, tuttiFloat32, comm_, nullptr), "overlap");
  expect_refused(tuttiAllGather(nullptr, in_.data(), 4, tuttiFloat32, comm_, nullptr), "sendbuff is NULL with count 4");
  expect_refused(tuttiAllGather(in_.data(), nullptr, 4, tuttiFloat32, comm_, nullptr), "recvbuff is NULL with count 4");
  EXPECT_EQ(tuttiAllGather(in_.data() + 4, in_.data(), 4, tuttiFloat32, comm_, nullptr), tuttiSuccess);  // side by side
}

TEST(Repeats, OnlyTheOwnBlockIsInPlace) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    std::array<float, 16> data{};
    const auto gather_from = [&](size_t at) {
      return tuttiAllGather(data.data() + at, data.data(), 4, tuttiFloat32, comm, nullptr);
    };
    for (int i = 0; i < 2; ++i) ASSERT_EQ(gather_from(size_t(rank) * 4), tuttiSuccess) << last_error();
    for (const size_t at : {size_t(rank) * 4 + 1, size_t(rank + 1) % 3 * 4, size_t(rank + 2) % 3 * 4}) {
      EXPECT_EQ(gather_from(at), tuttiInvalidArgument) << at;
      EXPECT_NE(last_error().find("overlap"), std::string::npos) << last_error();
    }
    ASSERT_EQ(gather_from(size_t(rank) * 4), tuttiSuccess) << last_error();
  });
}

TEST_F(Repeated, InPlaceAndNotMayAlternate) {
  for (int i = 0; i < 5; ++i) {
    in_ = {1, 2, 3, 4};
    out_ = {};
    ASSERT_EQ(call(in_.data(), in_.data()), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
    EXPECT_EQ(out_, in_);
  }
}

TEST_F(Repeated, InAGroupItWaitsForTheEnd) {
  out_ = {};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
  EXPECT_EQ(out_[0], 0) << "ran before the group's end";
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
  EXPECT_EQ(out_[0], 1);
}

TEST_F(Repeated, AfterACallOnAStreamItKeepsItsTurn) {
  tuttiStream_t stream = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
  for (int i = 0; i < 200; ++i) {
    std::array<float, 4> first{}, second{};
    ASSERT_EQ(tuttiAllReduce(in_.data(), first.data(), 4, tuttiFloat32, tuttiSum, comm_, stream), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), second.data()), tuttiSuccess);
    EXPECT_EQ(first[3], 4) << "a later call came first";
    EXPECT_EQ(second[3], 4);
  }
  EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST_F(Repeated, AfterFinalizeItIsRefused) {
  ASSERT_EQ(tuttiCommFinalize(comm_), tuttiSuccess);
  EXPECT_EQ(call(in_.data(), out_.data()), tuttiInvalidUsage);
  EXPECT_NE(last_error().find("finalized"), std::string::npos) << last_error();
}

TEST_F(Repeated, AfterAnAbortItGivesTheVerdict) {
  ASSERT_EQ(tuttiCommAbort(comm_), tuttiSuccess);
  EXPECT_NE(call(in_.data(), out_.data()), tuttiSuccess);
}

// Each with other buffers than the last time, and some in place. Element i of what rank `from` gives for rank `to` is
// `value(from, to, i)`.
void calls_of_blocks(int n, int rank, int round, tuttiComm_t comm) {
  for (const size_t count : {size_t{1}, size_t{5}, size_t{0}, size_t{100}, size_t{300}, size_t{2731}}) {
    const auto value = [&](int from, int to, size_t i) { return int64_t(i) * 7 + from * 1000 + to * 100'000 + round; };
    const size_t all = count * size_t(n), own_at = count * size_t(rank), shift = size_t(round % 3);
    std::vector<int64_t> in(all + 3), out(all + 3);
    int64_t *const send = in.data() + shift, *const recv = out.data() + 2 - shift;
    const auto fill = [&](auto to_of) {
      for (int block = 0; block < n; ++block)
        for (size_t i = 0; i < count; ++i) send[size_t(block) * count + i] = value(rank, to_of(block), i);
    };
    const auto expect = [&](const int64_t* data, auto from_of, auto to_of) {
      for (int block = 0; block < n; ++block)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(data[size_t(block) * count + i], value(from_of(block), to_of(block), i)) << "block " << block;
    };
    const auto same = [](int block) { return block; };
    const auto zero = [](int) { return 0; };
    const auto me = [rank](int) { return rank; };
    fill(zero);
    ASSERT_EQ(tuttiAllGather(send, recv, count, tuttiInt64, comm, nullptr), tuttiSuccess);
    expect(recv, same, zero);
    const int root = round % n;
    ASSERT_EQ(tuttiGather(send, recv, count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
    if (rank == root) expect(recv, same, zero);
    fill(same);
    ASSERT_EQ(tuttiAlltoAll(send, recv, count, tuttiInt64, comm, nullptr), tuttiSuccess);
    expect(recv, same, me);
    ASSERT_EQ(tuttiReduceScatter(send, recv, count, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], value(n - 1, rank, i));
    ASSERT_EQ(tuttiScatter(send, recv, count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], value(root, rank, i));
    if (round % 2 == 0) continue;
    ASSERT_EQ(tuttiAlltoAll(send, send, count, tuttiInt64, comm, nullptr), tuttiSuccess);
    expect(send, same, me);
    // More than once in a row, where the block lies in the other buffer; the last time in another place.
    for (const int turn : {0, 1, 2}) {
      std::vector<int64_t> moved(all + 3);
      int64_t* const here = turn < 2 ? send : moved.data() + shift;
      const auto refill = [&](auto to_of) {
        fill(to_of);
        std::copy(send, send + all, here);
      };
      refill(zero);
      ASSERT_EQ(tuttiAllGather(here + own_at, here, count, tuttiInt64, comm, nullptr), tuttiSuccess);
      expect(here, same, zero);
      refill(zero);
      ASSERT_EQ(tuttiGather(here + own_at, here, count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
      if (rank == root) expect(here, same, zero);
      refill(same);
      ASSERT_EQ(tuttiReduceScatter(here, here + own_at, count, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(here[own_at + i], value(n - 1, rank, i));
      refill(same);
      ASSERT_EQ(tuttiScatter(here, here + own_at, count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(here[own_at + i], value(root, rank, i));
    }
  }
}

// Calls of all sizes, kinds and roots in turn, so that they drive each other out of the memory of recent ones, and
// large ones so that scratch memory moves under the small ones.
void many_calls(int n, int rank, tuttiComm_t comm) {
  std::vector<int64_t> in(400'000), out(in.size());
  for (int round = 0; round < (test::sanitized ? 9 : 20); ++round) {
    for (const size_t count :
         {size_t{1}, size_t{3}, size_t{0}, size_t{40}, size_t{512}, size_t{513}, size_t{5001}, size_t{8191},
          size_t{8192}, size_t{400'000}}) {
      if (count == 400'000 && round != 7) continue;
      for (size_t i = 0; i < count; ++i) in[i] = int64_t(i) + rank + round;
      ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), count, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], n * (int64_t(i) + round) + n * (n - 1) / 2);
      ASSERT_EQ(tuttiAllReduce(in.data(), in.data(), count, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], int64_t(i) + n - 1 + round);
      const int root = round % n;
      for (size_t i = 0; i < count; ++i) in[i] = int64_t(i) * (rank + 1);
      ASSERT_EQ(tuttiBroadcast(in.data(), out.data(), count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], int64_t(i) * (root + 1));
      ASSERT_EQ(tuttiReduce(in.data(), out.data(), count, tuttiInt64, tuttiMin, root, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; rank == root && i < count; ++i) ASSERT_EQ(out[i], int64_t(i));
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    }
    calls_of_blocks(n, rank, round, comm);
  }
}

const std::vector<int> some_ranks = test::sanitized ? std::vector{1, 2, 5} : std::vector{1, 2, 3, 4, 5};

TEST(Repeats, CallsOfAllSizesInTurnAreRight) {
  for (const char* transport : {"shm", "tcp"})
    for (const int n : some_ranks) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [n](int rank, tuttiComm_t comm) { many_calls(n, rank, comm); });
    }
}

// Every algorithm, as some need scratch memory.
TEST(Repeats, CallsByEveryAlgorithmAreRight) {
  for (const char* algorithm : {"ring", "double_tree", "recursive_doubling", "two_shot", "tree", "hierarchical"}) {
    test::RanksOptions options;
    options.algorithm = algorithm;
    run_threads(3, options, [](int rank, tuttiComm_t comm) { many_calls(3, rank, comm); });
  }
}

// The areas are as long as the blocks of all ranks on one side only.
TEST(Repeats, BlocksThatLieInTheOtherBufferAreStillRefused) {
  run_threads(3, {}, [](int, tuttiComm_t comm) {
    std::array<int32_t, 32> data{};
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(tuttiAllGather(data.data(), data.data() + 8, 4, tuttiInt32, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiReduceScatter(data.data(), data.data() + 12, 4, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess);
    }
    EXPECT_EQ(tuttiAllGather(data.data() + 19, data.data() + 8, 4, tuttiInt32, comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiReduceScatter(data.data(), data.data() + 11, 4, tuttiInt32, tuttiSum, comm, nullptr),
              tuttiInvalidArgument);
  });
}

TEST(Repeats, AMismatchIsToldByBothSides) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in = 1, out = 0;
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
    }
    const tuttiRedOp_t op = rank == 0 ? tuttiSum : tuttiMax;
    EXPECT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, op, comm, nullptr), tuttiMismatch);
    EXPECT_NE(last_error().find("sum"), std::string::npos) << last_error();
    EXPECT_NE(last_error().find("max"), std::string::npos) << last_error();
  });
}

// --- V-forms, whose counts and displacements are compared ----------------------------------------------------------------

// A few cases of each kind in any order, so that some calls are those of last time, some differ in where their blocks lie
// alone, and they drive each other out of the memory of recent ones; each at another place than last time, and now and then
// so large that they are not kept.
void v_forms_again(int n, int rank, tuttiComm_t comm) {
  std::vector<test::VFormCase> cases;
  for (const Collective kind : test::v_forms)
    for (const size_t size_max : {size_t{1}, size_t{20}, size_t{3000}, size_t{30'000}})
      for (const bool dense : {false, true}) {
        test::VFormCase one;
        one.kind = kind;
        one.n = n;
        one.root = int(size_max) % n;
        one.type = DataType::int32;
        one.size_max = size_max;
        one.in_place = dense ? size_max == 20 : size_max == 3000;
        one.dense = dense;
        one.seed = size_max + (dense ? 0 : 7);
        cases.push_back(one);
      }
  std::mt19937 same(unsigned(n) + 5);  // on all ranks
  for (int turn = 0; turn < (test::sanitized ? 60 : 400); ++turn) {
    const test::VFormCase& one = cases[same() % cases.size()];
    for (unsigned repeats = 1 + same() % 3; repeats > 0; --repeats) {
      test::VFormCall on(one, rank);
      const size_t shift = size_t(turn) % 5 * 4;
      std::vector<std::byte> elsewhere(on.all().size() + shift);
      std::copy(on.all().begin(), on.all().end(), elsewhere.begin() + ptrdiff_t(shift));
      ASSERT_EQ(test::call(one, on, comm, nullptr, elsewhere.data() + shift), tuttiSuccess) << last_error();
      std::copy_n(elsewhere.begin() + ptrdiff_t(shift), on.all().size(), on.all().begin());
      ASSERT_EQ(on.wrong(), "");
    }
  }
}

TEST(Repeats, VFormsInTurnAreRight) {
  for (const char* transport : {"shm", "tcp"})
    for (const int n : some_ranks) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [n](int rank, tuttiComm_t comm) { v_forms_again(n, rank, comm); });
    }
}

TEST_F(Repeated, OfAVFormWhatIsWrongIsStillRefused) {
  const size_t four = 4, five = 5, none = 0, later = 2;
  const auto exchange = [&](const void* send, const size_t* sent, void* recv, const size_t* received, const size_t* at = nullptr) {
    return tuttiAlltoAllV(send, sent, nullptr, recv, received, at, tuttiFloat32, comm_, nullptr);
  };
  for (int i = 0; i < 2; ++i) ASSERT_EQ(exchange(in_.data(), &four, out_.data(), &four), tuttiSuccess) << last_error();
  expect_refused(exchange(nullptr, &four, out_.data(), &four), "sendbuff is NULL");
  expect_refused(exchange(in_.data(), &four, nullptr, &four), "recvbuff is NULL");
  expect_refused(exchange(in_.data(), nullptr, out_.data(), &four), "sendcounts is NULL");
  expect_refused(exchange(in_.data(), &four, out_.data(), nullptr), "recvcounts is NULL");
  expect_refused(exchange(in_.data(), &four, out_.data(), &five), "one size");
  expect_refused(exchange(in_.data(), &four, in_.data() + 2, &four), "overlap");
  expect_refused(exchange(in_.data() + 2, &four, in_.data(), &four), "overlap");
  EXPECT_EQ(exchange(in_.data(), &none, out_.data(), &none), tuttiSuccess);
  out_ = {};
  ASSERT_EQ(exchange(in_.data(), &four, out_.data(), &four, &later), tuttiSuccess);
  EXPECT_EQ(out_[1], 0);
  EXPECT_EQ(out_[2], 1);
  ASSERT_EQ(exchange(in_.data(), &four, out_.data(), &four), tuttiSuccess);
  EXPECT_EQ(out_[0], 1) << "the displacement of the call before";
  ASSERT_EQ(exchange(in_.data(), &five, out_.data(), &five), tuttiSuccess);
  EXPECT_EQ(out_[4], 5);
}

TEST_F(Repeated, OfAVFormInPlaceOtherPlacesAreStillRefused) {
  const size_t four = 4;
  const auto gather = [&](const void* send, void* recv) {
    return tuttiAllGatherV(send, 4, recv, &four, nullptr, tuttiFloat32, comm_, nullptr);
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(gather(in_.data(), in_.data()), tuttiSuccess) << last_error();
  expect_refused(gather(in_.data() + 1, in_.data()), "overlap");
  expect_refused(gather(nullptr, in_.data()), "sendbuff is NULL");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(gather(in_.data(), out_.data()), tuttiSuccess) << last_error();
  expect_refused(gather(in_.data(), in_.data() + 3), "overlap");
  EXPECT_EQ(gather(in_.data(), in_.data()), tuttiSuccess);
}

TEST_F(Repeated, OfAVFormAGroupAFinalizeAndAnAbortAreStillSeen) {
  const size_t four = 4;
  const auto exchange = [&] {
    return tuttiAlltoAllV(in_.data(), &four, nullptr, out_.data(), &four, nullptr, tuttiFloat32, comm_, nullptr);
  };
  for (int i = 0; i < 2; ++i) ASSERT_EQ(exchange(), tuttiSuccess);
  out_ = {};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(exchange(), tuttiSuccess);
  EXPECT_EQ(out_[0], 0) << "ran before the group's end";
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
  EXPECT_EQ(out_[0], 1);
  ASSERT_EQ(tuttiCommFinalize(comm_), tuttiSuccess);
  EXPECT_EQ(exchange(), tuttiInvalidUsage);
}

// The sizes of a pair's block travel with its message, so that who has repeated and who has not see each other's. Rank 1 has
// what it wants, and learns of it by its next call.
TEST(Repeats, VFormsThatMismatchAreTold) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    std::array<float, 16> in{}, out{};
    size_t counts[2] = {3, 3};
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(tuttiAlltoAllV(in.data(), counts, nullptr, out.data(), counts, nullptr, tuttiFloat32, comm, nullptr), tuttiSuccess);
    size_t received[2] = {3, 3};
    if (rank == 0) received[1] = 4;
    const tuttiResult_t result =
        tuttiAlltoAllV(in.data(), counts, nullptr, out.data(), received, nullptr, tuttiFloat32, comm, nullptr);
    EXPECT_EQ(rank == 0 || result != tuttiSuccess ? result : tuttiBarrier(comm, nullptr), tuttiMismatch);
    EXPECT_NE(last_error().find("count 4"), std::string::npos) << last_error();
    EXPECT_NE(last_error().find("count 3"), std::string::npos) << last_error();
  });
}

// --- Groups, whose memory and plans a thread keeps -------------------------------------------------------------------

// Sends to the next rank and receives from the one before, in a group or by one call, with a sum and a broadcast between.
void ring_of(int n, int rank, int round, size_t count, int64_t* in, int64_t* out, tuttiComm_t comm) {
  const int next = (rank + 1) % n, before = (rank + n - 1) % n, root = round % n;
  for (size_t i = 0; i < count; ++i) in[i] = int64_t(i) * 3 + rank * 1000 + round;
  std::fill_n(out, count, -1);
  int64_t mine = rank + round, sum = -1, said = rank == root ? round : -1;
  if (round % 3 == 2) {
    ASSERT_EQ(tuttiSendRecv(in, count, next, out, count, before, tuttiInt64, comm, nullptr), tuttiSuccess) << last_error();
  } else {
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiSend(in, count, tuttiInt64, next, comm, nullptr), tuttiSuccess) << last_error();
    if (round % 3 == 1) {
      ASSERT_EQ(tuttiAllReduce(&mine, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess) << last_error();
      ASSERT_EQ(tuttiBroadcast(&said, &said, 1, tuttiInt64, root, comm, nullptr), tuttiSuccess) << last_error();
    }
    ASSERT_EQ(tuttiRecv(out, count, tuttiInt64, before, comm, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << last_error();
    if (round % 3 == 1) {
      ASSERT_EQ(sum, n * (n - 1) / 2 + n * round);
      ASSERT_EQ(said, round);
    }
  }
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], int64_t(i) * 3 + before * 1000 + round) << i << ", round " << round;
}

TEST(Repeats, GroupsOfAllSizesInTurnAreRight) {
  for (const char* transport : {"shm", "tcp"})
    for (const int n : some_ranks) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [n](int rank, tuttiComm_t comm) {
        std::vector<int64_t> in(40000), out(40000), others(40000);
        int round = 0;
        for (const size_t count : {1, 1, 1, 7, 0, 512, 512, 512, 513, 1, 40000, 1, 20000, 20000, 20000, 2, 2, 2})
          for (int i = 0; i < 4; ++i) ring_of(n, rank, round++, count, in.data(), (i < 2 ? out : others).data(), comm);
      });
    }
}

TEST(Repeats, GroupsOfSeveralCommunicatorsAndOfNewOnesAreRight) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    int64_t in[4], out[4];
    for (int round = 0; round < 9; ++round) {
      tuttiComm_t copy = nullptr;
      ASSERT_EQ(tuttiCommDup(comm, &copy, nullptr), tuttiSuccess) << last_error();
      for (int i = 0; i < 6; ++i) ring_of(3, rank, round, 4, in, out, i % 3 == 0 ? comm : copy);
      ASSERT_EQ(tuttiCommDestroy(copy), tuttiSuccess);  // the next one may lie at its place
    }
  });
}

TEST(Repeats, AGroupThatWasRefusedLeavesNothingForTheNext) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in[4], out[4];
    for (int round = 0; round < 12; ++round) {
      ring_of(2, rank, round, 4, in, out, comm);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      EXPECT_EQ(tuttiSend(in, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(tuttiRecv(out, 4, tuttiInt64, 2, comm, nullptr), tuttiInvalidArgument);
      EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    }
  });
}

// What is kept is a send and a receive; what follows are a part of it, more than it, the same twice, and another order.
TEST(Repeats, AGroupThatBeginsLikeTheLastIsAnother) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in[4] = {}, out[4] = {}, more[4] = {};
    const auto send = [&] { ASSERT_EQ(tuttiSend(in, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess); };
    const auto receive = [&](int64_t* to) { ASSERT_EQ(tuttiRecv(to, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess); };
    int64_t sent = 0;
    const auto group = [&](auto... calls) {
      ++sent;
      std::fill_n(in, 4, sent * 2 + rank);
      std::fill_n(out, 4, -1), std::fill_n(more, 4, -1);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      (calls(), ...);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << last_error();
    };
    const auto expect = [&](const int64_t* got) {
      for (int i = 0; i < 4; ++i) ASSERT_EQ(got[i], sent * 2 + 1 - rank);
    };
    const auto to_out = [&] { receive(out); };
    const auto to_more = [&] { receive(more); };
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 2; ++i) group(send, to_out), expect(out);
      group(send);
      group(to_out), --sent, expect(out), ++sent;
      for (int i = 0; i < 2; ++i) group(send, to_out), expect(out);
      group(send, to_out, send, to_more), expect(out), expect(more);
      group(send, to_out), expect(out);
      group(to_out, send), expect(out);
    }
  });
}

TEST(Repeats, OverlappingAreasAreRefusedThoughAGroupHadThem) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t data[8] = {};
    for (int round = 0; round < 4; ++round) {
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiSend(data, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(data + 2, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    }
    EXPECT_EQ(tuttiSendRecv(data, 4, 1 - rank, data + 2, 4, 1 - rank, tuttiInt64, comm, nullptr), tuttiInvalidArgument);
    EXPECT_NE(last_error().find("must be disjoint"), std::string::npos) << last_error();
    for (int round = 0; round < 4; ++round)
      ASSERT_EQ(tuttiSendRecv(data, 4, 1 - rank, data + 4, 4, 1 - rank, tuttiInt64, comm, nullptr), tuttiSuccess);
  });
}

// Rank 0 sends to each of the others, who send back what they got and one more.
void there_and_back(int n, int rank, int64_t number, size_t count, int64_t* data, tuttiComm_t comm) {
  const auto send = [&](int to) { ASSERT_EQ(tuttiSend(data, count, tuttiInt64, to, comm, nullptr), tuttiSuccess); };
  const auto receive = [&](int from) { ASSERT_EQ(tuttiRecv(data, count, tuttiInt64, from, comm, nullptr), tuttiSuccess); };
  if (rank > 0) {
    receive(0);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i]++, number + int64_t(i) + 10 * rank);
    return send(0);
  }
  for (int other = 1; other < n; ++other) {
    for (size_t i = 0; i < count; ++i) data[i] = number + int64_t(i) + 10 * other;
    send(other);
    receive(other);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], number + int64_t(i) + 10 * other + 1);
  }
}

TEST(Repeats, SendsAndReceivesAloneInTurnAreRight) {
  for (const char* transport : {"shm", "tcp"})
    for (int n = 2; n <= 5; ++n) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [n](int rank, tuttiComm_t comm) {
        std::vector<int64_t> one(3000), other(3000);
        int64_t number = 0;
        for (const size_t count : {1, 1, 512, 512, 0, 0, 513, 1, 3000, 3000, 2, 512})
          for (int i = 0; i < 4; ++i) there_and_back(n, rank, number += 100, count, (i < 2 ? one : other).data(), comm);
      });
    }
}

TEST(Repeats, WrongSendsAndReceivesAreStillRefused) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t data[4] = {};
    for (int round = 0; round < 4; ++round) there_and_back(2, rank, round, 4, data, comm);
    for (const int peer : {rank, 2, -1, INT32_MAX, INT32_MIN}) {
      EXPECT_EQ(tuttiSend(data, 4, tuttiInt64, peer, comm, nullptr), tuttiInvalidArgument) << peer;
      EXPECT_EQ(tuttiRecv(data, 4, tuttiInt64, peer, comm, nullptr), tuttiInvalidArgument) << peer;
    }
    EXPECT_EQ(tuttiSend(nullptr, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiRecv(nullptr, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiSend(data, 4, tuttiDataType_t(256 + int(tuttiInt64)), 1 - rank, comm, nullptr), tuttiInvalidArgument);
    for (int round = 0; round < 4; ++round) there_and_back(2, rank, round, 4, data, comm);
  });
}

TEST(Repeats, ASendThatMeetsAShorterReceiveIsTold) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t data[4] = {};
    for (int round = 0; round < 4; ++round) there_and_back(2, rank, round, 4, data, comm);
    if (rank == 0) {
      EXPECT_EQ(tuttiSend(data, 4, tuttiInt64, 1, comm, nullptr), tuttiSuccess);
    } else {
      EXPECT_EQ(tuttiRecv(data, 3, tuttiInt64, 0, comm, nullptr), tuttiMismatch);
      EXPECT_NE(last_error().find("4"), std::string::npos) << last_error();
    }
  });
}

TEST(Repeats, AMismatchInAGroupIsToldByBothSides) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in[4] = {}, out[4] = {};
    for (int round = 0; round < 6; ++round) ring_of(2, rank, 3 * round, 4, in, out, comm);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    EXPECT_EQ(tuttiSend(in, 4, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiRecv(out, 3, tuttiInt64, 1 - rank, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiGroupEnd(), tuttiMismatch);
    EXPECT_NE(last_error().find("4"), std::string::npos) << last_error();
    EXPECT_NE(last_error().find("3"), std::string::npos) << last_error();
  });
}

}  // namespace
}  // namespace tutti
