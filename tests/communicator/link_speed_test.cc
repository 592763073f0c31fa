// The speed of a link: found over a real transport, and no faster than what lets messages through.
#include "communicator/link_speed.h"

#include <cmath>
#include <cstring>
#include <deque>

#include <gtest/gtest.h>

#include "transport/tcp_loopback.h"

namespace tutti {
namespace {

TEST(LinkSpeed, OfALoopbackIsFoundAndItsEndpointsAreAsBefore) {
  const auto transports = connected_tcp(2, TcpOptions());
  Endpoint &zero = *transports[0]->endpoint(1, 0), &one = *transports[1]->endpoint(0, 0);
  LinkSpeed first(zero, zero, 65536), second(one, one, 65536);
  Status a = Status::again, b = Status::again;
  while (a == Status::again || b == Status::again) {
    if (a == Status::again) a = first.step();
    if (b == Status::again) b = second.step();
    for (const auto& transport : transports) transport->progress();
  }
  ASSERT_EQ(a, Status::done);
  ASSERT_EQ(b, Status::done);
  for (const LinkSpeed* speed : {&first, &second}) {
    EXPECT_GT(speed->bits_per_s(), 1'000'000u);
    const double halves = 2 * std::log2(double(speed->bits_per_s()));
    EXPECT_NEAR(halves, std::round(halves), 1e-3) << "a power of the square root of 2";
  }
  const uint64_t sent = 7;
  uint64_t received = 0;
  size_t done = 0;
  ASSERT_EQ(zero.send(reinterpret_cast<const std::byte*>(&sent), sizeof sent, 1, done), Status::done);
  done = 0;
  Status status = Status::again;
  while (status == Status::again) {
    transports[0]->progress();
    status = one.recv(reinterpret_cast<std::byte*>(&received), sizeof received, 1, done);
  }
  EXPECT_EQ(status, Status::done);
  EXPECT_EQ(received, sent);
}

// Takes all at once, and lets one message through in a millisecond: the next no sooner than so long after the last was
// fetched, however late that was.
class Slow final : public Endpoint {
 public:
  static constexpr TimeNs message_ns = ns_per_ms;

  Status send(const std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    if (queue_.empty()) next_at_ = std::max(next_at_, now_ns() + message_ns);
    queue_.push_back(data[0]);
    bytes_done = bytes;
    ++sent;
    return Status::done;
  }
  Status recv(std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    const TimeNs now = now_ns();
    if (queue_.empty() || now < next_at_) return Status::again;
    next_at_ = now + message_ns;
    data[0] = queue_.front();
    queue_.pop_front();
    bytes_done = bytes;
    return Status::done;
  }
  std::byte* reserve(size_t) noexcept override { return nullptr; }
  void commit(size_t, uint64_t) noexcept override {}
  Status flush() noexcept override { return Status::done; }
  Status view(size_t, uint64_t, const std::byte*&) noexcept override { return Status::failed; }
  Status release() noexcept override { return Status::done; }
  const Fault& fault() const noexcept override { return fault_; }
  int sent = 0;

 private:
  std::deque<std::byte> queue_;
  TimeNs next_at_ = 0;
  Fault fault_;
};

TEST(LinkSpeed, IsNoFasterThanWhatLetsMessagesThrough) {
  constexpr size_t bytes = 65536;
  Slow link;
  LinkSpeed speed(link, link, bytes);
  while (speed.step() == Status::again) {
  }
  EXPECT_EQ(link.sent, 16);
  const double limit = 8.0 * bytes * double(ns_per_s) / double(Slow::message_ns);
  EXPECT_GT(speed.bits_per_s(), 0u);
  // The clock may be read long after the first of them is fetched: the 12 messages take no less than 11 intervals.
  EXPECT_LT(double(speed.bits_per_s()), limit * 12 / 11 * std::sqrt(2.0));
}

}  // namespace
}  // namespace tutti
