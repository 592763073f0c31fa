// Calls with options: what they change, on whom they agree, and what is refused.
#include "communicator/c_api_operations.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "communicator/ranks.h"

namespace tutti {
namespace {

using test::RanksOptions;
using test::run_threads;

std::string last_error(tuttiComm_t comm = nullptr) { return tuttiGetLastError(comm); }

#define ASSERT_OK(call) ASSERT_EQ(call, tuttiSuccess) << last_error()

class OptionsOfACall : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(tuttiCommInitAll(&comm_, 1, nullptr)); }
  void TearDown() override {
    ASSERT_OK(tuttiBarrier(comm_, nullptr)) << "refused calls have done nothing";
    EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
  }
  void expect(tuttiResult_t result, const std::string& words) {
    EXPECT_EQ(result, tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  }
  tuttiResult_t reduce(const tuttiOptions_t& options, tuttiRedOp_t op = tuttiSum) {
    return tuttiAllReduceWith(in_, out_, 8, tuttiFloat32, op, comm_, nullptr, &options);
  }
  tuttiComm_t comm_ = nullptr;
  float in_[8] = {3, 4}, out_[8] = {};
};

TEST_F(OptionsOfACall, MayBeNoneOrAllAtTheirInitialValues) {
  const tuttiOptions_t initial = TUTTI_OPTIONS_INITIALIZER;
  for (const tuttiOptions_t* options : {static_cast<const tuttiOptions_t*>(nullptr), &initial}) {
    ASSERT_OK(tuttiAllReduceWith(in_, out_, 8, tuttiFloat32, tuttiSum, comm_, nullptr, options));
    ASSERT_OK(tuttiReduceWith(in_, out_, 8, tuttiFloat32, tuttiSum, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiBroadcastWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiAllGatherWith(in_, out_, 8, tuttiFloat32, comm_, nullptr, options));
    ASSERT_OK(tuttiReduceScatterWith(in_, out_, 8, tuttiFloat32, tuttiSum, comm_, nullptr, options));
    ASSERT_OK(tuttiGatherWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiScatterWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiAlltoAllWith(in_, out_, 8, tuttiFloat32, comm_, nullptr, options));
    ASSERT_OK(tuttiBarrierWith(comm_, nullptr, options));
    ASSERT_OK(tuttiSendRecvWith(in_, 8, 0, out_, 8, 0, tuttiFloat32, comm_, nullptr, options));
    ASSERT_OK(tuttiGroupStart());
    ASSERT_OK(tuttiSendWith(in_, 8, tuttiFloat32, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiRecvWith(out_, 8, tuttiFloat32, 0, comm_, nullptr, options));
    ASSERT_OK(tuttiGroupEnd());
    EXPECT_EQ(out_[1], 4);
  }
}

TEST_F(OptionsOfACall, AreRefusedByNameAndValue) {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.size = 3;
  expect(reduce(options), "options->size is 3; start from TUTTI_OPTIONS_INITIALIZER");
  options = TUTTI_OPTIONS_INITIALIZER;
  options.deadline_ms = 0;
  expect(reduce(options), "options->deadline_ms is 0, not above 0");
  options.deadline_ms = -7;
  expect(tuttiBarrierWith(comm_, nullptr, &options), "options->deadline_ms is -7");
  options = TUTTI_OPTIONS_INITIALIZER;
  options.determinism = 9;
  expect(reduce(options), "options->determinism is 9");
  options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "rnig";
  expect(reduce(options), "options->algorithm \"rnig\" is none of all_reduce: there are one_shot, ");
  expect(tuttiBroadcastWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, &options),
         "options->algorithm \"rnig\" is none of broadcast: there are direct, binomial");
  options.algorithm = "direct";
  expect(tuttiSendRecvWith(in_, 8, 0, out_, 8, 0, tuttiFloat32, comm_, nullptr, &options),
         "options->algorithm is \"direct\", but point to point has none");
  options.algorithm = "ring";
  options.determinism = tuttiDeterminismStrict;
  expect(reduce(options), "options->algorithm \"ring\" is none of all_reduce that adds as this call's determinism asks: "
                          "there are one_shot, by_core, two_shot");
  ASSERT_OK(reduce(options, tuttiMax)) << "whose bits do not depend on the order";
}

TEST_F(OptionsOfACall, AreRefusedWhereInvariantSumsAreNot) {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.determinism = tuttiDeterminismInvariant;
  ASSERT_OK(reduce(options));
  ASSERT_OK(reduce(options, tuttiAvg));
  ASSERT_OK(reduce(options, tuttiMin));
  ASSERT_OK(tuttiBroadcastWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, &options));
  expect(reduce(options, tuttiProd), "op is prod on float32, whose result depends on the order of the inputs, but "
                                     "determinism is invariant (options->determinism)");
  const auto nothing = [](const void*, void*, size_t, void*) {};
  tuttiRedOp_t own;
  ASSERT_OK(tuttiRedOpCreate(&own, nothing, tuttiFloat32, 1, nullptr, comm_));
  expect(reduce(options, own), "op is the caller's operator on float32, whose result depends on the order");
  options.inputs = 2;
  expect(reduce(options, own), "op is the caller's operator on float32, whose result depends on the order");
  ASSERT_OK(tuttiRedOpDestroy(own, comm_));
}

// What exact sums have no room for.
void expect_inputs_refused(int ranks, int inputs, const std::string& words) {
  run_threads(ranks, {}, [&](int, tuttiComm_t comm) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.determinism = tuttiDeterminismInvariant;
    options.inputs = size_t(inputs);
    const std::vector<float> in(size_t(inputs), 1);
    float out = 5;
    EXPECT_EQ(tuttiAllReduceWith(in.data(), &out, 1, tuttiFloat32, tuttiSum, comm, nullptr, &options),
              tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
    EXPECT_EQ(out, 5);
    ASSERT_OK(tuttiBarrier(comm, nullptr));
  });
}

TEST(OptionsInputs, MoreThanExactSumsCountAreRefused) {
  expect_inputs_refused(17, 4095, "options->inputs is 4095, which times 17 ranks is more than 65536 vectors");
}

TEST(OptionsInputs, MoreThanAMessageHoldsAreRefused) {
  ::setenv("TUTTI_SHM_SLOT_BYTES", "8K", 1);
  expect_inputs_refused(2, 4000, "options->inputs is 4000, which times 4 bytes of float32 is more than a message of this "
                                 "communicator holds, 8192 bytes");
  ::unsetenv("TUTTI_SHM_SLOT_BYTES");
}

TEST_F(OptionsOfACall, AreRefusedWhereThereIsNothingToAddSeveralInputsTo) {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  for (const size_t inputs : {size_t{0}, size_t{4096}, ~size_t{0}}) {
    options.inputs = inputs;
    expect(reduce(options), "options->inputs is " + std::to_string(inputs) + ", outside 1 to 4095");
  }
  options.inputs = 2;
  expect(reduce(options), "options->inputs is 2, which needs determinism invariant, but it is bitwise");
  options.determinism = tuttiDeterminismStrict;
  expect(reduce(options), "options->inputs is 2, which needs determinism invariant, but it is strict");
  options.determinism = tuttiDeterminismInvariant;
  expect(tuttiBroadcastWith(in_, out_, 8, tuttiFloat32, 0, comm_, nullptr, &options),
         "options->inputs is 2, but broadcast has nothing to add");
  expect(tuttiBarrierWith(comm_, nullptr, &options), "options->inputs is 2, but barrier has nothing to add");
  expect(tuttiSendRecvWith(in_, 8, 0, out_, 8, 0, tuttiFloat32, comm_, nullptr, &options),
         "options->inputs is 2, but send_recv has nothing to add");
  expect(tuttiAllReduceWith(in_, in_ + 6, 4, tuttiFloat32, tuttiSum, comm_, nullptr, &options), "(32 bytes) and recvbuff");
  expect(tuttiAllReduceWith(in_, out_, ~size_t{0} / 8, tuttiFloat32, tuttiSum, comm_, nullptr, &options),
         "which times 4 bytes of float32 and 2 inputs exceeds 2^63");
  const size_t counts[] = {4};
  expect(tuttiReduceScatterVWith(in_, counts, nullptr, in_ + 4, 4, tuttiFloat32, tuttiSum, comm_, nullptr, &options),
         "(32 bytes) and recvbuff");
  ASSERT_OK(tuttiAllReduceWith(in_, in_, 4, tuttiFloat32, tuttiSum, comm_, nullptr, &options));
  EXPECT_EQ(in_[0], 3) << "the second vector is zeros";
}

TEST_F(OptionsOfACall, MayComeFromAnotherVersion) {
  struct {
    tuttiOptions_t known = TUTTI_OPTIONS_INITIALIZER;
    char later[64] = {};
  } longer;
  longer.known.size = sizeof longer;
  ASSERT_OK(reduce(longer.known));
  tuttiOptions_t shorter = TUTTI_OPTIONS_INITIALIZER;
  shorter.size = offsetof(tuttiOptions_t, algorithm);
  shorter.algorithm = reinterpret_cast<const char*>(1);  // beyond what the caller knows: must not be read
  ASSERT_OK(reduce(shorter));
}

TEST_F(OptionsOfACall, ReadAsWellInCpp) {
  std::vector<v0::Communicator> ranks = v0::Communicator::local(1);
  v0::Stream stream;
  v0::Options options;
  options.algorithm = "tree";
  options.deadline_ms = 5000;
  std::vector<float> data = {1, 2}, sum(2);
  ranks[0].all_reduce(std::span<const float>(data), std::span<float>(sum), tuttiSum, options);
  EXPECT_EQ(sum, data);
  ranks[0].all_reduce(std::span<float>(sum), tuttiSum, {&stream, &options});
  ranks[0].barrier(&stream);
  stream.synchronize();
  EXPECT_EQ(sum, data);
  options.algorithm = "no_such";
  EXPECT_THROW(ranks[0].barrier(options), v0::Failure);
}

TEST_F(OptionsOfACall, TakeInputsOfSeveralVectorsInCpp) {
  std::vector<v0::Communicator> ranks = v0::Communicator::local(1);
  v0::Options options;
  options.determinism = tuttiDeterminismInvariant;
  options.inputs = 3;
  const std::vector<float> data = {1e30f, 1, 2, 2, -1e30f, 3};
  const std::span<const float> input(data);
  const std::vector<float> expected = {2, 6};
  std::vector<float> sum(2);
  const std::span<float> output(sum);
  const auto expect_sum = [&] {
    EXPECT_EQ(sum, expected);
    sum = {0, 0};
  };
  ranks[0].all_reduce(input, output, tuttiSum, options);
  expect_sum();
  ranks[0].reduce(input, output, tuttiSum, 0, options);
  expect_sum();
  ranks[0].scan(input, output, tuttiSum, options);
  expect_sum();
  ranks[0].reduce_scatter(input, output, tuttiSum, options);
  expect_sum();
  const size_t counts[] = {2};
  ranks[0].reduce_scatter_v(input, std::span<const size_t>(counts), {}, output, tuttiSum, options);
  expect_sum();
  ranks[0].exscan(input, output, tuttiSum, options);
  EXPECT_EQ(sum, (std::vector<float>{0, 0})) << "of no rank";
  EXPECT_THROW(ranks[0].all_reduce(std::span<const float>(sum), output, tuttiSum, options), v0::Failure);
  std::vector<float> in_place = data;
  ranks[0].all_reduce(std::span<float>(in_place), tuttiSum, options);
  EXPECT_EQ(in_place, (std::vector<float>{2, 6, 2, 2, -1e30f, 3}));
}

// What ranks were told, and how long it took the slowest.
class Told {
 public:
  void add(tuttiResult_t result, tuttiComm_t comm) {
    const std::lock_guard lock(mutex_);
    results_.push_back(result);
    sentences_.push_back(last_error(comm));
  }
  void expect(tuttiResult_t result, const std::string& words) const {
    for (size_t i = 0; i < results_.size(); ++i) {
      EXPECT_EQ(results_[i], result) << sentences_[i];
      EXPECT_NE(sentences_[i].find(words), std::string::npos) << "no \"" << words << "\" in: " << sentences_[i];
      EXPECT_EQ(sentences_[i], sentences_[0]);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<tuttiResult_t> results_;
  std::vector<std::string> sentences_;
};

// Each rank calls with what `set` makes of its options.
template <class Set>
void expect_all_told(const RanksOptions& ranks, const Set& set, tuttiResult_t result, const std::string& words) {
  Told told;
  run_threads(2, ranks, [&](int rank, tuttiComm_t comm) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    set(rank, options);
    std::array<float, 8> in = {1, 2, 3, 4};
    std::array<float, 4> out{};
    const auto call = [&] {
      return tuttiAllReduceWith(in.data(), out.data(), out.size(), tuttiFloat32, tuttiSum, comm, nullptr, &options);
    };
    tuttiResult_t got = call();
    for (int i = 0; i < 50 && got == tuttiSuccess; ++i) got = call();  // who is ahead learns by a later call
    told.add(got, comm);
  });
  told.expect(result, words);
}

class Agreement : public ::testing::TestWithParam<const char*> {
 protected:
  RanksOptions options() const {
    RanksOptions options;
    options.transport = GetParam();
    return options;
  }
};

TEST_P(Agreement, OnAnotherDeterminismIsOneErrorThatShowsBoth) {
  expect_all_told(
      options(),
      [](int rank, tuttiOptions_t& o) { o.determinism = rank == 0 ? tuttiDeterminismStrict : tuttiDeterminismBitwise; },
      tuttiMismatch, "called all_reduce(count 4, float32, sum, strict) while rank 1");
}

TEST_P(Agreement, OnAnotherNumberOfInputsIsOneErrorThatShowsBoth) {
  expect_all_told(
      options(),
      [](int rank, tuttiOptions_t& o) {
        o.determinism = tuttiDeterminismInvariant;
        o.inputs = rank == 0 ? 1 : 2;
      },
      tuttiMismatch, "called all_reduce(count 4, float32, sum, invariant) while rank 1");
}

TEST_P(Agreement, OnAnotherAlgorithmIsOneErrorThatShowsBoth) {
  expect_all_told(
      options(), [](int rank, tuttiOptions_t& o) { o.algorithm = rank == 0 ? "ring" : "tree"; }, tuttiMismatch,
      "called all_reduce(count 4, float32, sum, algorithm ring) while rank 1");
}

TEST_P(Agreement, CoversWhatTheCommunicatorAsksForAnyway) {
  RanksOptions ranks = options();
  run_threads(2, ranks, [](int rank, tuttiComm_t comm) {
    // Bitwise is what the communicator has, so one rank may say it and the other not; deadlines may differ.
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    if (rank == 0) options.determinism = tuttiDeterminismBitwise;
    if (rank == 1) options.deadline_ms = 10000;
    float value = 1;
    ASSERT_OK(tuttiAllReduceWith(&value, &value, 1, tuttiFloat32, tuttiSum, comm, nullptr, rank == 0 ? &options : nullptr));
    ASSERT_OK(tuttiAllReduceWith(&value, &value, 1, tuttiFloat32, tuttiSum, comm, nullptr, &options));
    EXPECT_EQ(value, 4);
  });
}

TEST_P(Agreement, HoldsInGroupsOnStreamsAndPrepared) {
  run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    tuttiOptions_t tree = TUTTI_OPTIONS_INITIALIZER, strict = TUTTI_OPTIONS_INITIALIZER;
    tree.algorithm = "tree";
    strict.determinism = tuttiDeterminismStrict;
    std::array<float, 3> a{float(rank), 1, 2}, b{}, c{};
    const auto calls = [&](tuttiStream_t stream) {
      ASSERT_OK(tuttiGroupStart());
      ASSERT_OK(tuttiAllReduceWith(a.data(), b.data(), 3, tuttiFloat32, tuttiSum, comm, stream, &tree));
      ASSERT_OK(tuttiAllReduceWith(a.data(), c.data(), 3, tuttiFloat32, tuttiSum, comm, stream, &strict));
      ASSERT_OK(tuttiGroupEnd());
    };
    const auto expect = [&] {
      EXPECT_EQ(b[0] + b[1] + b[2], 12);
      EXPECT_EQ(b, c);
      b = c = {};
    };
    calls(nullptr);
    expect();
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    calls(stream);
    ASSERT_OK(tuttiStreamSynchronize(stream));
    expect();
    tuttiPrepared_t prepared = nullptr;
    ASSERT_OK(tuttiPrepareStart());
    calls(nullptr);
    ASSERT_OK(tuttiPrepareEnd(&prepared));
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(tuttiPreparedStart(prepared, i == 1 ? stream : nullptr));
      ASSERT_OK(tuttiStreamSynchronize(stream));
      expect();
    }
    ASSERT_OK(tuttiPreparedDestroy(prepared));
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// Rank 1 comes too late. The sentence shows that the call ran by the algorithm that it named.
TEST_P(Agreement, OnADeadlineIsNotNeeded) {
  for (const bool grouped : {false, true}) {
    Told told;
    const auto start = std::chrono::steady_clock::now();
    run_threads(2, options(), [&](int rank, tuttiComm_t comm) {
      float value = 1;
      tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
      options.algorithm = "double_tree";
      if (rank == 0) options.deadline_ms = 150;
      tuttiResult_t result = tuttiSuccess;
      if (grouped) {
        ASSERT_OK(tuttiGroupStart());
      }
      if (rank == 0) result = tuttiAllReduceWith(&value, &value, 1, tuttiFloat32, tuttiSum, comm, nullptr, &options);
      if (grouped) result = tuttiGroupEnd();
      while (rank == 1 && tuttiCommGetAsyncError(comm, &result) == tuttiSuccess && result == tuttiSuccess) {
      }
      told.add(result, comm);
    });
    told.expect(tuttiTimeout, "waited 150 ms in all_reduce(count 1, float32, sum, algorithm double_tree) (double_tree, ");
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(std::chrono::duration<double>(took).count(), 15) << "the communicator's deadline is 20 s";
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Agreement, ::testing::Values("shm", "tcp"));

// A call waits as long as it asks for, though the communicator's deadline is shorter.
TEST(Deadlines, OfACallMayBeLongerThanTheCommunicators) {
  RanksOptions ranks;
  ranks.timeout_ms = 1000;
  run_threads(2, ranks, [](int rank, tuttiComm_t comm) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.deadline_ms = 20000;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ASSERT_OK(tuttiBarrierWith(comm, nullptr, &options));
  });
}

TEST(Determinism, IsASettingOfTheCommunicatorAndOfTheEnvironment) {
  tuttiUniqueId id;
  tuttiComm_t comm = nullptr;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  ASSERT_OK(tuttiGetUniqueId(&id));
  config.determinism = 5;
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
  EXPECT_NE(last_error().find("config->determinism is 5"), std::string::npos) << last_error();
  ASSERT_EQ(::setenv("TUTTI_DETERMINISM", "strikt", 1), 0);
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, nullptr), tuttiInvalidUsage);
  EXPECT_NE(last_error().find("TUTTI_DETERMINISM=strikt"), std::string::npos) << last_error();
  const auto runs = [&] {
    const char* name = nullptr;
    tuttiConfig_t ring = TUTTI_CONFIG_INITIALIZER;
    ring.algorithm = "ring";
    EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &ring), tuttiSuccess) << last_error();
    EXPECT_EQ(tuttiCommAlgorithm(comm, "all_reduce", 1 << 20, &name), tuttiSuccess);
    const std::string algorithm = name;
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    return algorithm;
  };
  ASSERT_EQ(::setenv("TUTTI_DETERMINISM", "bitwise", 1), 0);
  EXPECT_EQ(runs(), "ring");
  ASSERT_EQ(::setenv("TUTTI_DETERMINISM", "strict", 1), 0);
  ASSERT_OK(tuttiGetUniqueId(&id));
  EXPECT_NE(runs(), "ring");
  ASSERT_EQ(::setenv("TUTTI_DETERMINISM", "invariant", 1), 0);
  ASSERT_OK(tuttiGetUniqueId(&id));
  EXPECT_NE(runs(), "ring");
  ::unsetenv("TUTTI_DETERMINISM");
}

