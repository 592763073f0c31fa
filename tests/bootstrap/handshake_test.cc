// Proving the key: the right ones succeed, whatever else is refused; dialling many addresses at once.
#include "bootstrap/handshake.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "bootstrap/address.h"
#include "bootstrap/dial.h"
#include "bootstrap/doorkeeper.h"
#include "bootstrap/sockets.h"

namespace tutti {
namespace {

using State = Handshake::State;

struct Ends {
  State connecting;
  State listening;
  Hello hello;
};

Ends meet(const Secret& connecting, const Secret& listening) {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  Handshake a(Fd(fds[0]), Handshake::Side::connecting, connecting, 0);
  Handshake b(Fd(fds[1]), Handshake::Side::listening, listening, 0);
  for (int i = 0; i < 10; ++i) {
    a.step();
    b.step();
    if (a.state() == State::peer_proven) a.finish({Purpose::data, 3, 8, 77});
    if (a.state() == State::stranger || a.state() == State::closed) a.take_fd().reset();
  }
  return {a.state(), b.state(), b.hello()};
}

TEST(Handshake, EqualKeysAgreeAndTheHelloArrives) {
  const Ends ends = meet({derive_key("k"), 5, 1}, {derive_key("k"), 5, 1});
  EXPECT_EQ(ends.connecting, State::done);
  EXPECT_EQ(ends.listening, State::done);
  EXPECT_EQ(ends.hello.purpose, Purpose::data);
  EXPECT_EQ(ends.hello.rank, 3u);
  EXPECT_EQ(ends.hello.size, 8u);
  EXPECT_EQ(ends.hello.tag, 77u);
}

TEST(Handshake, AnotherKeyIsAStranger) {
  const Ends ends = meet({derive_key("k"), 5, 1}, {derive_key("l"), 5, 1});
  EXPECT_EQ(ends.connecting, State::stranger);
  EXPECT_EQ(ends.listening, State::closed);
}

TEST(Handshake, AnotherListenerOfTheSameJobIsAStranger) {
  EXPECT_EQ(meet({derive_key("k"), 5, 1}, {derive_key("k"), 6, 1}).connecting, State::stranger);
}

TEST(Handshake, DifferentVersionsLearnOfEachOtherWithProof) {
  const Ends ends = meet({derive_key("k"), 5, 1}, {derive_key("k"), 5, 2});
  EXPECT_EQ(ends.connecting, State::other_version);
  EXPECT_EQ(ends.listening, State::other_version);
}

// A listener's greeting and proof, sent back to it, are not taken for a proof of the connecting side.
TEST(Handshake, AReflectedProofIsRefused) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const Fd attacker(fds[0]);
  ASSERT_EQ(::fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
  Handshake listener(Fd(fds[1]), Handshake::Side::listening, {derive_key("k"), 0, 1}, 0);
  const std::string greeting = std::string("TUTI\1\0\0\0", 8) + std::string(16, 'n');
  ASSERT_EQ(::send(attacker.get(), greeting.data(), greeting.size(), 0), ssize_t(greeting.size()));
  EXPECT_EQ(listener.step(), State::working);
  std::array<char, greeting_bytes + proof_bytes> answer{};
  ASSERT_EQ(::recv(attacker.get(), answer.data(), answer.size(), MSG_WAITALL), ssize_t(answer.size()));
  ASSERT_EQ(::send(attacker.get(), answer.data() + greeting_bytes, proof_bytes, 0), ssize_t(proof_bytes));
  EXPECT_EQ(listener.step(), State::stranger);
}

// A door of its own, served by whoever runs the test.
struct Door {
  Log log{"door"};
  Doorkeeper doorkeeper;
  explicit Door(const Secret& secret) : doorkeeper(listen_everywhere(0, nullptr), secret, "", log) {}
};

TEST(Dial, TheAddressThatAnswersWinsAmongDeadOnes) {
  const Secret secret{derive_key("k"), 9, 1};
  Door door(secret);
  const uint16_t port = door.doorkeeper.port();
  const Fd silent = listen_everywhere(0, nullptr);
  std::vector<JobId::Address> addresses = resolve("127.0.0.1", 1);                // refuses
  addresses.push_back(resolve("127.0.0.1", local_port(silent)).front());    // never answers
  addresses.push_back(resolve("192.0.2.254", port).front());                      // leads nowhere
  addresses.push_back(resolve("127.0.0.1", port).front());
  std::vector<Doorkeeper::Guest> guests;
  DialOptions options;
  options.deadline = now_ns() + 10 * ns_per_s;
  options.stop = [&] {
    for (Doorkeeper::Guest& guest : door.doorkeeper.serve(now_ns())) guests.push_back(std::move(guest));
    return false;
  };
  const DialResult result = dial(addresses, secret, {Purpose::data, 1, 2, 3}, options);
  EXPECT_EQ(result.kind, DialResult::Kind::connected) << result.detail;
  options.stop();
  ASSERT_EQ(guests.size(), 1u);
  EXPECT_EQ(guests[0].hello.tag, 3u);
}

TEST(Dial, RefusalsEverywhereAreHopeless) {
  DialOptions options;
  options.deadline = now_ns() + 10 * ns_per_s;
  options.hopeless_ns = 0;
  const DialResult result = dial(resolve("127.0.0.1", 1), {}, {}, options);
  EXPECT_EQ(result.kind, DialResult::Kind::refused);
  EXPECT_NE(result.detail.find("127.0.0.1:1: Connection refused"), std::string::npos) << result.detail;
}

TEST(Dial, StopsWhenTold) {
  const Fd silent = listen_everywhere(0, nullptr);
  DialOptions options;
  options.deadline = now_ns() + 10 * ns_per_s;
  options.stop = [] { return true; };
  EXPECT_EQ(dial(resolve("127.0.0.1", local_port(silent)), {}, {}, options).kind, DialResult::Kind::stopped);
}

}  // namespace
}  // namespace tutti
