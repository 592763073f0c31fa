// Types and operators of the caller's own: what they compute, how long they live, and what is refused.
#include "communicator/operators.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "base/error.h"
#include "communicator/ranks.h"
#include "sanitizer.h"
#include "reduce/reference.h"

namespace tutti {
namespace {

using test::RanksOptions;
using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

#define ASSERT_OK(call) ASSERT_EQ(call, tuttiSuccess) << last_error()

class Refused : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(tuttiCommInitAll(&comm_, 1, nullptr));
    ASSERT_OK(tuttiCommInitAll(&other_, 1, nullptr));
  }
  void TearDown() override {
    EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(other_), tuttiSuccess);
  }
  void expect(tuttiResult_t result, tuttiResult_t code, const std::string& words) {
    EXPECT_EQ(result, code);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  }
  tuttiResult_t reduce(tuttiDataType_t type, tuttiRedOp_t op) {
    return tuttiAllReduce(in_, out_, 1, type, op, comm_, nullptr);
  }
  tuttiComm_t comm_ = nullptr, other_ = nullptr;
  float two_ = 2, in_[8] = {3}, out_[8] = {};
};

void nothing(const void*, void*, size_t, void*) {}

TEST_F(Refused, AreTypesWithoutSizeOrTooLarge) {
  tuttiDataType_t type;
  expect(tuttiTypeCreate(nullptr, 8), tuttiInvalidArgument, "type is NULL");
  expect(tuttiTypeCreate(&type, 0), tuttiInvalidArgument, "element_bytes is 0");
  expect(tuttiTypeCreate(&type, TUTTI_ELEMENT_BYTES_MAX + 1), tuttiInvalidArgument, "element_bytes is 4097");
  ASSERT_OK(tuttiTypeCreate(&type, TUTTI_ELEMENT_BYTES_MAX));
  EXPECT_EQ(tuttiTypeSize(type), size_t{TUTTI_ELEMENT_BYTES_MAX});
  EXPECT_EQ(tuttiTypeSize(tuttiDataType_t(int(type) + 1)), 0u);
}

TEST_F(Refused, AreOperatorsWithoutTheirParts) {
  tuttiRedOp_t op;
  expect(tuttiRedOpCreate(nullptr, nothing, tuttiInt32, 1, nullptr, comm_), tuttiInvalidArgument, "op is NULL");
  expect(tuttiRedOpCreate(&op, nullptr, tuttiInt32, 1, nullptr, comm_), tuttiInvalidArgument, "function is NULL");
  expect(tuttiRedOpCreate(&op, nothing, tuttiDataType_t(99), 1, nullptr, comm_), tuttiInvalidArgument,
         "datatype is 99");
  expect(tuttiRedOpCreate(&op, nothing, tuttiInt32, 1, nullptr, nullptr), tuttiInvalidArgument, "comm is NULL");
  const auto premulsum = [&](const void* scalar, tuttiDataType_t type, int residence) {
    return tuttiRedOpCreatePreMulSum(&op, scalar, type, tuttiScalarResidence_t(residence), comm_);
  };
  expect(premulsum(nullptr, tuttiFloat32, 1), tuttiInvalidArgument, "scalar is NULL");
  expect(premulsum(&two_, tuttiBool, 1), tuttiInvalidArgument, "op is premulsum (12), which datatype bool");
  expect(premulsum(&two_, tuttiInt32Int32, 0), tuttiInvalidArgument, "which datatype int32_int32 does not have");
  expect(premulsum(&two_, tuttiFloat32, 2), tuttiInvalidArgument, "residence is 2");
  expect(tuttiRedOpCreatePreMulSum(nullptr, &two_, tuttiFloat32, tuttiScalarHostMemory, comm_), tuttiInvalidArgument,
         "op is NULL");
}

