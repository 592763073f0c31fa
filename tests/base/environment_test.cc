// The environment table: order, parsing, unknown names.
#include "base/environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

class Environment : public ::testing::Test {
 protected:
  void set(const char* name, const char* value) {
    ::setenv(name, value, 1);
    names_.push_back(name);
  }
  void TearDown() override {
    for (const char* name : names_) ::unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST_F(Environment, TheTableIsInAlphabeticalOrderAndEveryRowSaysWhatItDoes) {
  std::string_view last;
  for (const Variable& v : environment_table()) {
    EXPECT_LT(last, v.name);
    EXPECT_TRUE(v.sentence.ends_with('.')) << v.name;
    last = v.name;
  }
}

TEST_F(Environment, SizesAreReadAsAPersonWritesThem) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64k"), 65536u);
  EXPECT_EQ(parse_bytes("1M"), 1048576u);
  EXPECT_EQ(parse_bytes("1MiB"), 1048576u);
  EXPECT_EQ(parse_bytes("2GB"), 2147483648u);
  for (const char* wrong : {"", "K", "1Q", "1KK", "-1", "1.5M", "99999999999999999999", "18446744073709551615K"})
    EXPECT_FALSE(parse_bytes(wrong)) << wrong;
}

TEST_F(Environment, AWrongValueIsRefusedWithItsNameAndValue) {
  set("TUTTI_TIMEOUT_MS", "12x");
  try {
    environment_integer("TUTTI_TIMEOUT_MS");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_usage);
    EXPECT_STREQ(error.what(), "environment variable TUTTI_TIMEOUT_MS=12x is not an integer");
  }
}

TEST_F(Environment, AnUnsetVariableHasItsDefault) {
  EXPECT_EQ(environment_bytes("TUTTI_SHM_SLOT_BYTES"), 256u * 1024);
  EXPECT_FALSE(environment_text("TUTTI_ALGO"));
}

TEST_F(Environment, AnUnknownNameIsReportedWithTheNearestKnownOne) {
  set("TUTTI_ALGOO", "ring");
  set("TUTTI_TEST_SEEDS", "1");  // of the project's own tests
  const auto unknown = unknown_environment();
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_EQ(unknown[0].name, "TUTTI_ALGOO");
  EXPECT_EQ(unknown[0].nearest, "TUTTI_ALGO");
}

}  // namespace
}  // namespace tutti
