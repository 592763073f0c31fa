// A small operation over shared memory allocates nothing, takes no lock and makes no system call; where ranks share
// cores it yields no oftener than others must get their turn: counted.
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace {

// What the current thread did since it began to count.
struct Counts {
  bool counting = false;
  long allocations = 0;
  long locks = 0;
  long system_calls = 0;
  int last_system_call = -1;
  long yields = 0;
};
thread_local Counts counts;

void on_trapped_system_call(int, siginfo_t* info, void*) {
  counts.system_calls += counts.counting;
  counts.last_system_call = info->si_syscall;
}

// From here on, each system call of this thread but those that end it is trapped (and not made).
void trap_system_calls() {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int allowed : {SYS_rt_sigreturn, SYS_exit, SYS_exit_group, SYS_munmap, SYS_madvise, SYS_rt_sigprocmask}) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unsigned(allowed), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  struct sigaction action = {};
  action.sa_sigaction = on_trapped_system_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ASSERT_EQ(::sigaction(SIGSYS, &action, nullptr), 0);
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

}  // namespace

void* operator new(size_t bytes) {
  counts.allocations += counts.counting;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// (Not inline: gcc would see free() beside new.)
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  counts.locks += counts.counting;
  return real(mutex);
}

extern "C" int sched_yield() noexcept {
  ++counts.yields;
  return int(::syscall(SYS_sched_yield));
}

namespace tutti {
namespace {

TEST(DataPath, ASmallCallOverSharedMemoryAllocatesLocksAndAsksTheSystemForNothing) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  ::setenv("TUTTI_SPIN_US", "10000000", 1);  // a rank that waits for a late one spins, however late
  test::RanksOptions options;
  options.transport = "shm";
  test::run_processes(2, options, [](int rank, tuttiComm_t comm) {
    std::thread([comm, rank] {
      float values[4] = {1, 2}, sums[2] = {}, blocks[4] = {}, got[2] = {};
      const auto call_each = [&] {
        const tuttiResult_t reduced = tuttiAllReduce(values, sums, 2, tuttiFloat32, tuttiSum, comm, nullptr);
        const tuttiResult_t sent = tuttiBroadcast(values, values, 2, tuttiFloat32, 0, comm, nullptr);
        const tuttiResult_t met = tuttiBarrier(comm, nullptr);
        const tuttiResult_t gathered = tuttiAllGather(values, blocks, 2, tuttiFloat32, comm, nullptr);
        const tuttiResult_t scattered =
            tuttiReduceScatter(blocks, values + 2, 2, tuttiFloat32, tuttiMax, comm, nullptr);
        const tuttiResult_t turned = tuttiAlltoAll(blocks, blocks, 2, tuttiFloat32, comm, nullptr);
        const size_t counts_of_blocks[2] = {size_t{1} + size_t(rank), size_t{2} - size_t(rank)};
        const tuttiResult_t of_sizes = tuttiAlltoAllV(values, counts_of_blocks, nullptr, blocks, counts_of_blocks, nullptr,
                                                      tuttiFloat32, comm, nullptr);
        bool exchanged = tuttiGroupStart() == tuttiSuccess;
        exchanged &= tuttiSend(sums, 2, tuttiFloat32, 1 - rank, comm, nullptr) == tuttiSuccess;
        exchanged &= tuttiRecv(got, 2, tuttiFloat32, 1 - rank, comm, nullptr) == tuttiSuccess;
        exchanged &= tuttiGroupEnd() == tuttiSuccess;
        exchanged &= tuttiGroupStart() == tuttiSuccess;
        exchanged &= tuttiAllReduce(values, got, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiSuccess;
        exchanged &= tuttiAllGather(values, blocks, 2, tuttiFloat32, comm, nullptr) == tuttiSuccess;
        exchanged &= tuttiGroupEnd() == tuttiSuccess;
        exchanged &= tuttiSendRecv(sums, 2, 1 - rank, got, 2, 1 - rank, tuttiFloat32, comm, nullptr) == tuttiSuccess;
        return exchanged && reduced == tuttiSuccess && sent == tuttiSuccess && met == tuttiSuccess && gathered == tuttiSuccess &&
               scattered == tuttiSuccess && turned == tuttiSuccess && of_sizes == tuttiSuccess;
      };
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(call_each());
      trap_system_calls();
      counts.counting = true;
      bool good = true;
      for (int i = 0; i < 2000; ++i) good = call_each() && good;
      counts.counting = false;
      EXPECT_TRUE(good);
      EXPECT_EQ(sums[1], 4);
      EXPECT_EQ(got[1], 4);
      EXPECT_EQ(counts.allocations, 0);
      EXPECT_EQ(counts.locks, 0);
      EXPECT_EQ(counts.system_calls, 0) << "system call " << counts.last_system_call;
    }).join();
  });
  ::unsetenv("TUTTI_SPIN_US");
}

// Two ranks on each of two cores. In each call every core must change hands once, so a rank need yield once in two
// calls. Ranks that yielded while they awaited another core's rank did so three times in four calls. Other programs on
// the cores make yields of their own, hence the least of many batches. Ranks that may run on both cores must find out by themselves
// who runs beside them.
TEST(DataPath, RanksThatShareCoresYieldOnceForEachTurnOfTheOthers) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<size_t> cores;
  for (size_t core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (cores.size() < 2) GTEST_SKIP() << "one core: no rank can be on another";
  const auto stay_on = [](std::span<const size_t> own) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const size_t core : own) CPU_SET(core, &set);
    return ::sched_setaffinity(0, sizeof set, &set) == 0;
  };
  for (const bool are_bound : {true, false}) {
    SCOPED_TRACE(are_bound ? "bound to a core" : "free to move, as far as their peers know");
    const auto core_of = [&](int rank) { return std::span(cores).subspan(size_t(rank % 2), 1); };
    test::RanksOptions options;
    options.transport = "shm";
    options.before_join = [&](int rank) { ASSERT_TRUE(are_bound ? stay_on(core_of(rank)) : stay_on(cores)); };
    test::run_processes(4, options, [&](int rank, tuttiComm_t comm) {
      constexpr int batches = 100, calls = 200;
      ASSERT_TRUE(stay_on(core_of(rank)));
      double least = 1e9;
      for (int batch = 0; batch < batches; ++batch) {
        counts.yields = 0;
        for (int i = 0; i < calls; ++i) {
          float values[2] = {1, 2}, sums[2] = {};
          ASSERT_EQ(tuttiAllReduce(values, sums, 2, tuttiFloat32, tuttiSum, comm, nullptr), tuttiSuccess);
          ASSERT_EQ(sums[1], 8);
        }
        least = std::min(least, double(counts.yields) / calls);
      }
      EXPECT_LE(least, 0.6);
    });
  }
}