TEST_F(Refused, AreOperatorsThatAreDestroyedOrOfAnotherCommunicatorOrType) {
  tuttiRedOp_t op, foreign;
  ASSERT_OK(tuttiRedOpCreatePreMulSum(&op, &two_, tuttiFloat32, tuttiScalarHostImmediate, comm_));
  ASSERT_OK(tuttiRedOpCreate(&foreign, nothing, tuttiFloat32, 1, nullptr, other_));
  ASSERT_OK(reduce(tuttiFloat32, op));
  EXPECT_EQ(out_[0], 6);
  expect(reduce(tuttiFloat64, op), tuttiInvalidArgument, "made for float32, but datatype is float64");
  expect(reduce(tuttiFloat32, foreign), tuttiInvalidArgument, "an operator of another communicator");
  expect(tuttiRedOpDestroy(foreign, comm_), tuttiInvalidArgument, "an operator of another communicator");
  expect(tuttiRedOpDestroy(tuttiSum, comm_), tuttiInvalidArgument, "op is 0, no operator that was made");
  ASSERT_OK(tuttiRedOpDestroy(op, comm_));
  expect(reduce(tuttiFloat32, op), tuttiInvalidArgument, "an operator that was destroyed");
  expect(tuttiRedOpDestroy(op, comm_), tuttiInvalidArgument, "an operator that was destroyed");
  ASSERT_OK(tuttiRedOpDestroy(foreign, other_));
  // What made operators are inside is no operator outside.
  for (const int inside : {12, 13, 14})
    expect(reduce(tuttiFloat32, tuttiRedOp_t(inside)), tuttiInvalidArgument, "op is");
}

TEST_F(Refused, IsOneOperatorTooMany) {
  std::vector<tuttiRedOp_t> ops(Operators::made_max);
  for (tuttiRedOp_t& op : ops) ASSERT_OK(tuttiRedOpCreate(&op, nothing, tuttiInt32, 1, nullptr, comm_));
  tuttiRedOp_t more;
  expect(tuttiRedOpCreate(&more, nothing, tuttiInt32, 1, nullptr, comm_), tuttiInvalidUsage, "256 operators");
  ASSERT_OK(tuttiRedOpDestroy(ops[7], comm_));
  ASSERT_OK(tuttiRedOpCreate(&more, nothing, tuttiInt32, 1, nullptr, comm_));
  EXPECT_NE(more, ops[7]);
  expect(tuttiRedOpDestroy(ops[7], comm_), tuttiInvalidArgument, "destroyed");
}

// --- What they compute

// Text of at most 15 characters: joining is associative but does not commute.
struct Text {
  uint8_t length = 0;
  char letters[15] = {};

  std::string text() const { return std::string(letters, length); }
};
Text text_of(const std::string& letters) {
  Text text;
  text.length = uint8_t(letters.copy(text.letters, sizeof text.letters));
  return text;
}

// On every transport and algorithm, operands stand in the order of ranks.
TEST(MadeOperators, ThatDoNotCommuteKeepTheOrderOfRanks) {
  for (const char* transport : {"shm", "tcp"})
    for (const char* algorithm : {"", "ring", "double_tree", "chain", "circulant"})
      for (const int n : {1, 2, 3, 5, 6, 7}) {
        if (test::sanitized && n != 5) continue;
        RanksOptions options;
        options.transport = transport;
        options.algorithm = *algorithm == 0 ? nullptr : algorithm;
        run_threads(n, options, [n](int rank, tuttiComm_t handle) {
          tuttiDataType_t type;
          tuttiRedOp_t op;
          ASSERT_OK(tuttiTypeCreate(&type, sizeof(Text)));
          size_t joined = 0;
          const auto join = [](const void* in, void* inout, size_t count, void* context) {
            for (size_t i = 0; i < count; ++i) {
              Text* const right = static_cast<Text*>(inout) + i;
              *right = text_of(static_cast<const Text*>(in)[i].text() + right->text());
            }
            *static_cast<size_t*>(context) += count;
          };
          ASSERT_OK(tuttiRedOpCreate(&op, join, type, 0, &joined, handle));
          const std::string wanted = std::string("abcdefghi").substr(0, size_t(n));
          for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{test::sanitized ? 3001 : 30001}}) {
            const std::vector<Text> input(count * size_t(n), text_of(std::string(1, char('a' + rank))));
            std::vector<Text> output(count), in_place = input;
            const auto right = [&](const Text& text) { return text.text() == wanted; };
            ASSERT_OK(tuttiAllReduce(input.data(), output.data(), count, type, op, handle, nullptr));
            ASSERT_TRUE(std::all_of(output.begin(), output.end(), right));
            ASSERT_OK(tuttiAllReduce(in_place.data(), in_place.data(), count, type, op, handle, nullptr));
            ASSERT_TRUE(std::all_of(in_place.begin(), in_place.begin() + long(count), right));
            output.assign(count, {});
            ASSERT_OK(tuttiReduceScatter(input.data(), output.data(), count, type, op, handle, nullptr));
            ASSERT_TRUE(std::all_of(output.begin(), output.end(), right));
            for (int root = 0; root < n; ++root) {
              output.assign(count, {});
              ASSERT_OK(tuttiReduce(input.data(), output.data(), count, type, op, root, handle, nullptr));
              ASSERT_TRUE(rank != root || std::all_of(output.begin(), output.end(), right)) << "root " << root;
            }
          }
          EXPECT_EQ(joined > 0, n > 1);
        });
      }
}

