// How ranks of one host tell each other of memory: mailboxes, and what is found through them.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "memory/shared_memory.h"
#include "transport/shm/shm_lending.h"
#include "transport/shm/shm_packet.h"

namespace tutti {
namespace {

// Two ranks of different processes, as far as they can tell.
struct Pair {
  ShmBorrower borrower;
  ShmLender lender{Fd(::dup(borrower.mailbox_fd())), 3};

  const std::byte* find(const LentRegion& region, uint64_t offset, size_t bytes) {
    return borrower.find(3, {region.number, offset, nullptr}, bytes);
  }
};

TEST(ShmLending, ASliceIsFoundAtItsPlaceInAnotherMapping) {
  const SharedRegion region(7, 1 << 20, false);
  Pair pair;
  ASSERT_TRUE(pair.lender.tell(region.lent()));
  ASSERT_TRUE(pair.lender.tell(region.lent()));  // once is enough
  std::strcpy(reinterpret_cast<char*>(region.data()) + 5000, "lent");
  const std::byte* const found = pair.find(region.lent(), 5000, 5);
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found, region.data() + 5000);
  EXPECT_STREQ(reinterpret_cast<const char*>(found), "lent");
  std::strcpy(reinterpret_cast<char*>(region.data()) + 5000, "more");
  EXPECT_STREQ(reinterpret_cast<const char*>(found), "more");
}

TEST(ShmLending, WhatLiesOutsideOrWasNeverToldIsNotFound) {
  const SharedRegion region(7, 4096, false), other(8, 4096, false);
  Pair pair;
  ASSERT_TRUE(pair.lender.tell(region.lent()));
  EXPECT_NE(pair.find(region.lent(), 4095, 1), nullptr);
  EXPECT_NE(pair.find(region.lent(), 4096, 0), nullptr);
  for (const uint64_t offset : {uint64_t{4096}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_EQ(pair.find(region.lent(), offset, 1), nullptr);
    EXPECT_EQ(pair.borrower.error_number(), EFAULT);
  }
  EXPECT_EQ(pair.find(region.lent(), 1, 4096), nullptr);
  EXPECT_EQ(pair.find(other.lent(), 0, 1), nullptr);
  EXPECT_EQ(pair.borrower.error_number(), EAGAIN);
  EXPECT_EQ(pair.borrower.find(4, {7, 0, nullptr}, 1), nullptr) << "another rank's region of that number";
}

TEST(ShmLending, AFileThatCouldShrinkIsNotMapped) {
  const SharedRegion region(7, 4096, false);
  LentRegion wrong = region.lent();
  wrong.file_bytes = 8192;
  Pair pair;
  ASSERT_TRUE(pair.lender.tell(wrong));
  EXPECT_EQ(pair.find(wrong, 0, 1), nullptr);
  EXPECT_EQ(pair.borrower.error_number(), EBADF);
}

TEST(ShmPacket, BringsItsBytesAndCopiesOfItsDescriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  const Fd here(ends[0]), there(ends[1]);
  std::vector<Fd> fds;
  bool lost = true;
  uint64_t number = 0;
  const auto bytes = std::as_writable_bytes(std::span(&number, 1));
  EXPECT_EQ(receive_with_fds(there.get(), bytes, fds, lost), -1);
  EXPECT_EQ(errno, EAGAIN);
  const uint64_t sent = 77;
  const std::array<int, 3> given = {here.get(), there.get(), here.get()};
  ASSERT_EQ(send_with_fds(here.get(), std::as_bytes(std::span(&sent, 1)), given), 8);
  ASSERT_EQ(receive_with_fds(there.get(), bytes, fds, lost), 8);
  EXPECT_EQ(number, 77u);
  EXPECT_FALSE(lost);
  ASSERT_EQ(fds.size(), 3u);
  for (const Fd& fd : fds) EXPECT_TRUE(fd.valid() && fd.get() != here.get() && fd.get() != there.get());
}

TEST(ShmLending, AFullMailboxIsNoErrorAndTheRegionIsToldOfLater) {
  const SharedRegion region(1, 4096, false);
  Pair pair;
  LentRegion named = region.lent();
  const auto tell_many = [&](uint64_t first, int n) {
    int told = 0;
    for (named.number = first; told < n && pair.lender.tell(named); ++named.number) ++told;
    return told;
  };
  const int fit = tell_many(1, 5000);
  EXPECT_GE(fit, 1);
  EXPECT_LE(fit, 1024) << "a peer is told of so many regions at most";
  if (fit == 1024) return;
  const uint64_t refused = named.number;
  named.number = 1;
  ASSERT_NE(pair.find(named, 0, 1), nullptr);  // takes the first packet, so there is room
  named.number = refused;
  ASSERT_TRUE(pair.lender.tell(named));
  EXPECT_NE(pair.find(named, 0, 1), nullptr);
}

}  // namespace
}  // namespace tutti
