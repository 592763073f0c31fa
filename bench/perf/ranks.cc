// Starts ranks as processes and threads, and joins them to one communicator.
#include "bench/perf/ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fd.h"
#include "bench/perf/bind.h"
#include "bench/perf/rank.h"
#include "bench/perf/session.h"

namespace tutti::perf {
namespace {

using Join = std::function<tuttiComm_t(int thread)>;

// on_host: the rank's number among those of this host.
tuttiConfig_t config_of(const Options& options, int on_host) {
  return settings_of(options, options.device == "cpu" ? -1 : on_host % platform_of(options.device).count());
}

tuttiComm_t join_as(const Options& options, int ranks, const tuttiUniqueId& id, int rank) {
  const tuttiConfig_t config = config_of(options, rank);
  tuttiComm_t comm = nullptr;
  check(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), "tuttiCommInitRankConfig");
  return comm;
}

// One rank from joining to its exit code; nothing leaves it but that.
int run_one(const Options& options, const Join& join, int thread) noexcept {
  try {
    return run_session(options, join(thread));
  } catch (const UsageError& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return exit_usage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return exit_failure;
  }
}

// All ranks of this process. `first` counts the ranks before them on this host, for binding.
int run_threads(const Options& options, int first, const Join& join) {
  std::vector<int> codes(size_t(options.threads), 0);
  std::vector<std::jthread> threads;
  const auto body = [&](int i) {
    if (options.bind) bind_to_core(first + i);
    codes[size_t(i)] = run_one(options, join, i);
  };
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(body, i);
  // A thread of its own also for the first, where others would inherit its core.
  if (options.threads > 1) threads.emplace_back(body, 0);
  else body(0);
  threads.clear();
  return *std::max_element(codes.begin(), codes.end());
}

// --- Processes started here

struct Child {
  pid_t pid;
  Fd id_pipe;
};

// In the child: waits for the id, then runs its ranks.
[[noreturn]] void run_child(const Options& options, int index, pid_t parent, Fd id_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(exit_failure);
  tuttiUniqueId id{};
  size_t have = 0;
  while (have < sizeof(id)) {
    const ssize_t n = read(id_pipe.get(), id.internal + have, sizeof(id) - have);
    if (n == 0 || (n < 0 && errno != EINTR)) std::_Exit(exit_failure);  // the parent has said why
    have += size_t(std::max<ssize_t>(n, 0));
  }
  const int first = index * options.threads;
  const Join join = [&](int thread) {
    return join_as(options, options.local * options.threads, id, first + thread);
  };
  const int code = run_threads(options, first, join);
  std::fflush(nullptr);
  std::_Exit(code);
}

Child start_child(const Options& options, int index) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error(fmt::format("--local: pipe: {}", std::strerror(errno)));
  Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(fmt::format("--local: cannot start rank {}: {}", index, std::strerror(errno)));
  if (pid == 0) {
    write_end.reset();
    run_child(options, index, parent, std::move(read_end));
  }
  return {pid, std::move(write_end)};
}

// A failed rank makes the others fail by themselves; should one not, it is killed after a while.
int wait_for(std::vector<Child>& children) {
  constexpr TimeNs patience_ns = 10 * ns_per_s;
  TimeNs deadline = 0;
  int first_code = 0;
  for (size_t running = children.size(); running > 0;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, deadline == 0 ? 0 : WNOHANG);
    if (pid == 0) {
      if (now_ns() > deadline)
        for (const Child& child : children)
          if (child.pid > 0) kill(child.pid, SIGKILL);
      const timespec pause{0, 5'000'000};
      nanosleep(&pause, nullptr);
      continue;
    }
    const auto found = std::find_if(children.begin(), children.end(), [pid](const Child& c) { return c.pid == pid; });
    if (found == children.end()) continue;
    found->pid = -1;
    --running;
    if (status == 0 || first_code != 0) continue;
    if (WIFSIGNALED(status))
      fmt::print(stderr, "tutti-perf: process {} was killed by SIG{}\n", found - children.begin(),
                 sigabbrev_np(WTERMSIG(status)));
    first_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    deadline = now_ns() + patience_ns;
  }
  return first_code;
}

// Forks before the library is used: its threads do not survive a fork.
int run_local(const Options& options) {
  std::vector<Child> children;
  tuttiUniqueId id{};
  for (int i = 0; i < options.local; ++i) children.push_back(start_child(options, i));
  int code = 0;
  try {
    check(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
  } catch (const LibraryError& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    code = exit_failure;
  }
  for (Child& child : children) {
    if (code == 0 && write(child.id_pipe.get(), id.internal, sizeof(id)) != ssize_t(sizeof(id))) code = exit_failure;
    child.id_pipe.reset();
  }
  return std::max(code, wait_for(children));
}

// --- A launcher's processes

bool launched() {
  constexpr std::array names = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
  return std::any_of(names.begin(), names.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

// Several threads in each launched process: the processes meet as the environment says, and the first one's id makes
// the communicator of all threads.
int run_launched_threads(const Options& options, tuttiComm_t comm, int local_rank) {
  Rank processes(comm, false);
  tuttiUniqueId id{};
  if (processes.rank() == 0) check(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
  check(tuttiBroadcast(&id, &id, sizeof(id), tuttiUint8, 0, comm, nullptr), "tuttiBroadcast of the id", comm);
  const int first = processes.rank() * options.threads;
  const Join join = [&](int thread) {
    return join_as(options, processes.ranks() * options.threads, id, first + thread);
  };
  return run_threads(options, local_rank * options.threads, join);
}

int run_launched(const Options& options) {
  int rank = 0, ranks = 1, local_rank = 0;
  check(tuttiEnvRank(&rank, &ranks, &local_rank), "tuttiEnvRank");
  const auto join_environment = [&options, local_rank](int) {
    const tuttiConfig_t config = config_of(options, local_rank);
    tuttiComm_t comm = nullptr;
    check(tuttiCommInitEnv(&comm, &config), "tuttiCommInitEnv");
    return comm;
  };
  if (options.threads > 1) return run_launched_threads(options, join_environment(0), local_rank);
  return run_threads(options, local_rank, join_environment);
}

int run_threads_only(const Options& options) {
  tuttiUniqueId id{};
  check(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
  return run_threads(options, 0, [&](int thread) { return join_as(options, options.threads, id, thread); });
}

}  // namespace

int count_ranks(const Options& options) {
  if (options.local > 0) return options.local * options.threads;
  int processes = 1;
  if (launched() && tuttiEnvRank(nullptr, &processes, nullptr) != tuttiSuccess) return 0;
  return processes * options.threads;
}

int run_ranks(const Options& options) {
  try {
    if (options.local > 0) return run_local(options);
    if (launched()) return run_launched(options);
    return run_threads_only(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return exit_failure;
  }
}

}  // namespace tutti::perf
