// Messages that stay with their sender, in private memory: read, read on and written by way of the kernel, or an error that says why not.
#include "transport/shm/shm_peek.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"
#include "transport/shm/shm.h"
#include "transport/traffic.h"

namespace tutti {
namespace {

constexpr size_t bytes = 100'000;
constexpr uint64_t number = 0x1234'5678'9abc'def0;

ShmProof proof_at(const uint64_t& at) { return {number, uint64_t(reinterpret_cast<uintptr_t>(&at))}; }

// A process of its own, whose copy of `memory` differs from this one's.
class Child {
 public:
  Child() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      std::memset(memory.data(), 7, bytes);
      if (::write(ends[1], "r", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char ready = 0;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

  std::vector<std::byte> memory = std::vector<std::byte>(bytes);
  uint64_t proof = number;

 private:
  pid_t pid_ = 0;
};

class ShmPeeks : public ::testing::Test {
 protected:
  void SetUp() override {
    Child child;
    if (!ShmPeek(child.pid(), proof_at(child.proof)).works()) GTEST_SKIP() << "this system forbids process_vm_readv";
  }
};

TEST_F(ShmPeeks, ReadWhatTheOtherProcessHas) {
  Child child;
  const ShmPeek peek(child.pid(), proof_at(child.proof));
  std::vector<std::byte> received(bytes);
  for (const size_t n : {bytes, size_t{1}, size_t{0}, size_t{4097}}) {
    std::fill(received.begin(), received.end(), std::byte{0});
    ASSERT_EQ(peek.read(received.data(), child.memory.data() + 1, std::min(n, bytes - 1)), 0);
    const auto wrong = [](std::byte b) { return b != std::byte{7}; };
    const auto end = received.begin() + long(std::min(n, bytes - 1));
    EXPECT_EQ(std::find_if(received.begin(), end, wrong), end);
    EXPECT_EQ(std::count(end, received.end(), std::byte{0}), received.end() - end);
  }
}

// In larger pieces where a system call would take too many, in pieces of which the last is short, and in one.
TEST_F(ShmPeeks, ReadAndWriteFromTheEnd) {
  constexpr size_t longest = 40 * block_piece_bytes + 12'345;
  auto* const theirs = static_cast<std::byte*>(::mmap(nullptr, longest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(theirs, MAP_FAILED);
  fill(theirs, longest, 3);
  Child child;
  const std::vector<std::byte> sent(theirs, theirs + longest);
  std::memset(theirs, 0, longest);  // not the child's
  const ShmPeek peek(child.pid(), proof_at(child.proof));
  for (const size_t n : {longest, 3 * block_piece_bytes, block_piece_bytes + 1, size_t{100}, size_t{0}}) {
    std::vector<std::byte> received(longest);
    ASSERT_EQ(peek.read(received.data(), theirs + (longest - n), n, true), 0);
    EXPECT_TRUE(std::equal(received.begin(), received.begin() + long(n), sent.end() - long(n))) << n;
    EXPECT_EQ(std::count(received.begin() + long(n), received.end(), std::byte{0}), long(longest - n)) << n;
  }
  std::vector<std::byte> written(longest), received(longest);
  fill(written.data(), longest, 4);
  ASSERT_EQ(peek.write(written.data(), theirs, longest - 7, true), 0);
  ASSERT_EQ(peek.read(received.data(), theirs, longest), 0);
  EXPECT_TRUE(std::equal(written.begin(), written.end() - 7, received.begin()));
  EXPECT_TRUE(std::equal(sent.end() - 7, sent.end(), received.end() - 7));
  ::munmap(theirs, longest);
}

TEST_F(ShmPeeks, WriteToTheOtherProcess) {
  Child child;
  const ShmPeek peek(child.pid(), proof_at(child.proof));
  const std::vector<std::byte> sent(1000, std::byte{9});
  ASSERT_EQ(peek.write(sent.data(), child.memory.data() + 3, sent.size()), 0);
  std::vector<std::byte> received(sent.size() + 2);
  ASSERT_EQ(peek.read(received.data(), child.memory.data() + 2, received.size()), 0);
  EXPECT_EQ(received.front(), std::byte{7});
  EXPECT_EQ(received.back(), std::byte{7});
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin() + 1));
  EXPECT_EQ(ShmPeek(child.pid(), {number + 1, proof_at(child.proof).number_at}).write(sent.data(), child.memory.data(), 1), EFAULT);
  EXPECT_EQ(peek.write(sent.data(), nullptr, 1), EFAULT);
  child.end();
  EXPECT_EQ(peek.write(sent.data(), child.memory.data(), 1), ESRCH);
}

TEST_F(ShmPeeks, KnowAProcessThatIsNotThePeer) {
  Child child;
  EXPECT_EQ(ShmPeek(child.pid(), {number + 1, proof_at(child.proof).number_at}).read(nullptr, nullptr, 0), EFAULT);
  EXPECT_EQ(ShmPeek(child.pid(), {number, 64}).read(nullptr, nullptr, 0), EFAULT);
}

TEST_F(ShmPeeks, FailWhereNotAllIsMapped) {
  const size_t page = size_t(::sysconf(_SC_PAGESIZE));
  void* const pages = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(pages) + page, page), 0);
  Child child;
  const ShmPeek peek(child.pid(), proof_at(child.proof));
  std::vector<std::byte> received(2 * page);
  EXPECT_EQ(peek.read(received.data(), static_cast<std::byte*>(pages), page), 0);
  EXPECT_EQ(peek.read(received.data(), static_cast<std::byte*>(pages), page + 1), EFAULT);
  ::munmap(pages, page);
}

TEST_F(ShmPeeks, FailWhereTheProcessHasEnded) {
  Child child;
  const ShmPeek peek(child.pid(), proof_at(child.proof));
  ASSERT_TRUE(peek.works());
  child.end();
  EXPECT_EQ(peek.read(nullptr, nullptr, 0), ESRCH);
}

// Who revokes may free its memory at once, before a reader comes.
TEST_F(ShmPeeks, FindRevokedMemoryGone) {
  const auto bootstraps = fake_bootstraps(2);
  const auto ranks = on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  Endpoint &lender = *ranks[0]->endpoint(1, 0), &reader = *ranks[1]->endpoint(0, 0);
  ASSERT_TRUE(lender.lends_private());
  constexpr size_t message = 256 * 1024;
  void* const memory = ::mmap(nullptr, message, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  size_t done = 0;
  const LentRegion all{LentRegion::private_number, nullptr, ~size_t{0}};
  ASSERT_EQ(lender.lend(all, static_cast<std::byte*>(memory), message, 1, done), Status::done);
  EXPECT_EQ(lender.flush(), Status::again);
  lender.revoke();
  ::munmap(memory, message);
  std::vector<std::byte> received(message);
  EXPECT_EQ(reader.recv(received.data(), message, 1, done), Status::failed);
  EXPECT_EQ(reader.fault().kind, FaultKind::closed) << reader.fault().error_number;
}

// Messages of one call that lie one behind the other, some at other places or of another call, and a receiver that has said how
// much memory they fill, or not.
TEST_F(ShmPeeks, ReadOnWhereMessagesFollowEachOther) {
  constexpr size_t message = 32 * 1024, n = 4;
  const auto bootstraps = fake_bootstraps(2);
  const auto ranks = on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  Endpoint &lender = *ranks[0]->endpoint(1, 0), &reader = *ranks[1]->endpoint(0, 0);
  const LentRegion all{LentRegion::private_number, nullptr, ~size_t{0}};
  std::vector<std::byte> memory(2 * n * message);
  fill(memory.data(), memory.size(), 5);
  struct Case {
    size_t said;                     // messages that the receiver says memory for; 0: nothing
    size_t told = 0;                 // that the sender says are there with the first one; 0: nothing
    std::array<size_t, n> at;        // where each lies, in messages
    std::array<uint64_t, n> calls;
    std::array<size_t, n> to;        // where it is received, in messages
    size_t read;                     // how many are there once the first one is received
  };
  const std::array<size_t, n> row{0, 1, 2, 3};
  const std::array<uint64_t, n> one{1, 1, 1, 1};
  const std::vector<Case> cases = {
      {4, 0, row, one, row, 4},          {3, 0, row, one, row, 3},          {1, 0, row, one, row, 1},
      {0, 0, row, one, row, 1},          {4, 0, {0, 2, 3, 4}, one, row, 1}, {4, 0, {0, 1, 5, 6}, one, row, 2},
      {4, 0, row, {1, 1, 2, 2}, row, 2}, {4, 0, row, one, {0, 1, 3, 2}, 4}, {4, 4, row, one, row, 4},
      {3, 4, row, one, row, 3},          {4, 3, row, one, row, 3},          {0, 4, row, one, row, 1}};
  // Once as they come, each when the one before it has been received, and once viewed instead of received, the third one.
  for (const bool one_by_one : {false, true})
    for (const bool is_third_viewed : {false, true})
  for (size_t which = 0; which < cases.size(); ++which) {
    const Case& the = cases[which];
    if (one_by_one && the.told == 0) continue;
    std::vector<std::byte> received(n * message);
    const auto lend = [&](size_t k) {
      size_t done = 0;
      const std::byte* const at = memory.data() + the.at[k] * message;
      if (k == 0 && the.told > 0) lender.may_lend_on(at, the.told * message, Puts::nowhere);
      ASSERT_EQ(lender.lend(all, at, message, the.calls[k], done), Status::done);
    };
    for (size_t k = 0; k < (one_by_one ? 1 : n); ++k) lend(k);
    if (the.said > 0) reader.may_read_on(received.data(), the.said * message);
    for (size_t k = 0; k < n; ++k) {
      size_t done = 0;
      if (one_by_one && k > 0) lend(k);
      EXPECT_EQ(lender.flush(), Status::again) << which << ": message " << k << " is lent until it is received";
      if (is_third_viewed && k == 2) {
        const std::byte *place = nullptr, *again = nullptr;
        ASSERT_EQ(reader.view(message, the.calls[k], place), Status::done);
        ASSERT_EQ(reader.view(message, the.calls[k], again), Status::done);
        EXPECT_EQ(place, again);
        std::memmove(received.data() + the.to[k] * message, place, message);
        ASSERT_EQ(reader.release(), Status::done);
        continue;
      }
      ASSERT_EQ(reader.recv(received.data() + the.to[k] * message, message, the.calls[k], done), Status::done);
      if (k > 0) continue;
      const size_t there = the.read * message;
      EXPECT_TRUE(std::equal(received.begin(), received.begin() + long(there), memory.begin())) << which;
      const auto untouched = [](std::byte b) { return b == std::byte{0}; };
      EXPECT_TRUE(std::all_of(received.begin() + long(there), received.end(), untouched)) << which;
    }
    EXPECT_EQ(lender.flush(), Status::done);
    for (size_t k = 0; k < n; ++k) {
      const std::byte* const sent = memory.data() + the.at[k] * message;
      EXPECT_TRUE(std::equal(sent, sent + message, received.begin() + long(the.to[k] * message))) << which << " " << k;
    }
  }
}

// From its beginning or its end, and by turns with a copy of the receiver's own, which is longer than that or shorter and may have begun.
TEST_F(ShmPeeks, ReadABlockByTurnsWithAnOwnCopy) {
  constexpr size_t message = 200 * 1024, n = 5, block = n * message;
  const auto bootstraps = fake_bootstraps(2);
  const auto ranks = on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  Endpoint &lender = *ranks[0]->endpoint(1, 0), &reader = *ranks[1]->endpoint(0, 0);
  const LentRegion all{LentRegion::private_number, nullptr, ~size_t{0}};
  std::vector<std::byte> memory(block), mine(2 * block);
  fill(memory.data(), memory.size(), 5);
  fill(mine.data(), mine.size(), 6);
  for (const bool from_end : {false, true})
    for (const size_t own_bytes : {size_t{0}, size_t{1}, block / 2, block, 2 * block})
      for (const size_t begun : {size_t{0}, own_bytes / 2}) {
        std::vector<std::byte> received(block), copied(2 * block);
        OwnCopy own{copied.data(), mine.data(), own_bytes, 0, Store::cached, from_end};
        own.copy_next(begun);
        for (size_t k = 0; k < n; ++k) {
          size_t done = 0;
          lender.may_lend_on(memory.data() + k * message, block - k * message, Puts::nowhere);
          ASSERT_EQ(lender.lend(all, memory.data() + k * message, message, 1, done), Status::done);
          reader.may_read_on(received.data() + k * message, block - k * message, from_end, &own);
          done = 0;
          ASSERT_EQ(reader.recv(received.data() + k * message, message, 1, done), Status::done);
          EXPECT_TRUE(received == memory) << "all of it by its first message";
        }
        EXPECT_EQ(own.copied, std::min(own_bytes, begun + block)) << own_bytes << " " << begun;
        const size_t at = from_end ? own.left() : 0;
        EXPECT_TRUE(std::equal(copied.begin() + long(at), copied.begin() + long(at + own.copied), mine.begin() + long(at)));
        own.copy_next(own.left());
        EXPECT_TRUE(std::equal(copied.begin(), copied.begin() + long(own_bytes), mine.begin()));
        EXPECT_EQ(std::count(copied.begin() + long(own_bytes), copied.end(), std::byte{0}), long(copied.size() - own_bytes));
      }
}

// What was read with a message before it is forgotten where that comes in another way, and so are its later contents not missed.
TEST_F(ShmPeeks, ForgetWhatWasReadOnAndThenSent) {
  constexpr size_t message = 32 * 1024;
  const auto bootstraps = fake_bootstraps(2);
  const auto ranks = on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  Endpoint &lender = *ranks[0]->endpoint(1, 0), &reader = *ranks[1]->endpoint(0, 0);
  const LentRegion all{LentRegion::private_number, nullptr, ~size_t{0}};
  std::vector<std::byte> memory(2 * message, std::byte{1}), received(2 * message);
  std::byte *const second = memory.data() + message, *const place = received.data() + message;
  size_t done = 0;
  lender.may_lend_on(memory.data(), 2 * message, Puts::nowhere);
  ASSERT_EQ(lender.lend(all, memory.data(), message, 1, done), Status::done);
  reader.may_read_on(received.data(), 2 * message);
  done = 0;
  ASSERT_EQ(reader.recv(received.data(), message, 1, done), Status::done);
  EXPECT_EQ(*place, std::byte{1}) << "read on";
  for (const bool lends : {false, true}) {  // twice the same message, sent and then lent
    std::fill(second, second + message, lends ? std::byte{3} : std::byte{2});
    done = 0;
    ASSERT_EQ(lends ? lender.lend(all, second, message, 1, done) : lender.send(second, message, 1, done), Status::done);
    done = 0;
    ASSERT_EQ(reader.recv(place, message, 1, done), Status::done);
    EXPECT_TRUE(std::equal(second, second + message, place)) << lends;
  }
}

// A receiver that offers where messages belong, and a sender that lends them.
class ShmOffers : public ShmPeeks {
 protected:
  static constexpr size_t message = 32 * 1024, n = 4, all_bytes = n * message;

  void SetUp() override {
    ShmPeeks::SetUp();
    if (IsSkipped()) return;
    fill(memory.data(), memory.size(), 5);
  }
  // The k-th message, as the sender has it.
  Status lend(size_t k, Puts puts, uint64_t call = 1) {
    size_t done = 0;
    const std::byte* const at = memory.data() + k * message;
    lender.may_lend_on(at, (n - k) * message, puts);
    return lender.lend({LentRegion::private_number, nullptr, ~size_t{0}}, at, message, call, done);
  }
  Status recv(size_t k) {
    size_t done = 0;
    reader.may_read_on(received.data() + k * message, (n - k) * message);
    return reader.recv(received.data() + k * message, message, 1, done);
  }
  // Until all has come.
  void recv_all() {
    for (size_t k = 0; k < n; ++k) {
      Status status = Status::again;
      for (int look = 0; look < 3 && status == Status::again; ++look) status = recv(k);
      ASSERT_EQ(status, Status::done) << k;
    }
    EXPECT_TRUE(received == memory);
  }
  bool is_there(size_t from, size_t until) const {
    return std::equal(received.begin() + long(from), received.begin() + long(until), memory.begin() + long(from));
  }
  bool is_untouched(size_t from, size_t until) const {
    return std::all_of(received.begin() + long(from), received.begin() + long(until), [](std::byte b) { return b == std::byte{0}; });
  }

  std::vector<std::shared_ptr<FakeBootstrap>> bootstraps = fake_bootstraps(2);
  std::vector<std::unique_ptr<Transport>> ranks =
      on_each_rank(bootstraps, [this](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  Endpoint &lender = *ranks[0]->endpoint(1, 0), &reader = *ranks[1]->endpoint(0, 0);
  std::vector<std::byte> memory = std::vector<std::byte>(all_bytes), received = std::vector<std::byte>(all_bytes);
};

TEST_F(ShmOffers, AreWrittenToByTheSenderForItsPart) {
  for (const Offer part : {Offer::half, Offer::all}) {
    std::fill(received.begin(), received.end(), std::byte{0});
    reader.offer(received.data(), all_bytes, 1, part);
    ASSERT_EQ(lend(0, Puts::else_sends), Status::done);
    const size_t read = part == Offer::all ? 0 : all_bytes / 2;
    EXPECT_TRUE(is_untouched(0, read));
    EXPECT_TRUE(is_there(read, all_bytes));
    for (size_t k = 1; k < n; ++k) ASSERT_EQ(lend(k, Puts::else_sends), Status::done);
    EXPECT_EQ(lender.flush(), Status::again) << "what the receiver has yet to read";
    recv_all();
    EXPECT_EQ(lender.flush(), Status::done);
  }
}

// Messages that would not be lent are, where they lie with the receiver already.
TEST_F(ShmOffers, AreOfSmallMessagesToo) {
  const std::array<size_t, 5> sizes{16 * 1024, 100, 60 * 1024, 8, all_bytes - 76 * 1024 - 108};
  for (const Offer part : {Offer::half, Offer::declined, Offer::all}) {
    reader.offer(received.data(), all_bytes, 1, part);
    for (const bool receives : {false, true}) {
      size_t at = 0;
      for (size_t k = 0; k < sizes.size(); at += sizes[k++]) {
        size_t done = 0;
        if (receives) {
          Status status = Status::again;
          while (status == Status::again) status = reader.recv(received.data() + at, sizes[k], 1, done);
          ASSERT_EQ(status, Status::done) << k;
          continue;
        }
        lender.may_lend_on(memory.data() + at, all_bytes - at, k == 0 ? Puts::else_sends : Puts::goes_on);
        const LentRegion region{LentRegion::private_number, nullptr, ~size_t{0}};
        ASSERT_EQ(lender.lend(region, memory.data() + at, sizes[k], 1, done), Status::done) << k;
        EXPECT_EQ(lender.flush(), part == Offer::declined ? Status::done : Status::again);
      }
    }
    EXPECT_TRUE(received == memory);
    EXPECT_EQ(lender.flush(), Status::done);
    std::fill(received.begin(), received.end(), std::byte{0});
  }
}

// Whose contents change afterwards, as a caller's do.
TEST_F(ShmOffers, AreOfOneMessageAndNotOfLaterOnes) {
  reader.offer(received.data(), all_bytes, 1, Offer::all);
  for (int turn = 0; turn < 3; ++turn) {
    std::fill(received.begin(), received.end(), std::byte{0});
    for (size_t k = 0; k < n; ++k) ASSERT_EQ(lend(k, Puts::else_lends), Status::done);
    EXPECT_EQ(is_untouched(0, all_bytes), turn > 0) << "offered once";
    recv_all();
    fill(memory.data(), memory.size(), uint64_t(turn));
  }
}

TEST_F(ShmOffers, AreNotTakenForAnotherCall) {
  reader.offer(received.data(), all_bytes, 1, Offer::all);
  ASSERT_EQ(lend(0, Puts::else_lends, 2), Status::done);
  EXPECT_TRUE(is_untouched(0, all_bytes));
  EXPECT_EQ(recv(0), Status::failed);
  EXPECT_EQ(reader.fault().kind, FaultKind::mismatch);
  EXPECT_EQ(reader.fault().bytes, message);
}

TEST_F(ShmOffers, AreFoundToMismatchByTheMessagesSize) {
  reader.offer(received.data(), all_bytes, 1, Offer::all);
  ASSERT_EQ(lend(0, Puts::else_lends), Status::done);
  size_t done = 0;
  EXPECT_EQ(reader.recv(received.data(), 2 * message, 1, done), Status::failed);
  EXPECT_EQ(reader.fault().kind, FaultKind::mismatch);
  EXPECT_EQ(reader.fault().bytes, message);
}

TEST_F(ShmOffers, AreNotWrittenToBeyondTheirEnd) {
  reader.offer(received.data(), offered_bytes_min, 1, Offer::all);
  ASSERT_EQ(lend(0, Puts::else_lends), Status::done);
  EXPECT_TRUE(is_there(0, offered_bytes_min));
  EXPECT_TRUE(is_untouched(offered_bytes_min, all_bytes));
  ASSERT_EQ(recv(0), Status::done);
  reader.offer(received.data(), offered_bytes_min, 1, Offer::all);
  size_t done = 0;
  lender.may_lend_on(memory.data(), all_bytes, Puts::else_lends);
  ASSERT_EQ(lender.lend({LentRegion::private_number, nullptr, ~size_t{0}}, memory.data(), offered_bytes_min + 1, 1, done), Status::done);
  EXPECT_TRUE(is_untouched(offered_bytes_min, all_bytes));
}

TEST_F(ShmOffers, AreNoneWhileMessagesAreUnderWay) {
  size_t done = 0;
  ASSERT_EQ(lender.send(memory.data(), message, 1, done), Status::done);
  reader.offer(received.data(), all_bytes, 1, Offer::all);
  ASSERT_EQ(lend(1, Puts::else_lends), Status::done);
  EXPECT_TRUE(is_untouched(0, all_bytes)) << "what is offered is for the message before";
  ASSERT_EQ(recv(0), Status::done);
  ASSERT_EQ(recv(1), Status::done);
  EXPECT_TRUE(is_there(0, 2 * message));
}

TEST_F(ShmOffers, AreDeclinedAndSmallOnesNotMade) {
  reader.offer(received.data(), all_bytes, 1, Offer::half);
  for (size_t k = 0; k < n; ++k) ASSERT_EQ(lend(k, Puts::else_lends), Status::done);
  recv_all();
  std::fill(received.begin(), received.end(), std::byte{0});
  reader.offer(received.data(), offered_bytes_min - 1, 1, Offer::all);
  reader.offer(received.data(), all_bytes, 1, Offer::declined);
  ASSERT_EQ(lend(0, Puts::else_sends), Status::done);
  EXPECT_EQ(lender.flush(), Status::done) << "it was sent";
  EXPECT_TRUE(is_untouched(0, all_bytes));
  ASSERT_EQ(recv(0), Status::done);
  EXPECT_TRUE(is_there(0, message));
}

// What is not part of a stream is lent to who waits for it, and sent to who does not.
TEST_F(ShmOffers, OfNoMemoryAskForMessagesThatAreNotAStream) {
  const auto send_at_leisure = [&] {
    size_t done = 0;
    lender.may_lend_on(memory.data(), message, Puts::at_leisure);
    EXPECT_EQ(lender.lend({LentRegion::private_number, nullptr, ~size_t{0}}, memory.data(), message, 1, done), Status::done);
    return lender.flush() == Status::again;
  };
  const auto is_received = [&] {
    std::fill(received.begin(), received.end(), std::byte{0});
    return recv(0) == Status::done && is_there(0, message) && lender.flush() == Status::done;
  };
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  EXPECT_FALSE(send_at_leisure()) << "nobody waits";
  EXPECT_TRUE(is_received());
  for (int turn = 0; turn < 3; ++turn) {
    rest();
    reader.offer(nullptr, message, 1, Offer::reads);
    EXPECT_TRUE(send_at_leisure()) << turn;
    EXPECT_TRUE(is_received()) << turn;
  }
  rest();
  EXPECT_FALSE(send_at_leisure()) << "waited before";
  EXPECT_TRUE(is_received());
  rest();
  reader.offer(nullptr, message, 1, Offer::reads);
  ASSERT_EQ(lend(0, Puts::else_sends), Status::done);
  EXPECT_EQ(lender.flush(), Status::done) << "no memory was offered to put it to";
  EXPECT_TRUE(is_received());
}

// Who gives its memory up, once nobody is in it, finds it as it left it.
TEST_F(ShmOffers, AreNotWrittenToOnceRevoked) {
  reader.offer(received.data(), all_bytes, 1, Offer::all);
  reader.revoke();
  EXPECT_FALSE(reader.is_entered());
  EXPECT_EQ(lend(0, Puts::else_sends), Status::failed);
  EXPECT_EQ(lender.fault().kind, FaultKind::closed);
  EXPECT_TRUE(is_untouched(0, all_bytes));
  EXPECT_FALSE(reader.is_entered());
}

// Memory that cannot be written is no reason to fail: the message is sent, and so are others from then on.
TEST_F(ShmOffers, ThatCannotBeWrittenToAreDoneWithout) {
  void* const closed = ::mmap(nullptr, all_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(closed, MAP_FAILED);
  for (int turn = 0; turn < 2; ++turn) {
    reader.offer(static_cast<std::byte*>(closed), all_bytes, 1, Offer::all);
    for (size_t k = 0; k < n; ++k) {
      Status status = lend(k, turn == 0 ? Puts::else_lends : Puts::else_sends);
      ASSERT_EQ(status, Status::done) << k;
      for (status = recv(k); status == Status::again;) status = recv(k);
      ASSERT_EQ(status, Status::done) << k;
    }
    EXPECT_TRUE(received == memory);
    std::fill(received.begin(), received.end(), std::byte{0});
  }
  ::munmap(closed, all_bytes);
}

TEST_F(ShmPeeks, AreOfRanksThatLend) {
  const auto bootstraps = fake_bootstraps(2);
  const auto ranks = on_each_rank(bootstraps, [&](int rank) {
    ShmOptions options;
    options.lends = rank == 0;
    return make_shm(*bootstraps[size_t(rank)], options);
  });
  EXPECT_TRUE(ranks[0]->endpoint(1, 0)->lends_private());
  EXPECT_FALSE(ranks[1]->endpoint(0, 0)->lends_private());
}

}  // namespace
}  // namespace tutti
