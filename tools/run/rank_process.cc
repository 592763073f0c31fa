// Starts a rank: pipes, fork, environment, exec.
#include "tools/run/rank_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

extern char** environ;

namespace tutti::run {
namespace {

[[noreturn]] void fail(const std::string& what, int error_number) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error_number)));
}

void fill_random(void* bytes, size_t size) {
  if (getrandom(bytes, size, 0) != ssize_t(size)) fail("cannot read random bytes", errno);
}

bool port_is_free(uint16_t port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return fd.valid() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// A port below those that the kernel hands out by itself (32768 and up), so that no outgoing connection takes it
// between this look and rank 0's bind. A multiple of 16: rank 0 may step on to the next few.
int free_port() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint16_t random = 0;
    fill_random(&random, sizeof(random));
    const int port = 16384 + random % 1000 * 16;
    if (port_is_free(uint16_t(port))) return port;
  }
  throw std::runtime_error("no free TCP port between 16384 and 32383 was found in 100 tries");
}

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  int rank;
  pid_t parent;
  int out, err, failure;  // descriptors
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cores;  // or null
};

// Runs in the child between fork and exec.
[[noreturn]] void become_rank(const ChildPlan& plan) {
  setpgid(0, 0);
  for (const int signal : {SIGPIPE, SIGTTOU}) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(128 + SIGKILL);
  if (plan.rank != 0 || isatty(STDIN_FILENO) == 1) {
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO) close(null);
  }
  dup2(plan.out, STDOUT_FILENO);
  dup2(plan.err, STDERR_FILENO);
  if (plan.cores != nullptr) sched_setaffinity(0, sizeof(*plan.cores), plan.cores);
  execvpe(plan.arguments[0], plan.arguments, plan.environment);
  const int error_number = errno;
  [[maybe_unused]] const ssize_t written = write(plan.failure, &error_number, sizeof(error_number));
  _exit(127);
}

}  // namespace

JobEnvironment make_job_environment(int ranks) {
  std::array<unsigned char, 32> key;
  fill_random(key.data(), key.size());
  JobEnvironment job{ranks, free_port(), {}};
  for (const unsigned char byte : key) job.key += fmt::format("{:02x}", byte);
  return job;
}

std::vector<std::string> rank_environment(const JobEnvironment& job, int rank) {
  const std::array<std::pair<const char*, std::string>, 8> ours = {{
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(job.ranks)},
      {"LOCAL_WORLD_SIZE", std::to_string(job.ranks)},
      {"GROUP_RANK", "0"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(job.port)},
      {"TUTTI_JOB_KEY", job.key},
  }};
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    bool replaced = false;
    for (const auto& [own, value] : ours) replaced |= name == own;
    if (!replaced) result.emplace_back(line);
  }
  for (const auto& [name, value] : ours) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<cpu_set_t> core_shares(int ranks) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0)
    throw std::runtime_error("--bind: hwloc cannot read this machine's topology");
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) hwloc_topology_restrict(topology, allowed, 0);
  hwloc_bitmap_free(allowed);

  std::vector<hwloc_cpuset_t> sets(static_cast<size_t>(ranks));
  hwloc_obj_t root = hwloc_get_root_obj(topology);
  hwloc_distrib(topology, &root, 1, sets.data(), unsigned(ranks), INT_MAX, 0);
  std::vector<cpu_set_t> shares(sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    hwloc_cpuset_to_glibc_sched_affinity(topology, sets[i], &shares[i], sizeof(cpu_set_t));
    hwloc_bitmap_free(sets[i]);
  }
  hwloc_topology_destroy(topology);
  return shares;
}

RankProcess start_rank(int rank, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                       const std::optional<cpu_set_t>& cores, SharedOutput shared) {
  Pipe out = shared.out ? Pipe{} : make_pipe(), err = shared.err ? Pipe{} : make_pipe(), failure = make_pipe();
  const std::vector<char*> arguments = pointers(command), variables = pointers(environment);
  const int out_fd = shared.out ? STDOUT_FILENO : out.write.get(),
            err_fd = shared.err ? STDERR_FILENO : err.write.get();
  const ChildPlan plan{rank, getpid(), out_fd, err_fd, failure.write.get(), arguments.data(), variables.data(),
                       cores ? &*cores : nullptr};
  const pid_t pid = fork();
  if (pid < 0) fail(fmt::format("cannot start rank {}", rank), errno);
  if (pid == 0) become_rank(plan);
  setpgid(pid, pid);  // the child does it too; whoever comes first

  failure.write.reset();
  int error_number = 0;
  ssize_t bytes;
  do bytes = read(failure.read.get(), &error_number, sizeof(error_number));
  while (bytes < 0 && errno == EINTR);
  if (bytes > 0) {
    waitpid(pid, nullptr, 0);
    fail(fmt::format("cannot run '{}'", command[0]), error_number);
  }
  for (const Fd* end : {&out.read, &err.read})
    if (end->valid()) fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(out.read), std::move(err.read)};
}

std::string describe_end(int status) {
  if (WIFEXITED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = sigabbrev_np(signal);
  const std::string named = name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
  return fmt::format("killed by {} ({}){}", named, strsignal(signal), WCOREDUMP(status) ? ", core dumped" : "");
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace tutti::run
