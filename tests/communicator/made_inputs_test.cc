// Inputs that are multiplied by each rank's scalar first: what is computed from them, and how long the scalar is read.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/tutti.h>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::run_threads;

#define ASSERT_OK(call) ASSERT_EQ(call, tuttiSuccess) << tuttiGetLastError(nullptr)

template <class T>
std::vector<T> values(int rank, size_t count) {
  std::vector<T> result;
  for (size_t i = 0; i < count; ++i) result.push_back(T((size_t(rank) * 7 + i) % 5));
  return result;
}

template <class T>
void check_premultiplied(int n, int rank, tuttiComm_t handle, tuttiDataType_t type) {
  const T scalar = T(rank + 1);
  tuttiRedOp_t op;
  ASSERT_OK(tuttiRedOpCreatePreMulSum(&op, &scalar, type, tuttiScalarHostImmediate, handle));
  for (const size_t count : {size_t{0}, size_t{1}, size_t{33}, size_t{5000}, size_t{100001}}) {
    const std::vector<T> input = values<T>(rank, count * size_t(n));
    const auto expected = [&](size_t i) {
      T sum = 0;
      for (int r = 0; r < n; ++r) sum = T(sum + T(r + 1) * T((size_t(r) * 7 + i) % 5));
      return sum;
    };
    std::vector<T> output(count), in_place = input;
    ASSERT_OK(tuttiAllReduce(input.data(), output.data(), count, type, op, handle, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], expected(i)) << i;
    ASSERT_OK(tuttiAllReduce(in_place.data(), in_place.data(), count, type, op, handle, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(in_place[i], expected(i)) << i;
    for (int root = 0; root < n; ++root) {
      output.assign(count, 0);
      ASSERT_OK(
          tuttiReduce(input.data(), rank == root ? output.data() : nullptr, count, type, op, root, handle, nullptr));
      for (size_t i = 0; rank == root && i < count; ++i) ASSERT_EQ(output[i], expected(i)) << i;
    }
    const size_t block = size_t(rank) * count;
    in_place = input;
    ASSERT_OK(tuttiReduceScatter(input.data(), output.data(), count, type, op, handle, nullptr));
    ASSERT_OK(tuttiReduceScatter(in_place.data(), in_place.data() + block, count, type, op, handle, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], expected(block + i)) << i;
    for (size_t i = 0; i < in_place.size(); ++i)
      ASSERT_EQ(in_place[i], i >= block && i < block + count ? expected(i) : input[i]) << i;
    ASSERT_EQ(input, values<T>(rank, input.size()));
  }
  ASSERT_OK(tuttiRedOpDestroy(op, handle));
}

TEST(PreMulSum, MultipliesEachRanksInputByItsOwnScalarFirst) {
  for (const int n : {1, 2, 3, 5})
    run_threads(n, {}, [n](int rank, tuttiComm_t comm) {
      check_premultiplied<float>(n, rank, comm, tuttiFloat32);
      check_premultiplied<uint8_t>(n, rank, comm, tuttiUint8);
      check_premultiplied<int64_t>(n, rank, comm, tuttiInt64);
    });
}

// Large calls multiply tile by tile: on every transport, several channels, and where each rank's memory is read by others.
TEST(PreMulSum, LargeInputsAreMultipliedOncePartByPart) {
  struct Way {
    const char* transport;
    int channels;
    bool shared;
  };
  for (const Way& way : {Way{"shm", 1, false}, Way{"shm", 1, true}, Way{"shm", 3, true}, Way{"tcp", 2, false}})
    for (const int n : {2, 3}) {
      const size_t block = test::sanitized ? 200'001 : 700'001, count = block * size_t(n);
      test::RanksOptions options;
      options.transport = way.transport;
      options.channels = way.channels;
      run_threads(n, options, [&](int rank, tuttiComm_t comm) {
        const float scalar = float(rank + 2);
        tuttiRedOp_t op;
        ASSERT_OK(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat32, tuttiScalarHostImmediate, comm));
        void *memory = nullptr, *second = nullptr;
        std::vector<float> input(count), ordinary(count);
        if (way.shared) {
          ASSERT_OK(tuttiMemAlloc(&memory, count * sizeof(float)));
          ASSERT_OK(tuttiMemAlloc(&second, count * sizeof(float)));
        }
        float* const send = way.shared ? static_cast<float*>(memory) : input.data();
        float* const recv = way.shared ? static_cast<float*>(second) : ordinary.data();
        const auto fill = [&] {
          for (size_t i = 0; i < count; ++i) send[i] = float((size_t(rank) * 7 + i) % 5);
        };
        const auto wrong = [&](const float* got, size_t first, size_t elements) {
          size_t different = 0;
          for (size_t i = first; i < first + elements; ++i) {
            float sum = 0;
            for (int r = 0; r < n; ++r) sum += float(r + 2) * float((size_t(r) * 7 + i) % 5);
            different += got[i - first] != sum;
          }
          return different;
        };
        const size_t own = size_t(rank) * block;
        fill();
        for (int again = 0; again < 2; ++again) {
          ASSERT_OK(tuttiAllReduce(send, recv, count, tuttiFloat32, op, comm, nullptr));
          EXPECT_EQ(wrong(recv, 0, count), 0u);
          ASSERT_OK(tuttiReduceScatter(send, recv, block, tuttiFloat32, op, comm, nullptr));
          EXPECT_EQ(wrong(recv, own, block), 0u);
          ASSERT_OK(tuttiReduce(send, recv, count, tuttiFloat32, op, again, comm, nullptr));
          EXPECT_EQ(rank == again ? wrong(recv, 0, count) : 0, 0u);
        }
        ASSERT_OK(tuttiReduceScatter(send, send + own, block, tuttiFloat32, op, comm, nullptr));
        EXPECT_EQ(wrong(send + own, own, block), 0u);
        fill();
        ASSERT_OK(tuttiAllReduce(send, send, count, tuttiFloat32, op, comm, nullptr));
        EXPECT_EQ(wrong(send, 0, count), 0u);
        ASSERT_OK(tuttiRedOpDestroy(op, comm));
        ASSERT_OK(tuttiMemFree(memory));
        ASSERT_OK(tuttiMemFree(second));
      });
    }
}

TEST(PreMulSum, ReadsHostMemoryAtEachCallAndImmediatesOnce) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    double scalar = 2;
    tuttiRedOp_t kept, read;
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&kept, &scalar, tuttiFloat64, tuttiScalarHostImmediate, comm));
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&read, &scalar, tuttiFloat64, tuttiScalarHostMemory, comm));
    const double input = rank;
    for (const double now : {3.0, 5.0}) {
      scalar = now;
      double output = 0;
      ASSERT_OK(tuttiAllReduce(&input, &output, 1, tuttiFloat64, kept, comm, nullptr));
      EXPECT_EQ(output, 6);
      ASSERT_OK(tuttiAllReduce(&input, &output, 1, tuttiFloat64, read, comm, nullptr));
      EXPECT_EQ(output, 3 * now);
    }
  });
}

