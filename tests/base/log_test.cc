// Log lines: the level filters, lines go to the file whole and name who wrote them.
#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

TEST(Log, LinesAtOrAboveTheLevelGoToTheFileWithTheirWriter) {
  const std::string path = ::testing::TempDir() + "tutti_log_test.txt";
  ::setenv("TUTTI_LOG", "info", 1);
  ::setenv("TUTTI_LOG_FILE", path.c_str(), 1);
  {
    const Log log("rank 3 of 8");
    log.info("shown");
    log.debug("hidden");
  }
  ::unsetenv("TUTTI_LOG");
  ::unsetenv("TUTTI_LOG_FILE");
  std::ifstream file(path);
  std::string line, rest;
  std::getline(file, line);
  EXPECT_TRUE(line.ends_with("tutti info [rank 3 of 8] shown")) << line;
  EXPECT_FALSE(std::getline(file, rest)) << rest;
  std::remove(path.c_str());
}

TEST(Log, AnUnknownLevelIsRefused) {
  ::setenv("TUTTI_LOG", "loud", 1);
  EXPECT_THROW(Log("x"), Error);
  ::unsetenv("TUTTI_LOG");
}

}  // namespace
}  // namespace tutti
