// How many instructions a small operation takes: noise does not move their number, so a bound holds on every machine. Another
// process steps a rank through its calls, one instruction at a time; its peers, which run freely, are always there before.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

// Memory that a rank shares with who steps it.
struct Shared {
  enum Phase : int { starting, refused, ready, counting, over };
  std::atomic<int> phase{starting};
  int error = 0;
  long instructions = 0;
};

bool stopped(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);
}

// Counts what the parent's main thread executes while the phase is `counting`; ends with it.
[[noreturn]] void step(pid_t parent, Shared& shared) {
  if (::ptrace(PTRACE_ATTACH, parent, nullptr, nullptr) != 0 || !stopped(parent)) {
    shared.error = errno;
    shared.phase = Shared::refused;
    ::_exit(0);
  }
  shared.phase = Shared::ready;
  while (shared.phase != Shared::over) {
    if (::ptrace(PTRACE_SINGLESTEP, parent, nullptr, nullptr) != 0 || !stopped(parent)) ::_exit(1);
    shared.instructions += shared.phase == Shared::counting;
  }
  ::ptrace(PTRACE_DETACH, parent, nullptr, nullptr);
  ::_exit(0);
}

// Instructions of one of `calls` calls in the mean; -1 where nobody may be stepped here.
template <class Call>
double count_instructions(int calls, const Call& call) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -1;
  Shared& shared = *new (memory) Shared;
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const pid_t parent = ::getpid(), stepper = ::fork();
  if (stepper == 0) step(parent, shared);
  while (shared.phase == Shared::starting) {}
  const bool can = shared.phase == Shared::ready;
  if (can) {
    shared.phase = Shared::counting;
    for (int i = 0; i < calls; ++i) call();
    shared.phase = Shared::over;
  }
  ::waitpid(stepper, nullptr, 0);
  const double each = can ? double(shared.instructions) / calls : -1;
  if (!can) std::fprintf(stderr, "ptrace: %s\n", std::strerror(shared.error));
  ::munmap(memory, sizeof(Shared));
  return each;
}

struct Measured {
  const char* what;
  double most;  // instructions: up to an eighth above what gcc 12 -O2 makes of it for x86-64 with AVX-512
  void (*call)(tuttiComm_t comm, int rank, float* in, float* out);
};
const Measured measured[] = {
    {"all_reduce of 8 B", 570,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiAllReduce(in, out, 2, tuttiFloat32, tuttiSum, comm, nullptr); }},
    {"all_reduce of 8 B in place", 560,
     [](tuttiComm_t comm, int, float* in, float*) { tuttiAllReduce(in, in, 2, tuttiFloat32, tuttiSum, comm, nullptr); }},
    {"all_reduces of 32, 64, 128 and 256 B", 3700,
     [](tuttiComm_t comm, int, float* in, float* out) {
       for (const size_t count : {8, 16, 32, 64}) tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comm, nullptr);
     }},
    {"broadcast of 8 B to this rank", 285,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiBroadcast(in, out, 2, tuttiFloat32, 1, comm, nullptr); }},
    {"all_gather of 8 B", 505,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiAllGather(in, out, 1, tuttiFloat32, comm, nullptr); }},
    {"all_gather of 8 B in place", 485,
     [](tuttiComm_t comm, int rank, float* in, float*) { tuttiAllGather(in + rank, in, 1, tuttiFloat32, comm, nullptr); }},
    {"all_to_all_v of 8 B", 735,
     [](tuttiComm_t comm, int, float* in, float* out) {
       constexpr size_t counts[] = {1, 1};
       tuttiAlltoAllV(in, counts, nullptr, out, counts, nullptr, tuttiFloat32, comm, nullptr);
     }},
    {"all_gather_v of 8 B", 605,
     [](tuttiComm_t comm, int, float* in, float* out) {
       constexpr size_t counts[] = {1, 1};
       tuttiAllGatherV(in, 1, out, counts, nullptr, tuttiFloat32, comm, nullptr);
     }},
    {"scatter of 8 B from this rank", 365,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiScatter(in, out, 2, tuttiFloat32, 0, comm, nullptr); }},
    {"scatter_v of 8 B from this rank", 495,
     [](tuttiComm_t comm, int, float* in, float* out) {
       constexpr size_t counts[] = {2, 2};
       tuttiScatterV(in, counts, nullptr, out, 2, tuttiFloat32, 0, comm, nullptr);
     }},
    {"scatter_v of 8 B from this rank to the other alone, received nowhere", 445,
     [](tuttiComm_t comm, int rank, float* in, float* out) {
       constexpr size_t counts[] = {0, 2};
       tuttiScatterV(in, counts, nullptr, rank == 0 ? in : out, counts[rank], tuttiFloat32, 0, comm, nullptr);
     }},
    {"gather_v of 8 B to this rank", 595,
     [](tuttiComm_t comm, int, float* in, float* out) {
       constexpr size_t counts[] = {2, 2};
       tuttiGatherV(in, 2, out, counts, nullptr, tuttiFloat32, 0, comm, nullptr);
     }},
    {"all_to_all of 8 B", 560,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiAlltoAll(in, out, 1, tuttiFloat32, comm, nullptr); }},
    {"scan of 8 B", 370,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiScan(in, out, 2, tuttiFloat32, tuttiSum, comm, nullptr); }},
    {"a send and a receive of 8 B in a group", 1240,
     [](tuttiComm_t comm, int rank, float* in, float* out) {
       tuttiGroupStart();
       tuttiSend(in, 2, tuttiFloat32, 1 - rank, comm, nullptr);
       tuttiRecv(out, 2, tuttiFloat32, 1 - rank, comm, nullptr);
       tuttiGroupEnd();
     }},
    {"four all_reduces of 8 B in a group", 3300,
     [](tuttiComm_t comm, int, float* in, float* out) {
       tuttiGroupStart();
       for (size_t i = 0; i < 4; ++i) tuttiAllReduce(in + 2 * i, out + 2 * i, 2, tuttiFloat32, tuttiSum, comm, nullptr);
       tuttiGroupEnd();
     }},
    {"tuttiSendRecv of 8 B", 1085,
     [](tuttiComm_t comm, int rank, float* in, float* out) {
       tuttiSendRecv(in, 2, 1 - rank, out, 2, 1 - rank, tuttiFloat32, comm, nullptr);
     }},
    {"a send and then a receive of 8 B", 555,
     [](tuttiComm_t comm, int rank, float* in, float* out) {
       tuttiSend(in, 2, tuttiFloat32, 1 - rank, comm, nullptr);
       tuttiRecv(out, 2, tuttiFloat32, 1 - rank, comm, nullptr);
     }},
    {"barrier", 420, [](tuttiComm_t comm, int, float*, float*) { tuttiBarrier(comm, nullptr); }},
};

