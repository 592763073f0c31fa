// What can go wrong while ranks meet, and the sentence that each of them gets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/sockets.h"
#include "support.h"

namespace tutti::test {
namespace {

void expect_all_say(const std::vector<Outcome>& outcomes, Code code, const std::vector<std::string>& parts) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].code, code) << rank << ": " << outcomes[rank].sentence;
    for (const std::string& part : parts)
      EXPECT_NE(outcomes[rank].sentence.find(part), std::string::npos) << rank << ": " << outcomes[rank].sentence;
  }
}

TEST(MeetingPlace, TwoCallersWithOneRankAreShownToAll) {
  const JobId id = open_place();
  const auto outcomes = on_threads(4, [&](int caller) { join(id, caller == 3 ? 1 : caller, 4)->leave(); });
  expect_all_say(outcomes, Code::invalid_usage, {"two callers joined as rank 1: rank 1 (host ", ") and rank 1 (host "});
}

TEST(MeetingPlace, DifferentSizesAreShownToAll) {
  const JobId id = open_place();
  const auto outcomes = on_threads(3, [&](int rank) { join(id, rank, rank == 2 ? 4 : 3)->leave(); });
  expect_all_say(outcomes, Code::invalid_usage, {"as one of 3", "as one of 4", "rank 2 (host "});
}

TEST(MeetingPlace, WhoComesAfterTheFailureIsToldToo) {
  const JobId id = open_place();
  on_threads(2, [&](int) { join(id, 0, 3)->leave(); });
  try {
    join(id, 2, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("two callers joined as rank 0"), std::string::npos) << error.what();
  }
}

TEST(MeetingPlace, WhoDoesNotComeIsNamedAtTheDeadline) {
  const JobId id = open_place();
  const auto outcomes =
      on_threads(3, [&](int i) { join(id, std::array{0, 1, 4}[size_t(i)], 6, quick_options(ns_per_s)); });
  expect_all_say(outcomes, Code::timeout, {"ranks 2-3, 5 of 6 did not join"});
}

TEST(MeetingPlace, ItsOwnDeadlineNamesTheMissingToo) {
  const JobId id = open_meeting_place("", now_ns() + ns_per_s);
  const auto outcomes = on_threads(1, [&](int) { join(id, 0, 2); });
  expect_all_say(outcomes, Code::timeout, {"rank 1 of 2 did not join"});
}

TEST(MeetingPlace, AnIdOfAnotherJobIsRefusedAtOnce) {
  JobId id = open_place();
  id.key[5] ^= 1;
  const TimeNs start = now_ns();
  const auto outcomes = on_threads(1, [&](int) { join(id, 0, 2); });
  expect_all_say(outcomes, Code::invalid_usage, {"another job"});
  EXPECT_LT(now_ns() - start, 10 * ns_per_s);
}

// The port of a meeting place that has closed, kept from other programs: nothing listens at it. Invalid: another
// program was quicker.
Fd keep_port(uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  const int on = 1;
  const int off = 0;
  const TimeNs deadline = now_ns() + ns_per_s;  // the place's thread closes it after the last rank has joined
  do {
    Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (now_ns() < deadline);
  return Fd();
}

TEST(MeetingPlace, APlaceThatHasClosedIsToldSoon) {
  JobId id;
  Fd port;
  for (int turn = 0; turn < 10 && !port.valid(); ++turn) {
    id = open_place();
    on_threads(1, [&](int) { join(id, 0, 1)->leave(); });
    port = keep_port(id.addresses.front().port);
  }
  ASSERT_TRUE(port.valid());
  const auto outcomes = on_threads(1, [&](int) { join(id, 0, 1)->leave(); });
  expect_all_say(outcomes, Code::remote_error, {"the meeting place has closed"});
}

TEST(MeetingPlace, AnotherVersionIsShownToBothSides) {
  const JobId id = open_place();
  const auto outcomes = on_threads(3, [&](int rank) {
    BootstrapOptions options = quick_options();
    if (rank == 2) options.protocol_version = 999;
    join(id, rank, 3, options);
  });
  expect_all_say(outcomes, Code::invalid_usage, {"protocol version", "999", fmt::format(" {} ", protocol_version)});
}

TEST(MeetingPlace, AnEndWhileJoiningIsToldToTheOthers) {
  const JobId id = open_place();
  Process dying([&](Process&) {
    join(id, 2, 4);
    return std::string("joined");
  });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    dying.send(SIGKILL);
  });
  const auto outcomes = on_threads(2, [&](int rank) { join(id, rank, 4); });
  killer.join();
  expect_all_say(outcomes, Code::remote_error, {fmt::format("pid {}) died while joining", dying.pid())});
}

