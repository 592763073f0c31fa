// Messages and frames: they come back as they were; what is cut short or absurd is refused.
#include "bootstrap/wire.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <thread>

#include <gtest/gtest.h>

#include "bootstrap/address.h"
#include "bootstrap/messages.h"

namespace tutti {
namespace {

std::pair<Fd, Fd> socket_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

TEST(Messages, ComeBackAsTheyWere) {
  Member member{3, 8, 42, "host a", 77, {resolve("192.0.2.1", 1).front(), resolve("fd00::1", 2).front()}};
  const Report report = decode_report(encode(Report{member, 5}));
  EXPECT_EQ(report.member.describe(), "rank 3 (host host a, pid 77)");
  EXPECT_EQ(report.member.identity, 42u);
  EXPECT_EQ(report.member.size, 8);
  EXPECT_EQ(describe(report.member.addresses.at(1)), "[fd00::1]:2");
  EXPECT_EQ(report.left_ns, 5);
  const Failure failure = decode_failure(encode(Failure{Code::timeout, -1, "late"}));
  EXPECT_EQ(failure.code, Code::timeout);
  EXPECT_EQ(failure.rank, -1);
  EXPECT_EQ(failure.sentence, "late");
  EXPECT_EQ(decode_members(encode(std::vector<Member>{member, member})).size(), 2u);
}

TEST(Messages, CutShortAnywhereTheyAreRefused) {
  const Bytes whole = encode(Report{Member{1, 2, 3, "h", 4, {resolve("192.0.2.1", 1).front()}}, 5});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THROW(decode_report(std::span(whole).first(bytes)), Error) << bytes;
}

TEST(Frames, ArriveWholeAndInOrderThroughASmallSocket) {
  auto [a, b] = socket_pair();
  FramedSocket from(std::move(a)), to(std::move(b));
  const size_t sizes[] = {0, 1, 7, 100'000, 3'000'000, 0, 5};
  for (const size_t bytes : sizes) from.queue(make_frame(FrameType::gather, Bytes(bytes, std::byte(bytes))));
  std::thread sender([&] { EXPECT_TRUE(from.flush_until(now_ns() + 20 * ns_per_s)); });
  for (const size_t bytes : sizes) {
    Frame frame;
    ASSERT_EQ(to.receive_until(frame, now_ns() + 20 * ns_per_s), FramedSocket::Received::frame);
    EXPECT_EQ(frame.payload, Bytes(bytes, std::byte(bytes)));
  }
  sender.join();
  from.close();
  Frame frame;
  EXPECT_EQ(to.receive(frame), FramedSocket::Received::closed);
}

TEST(Frames, AbsurdHeadersAreMalformed) {
  for (const auto& [bytes, type] : {std::pair<uint32_t, uint32_t>{0xffffffff, 1}, {1, 0}, {1, 99}}) {
    auto [a, b] = socket_pair();
    FramedSocket to(std::move(b));
    const uint32_t header[2] = {bytes, type};
    ASSERT_EQ(::send(a.get(), header, sizeof header, 0), ssize_t(sizeof header));
    Frame frame;
    EXPECT_EQ(to.receive(frame), FramedSocket::Received::malformed);
  }
}

TEST(Frames, ABrokenConnectionIsNoSignal) {
  auto [a, b] = socket_pair();
  FramedSocket from(std::move(a));
  b.reset();
  from.queue(make_frame(FrameType::report, {}));
  EXPECT_FALSE(from.flush());
}

}  // namespace
}  // namespace tutti
