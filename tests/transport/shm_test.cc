// The shared-memory transport where it differs from others: layout, strangers, limits, what its data path never does.
#include "transport/shm/shm.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bootstrap/bootstrap.h"
#include "sanitizer.h"
#include "transport/count_allocations.h"
#include "transport/fake_bootstrap.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_handshake.h"
#include "transport/traffic.h"

namespace tutti {
namespace {

using Transports = std::vector<std::unique_ptr<Transport>>;

Transports connected(int ranks, const ShmOptions& options = {}) {
  const auto bootstraps = fake_bootstraps(ranks);
  return on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], options); });
}

// What every rank of a job throws.
std::vector<std::string> sentences(const std::vector<ShmOptions>& options) {
  const auto bootstraps = fake_bootstraps(int(options.size()));
  return on_each_rank(bootstraps, [&](int rank) {
    try {
      make_shm(*bootstraps[size_t(rank)], options[size_t(rank)]);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  });
}

// Runs `body` in a child process: its exit code, or minus the signal that ended it.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// One exchange of each way and size class between the ranks of one thread; false where something did not move.
bool exchange(Endpoint& a, Endpoint& b, std::byte* buffer, size_t bytes) {
  size_t done = 0;
  const std::byte* place = nullptr;
  for (int i = 0; i < 100; ++i) {
    if (a.send(buffer, bytes, 1, done) != Status::done) return false;
    if (b.recv(buffer, bytes, 1, done) != Status::done) return false;
    if (b.reserve(bytes) == nullptr) return false;
    b.commit(bytes, 2);
    if (a.view(bytes, 2, place) != Status::done) return false;
    a.release();
  }
  return true;
}

TEST(ShmDatapath, AllocatesNothing) {
  const Transports transports = connected(2);
  std::vector<std::byte> buffer(65536);
  const uint64_t before = allocations_so_far();
  for (const size_t bytes : {8u, 40u, 64u, 65536u})
    ASSERT_TRUE(exchange(*transports[0]->endpoint(1, 0), *transports[1]->endpoint(0, 0), buffer.data(), bytes));
  transports[0]->progress();
  EXPECT_EQ(allocations_so_far(), before);
}

TEST(ShmDatapath, MakesNoSystemCall) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  const Transports transports = connected(2);
  std::vector<std::byte> buffer(65536);
  Endpoint &a = *transports[0]->endpoint(1, 0), &b = *transports[1]->endpoint(0, 0);
  const auto body = [&] {
    sock_filter only_exit[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog program{std::size(only_exit), only_exit};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    for (const size_t bytes : {8u, 40u, 64u, 65536u})
      if (!exchange(a, b, buffer.data(), bytes)) return 1;
    return 0;
  };
  const int result = in_child(body);
  if (result == 77) GTEST_SKIP() << "seccomp is not allowed here";
  EXPECT_EQ(result, 0);
  // The filter works: ringing a sleeper's doorbell is a system call.
  transports[1]->arm();
  EXPECT_EQ(in_child(body), -SIGSYS);
}

TEST(ShmDatapath, ASmallMessageIsOneLine) {
  const Transports transports = connected(2);
  Endpoint &a = *transports[0]->endpoint(1, 0), &b = *transports[1]->endpoint(0, 0);
  const uint64_t number = 77;
  size_t done = 0;
  ASSERT_EQ(a.send(reinterpret_cast<const std::byte*>(&number), 8, 5, done), Status::done);
  const std::byte* place = nullptr;
  ASSERT_EQ(b.view(8, 5, place), Status::done);
  const auto* line = reinterpret_cast<const ShmLine*>(reinterpret_cast<uintptr_t>(place) / 64 * 64);
  EXPECT_EQ(line->sequence.load(), 1u);
  EXPECT_EQ(line->signature, 5u);
  EXPECT_EQ(line->bytes, 8u);
}

// Processes of two builds that join one job work on the same memory. Who changes what this test shows must raise
// protocol_version, and then write both down here.
TEST(ShmDatapath, WhatLiesInSharedMemoryChangesOnlyWithTheProtocol) {
  std::string layout = fmt::format("protocol {}: line {}, payload at {}, inline {}, FIFO {}", protocol_version, sizeof(ShmLine),
                                   offsetof(ShmLine, payload), shm_inline_bytes_max, sizeof(ShmFifo));
  layout += fmt::format(", lent place {}, part {}, bits {:x} {:x} {:x}", sizeof(LentPlace), sizeof(ShmPart), shm_lent_bit,
                        shm_outbox_bit, shm_part);
  layout += fmt::format(", put {:x} {}, offer {}", shm_put, sizeof(ShmPut), sizeof(ShmOffer));
  layout += fmt::format(", bulk from {} in a page, header {}, processor at {}", shm_bulk_page_offset, sizeof(ShmInboxHeader),
                        offsetof(ShmInboxHeader, processor));
  EXPECT_EQ(layout, "protocol 24: line 128, payload at 24, inline 104, FIFO 512, lent place 32, part 24, "
                    "bits 80000000 40000000 3fffffff, put 3ffffffe 32, offer 32, bulk from 2048 in a page, header 128, "
                    "processor at 4");
}

// All of it, and nothing beside it: no byte of the caller's memory past the message is read or written.
TEST(ShmDatapath, AMessageOfEverySmallLengthLiesInItsLine) {
  const Transports transports = connected(2);
  Endpoint &a = *transports[0]->endpoint(1, 0), &b = *transports[1]->endpoint(0, 0);
  for (size_t bytes = 0; bytes <= shm_inline_bytes_max + 2; ++bytes) {
    SCOPED_TRACE(bytes);
    const auto sent = std::make_unique<std::byte[]>(bytes);  // so that a sanitizer sees what lies past its end
    for (size_t i = 0; i < bytes; ++i) sent[i] = std::byte(bytes + 7 * i + 1);
    for (const bool views : {false, true}) {
      size_t done = 0;
      ASSERT_EQ(a.send(sent.get(), bytes, 5, done), Status::done);
      const std::byte* place = nullptr;
      ASSERT_EQ(b.view(bytes, 5, place), Status::done);
      const auto* line = reinterpret_cast<const ShmLine*>(place - offsetof(ShmLine, payload));
      const bool in_line = reinterpret_cast<uintptr_t>(line) % alignof(ShmLine) == 0 && line->signature == 5;
      EXPECT_EQ(in_line, bytes <= shm_inline_bytes_max);
      EXPECT_EQ(std::memcmp(place, sent.get(), bytes), 0);
      if (views) {
        ASSERT_EQ(b.release(), Status::done);
        continue;
      }
      std::vector<std::byte> got(bytes + 64, std::byte{0xee});
      done = 0;
      ASSERT_EQ(b.recv(got.data() + 32, bytes, 5, done), Status::done);
      EXPECT_EQ(std::memcmp(got.data() + 32, sent.get(), bytes), 0);
      for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(got[i] == std::byte{0xee} && got[32 + bytes + i] == std::byte{0xee});
    }
  }
}

TEST(ShmDatapath, ATooLargeMessageIsAFault) {
  const Transports transports = connected(2);
  const size_t bytes = transports[0]->message_bytes_max() + 1;
  const std::vector<std::byte> data(bytes);
  size_t done = 0;
  EXPECT_EQ(transports[0]->endpoint(1, 0)->send(data.data(), bytes, 1, done), Status::failed);
  EXPECT_EQ(transports[0]->endpoint(1, 0)->fault().kind, FaultKind::system);
  EXPECT_EQ(transports[0]->endpoint(1, 0)->fault().error_number, EMSGSIZE);
  EXPECT_EQ(transports[0]->endpoint(1, 0)->reserve(8), nullptr);
}

// Both ends over one mapping, so that a thread sanitizer sees equal addresses on both sides. Also without membarrier.
TEST(ShmDatapath, TwoThreadsOverOneMappingDoNotRace) {
  constexpr uint32_t lines = 8, slots = 4;
  constexpr size_t slot_bytes = 4096;
  for (const bool locked : {false, true}) {
    struct alignas(4096) Memory {
      std::byte bulk[2][(slots + shm_traded_places) * slot_bytes];
      std::byte fifo[2][4096];
      ShmInboxHeader header[2];
    };
    static_assert(ShmFifo::bytes(lines) <= 4096);
    const auto memory = std::make_unique<std::array<std::byte, 2 * sizeof(Memory)>>();
    memory->fill(std::byte{0});
    const uintptr_t start = (reinterpret_cast<uintptr_t>(memory->data()) + 4095) / 4096 * 4096;
    auto* shared = reinterpret_cast<Memory*>(start);
    const auto run = [&](int rank) {
      const int peer = 1 - rank;
      const auto fifo = [&](int owner) { return reinterpret_cast<ShmFifo*>(shared->fifo[owner]); };
      ShmEndpoint endpoint({.out = fifo(peer),
                            .out_bulk = shared->bulk[peer],
                            .in = fifo(rank),
                            .in_bulk = shared->bulk[rank],
                            .peer_header = &shared->header[peer],
                            .peer_doorbell = -1,
                            .lines = lines,
                            .message_bytes_max = slot_bytes,
                            .bulk_bytes = slots * slot_bytes,
                            .traded_places = shm_traded_places,
                            .locked = locked});
      Sender sender(endpoint, Traffic(uint64_t(rank), slot_bytes), 5000, 1, slot_bytes);
      Receiver receiver(endpoint, Traffic(uint64_t(peer), slot_bytes), 5000, 2, slot_bytes);
      const TimeNs deadline = now_ns() + 30 * ns_per_s;
      while (!(sender.finished() && receiver.finished()) && now_ns() < deadline) {
        const bool sent = sender.step(), received = receiver.step();
        if (!sent && !received) std::this_thread::yield();
      }
      EXPECT_EQ(receiver.received(), 5000u);
    };
    std::jthread other([&] { run(1); });
    run(0);
  }
}

// A sender whose receiver does not run gets ahead by more small messages than there is bulk for; all arrive, in order.
TEST(Shm, SmallMessagesNeedNoBulk) {
  const Transports transports = connected(2);
  Endpoint& out = *transports[0]->endpoint(1, 0);
  Endpoint& in = *transports[1]->endpoint(0, 0);
  const std::vector<std::byte> large(transports[0]->message_bytes_max(), std::byte{7});
  uint32_t sent = 0, received = 0;
  for (int round = 0; round < 100; ++round) {
    const uint32_t before = sent;
    for (;; ++sent) {
      size_t done = 0;
      const Status status = out.send(reinterpret_cast<const std::byte*>(&sent), sizeof sent, 1, done);
      if (status == Status::again) break;
      ASSERT_EQ(status, Status::done);
    }
    EXPECT_GE(sent - before, 16u);
    size_t done = 0;
    EXPECT_EQ(out.send(large.data(), large.size(), 1, done), Status::again);
    for (; received < sent; ++received) {
      uint32_t value = 0;
      done = 0;
      ASSERT_EQ(in.recv(reinterpret_cast<std::byte*>(&value), sizeof value, 1, done), Status::done);
      ASSERT_EQ(value, received);
    }
    // A few large ones among small ones: each kind waits for its own.
    size_t large_sent = 0;
    for (done = 0; out.send(large.data(), large.size(), 1, done) == Status::done; done = 0) ++large_sent;
    EXPECT_GE(large_sent, size_t(ShmOptions().slots));
    EXPECT_LE(large_sent, std::max(size_t(ShmOptions().slots), shm_lap_bytes(2, false, {}) / large.size()) + shm_traded_places);
    uint32_t value = 99;
    done = 0;
    ASSERT_EQ(out.send(reinterpret_cast<const std::byte*>(&value), sizeof value, 1, done), Status::done);
    std::vector<std::byte> got(large.size());
    for (size_t i = 0; i < large_sent; ++i, done = 0) {
      done = 0;
      ASSERT_EQ(in.recv(got.data(), got.size(), 1, done), Status::done);
      ASSERT_EQ(got, large);
    }
    done = 0;
    ASSERT_EQ(in.recv(reinterpret_cast<std::byte*>(&value), sizeof value, 1, done), Status::done);
    ASSERT_EQ(value, 99u);
  }
}

// Many messages of a middling size are under way at once, not only as many as there could be of the largest.
TEST(Shm, ASenderGetsFarAheadOfItsReceiver) {
  const Transports transports = connected(2);
  Endpoint& out = *transports[0]->endpoint(1, 0);
  Endpoint& in = *transports[1]->endpoint(0, 0);
  std::vector<std::byte> message(8192), got(message.size());
  for (int round = 0; round < 10; ++round) {
    uint8_t sent = 0;
    for (;; ++sent) {
      std::fill(message.begin(), message.end(), std::byte{sent});
      size_t done = 0;
      if (out.send(message.data(), message.size(), 1, done) == Status::again) break;
    }
    EXPECT_EQ(sent, 64);
    for (uint8_t i = 0; i < sent; ++i) {
      size_t done = 0;
      ASSERT_EQ(in.recv(got.data(), got.size(), 1, done), Status::done);
      ASSERT_EQ(got, std::vector<std::byte>(got.size(), std::byte{i}));
    }
  }
}

// How many small messages the first of so many ranks can send to the second, which does not run.
int messages_ahead(int ranks) {
  const Transports transports = connected(ranks);
  for (int sent = 0;; ++sent) {
    const std::byte message[8] = {};
    size_t done = 0;
    if (transports[0]->endpoint(1, 0)->send(message, sizeof message, 1, done) != Status::done) return sent;
  }
}

TEST(Shm, WhereFewRanksShareCoresASenderGetsFurtherAhead) {
  const auto on_one_core = [](int ranks) {
    return in_child([=] {
      cpu_set_t cores, one;
      CPU_ZERO(&one);
      if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
      for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
        if (CPU_ISSET(core, &cores)) CPU_SET(core, &one);
      return ::sched_setaffinity(0, sizeof one, &one) == 0 && messages_ahead(ranks) == (ranks > 8 ? 64 : 256) ? 0 : 2;
    });
  };
  EXPECT_EQ(on_one_core(2), 0);
  EXPECT_EQ(on_one_core(8), 0);
  EXPECT_EQ(on_one_core(9), 0);
}

TEST(Shm, LapsGoRoundTwiceTheCacheThatACoreHasToItself) {
  ShmOptions options;
  options.own_cache_bytes = 1 << 20;
  options.last_cache_bytes = 32 << 20;
  EXPECT_EQ(shm_lap_bytes(2, false, options), 2u << 20);
  EXPECT_EQ(shm_lap_bytes(4, false, options), (2u << 20) / 3) << "all peers' FIFOs together";
  for (const size_t members : {2, 4, 8}) EXPECT_EQ(shm_lap_bytes(members, true, options), (512u << 10) / members);
  options.last_cache_bytes = 4 << 20;
  EXPECT_EQ(shm_lap_bytes(2, false, options), 1u << 20) << "half of the last cache is left";
  options.own_cache_bytes = options.last_cache_bytes = 0;
  for (const size_t members : {1, 2, 3}) EXPECT_EQ(shm_lap_bytes(members, false, options), (512u << 10) / members);
}

TEST(Shm, LongInputsGoRoundTwiceTheCacheThroughOneFifo) {
  ShmOptions options;
  options.own_cache_bytes = 1 << 20;
  options.last_cache_bytes = 32 << 20;
  for (const bool crowded : {false, true})
    for (const size_t members : {2, 4, 8}) EXPECT_EQ(shm_long_lap_bytes(members, crowded, options), 2u << 20);
  for (const size_t members : {1, 9, 64})
    EXPECT_EQ(shm_long_lap_bytes(members, true, options), shm_lap_bytes(members, true, options));
  options.last_cache_bytes = 8 << 20;
  EXPECT_EQ(shm_long_lap_bytes(4, true, options), 1u << 20) << "half of the last cache is left";
}

TEST(Shm, WhatAllSendToAllLeavesMostOfTheLastCache) {
  ShmOptions options;
  options.last_cache_bytes = 32 << 20;
  for (size_t members = 2; members <= 64; ++members) {
    const size_t bytes = shm_spread_bytes_max(members, options), staged = members * (members - 1) * 2 * bytes;
    EXPECT_TRUE(std::has_single_bit(bytes));
    EXPECT_TRUE(staged <= options.last_cache_bytes / 4 || bytes == 32 * 1024) << members;
  }
  EXPECT_EQ(shm_spread_bytes_max(4, options), 256u * 1024);
  EXPECT_EQ(shm_spread_bytes_max(8, options), 64u * 1024);
  options.last_cache_bytes = 0;
  EXPECT_EQ(shm_spread_bytes_max(8, options), 32u * 1024);
}

// So many bytes pass before a message lies where one has lain before.
TEST(Shm, WhatAReceiverHasReadLeavesItsCacheBeforeItIsOverwritten) {
  cpu_set_t cores;
  ASSERT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);
  for (const size_t own : {64u << 10, 512u << 10, 1u << 20}) {
    ShmOptions options;
    options.own_cache_bytes = own;
    const Transports transports = connected(2, options);
    Endpoint& out = *transports[0]->endpoint(1, 0);
    Endpoint& in = *transports[1]->endpoint(0, 0);
    const size_t lap = shm_lap_bytes(2, CPU_COUNT(&cores) < 2, options);
    for (const size_t bytes : {32u << 10, 256u << 10}) {
      std::map<std::byte*, int> last_at;
      for (int i = 0; i < 200; ++i) {
        std::byte* const place = out.reserve(bytes);
        ASSERT_NE(place, nullptr);
        const auto [last, is_new] = last_at.insert({place, i});
        const size_t since = is_new ? lap : size_t(i - last->second) * bytes;
        ASSERT_GE(since + bytes, lap) << bytes << " bytes, own cache of " << own;
        last->second = i;
        out.commit(bytes, 1);
        const std::byte* view = nullptr;
        ASSERT_EQ(in.view(bytes, 1, view), Status::done);
        ASSERT_EQ(in.release(), Status::done);
      }
      EXPECT_LT(last_at.size(), 200u);
    }
  }
}