// A bare connection to the id's meeting place over loopback.
Fd stranger(uint16_t port) {
  int error = 0;
  Fd fd = start_connect(resolve("127.0.0.1", port).front(), &error);
  pollfd wait{fd.get(), POLLOUT, 0};
  poll_until({&wait, 1}, now_ns() + ns_per_s);
  return fd;
}

TEST(MeetingPlace, WhoGivesUpTellsAllWhoWaitAndWhoComesLater) {
  const JobId id = open_place();
  std::atomic<bool> gives_up{false};
  const auto join_one = [&](int rank) {
    Bootstrap::join(id, rank, 5, quick_options(), Log("test"), [&]() -> std::string {
      return rank == 1 && gives_up ? "rank 4 has gone" : "";
    });
  };
  const TimeNs start = now_ns();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    gives_up = true;
  });
  const auto outcomes = on_threads(4, [&](int rank) {
    if (rank == 3)
      while (!gives_up) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    join_one(rank);
  });
  later.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, Code::remote_error) << outcome.sentence;
    EXPECT_EQ(outcome.sentence, "rank 4 has gone");
  }
  EXPECT_LT(now_ns() - start, 10 * ns_per_s);  // far from the deadline
}

TEST(AgreedPlace, WhoGivesUpLooksForItNoLonger) {
  const JobId id = agreed_meeting_place("127.0.0.1", 1, derive_key("nobody"));
  const auto outcomes = on_threads(1, [&](int) {
    Bootstrap::join(id, 1, 2, quick_options(), Log("test"), [] { return std::string("rank 0 has gone"); });
  });
  EXPECT_EQ(outcomes[0].code, Code::remote_error);
  EXPECT_EQ(outcomes[0].sentence, "rank 0 has gone");
}