// Two ranks on one core. In every call one of them has its turn second, and finds all that it needs. Were it to go on into the next call, it would
// have its turn first there, and as far as each can tell every other call would take three times as long as the one before. So both end
// each call in turn. Other programs on the core change the order, hence the least of many batches.
TEST(DataPath, OfTwoRanksOnACoreNoneMakesTwoMiddlingCallsInATurn) {
  cpu_set_t one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof one, &one), 0);
  for (size_t core = 0, kept = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &one) && kept++ > 0) CPU_CLR(core, &one);
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& ended_last = *new (shared) std::atomic<int>(-1);
  test::RanksOptions options;
  options.transport = "shm";
  options.before_join = [&](int) { ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0); };
  test::run_processes(2, options, [&](int rank, tuttiComm_t comm) {
    constexpr size_t count = 32768;  // of a block
    constexpr int batches = 50, calls = 40;
    const std::vector<float> block(count, float(rank + 1));
    std::vector<float> blocks(2 * count);
    int least = calls;
    for (int batch = 0; batch < batches; ++batch) {
      int twice = 0;
      for (int i = 0; i < calls; ++i) {
        ASSERT_EQ(tuttiAllGather(block.data(), blocks.data(), count, tuttiFloat32, comm, nullptr), tuttiSuccess);
        twice += ended_last.exchange(rank) == rank;
      }
      ASSERT_EQ(blocks[0] + 2 * blocks[2 * count - 1], 5);
      least = std::min(least, twice);
    }
    EXPECT_LE(least, calls / 8);
  });
  ::munmap(shared, sizeof(std::atomic<int>));
}

// The counters count: a test of the test.
TEST(DataPath, TheCountersSeeAnAllocationALockAndASystemCall) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  std::thread([] {
    std::mutex mutex;
    trap_system_calls();
    counts.counting = true;
    int* volatile kept = new int(3);  // volatile: not optimised away
    delete kept;
    const std::lock_guard lock(mutex);
    ::syscall(SYS_getppid);
    counts.counting = false;
    EXPECT_GE(counts.allocations, 1);
    EXPECT_GE(counts.locks, 1);
    EXPECT_EQ(counts.system_calls, 1);
  }).join();
}

}  // namespace
}  // namespace tutti
