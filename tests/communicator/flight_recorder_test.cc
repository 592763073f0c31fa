// The flight recorder: what it keeps, when it writes, and that a trace tells who waited for whom.
#include "communicator/flight_recorder.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/signature.h"
#include "communicator/ranks.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

std::string last_error() { return tuttiGetLastError(nullptr); }

class FlightRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tutti-recorder-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    ::unsetenv("TUTTI_TRACE");
    ::unsetenv("TUTTI_RECORD");
    ::unsetenv("TUTTI_RECORD_SIGNAL");
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  static Json read(const std::string& file) {
    std::ifstream input(file);
    EXPECT_TRUE(input.good()) << file;
    return Json::parse(input, nullptr, false);
  }
  std::filesystem::path folder_;
};

uint64_t signature_of(uint64_t count) {
  return pack({Collective::all_reduce, DataType::int8, ReduceOp::sum, 0, count});
}

TEST_F(FlightRecorderTest, EqualCallsInARowAreOneRunAndTheLastRunsAreKept) {
  FlightRecorder recorder({});
  for (int i = 0; i < 5; ++i) recorder.again(signature_of(7));
  for (uint64_t count = 0; count < 3000; ++count) recorder.again(signature_of(count));
  for (int i = 0; i < 1'000'000; ++i) recorder.again(signature_of(1));
  recorder.write_record(path("a"), "it \"failed\"\n");
  const Json record = read(path("a"));
  EXPECT_EQ(record["failure"], "it \"failed\"\n");
  ASSERT_EQ(record["calls"].size(), 1024u);
  EXPECT_EQ(record["calls"].back()["call"], "all_reduce(count 1, int8, sum)");
  EXPECT_EQ(record["calls"].back()["times"], 1'000'000);
  EXPECT_EQ(record["calls"][1022]["call"], "all_reduce(count 2999, int8, sum)");
  EXPECT_EQ(record["calls"][0]["call"], "all_reduce(count 1977, int8, sum)");
}

TEST_F(FlightRecorderTest, CollectivesHaveNumbersWhateverIsSentBetweenThem) {
  const auto sent = [](uint64_t count) { return pack({Collective::send_recv, DataType::int8, ReduceOp::sum, 0, count}); };
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    FlightRecorder recorder({});
    std::vector<uint64_t> collectives;
    size_t oldest = 0;
    std::vector<size_t> run_begins;  // collectives before each run
    uint64_t last = 0;
    for (unsigned call = 0; call < 200 * (seed + 1); ++call) {
      const uint64_t signature = random() % 3 == 0 ? sent(random() % 2) : signature_of(random() % 4);
      if (signature != last) run_begins.push_back(collectives.size());
      last = signature;
      recorder.again(signature);
      if (is_collective(signature)) collectives.push_back(signature);
      if (run_begins.size() > 1023) oldest = run_begins[run_begins.size() - 1023];
      ASSERT_EQ(recorder.collectives(), collectives.size());
      const size_t some = oldest + random() % (collectives.size() - oldest + 2);
      for (const size_t number : {size_t{0}, oldest, some, collectives.size() - 1, collectives.size()}) {
        const bool known = number >= oldest && number < collectives.size();
        ASSERT_EQ(recorder.collective(number), known ? std::optional(collectives[number]) : std::nullopt) << number;
      }
    }
    EXPECT_EQ(run_begins.size() > 1023, oldest > 0);
  }
}

// What another thread is told of a number is right or nothing, also while runs take the places of others.
TEST_F(FlightRecorderTest, CollectivesAreReadWhileOthersBegin) {
  FlightRecorder recorder({});
  constexpr uint64_t answers_wanted = 20'000;
  std::atomic<uint64_t> begun{0}, answers{0};
  const auto call_of = [](uint64_t number) { return signature_of(number / 3); };  // in runs of three
  std::jthread reader([&] {
    std::mt19937_64 random(1);
    while (answers < answers_wanted) {
      const uint64_t last = begun;
      const uint64_t number = last - std::min(last, random() % 3200);
      const std::optional<uint64_t> call = recorder.collective(number);
      if (!call) continue;
      ++answers;
      EXPECT_EQ(*call, call_of(number)) << number;
    }
  });
  for (uint64_t number = 0; answers < answers_wanted; ++number) {
    recorder.again(call_of(number));
    begun = number;
  }
}

TEST_F(FlightRecorderTest, AFileThatCannotBeWrittenIsNamed) {
  test::run_threads(1, {}, [](int, tuttiComm_t comm) {
    EXPECT_EQ(tuttiCommWriteRecord(comm, "/nowhere/at/all"), tuttiSystemError);
    EXPECT_NE(last_error().find("/nowhere/at/all"), std::string::npos) << last_error();
    EXPECT_EQ(tuttiCommWriteRecord(comm, nullptr), tuttiInvalidArgument);
  });
}