TEST(MadeOperators, WorkOnTuttisTypesAndOnTheLargestElements) {
  struct Large {
    uint32_t values[1024];
  };
  static_assert(sizeof(Large) == TUTTI_ELEMENT_BYTES_MAX);
  for (const int n : {1, 2, 3, 4})
    run_threads(n, {}, [n](int rank, tuttiComm_t handle) {
      tuttiRedOp_t op;
      // The greatest absolute value.
      const auto farther = [](const void* in, void* inout, size_t count, void*) {
        for (size_t i = 0; i < count; ++i) {
          const float left = static_cast<const float*>(in)[i];
          float& right = static_cast<float*>(inout)[i];
          if (std::abs(left) > std::abs(right)) right = left;
        }
      };
      ASSERT_OK(tuttiRedOpCreate(&op, farther, tuttiFloat32, 1, nullptr, handle));
      std::vector<float> data(70001, -float(rank));
      ASSERT_OK(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat32, op, handle, nullptr));
      EXPECT_EQ(data, std::vector<float>(data.size(), -float(n - 1)));

      tuttiDataType_t type;
      ASSERT_OK(tuttiTypeCreate(&type, sizeof(Large)));
      const auto add = [](const void* in, void* inout, size_t count, void*) {
        for (size_t i = 0; i < count * 1024; ++i)
          static_cast<uint32_t*>(inout)[i] += static_cast<const uint32_t*>(in)[i];
      };
      ASSERT_OK(tuttiRedOpCreate(&op, add, type, 1, nullptr, handle));
      std::vector<Large> large(300), gathered(size_t(n) * 300);
      for (Large& element : large) std::fill_n(element.values, 1024, uint32_t(rank + 1));
      ASSERT_OK(tuttiAllGather(large.data(), gathered.data(), large.size(), type, handle, nullptr));
      for (size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i].values[1023], uint32_t(i / 300 + 1));
      ASSERT_OK(tuttiAllReduce(large.data(), large.data(), large.size(), type, op, handle, nullptr));
      for (const Large& element : large) ASSERT_EQ(element.values[77], uint32_t(n * (n + 1) / 2));
      ASSERT_OK(tuttiAlltoAll(gathered.data(), gathered.data(), 300, type, handle, nullptr));
      for (size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i].values[5], uint32_t(rank + 1));
    });
}

TEST(MadeOperators, OfDifferentKindsOrSizesAreAMismatchThatShowsBoth) {
  const auto expect = [](int n, const std::function<tuttiResult_t(int, tuttiComm_t)>& call, const char* a,
                         const char* b) {
    run_threads(n, {}, [&](int rank, tuttiComm_t comm) {
      EXPECT_EQ(call(rank, comm), tuttiMismatch);
      const std::string sentence = tuttiGetLastError(comm);
      EXPECT_NE(sentence.find(a), std::string::npos) << sentence;
      EXPECT_NE(sentence.find(b), std::string::npos) << sentence;
    });
  };
  expect(2, [](int rank, tuttiComm_t comm) {
    tuttiRedOp_t op;
    tuttiRedOpCreate(&op, nothing, tuttiInt32, rank, nullptr, comm);
    int in = 0, out = 0;
    return tuttiAllReduce(&in, &out, 1, tuttiInt32, op, comm, nullptr);
  }, "int32, the caller's operator)", "int32, the caller's operator in order)");
  expect(2, [](int rank, tuttiComm_t comm) {
    tuttiRedOp_t op = tuttiSum;
    const int one = 1;
    if (rank == 0) tuttiRedOpCreatePreMulSum(&op, &one, tuttiInt32, tuttiScalarHostImmediate, comm);
    int in = 0, out = 0;
    return tuttiAllReduce(&in, &out, 1, tuttiInt32, op, comm, nullptr);
  }, "int32, premulsum)", "int32, sum)");
  expect(2, [](int rank, tuttiComm_t comm) {
    tuttiDataType_t type;
    tuttiTypeCreate(&type, size_t(3 + rank));
    char in[4] = {}, out[8] = {};
    return tuttiAllGather(in, out, 1, type, comm, nullptr);
  }, "elements of 3 bytes", "elements of 4 bytes");
}

