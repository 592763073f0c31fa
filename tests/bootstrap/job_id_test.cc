// Job ids as bytes, keys, and what is refused.
#include <array>

#include <gtest/gtest.h>

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"

namespace tutti {
namespace {

JobId sample() {
  JobId id;
  for (size_t i = 0; i < id.key.size(); ++i) id.key[i] = static_cast<unsigned char>(i * 7);
  for (const char* text : {"192.0.2.1", "fd00::1", "127.0.0.1"}) id.addresses.push_back(resolve(text, 4711).front());
  id.addresses[1].scope = 3;
  id.port_count = 16;
  return id;
}

TEST(JobId, ComesBackFromItsBytes) {
  std::array<char, 128> bytes{};
  encode(sample(), bytes);
  const JobId id = decode(bytes);
  EXPECT_EQ(id.key, sample().key);
  EXPECT_EQ(id.port_count, 16);
  ASSERT_EQ(id.addresses.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(describe(id.addresses[i]), describe(sample().addresses[i]));
  EXPECT_EQ(id.addresses[1].scope, 3u);
}

TEST(JobId, AnyChangedBitIsRefused) {
  std::array<char, 128> bytes{};
  encode(sample(), bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::array<char, 128> changed = bytes;
    changed[bit / 8] = char(changed[bit / 8] ^ (1 << (bit % 8)));
    try {
      decode(changed);
      FAIL() << "bit " << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
    }
  }
}

TEST(JobId, BytesThatWereNeverAnIdAreRefused) {
  EXPECT_THROW(decode(std::array<char, 128>{}), Error);
}

TEST(Key, FollowsFromTheTextAlone) {
  EXPECT_EQ(derive_key("a"), derive_key("a"));
  EXPECT_NE(derive_key("a"), derive_key("b"));
  EXPECT_NE(derive_key(""), Key{});
}

TEST(AgreedPlace, KnowsItsPorts) {
  const JobId id = agreed_meeting_place("127.0.0.1", 29500, derive_key("x"));
  EXPECT_EQ(id.port_count, meeting_ports);
  EXPECT_EQ(describe(id.addresses.at(0)), "127.0.0.1:29500");
  EXPECT_THROW(agreed_meeting_place("no such host.", 1, Key{}), Error);
}

}  // namespace
}  // namespace tutti