TEST(Shm, OneRankHasNobodyToReach) {
  const Transports transports = connected(1);
  EXPECT_EQ(transports[0]->endpoint(0, 0), nullptr);
  transports[0]->arm();
  transports[0]->disarm();
}

TEST(Shm, ManyOrLargeFifosShrinkToTheHostsLimit) {
  ShmOptions options;
  options.slot_bytes = 16 << 20;
  EXPECT_EQ(connected(4, options)[0]->message_bytes_max(), 16u << 20);
  EXPECT_EQ(connected(8, options)[3]->message_bytes_max(), 4u << 20);
}

TEST(Shm, TheLeastSlotOfAllRanksHolds) {
  const auto bootstraps = fake_bootstraps(2);
  const Transports transports = on_each_rank(bootstraps, [&](int rank) {
    ShmOptions options;
    options.slot_bytes = rank == 0 ? 65536 : 8192;
    return make_shm(*bootstraps[size_t(rank)], options);
  });
  EXPECT_EQ(transports[0]->message_bytes_max(), 8192u);
  EXPECT_EQ(transports[1]->message_bytes_max(), 8192u);
}

TEST(Shm, BadOptionsAreOneErrorOnAllRanks) {
  ShmOptions good, odd_slots, odd_bytes, two_channels;
  odd_slots.slots = 2;
  odd_bytes.slot_bytes = 5000;
  two_channels.channels = 2;
  for (const ShmOptions& bad : {odd_slots, odd_bytes, two_channels}) {
    const std::vector<std::string> said = sentences({good, good, bad});
    EXPECT_NE(said[0], "");
    EXPECT_NE(said[0].find("rank 2"), std::string::npos) << said[0];
    EXPECT_EQ(said[0], said[1]);
    EXPECT_EQ(said[0], said[2]);
  }
}