// The position of the least and greatest of all ranks' elements; ties go to the least index.
TEST(Locations, OfTheExtremesAreFoundAcrossRanks) {
  for (const int n : {1, 2, 3, 7})
    run_threads(n, {}, [n](int rank, tuttiComm_t handle) {
      std::vector<tuttiFloat32Int32_t> input, least(500), greatest(500);
      for (size_t i = 0; i < 500; ++i) input.push_back({float((size_t(rank) * 3 + i) % 4), 100 - rank});
      ASSERT_OK(tuttiAllReduce(input.data(), least.data(), 500, tuttiFloat32Int32, tuttiMinloc, handle, nullptr));
      ASSERT_OK(tuttiAllReduce(input.data(), greatest.data(), 500, tuttiFloat32Int32, tuttiMaxloc, handle, nullptr));
      for (size_t i = 0; i < 500; ++i) {
        tuttiFloat32Int32_t low{9, 0}, high{-9, 0};
        for (int r = 0; r < n; ++r) {  // the highest rank has the least index
          const float value = float((size_t(r) * 3 + i) % 4);
          if (value <= low.value) low = {value, 100 - r};
          if (value >= high.value) high = {value, 100 - r};
        }
        ASSERT_EQ(least[i].value, low.value);
        ASSERT_EQ(least[i].index, low.index);
        ASSERT_EQ(greatest[i].value, high.value);
        ASSERT_EQ(greatest[i].index, high.index);
      }
    });
}

TEST(OneRank, GetsTruthValuesToo) {
  run_threads(1, {}, [](int, tuttiComm_t comm) {
    std::array<int, 3> data = {0, 5, -1}, out{};
    ASSERT_OK(tuttiAllReduce(data.data(), out.data(), 3, tuttiInt32, tuttiLand, comm, nullptr));
    EXPECT_EQ(out, (std::array<int, 3>{0, 1, 1}));
    ASSERT_OK(tuttiAllReduce(data.data(), data.data(), 3, tuttiInt32, tuttiLor, comm, nullptr));
    EXPECT_EQ(data, (std::array<int, 3>{0, 1, 1}));
  });
}

TEST(Cpp, OperatorsAreLambdas) {
  struct Sums {
    double sum, squares;
  };
  std::vector<v0::Communicator> ranks = v0::Communicator::local(3);
  std::vector<std::jthread> threads;
  for (v0::Communicator& comm : ranks)
    threads.emplace_back([&comm] {
      const double rank = comm.rank();
      std::vector<Sums> data(10, Sums{rank, rank * rank});
      const v0::Operator add = comm.make_operator<Sums>(
          [](const Sums& a, const Sums& b) { return Sums{a.sum + b.sum, a.squares + b.squares}; });
      comm.all_reduce(std::span(data), add);
      EXPECT_EQ(data[9].squares, 5);
      std::vector<Sums> all(30);
      comm.all_gather(std::span<const Sums>(data), std::span(all));
      EXPECT_EQ(all[29].sum, 3);
      std::vector<int16_t> shorts(5, 1);
      v0::Operator scaled = comm.premultiplied_sum(int16_t(comm.rank()));
      comm.all_reduce(std::span(shorts), scaled);
      EXPECT_EQ(shorts[4], 3);
      std::vector<std::complex<float>> complex(4, {0, 1});
      comm.all_reduce(std::span(complex), tuttiProd);
      EXPECT_EQ(complex[0], std::complex<float>(0, -1));
      std::array<bool, 2> flags = {comm.rank() == 1, false};
      comm.all_reduce(std::span<bool>(flags), tuttiLor);
      EXPECT_TRUE(flags[0] && !flags[1]);
    });
}

}  // namespace
}  // namespace tutti