// Among ranks that share cores, who also look who else is to have the core.
const Measured measured_among_four[] = {
    {"all_reduce of 1 KiB among 4 ranks", 2400,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiAllReduce(in, out, 256, tuttiFloat32, tuttiSum, comm, nullptr); }},
    {"all_gather of 2 KiB among 4 ranks", 2650,
     [](tuttiComm_t comm, int, float* in, float* out) { tuttiAllGather(in, out, 128, tuttiFloat32, comm, nullptr); }},
};

void count_all(int ranks, std::span<const Measured> all) {
#if !defined(__x86_64__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "the bounds are those of an optimised build for x86-64";
#endif
  if (test::sanitized) GTEST_SKIP() << "a sanitizer adds instructions of its own";
  if (count_instructions(1, [] {}) < 0) GTEST_SKIP() << "no process may be stepped by another here";
  ::setenv("TUTTI_SPIN_US", "10000000", 1);
  test::RanksOptions options;
  options.transport = "shm";
  test::run_processes(ranks, options, [&](int rank, tuttiComm_t comm) {
    constexpr int warm = 100, calls = 10, counts = 4, counts_max = 24;
    for (const Measured& one : all) {
      float in[512] = {1, 2}, out[512] = {};
      const auto call = [&] { one.call(comm, rank, in, out); };
      for (int i = 0; i < warm; ++i) call();
      if (rank != 0) {
        for (int i = 0; i < counts_max * calls; ++i) call();
        continue;
      }
      // The least: on a busy machine the peer may come late, and looking for it is instructions, too.
      double instructions = count_instructions(calls, call);
      for (int i = 1; i < counts_max; ++i) {
        if (i < counts || instructions > one.most) {
          instructions = std::min(instructions, count_instructions(calls, call));
        } else {
          for (int k = 0; k < calls; ++k) call();  // the peers' number
        }
      }
      std::printf("%s: %.1f instructions\n", one.what, instructions);
      EXPECT_LE(instructions, one.most) << one.what;
      EXPECT_GT(instructions, 20) << one.what << ": nothing was counted";
    }
  });
  ::unsetenv("TUTTI_SPIN_US");
}

TEST(Instructions, OfASmallCallStayWithinTheirBound) { count_all(2, measured); }
TEST(Instructions, OfASmallCallAmongRanksThatShareCoresStayWithinTheirBound) { count_all(4, measured_among_four); }

}  // namespace
}  // namespace tutti