TEST(MeetingPlace, GarbageScansAndIdleConnectionsDoNoHarm) {
  const JobId id = open_place();
  const uint16_t port = id.addresses.front().port;
  std::vector<Fd> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(stranger(port));  // more than pending_max, and they say nothing
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string(5000, '\0'),
                                  std::string("TUTI\1\0\0\0", 8) + std::string(300, 'x')}) {
    idle.push_back(stranger(port));
    EXPECT_GE(::send(idle.back().get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  for (int i = 0; i < 50; ++i) stranger(port).reset();  // a port scan
  std::atomic<bool> over{false};
  std::thread loris([&] {  // one byte at a time
    while (!over.load()) {
      const Fd fd = stranger(port);
      const char word[] = "TUTI";
      for (size_t i = 0; i < 4 && !over.load(); ++i) {
        if (::send(fd.get(), word + i, 1, MSG_NOSIGNAL) < 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  });
  expect_all_succeed(on_threads(4, [&](int rank) {
    const auto bootstrap = join(id, rank, 4);
    bootstrap->barrier();
    bootstrap->leave();
  }));
  over.store(true);
  loris.join();
}

TEST(MeetingPlace, NoMoreThan64BytesAreReadFromAStranger) {
  const JobId id = open_place();
  const Fd fd = stranger(id.addresses.front().port);
  std::string flood("TUTI\1\0\0\0", 8);
  flood += std::string(1000, 'y');
  ASSERT_GT(::send(fd.get(), flood.data(), flood.size(), MSG_NOSIGNAL), 0);
  // Greeting and proof of the listener come back, then it closes, with a reset since it left the rest unread.
  std::string answer;
  char piece[256];
  for (;;) {
    pollfd wait{fd.get(), POLLIN, 0};
    ASSERT_EQ(poll_until({&wait, 1}, now_ns() + 10 * ns_per_s), 1);
    const ssize_t count = ::recv(fd.get(), piece, sizeof piece, 0);
    if (count <= 0) break;
    answer.append(piece, size_t(count));
  }
  EXPECT_LE(answer.size(), 56u);
  expect_all_succeed(on_threads(1, [&](int) { join(id, 0, 1)->leave(); }));
}

// A service that accepts and never answers, as torchrun's store on MASTER_PORT does.
TEST(AgreedPlace, StrangersOnItsPortsAreSteppedOver) {
  const uint16_t port = 29431;
  const Fd silent = listen_everywhere(port, nullptr);
  const Fd answers = listen_everywhere(port + 1, nullptr);
  std::atomic<bool> over{false};
  std::thread http([&] {
    while (!over.load()) {
      pollfd wait{answers.get(), POLLIN, 0};
      poll_until({&wait, 1}, now_ns() + 50 * ns_per_ms);
      int error = 0;
      const Fd fd = accept_connection(answers, &error);
      const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
      if (fd.valid() && ::send(fd.get(), text, sizeof text - 1, MSG_NOSIGNAL) < 0) continue;
    }
  });
  const Key key = derive_key("agreed");
  expect_all_succeed(on_threads(3, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others are there first
      open_meeting_place_at("127.0.0.1", port, key, now_ns() + 20 * ns_per_s);
    }
    const auto bootstrap = join(agreed_meeting_place("127.0.0.1", port, key), rank, 3);
    bootstrap->barrier();
    bootstrap->leave();
  }));
  over.store(true);
  http.join();
}

TEST(AgreedPlace, TwoJobsShareAPortRangeByTheirKeys) {
  const uint16_t port = 29451;
  expect_all_succeed(on_threads(6, [&](int i) {
    const Key key = derive_key(i < 3 ? "one" : "two");
    if (i % 3 == 0) open_meeting_place_at("127.0.0.1", port, key, now_ns() + 20 * ns_per_s);
    const auto bootstrap = join(agreed_meeting_place("127.0.0.1", port, key), i % 3, 3);
    EXPECT_EQ(text_of(bootstrap->all_gather(bytes_of(i < 3 ? "one" : "two"))[2]), i < 3 ? "one" : "two");
    bootstrap->leave();
  }));
}

TEST(AgreedPlace, NoneWithinTheDeadlineIsATimeout) {
  const auto outcomes = on_threads(1, [&](int) {
    join(agreed_meeting_place("127.0.0.1", 29471, derive_key("x")), 1, 2, quick_options(500 * ns_per_ms));
  });
  expect_all_say(outcomes, Code::timeout, {"rank 1 found no meeting place", "127.0.0.1:29471"});
}

TEST(MeetingPlace, TooFewDescriptorsAreTold) {
  for (const rlim_t limit : {5, 6, 8, 10, 12}) {
    Process child([&](Process& self) {
      const rlimit few{limit, limit};
      ::setrlimit(RLIMIT_NOFILE, &few);
      try {
        const JobId id = open_meeting_place("", now_ns() + 3 * ns_per_s);
        const auto outcomes = on_threads(2, [&](int rank) { join(id, rank, 2, quick_options(3 * ns_per_s))->leave(); });
        for (const Outcome& outcome : outcomes) self.say(outcome.sentence + "\n");
      } catch (const Error& error) {
        self.say(std::string(error.what()) + "\n");
      }
      return std::string();
    });
    std::string text;
    for (std::string line = child.line(); !line.empty(); line = child.line()) text += line + "\n";
    EXPECT_NE(text.find("`ulimit -n`"), std::string::npos) << "limit " << limit << ": " << text;
    EXPECT_NE(text.find(fmt::format("may have {} open", limit)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti::test