TEST_F(FlightRecorderTest, ARankTellsOnRequestWhatItHasCalled) {
  test::run_threads(2, {}, [this](int rank, tuttiComm_t comm) {
    float data[4] = {};
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(tuttiAllReduce(data, data, 4, tuttiFloat32, tuttiMax, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiBroadcast(data, data, 2, tuttiFloat32, 1, comm, nullptr), tuttiSuccess);
    const std::string file = path(std::to_string(rank));
    ASSERT_EQ(tuttiCommWriteRecord(comm, file.c_str()), tuttiSuccess) << last_error();
    const Json record = read(file);
    EXPECT_EQ(record["rank"], rank);
    EXPECT_EQ(record["failure"], "");
    ASSERT_EQ(record["calls"].size(), 2u);
    EXPECT_EQ(record["calls"][0]["call"], "all_reduce(count 4, float32, max)");
    EXPECT_EQ(record["calls"][0]["times"], 10);
    EXPECT_EQ(record["calls"][1]["call"], "broadcast(count 2, float32, root 1)");
  });
}

TEST_F(FlightRecorderTest, AFailureWritesTheRecordOfEveryRank) {
  ::setenv("TUTTI_RECORD", path("flight").c_str(), 1);
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int value = 1, sum = 0;
    ASSERT_EQ(tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiAllReduce(&value, &sum, 1, tuttiInt32, rank == 0 ? tuttiSum : tuttiMin, comm, nullptr),
              tuttiMismatch);
  });
  for (const char* rank : {"0", "1"}) {
    const Json record = read(path(std::string("flight.") + rank + ".json"));
    EXPECT_NE(record["failure"].get<std::string>().find("min"), std::string::npos);
    EXPECT_EQ(record["calls"].back()["call"],
              *rank == '0' ? "all_reduce(count 1, int32, sum)" : "all_reduce(count 1, int32, min)");
  }
}

TEST_F(FlightRecorderTest, ASignalMakesEveryCommunicatorWriteItsRecordWhileACallHangs) {
  ::setenv("TUTTI_RECORD", path("asked").c_str(), 1);
  ::setenv("TUTTI_RECORD_SIGNAL", "USR2", 1);
  test::run_processes(2, {}, [this](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommDup(comm, &other, nullptr), tuttiSuccess) << last_error();
    int value = 1;
    if (rank == 1) {  // both communicators of rank 0 have written: the signal came while it waited for this rank
      for (const char* file : {"asked.0.json", "asked.0-2.json"}) {
        Json record;
        for (int i = 0; i < 10'000 && !record.contains("calls"); ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (std::filesystem::exists(path(file))) record = read(path(file));
        }
        ASSERT_TRUE(record.contains("calls")) << file;
        EXPECT_EQ(record["failure"], "");
      }
    } else {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ::kill(::getpid(), SIGUSR2);
      }).detach();
    }
    ASSERT_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, other, nullptr), tuttiSuccess) << last_error();
    EXPECT_EQ(value, 2);
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  });
}

TEST_F(FlightRecorderTest, ASignalThatCannotBeWatchedIsAnErrorThatNamesIt) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  ::setenv("TUTTI_RECORD_SIGNAL", "KILL", 1);
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiInvalidUsage);
  EXPECT_NE(last_error().find("TUTTI_RECORD_SIGNAL=KILL needs TUTTI_RECORD"), std::string::npos) << last_error();
  ::setenv("TUTTI_RECORD", path("never").c_str(), 1);
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  EXPECT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiInvalidUsage);
  EXPECT_NE(last_error().find("\"KILL\""), std::string::npos) << last_error();
}

TEST_F(FlightRecorderTest, ATraceTellsWhoWaitedForWhom) {
  ::setenv("TUTTI_TRACE", path("trace").c_str(), 1);
  for (int job = 0; job < 2; ++job)
    test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
      std::vector<double> data(50'000);
      for (const size_t count : {size_t{1}, data.size()}) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ASSERT_EQ(tuttiAllReduce(data.data(), data.data(), count, tuttiFloat64, tuttiSum, comm, nullptr), tuttiSuccess);
      }
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiSend(data.data(), 10, tuttiFloat64, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(data.data() + 20, 10, tuttiFloat64, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    });
  EXPECT_TRUE(std::filesystem::exists(path("trace.1-2.json"))) << "the second communicator's own file";
  const Json trace = read(path("trace.0.json"));
  int calls = 0;
  double waited_us = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    if (event["cat"] == "call") {
      EXPECT_EQ(event["args"]["sequence"], calls++);
    } else {
      EXPECT_EQ(event["args"]["peer"], 1);
      waited_us += event["dur"].get<double>();
    }
  }
  EXPECT_EQ(calls, 4);
  EXPECT_GE(waited_us, 40'000) << "rank 1 came 30 ms late twice";
}

}  // namespace
}  // namespace tutti