// What the setting cannot keep is refused, and a call may ask for less.
TEST(Determinism, OfTheCommunicatorRefusesWhatItCannotKeep) {
  RanksOptions ranks;
  ranks.determinism = tuttiDeterminismInvariant;
  run_threads(2, ranks, [](int, tuttiComm_t comm) {
    float value = 3;
    EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiProd, comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(last_error(),
              "op is prod on float32, whose result depends on the order of the inputs, but determinism is invariant (of "
              "the communicator; options->determinism may ask for less)");
    tuttiOptions_t strict = TUTTI_OPTIONS_INITIALIZER;
    strict.determinism = tuttiDeterminismStrict;
    ASSERT_OK(tuttiAllReduceWith(&value, &value, 1, tuttiFloat32, tuttiProd, comm, nullptr, &strict));
    EXPECT_EQ(value, 9);
    int32_t whole = 3;
    ASSERT_OK(tuttiAllReduce(&whole, &whole, 1, tuttiInt32, tuttiProd, comm, nullptr));
    EXPECT_EQ(whole, 9);
  });
}

// Both ranks of a job hear these words where they would join.
void expect_joining_refused(const std::function<void(int rank, tuttiConfig_t&)>& configure, const std::vector<std::string>& words) {
  tuttiUniqueId id;
  ASSERT_OK(tuttiGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.timeout_ms = 10000;
      configure(rank, config);
      tuttiComm_t comm = nullptr;
      EXPECT_EQ(tuttiCommInitRankConfig(&comm, 2, id, rank, &config), tuttiInvalidUsage);
      for (const std::string& word : words) EXPECT_NE(last_error().find(word), std::string::npos) << last_error();
    });
}

TEST(Determinism, MustBeTheSameSettingOnAllRanks) {
  expect_joining_refused([](int rank, tuttiConfig_t& config) { config.determinism = rank; },
                         {"determinism=bitwise, rank 1"});
}

// A device of that name there is nowhere, whether or not this machine has RDMA.
TEST(Transports, ThatReachNobodySayWhy) {
  ASSERT_EQ(::setenv("TUTTI_IB_HCA", "no_such_device", 1), 0);
  expect_joining_refused([](int, tuttiConfig_t& config) { config.transport = "verbs"; },
                         {"no allowed transport (verbs) reaches rank ", ": not verbs, since "});
  ::unsetenv("TUTTI_IB_HCA");
}

}  // namespace
}  // namespace tutti
