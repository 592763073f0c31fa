// Which devices a process finds, by what TUTTI_DEVICE says. Each in a process of its own, since the answer stays.
#include "device/platform.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

// What a process with this value finds, in a line.
std::string found_with(const char* value) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TUTTI_DEVICE", value, 1);
    std::string line;
    try {
      const FoundPlatform& found = find_platform();
      line = found.platform == nullptr ? "none: " + found.why_not
                                       : found.platform->name() + std::string(" ") + std::to_string(found.platform->count());
      if (process_platform() != found.platform || &find_platform() != &found) line += ", but not always";
    } catch (const Error& error) {
      line = std::string(phrase(error.code())) + ": " + error.what();
    }
    ::_exit(::write(ends[1], line.data(), line.size()) == ssize_t(line.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  char line[1000] = {};
  const ssize_t bytes = ::read(ends[0], line, sizeof line - 1);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return bytes < 0 ? "" : line;
}

TEST(FindPlatform, GivesWhatIsAskedFor) {
  EXPECT_EQ(found_with("none"), "none: TUTTI_DEVICE is none");
  EXPECT_EQ(found_with("simulated"), "simulated 1");
  EXPECT_EQ(found_with("simulated:devices=3,memory=1M"), "simulated 3");
}

TEST(FindPlatform, RefusesWhatItDoesNotKnow) {
  const std::string unknown = found_with("abacus");
  EXPECT_NE(unknown.find("TUTTI_DEVICE=abacus is not auto, none, cuda or simulated"), std::string::npos) << unknown;
  const std::string option = found_with("simulated:wheels=3");
  EXPECT_NE(option.find("wheels=3"), std::string::npos) << option;
}

TEST(FindPlatform, SaysWhyThereIsNoCuda) {
  if (::access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(found_with("auto"), "none: no /dev/nvidiactl");
  const std::string asked_for = found_with("cuda");
  EXPECT_NE(asked_for.find("TUTTI_DEVICE=cuda, but: "), std::string::npos) << asked_for;
  EXPECT_GT(asked_for.size(), asked_for.find("but: ") + 6) << "a reason";
}

}  // namespace
}  // namespace tutti