TEST(Shm, TheEnvironmentSetsTheSlot) {
  ::setenv("TUTTI_SHM_SLOT_BYTES", "64K", 1);
  EXPECT_EQ(shm_options_from_environment().slot_bytes, 65536u);
  ::setenv("TUTTI_SHM_SLOT_BYTES", "1000", 1);
  EXPECT_THROW(shm_options_from_environment(), Error);
  ::unsetenv("TUTTI_SHM_SLOT_BYTES");
  EXPECT_EQ(shm_options_from_environment().slot_bytes, 262144u);
}

TEST(Shm, TheCallersDoorbellRingsForArrivals) {
  const auto bootstraps = fake_bootstraps(2);
  std::array<Doorbell, 2> doorbells;
  const Transports transports = on_each_rank(bootstraps, [&](int rank) {
    ShmOptions options;
    options.doorbell = &doorbells[size_t(rank)];
    return make_shm(*bootstraps[size_t(rank)], options);
  });
  pollfd fd{};
  ASSERT_EQ(transports[1]->poll_fds({&fd, 1}), 1u);
  EXPECT_EQ(fd.fd, doorbells[1].fd());
  size_t done = 0;
  ASSERT_EQ(transports[0]->endpoint(1, 0)->send(nullptr, 0, 1, done), Status::done);
  EXPECT_EQ(::poll(&fd, 1, 0), 0) << "it was rung though nobody slept";
  transports[1]->arm();
  ASSERT_EQ(transports[0]->endpoint(1, 0)->send(nullptr, 0, 1, done), Status::done);
  EXPECT_EQ(::poll(&fd, 1, 0), 1);
  transports[1]->disarm();
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  doorbells[1].ring();  // as an abort would
  EXPECT_EQ(::poll(&fd, 1, 0), 1);
}

