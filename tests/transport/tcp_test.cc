// Tests of the TCP transport: the conformance suite, FIFOs that never lock, ends and garbage, IPv6.
#include "transport/tcp/tcp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "transport/conformance.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp_loopback.h"
#include "transport/traffic.h"

namespace tutti {

// Socket buffers that force short reads and writes at all places of a message. The sender's alone are tiny: with a
// receiver's window below a segment of the loopback, the kernel waits for its timers.
TcpOptions small_buffers(size_t message_bytes_max) {
  TcpOptions options;
  options.message_bytes_max = message_bytes_max;
  options.send_buffer_bytes = 1;
  options.receive_buffer_bytes = 64 * 1024;
  return options;
}

std::vector<TransportCase> transport_cases() {
  const auto with = [](TcpOptions options) {
    return [options](int ranks, int channels) -> std::unique_ptr<TransportSet> {
      TcpOptions mine = options;
      mine.channels = channels;
      return std::make_unique<OwnedTransports>(connected_tcp(ranks, mine));
    };
  };
  constexpr uint64_t handshakes = 3000;
  return {{"tcp", with({}), true, true, handshakes},
          {"tcp_with_small_buffers", with(small_buffers(70'000)), true, true, handshakes}};
}

namespace {

constexpr TimeNs patience_ns = 20 * ns_per_s;

// Calls `attempt` until it says something else than again.
Status settle(std::vector<Transport*> transports, const std::function<Status()>& attempt) {
  const TimeNs deadline = now_ns() + patience_ns;
  Status status = attempt();
  while (status == Status::again && now_ns() < deadline) {
    for (Transport* transport : transports) transport->progress();
    status = attempt();
  }
  return status;
}

std::vector<std::byte> content(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  fill(data.data(), bytes, seed);
  return data;
}

// What stands before a payload on the wire.
struct WireHeader {
  uint64_t bytes;
  uint64_t signature;
};

void write_raw(const Fd& fd, const void* data, size_t bytes) {
  ASSERT_EQ(::send(fd.get(), data, bytes, MSG_NOSIGNAL), ssize_t(bytes));
}

// One rank's part of "everyone sends `count` largest messages to everyone, and only then receives".
class Flood {
 public:
  Flood(Transport& transport, int rank, int ranks, int channels, int count)
      : transport_(transport), rank_(rank), ranks_(ranks), channels_(channels), count_(count) {}

  // True once all its messages are taken. Nothing is received.
  bool send() {
    bool all = true;
    for (int peer = 0; peer < ranks_; ++peer)
      for (int c = 0; c < channels_ && peer != rank_; ++c) {
        Way& way = ways_[size_t(peer * channels_ + c)];
        if (way.sent == count_) continue;
        const std::vector<std::byte> data = content(transport_.message_bytes_max(), seed(rank_, peer, c, way.sent));
        const Status status = transport_.endpoint(peer, c)->send(data.data(), data.size(), 3, way.bytes_done);
        EXPECT_NE(status, Status::failed);
        if (status == Status::done) ++way.sent, way.bytes_done = 0;
        all = all && way.sent == count_;
      }
    return all;
  }

  void receive() {
    std::vector<std::byte> data(transport_.message_bytes_max());
    for (int peer = 0; peer < ranks_; ++peer)
      for (int c = 0; c < channels_ && peer != rank_; ++c)
        for (int i = 0; i < count_; ++i) {
          size_t done = 0;
          ASSERT_EQ(settle({&transport_},
                           [&] { return transport_.endpoint(peer, c)->recv(data.data(), data.size(), 3, done); }),
                    Status::done);
          ASSERT_TRUE(holds(data.data(), data.size(), seed(peer, rank_, c, i)));
        }
  }

 private:
  struct Way {
    int sent = 0;
    size_t bytes_done = 0;
  };
  static uint64_t seed(int from, int to, int channel, int i) {
    return uint64_t(from * 1000 + to * 100 + channel * 10 + i);
  }

  Transport& transport_;
  int rank_, ranks_, channels_, count_;
  std::array<Way, 64> ways_{};
};

TEST(Tcp, AllRanksMaySendTwoOfTheLargestMessagesToAllBeforeAnyReceives) {
  constexpr int ranks = 4, channels = 2;
  TcpOptions options = small_buffers(300'000);
  options.channels = channels;
  const auto transports = connected_tcp(ranks, options);
  std::vector<Flood> floods;
  for (int r = 0; r < ranks; ++r) floods.emplace_back(*transports[size_t(r)], r, ranks, channels, 2);
  const TimeNs deadline = now_ns() + patience_ns;
  for (bool all = false; !all; ) {
    ASSERT_LT(now_ns(), deadline) << "the ranks wait for each other";
    all = true;
    for (int r = 0; r < ranks; ++r) {
      all = floods[size_t(r)].send() && all;
      transports[size_t(r)]->progress();
    }
  }
  for (Flood& flood : floods) flood.receive();
}

TEST(Tcp, RanksThatSleepWhileAllSendFirstAreWokenToReadAhead) {
  constexpr int ranks = 3;
  const auto transports = connected_tcp(ranks, small_buffers(200'000));
  std::atomic<int> sending = ranks;
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Transport& transport = *transports[size_t(r)];
      Flood flood(transport, r, ranks, 1, 2);
      bool sent = false;
      const TimeNs deadline = now_ns() + patience_ns;
      while (sending > 0 && now_ns() < deadline) {
        transport.progress();
        transport.arm();
        if (!sent && flood.send()) sent = true, --sending;
        transport.progress();  // takes no news away: what comes from now on is for the sleep
        std::array<pollfd, 4> fds;
        const int woken = ::poll(fds.data(), transport.poll_fds(fds), sent ? 10 : 5000);
        EXPECT_TRUE(woken > 0 || sent) << "a wake-up was lost";
        transport.disarm();
      }
      EXPECT_EQ(sending, 0);
      flood.receive();
    });
}

TEST(Tcp, ASendCompletesWhilePeersOnlyAskToSend) {
  // Nobody calls progress(): asking an endpoint again is enough.
  const auto transports = connected_tcp(2, small_buffers(100'000));
  const std::vector<std::byte> data = content(100'000, 1);
  std::array<size_t, 2> done{};
  std::array<Status, 2> status{Status::again, Status::again};
  const TimeNs deadline = now_ns() + patience_ns;
  while ((status[0] == Status::again || status[1] == Status::again) && now_ns() < deadline)
    for (size_t r = 0; r < 2; ++r)
      if (status[r] == Status::again)
        status[r] = transports[r]->endpoint(int(1 - r), 0)->send(data.data(), data.size(), 1, done[r]);
  EXPECT_EQ(status[0], Status::done);
  EXPECT_EQ(status[1], Status::done);
}

TEST(Tcp, AViewLeavesRoomForTheNextMessage) {
  const auto transports = connected_tcp(2, small_buffers(200'000));
  Endpoint& sender = *transports[0]->endpoint(1, 0);
  Endpoint& receiver = *transports[1]->endpoint(0, 0);
  const std::vector<Transport*> all = {transports[0].get(), transports[1].get()};
  const std::byte* place = nullptr;
  for (uint64_t i = 0; i < 5; ++i) {
    // Message i is under view while message i + 1 is sent whole.
    for (const uint64_t number : i == 0 ? std::vector<uint64_t>{0, 1} : std::vector<uint64_t>{i + 1}) {
      const std::vector<std::byte> data = content(200'000, number);
      size_t done = 0;
      ASSERT_EQ(settle(all, [&] { return sender.send(data.data(), data.size(), number, done); }), Status::done);
      if (number == 0) {
        ASSERT_EQ(settle(all, [&] { return receiver.view(200'000, 0, place); }), Status::done);
      }
    }
    EXPECT_TRUE(holds(place, 200'000, i));
    receiver.release();
    ASSERT_EQ(settle(all, [&] { return receiver.view(200'000, i + 1, place); }), Status::done);
  }
}

TEST(Tcp, APeerThatEndsInsideAMessageIsClosed) {
  for (const size_t sent : {size_t{0}, size_t{7}, size_t{16}, size_t{1000}, size_t{50'000}})
    for (const bool by_view : {false, true})
      for (const bool read_ahead : {false, true}) {
        auto [mine, theirs] = loopback_pair();
        const auto transport = tcp_over(std::move(mine), {});
        std::vector<std::byte> stream = content(16 + 60'000, 1);
        const WireHeader header{60'000, 5};
        std::memcpy(stream.data(), &header, sizeof header);
        if (sent > 0) write_raw(theirs, stream.data(), sent);
        theirs.reset();
        for (int i = 0; read_ahead && i < 1000; ++i) transport->progress();
        Endpoint& endpoint = *transport->endpoint(1, 0);
        EXPECT_EQ(endpoint.fault().kind, FaultKind::none) << "nobody asked yet";
        std::vector<std::byte> data(60'000);
        const std::byte* place = nullptr;
        size_t done = 0;
        const Status status = settle({transport.get()}, [&] {
          return by_view ? endpoint.view(60'000, 5, place) : endpoint.recv(data.data(), 60'000, 5, done);
        });
        EXPECT_EQ(status, Status::failed);
        EXPECT_EQ(endpoint.fault().kind, FaultKind::closed);
      }
}

TEST(Tcp, MessagesBeforeTheEndAreDelivered) {
  for (const bool read_ahead : {false, true}) {
    auto [mine, theirs] = loopback_pair();
    const auto transport = tcp_over(std::move(mine), {});
    for (uint64_t i = 0; i < 4; ++i) {
      const WireHeader header{8, i};
      write_raw(theirs, &header, sizeof header);
      write_raw(theirs, &i, sizeof i);
    }
    theirs.reset();
    for (int i = 0; read_ahead && i < 1000; ++i) transport->progress();
    Endpoint& endpoint = *transport->endpoint(1, 0);
    uint64_t value = 0;
    size_t done = 0;
    const auto receive = [&](uint64_t signature) {
      done = 0;
      return settle({transport.get()},
                    [&] { return endpoint.recv(reinterpret_cast<std::byte*>(&value), 8, signature, done); });
    };
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(receive(i), Status::done);
      EXPECT_EQ(value, i);
    }
    EXPECT_EQ(receive(4), Status::failed);
    EXPECT_EQ(endpoint.fault().kind, FaultKind::closed);
  }
}

TEST(Tcp, SendingToAPeerThatIsGoneIsClosed) {
  auto [mine, theirs] = loopback_pair();
  const auto transport = tcp_over(std::move(mine), {});
  const linger now{1, 0};
  ASSERT_EQ(::setsockopt(theirs.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  theirs.reset();
  const std::vector<std::byte> data = content(1000, 1);
  Endpoint& endpoint = *transport->endpoint(1, 0);
  size_t done = 0;
  EXPECT_EQ(settle({transport.get()}, [&] { return endpoint.send(data.data(), 1000, 1, done); }), Status::failed);
  EXPECT_EQ(endpoint.fault().kind, FaultKind::closed);
  EXPECT_EQ(endpoint.reserve(10), nullptr);
  EXPECT_EQ(endpoint.flush(), Status::failed);
}

TEST(Tcp, GarbageIsAFaultThatShowsIt) {
  for (const bool by_view : {false, true})
    for (const bool read_ahead : {false, true}) {
      auto [mine, theirs] = loopback_pair();
      const auto transport = tcp_over(std::move(mine), {});
      const std::vector<std::byte> garbage(100'000, std::byte{0xff});
      write_raw(theirs, garbage.data(), garbage.size());
      for (int i = 0; read_ahead && i < 1000; ++i) transport->progress();
      Endpoint& endpoint = *transport->endpoint(1, 0);
      std::vector<std::byte> data(5000);
      const std::byte* place = nullptr;
      size_t done = 0;
      const Status status = settle({transport.get()}, [&] {
        return by_view ? endpoint.view(5000, 5, place) : endpoint.recv(data.data(), 5000, 5, done);
      });
      EXPECT_EQ(status, Status::failed);
      EXPECT_EQ(endpoint.fault().kind, FaultKind::mismatch);
      EXPECT_EQ(endpoint.fault().bytes, ~uint64_t{0});
      EXPECT_EQ(endpoint.fault().signature, ~uint64_t{0});
    }
}

TEST(Tcp, AMessageBeyondTheLargestIsRefused) {
  const auto transports = connected_tcp(2, small_buffers(4096));
  std::vector<std::byte> data(4097);
  size_t done = 0;
  EXPECT_EQ(transports[0]->endpoint(1, 0)->send(data.data(), 4097, 1, done), Status::failed);
  EXPECT_EQ(transports[0]->endpoint(1, 0)->fault().kind, FaultKind::system);
  EXPECT_EQ(transports[0]->endpoint(1, 0)->fault().error_number, EMSGSIZE);
  EXPECT_EQ(transports[1]->endpoint(0, 0)->reserve(4097), nullptr);
  EXPECT_EQ(transports[1]->endpoint(0, 0)->fault().error_number, EMSGSIZE);
}

TEST(Tcp, TheRanksAgreeOnTheLeastMessageSize) {
  const auto bootstraps = fake_bootstraps(3);
  const auto transports = on_each_rank(bootstraps, [&](int r) {
    TcpOptions options;
    options.message_bytes_max = size_t(10'000 - 1000 * r);
    options.peers = {true, true, true};
    return make_tcp(*bootstraps[size_t(r)], options);
  });
  for (const auto& transport : transports) EXPECT_EQ(transport->message_bytes_max(), 8000u);
}

TEST(Tcp, OnlyThePeersAskedForAreReached) {
  const auto bootstraps = fake_bootstraps(3);
  const auto transports = on_each_rank(bootstraps, [&](int r) {
    TcpOptions options;  // ranks 0 and 2 reach each other otherwise
    options.peers = r == 1 ? std::vector<bool>{true, true, true} : std::vector<bool>{false, true, false};
    return make_tcp(*bootstraps[size_t(r)], options);
  });
  EXPECT_EQ(transports[0]->endpoint(2, 0), nullptr);
  EXPECT_EQ(transports[2]->endpoint(0, 0), nullptr);
  EXPECT_NE(transports[0]->endpoint(1, 0), nullptr);
  EXPECT_NE(transports[1]->endpoint(2, 0), nullptr);
}

TEST(Tcp, AMessageOfTheDefaultSizeFillsWholeSegmentsOfTheLoopback) {
  constexpr size_t segment_bytes = 65483;
  const size_t message_bytes = environment_bytes("TUTTI_TCP_MESSAGE_BYTES").value() + sizeof(TcpHeader);
  EXPECT_LE(message_bytes, 4 * segment_bytes);
  EXPECT_GT(message_bytes, 4 * segment_bytes - 1024);
}

TEST(Tcp, AMessageSizeThatIsTooSmallIsRefusedWithItsName) {
  TcpOptions options;
  options.message_bytes_max = 10;
  try {
    make_tcp_over(std::vector<Fd>(2), 2, options);
    FAIL() << "10 bytes were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_usage);
    EXPECT_NE(std::string(error.what()).find("TUTTI_TCP_MESSAGE_BYTES"), std::string::npos) << error.what();
  }
}

TEST(Tcp, WorksOverIpv6) {
  const Fd listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener.valid() || ::bind(listener.get(), generic, length) != 0)
    GTEST_SKIP() << "no IPv6 on loopback here: " << std::strerror(errno);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &length), 0);
  Fd a(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(a.get(), generic, length), 0);
  Fd b(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(b.valid());
  const auto left = tcp_over(std::move(a), {});
  const auto right = tcp_over(std::move(b), {});
  for (const size_t bytes : {size_t{8}, size_t{200'000}}) {
    const std::vector<std::byte> data = content(bytes, bytes);
    std::vector<std::byte> received(bytes);
    size_t sent = 0, done = 0;
    Status sending = Status::again;
    const Status receiving = settle({left.get(), right.get()}, [&] {
      if (sending == Status::again) sending = left->endpoint(1, 0)->send(data.data(), bytes, 1, sent);
      return right->endpoint(1, 0)->recv(received.data(), bytes, 1, done);
    });
    EXPECT_EQ(sending, Status::done);
    EXPECT_EQ(receiving, Status::done);
    EXPECT_EQ(data, received);
  }
}

}  // namespace
}  // namespace tutti