TEST(PreMulSum, SeveralInAGroupAndOnStreamsOutliveTheirDestruction) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    const std::vector<int> input(1000, rank);
    std::vector<int> first(1000), second(1000), third(334);
    const int two = 2, three = 3;
    tuttiRedOp_t twice, thrice;
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&twice, &two, tuttiInt32, tuttiScalarHostImmediate, comm));
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&thrice, &three, tuttiInt32, tuttiScalarHostImmediate, comm));
    tuttiStream_t stream;
    ASSERT_OK(tuttiStreamCreate(&stream));
    for (const tuttiStream_t where : {tuttiStream_t{}, stream}) {
      ASSERT_OK(tuttiGroupStart());
      ASSERT_OK(tuttiAllReduce(input.data(), first.data(), 1000, tuttiInt32, twice, comm, where));
      ASSERT_OK(tuttiReduceScatter(input.data(), third.data(), 333, tuttiInt32, twice, comm, where));
      ASSERT_OK(tuttiReduce(input.data(), second.data(), 1000, tuttiInt32, thrice, 1, comm, where));
      ASSERT_OK(tuttiGroupEnd());
      if (where != nullptr) {
        ASSERT_OK(tuttiRedOpDestroy(twice, comm));
        ASSERT_OK(tuttiRedOpDestroy(thrice, comm));
        ASSERT_OK(tuttiStreamSynchronize(stream));
      }
      EXPECT_EQ(first[999], 6);
      EXPECT_EQ(third[332], 6);
      EXPECT_TRUE(rank != 1 || second[999] == 9);
    }
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

TEST(PreMulSum, MultipliesAtEachStartOfAPreparedCall) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    int64_t scalar = 0;
    tuttiRedOp_t op;
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiInt64, tuttiScalarHostMemory, comm));
    std::vector<int64_t> input(600), whole(600), block(200);
    tuttiPrepared_t prepared;
    ASSERT_OK(tuttiPrepareStart());
    ASSERT_OK(tuttiAllReduce(input.data(), whole.data(), 600, tuttiInt64, op, comm, nullptr));
    ASSERT_OK(tuttiReduceScatter(input.data(), block.data(), 200, tuttiInt64, op, comm, nullptr));
    ASSERT_OK(tuttiPrepareEnd(&prepared));
    ASSERT_OK(tuttiRedOpDestroy(op, comm));
    for (scalar = 1; scalar < 5; ++scalar) {
      std::fill(input.begin(), input.end(), rank * 10 + scalar);
      ASSERT_OK(tuttiPreparedStart(prepared, nullptr));
      EXPECT_EQ(whole, std::vector<int64_t>(600, (30 + 3 * scalar) * scalar));
      EXPECT_EQ(block, std::vector<int64_t>(200, (30 + 3 * scalar) * scalar));
    }
    ASSERT_OK(tuttiPreparedDestroy(prepared));
  });
}

}  // namespace
}  // namespace tutti