TEST(Shm, LeavesNothingBehind) {
  const auto count = [] {
    std::array<size_t, 2> found{};
    for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) ++found[0];
    std::string line;
    for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);)
      found[1] += line.find("tutti-inbox") != std::string::npos;
    return found;
  };
  const auto before = count();
  connected(4);
  EXPECT_EQ(count(), before);
}

TEST(Shm, TooFewDescriptorsIsOneErrorWithTheRemedy) {
  if (test::address_sanitizer) GTEST_SKIP() << "UBSan opens a pipe to look at a vtable, and finds no descriptor";
  for (const int left : {4, 10, 18, 26}) {
    const int result = in_child([&] {
      const auto bootstraps = fake_bootstraps(4);
      int next = ::dup(0);
      ::close(next);
      const rlimit limit{rlim_t(next + left), rlim_t(next + left)};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
      const std::vector<std::string> said = sentences(std::vector<ShmOptions>(4));
      for (const std::string& sentence : said)
        if (sentence.find("ulimit -n") == std::string::npos || sentence != said[0]) {
          std::fprintf(stderr, "with %d descriptors left: \"%s\"\n", left, sentence.c_str());
          return 1;
        }
      return 0;
    });
    EXPECT_EQ(result, 0) << left;
  }
}

TEST(Shm, TooLittleAddressSpaceIsAnErrorWithTheRemedy) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer cannot run with a limit on address space";
  const int result = in_child([] {
    ShmOptions options;
    options.slot_bytes = 64 << 20;
    const rlimit limit{rlim_t{1} << 28, rlim_t{1} << 28};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    const std::vector<std::string> said = sentences({options, options});
    std::fprintf(stderr, "said: \"%s\"\n", said[0].c_str());
    return said[0].find("ulimit -v") != std::string::npos && said[0] == said[1] ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
}

// --- The handshake

struct Meeting {
  std::array<ShmListener, 2> listeners{open_shm_listener(), open_shm_listener()};
  Fd inbox{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  Doorbell doorbell;
  std::array<int, 2> gift{inbox.get(), doorbell.fd()};

  // Both ranks' gifts.
  std::array<bool, 2> meet(const Key& key0, const Key& key1, TimeNs timeout_ns = 10 * ns_per_s) {
    std::array<bool, 2> reached{};
    const std::array<ShmToken, 2> tokens{listeners[0].token, listeners[1].token};
    const auto run = [&](int rank) {
      const ShmCandidate candidate{1 - rank, tokens[size_t(1 - rank)]};
      const ShmHandshake handshake{rank == 0 ? key0 : key1, rank, gift, now_ns() + timeout_ns, [] {}};
      const std::vector<ShmGift> gifts =
          exchange_gifts(std::move(listeners[size_t(rank)]), {&candidate, 1}, handshake);
      reached[size_t(rank)] = gifts[0].size() == gift.size();
    };
    std::jthread other([&] { run(1); });
    run(0);
    other.join();
    return reached;
  }
};

Fd connect_to(const ShmToken& token) {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  std::string name = "tutti-";
  for (const unsigned char byte : token) {
    constexpr std::string_view digits = "0123456789abcdef";
    name += {digits[byte / 16], digits[byte % 16]};
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  return fd;
}

TEST(ShmHandshake, RanksOfOneKeyMeet) {
  Meeting meeting;
  EXPECT_EQ(meeting.meet(Key{1}, Key{1}), (std::array{true, true}));
}

TEST(ShmHandshake, AnotherKeyGetsNothing) {
  Meeting meeting;
  EXPECT_EQ(meeting.meet(Key{1}, Key{2}), (std::array{false, false}));
}

TEST(ShmHandshake, StrangersChangeNothing) {
  Meeting meeting;
  std::vector<Fd> strangers;
  const std::vector<char> garbage(4096, 'x');
  for (size_t i = 0; i < 200; ++i) {
    strangers.push_back(connect_to(meeting.listeners[0].token));
    if (i % 3 != 0) ::send(strangers.back().get(), garbage.data(), i % 3 == 1 ? 52 : garbage.size(), MSG_NOSIGNAL);
  }
  EXPECT_EQ(meeting.meet(Key{1}, Key{1}), (std::array{true, true}));
  std::array<char, 128> answer;
  for (const Fd& stranger : strangers) {
    alignas(cmsghdr) char control[256];
    iovec part{answer.data(), answer.size()};
    msghdr message{nullptr, 0, &part, 1, control, sizeof control, 0};
    while (::recvmsg(stranger.get(), &message, MSG_DONTWAIT) > 0) EXPECT_EQ(message.msg_controllen, 0u);
  }
}

TEST(ShmHandshake, APeerThatNeverComesIsATimeoutThatNamesIt) {
  Meeting meeting;
  const ShmCandidate candidate{7, meeting.listeners[1].token};
  const Key key{};
  const ShmHandshake handshake{key, 0, meeting.gift, now_ns() + 50 * ns_per_ms, [] {}};
  try {
    exchange_gifts(std::move(meeting.listeners[0]), {&candidate, 1}, handshake);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_NE(std::string(error.what()).find("rank 7"), std::string::npos);
  }
}

TEST(ShmHandshake, APeerThatCannotBeReachedIsNoError) {
  Meeting meeting;
  const ShmCandidate candidate{1, ShmToken{}};
  const Key key{};
  const ShmHandshake handshake{key, 0, meeting.gift, now_ns() + ns_per_s, [] {}};
  EXPECT_TRUE(exchange_gifts(std::move(meeting.listeners[0]), {&candidate, 1}, handshake)[0].empty());
}

}  // namespace
}  // namespace tutti
