// New communicators from old ones: what the C interface refuses, and the C++ interface over it.
#include <array>
#include <string>

#include "communicator/ranks.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

void expect_refused(tuttiResult_t result, tuttiResult_t code, const char* words) {
  EXPECT_EQ(result, code);
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

TEST(Split, WrongInputIsRefusedAndNothingIsMade) {
  run_threads(1, {}, [](int, tuttiComm_t comm) {
    tuttiComm_t made = comm;
    expect_refused(tuttiCommSplit(comm, -2, 0, &made, nullptr), tuttiInvalidArgument, "color is -2");
    EXPECT_EQ(made, nullptr);
    expect_refused(tuttiCommSplit(comm, 0, 0, nullptr, nullptr), tuttiInvalidArgument, "newcomm is NULL");
    expect_refused(tuttiCommSplit(nullptr, 0, 0, &made, nullptr), tuttiInvalidArgument, "comm is NULL");
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeout_ms = 0;
    expect_refused(tuttiCommDup(comm, &made, &config), tuttiInvalidArgument, "timeout_ms is 0");
  });
}

TEST(Shrink, WrongListsAreRefused) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t made = nullptr;
    const int self = rank, outside = 2, other = 1 - rank;
    const std::array<int, 2> twice = {other, other};
    const auto shrink = [&](const int* list, int count, int flags = TUTTI_SHRINK_DEFAULT) {
      return tuttiCommShrink(comm, list, count, &made, nullptr, flags);
    };
    expect_refused(shrink(&self, 1), tuttiInvalidArgument, "the calling rank");
    expect_refused(shrink(&outside, 1), tuttiInvalidArgument, "excludeRanksList[0] is 2");
    expect_refused(shrink(twice.data(), 2), tuttiInvalidArgument, "excludeRanksList[1]");
    expect_refused(shrink(nullptr, 1), tuttiInvalidArgument, "excludeRanksList is NULL");
    expect_refused(shrink(&other, -1), tuttiInvalidArgument, "excludeRanksCount is -1");
    expect_refused(shrink(&other, 1, 5), tuttiInvalidArgument, "shrinkFlags is 5");
    EXPECT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
  });
}

TEST(Cpp, CommunicatorsComeFromCommunicators) {
  tutti::Communicator all = std::move(tutti::Communicator::local(1)[0]);
  EXPECT_EQ(all.duplicate().size(), 1);
  EXPECT_EQ(all.split(3, 0)->rank(), 0);
  EXPECT_FALSE(all.split(TUTTI_SPLIT_NOCOLOR, 0).has_value());
  EXPECT_EQ(all.shrink({}).size(), 1);
  EXPECT_EQ(all.shrink_to_living().size(), 1);
  EXPECT_THROW(all.replace(), tutti::Failure);
  EXPECT_THROW(all.grow(1), tutti::Failure);
}

}  // namespace
}  // namespace tutti
