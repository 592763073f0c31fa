// The launcher's two processes, and the end of all their descendants.
#include "tools/run/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti::run {
namespace {

sigset_t guarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD, SIGUSR2})
    sigaddset(&set, signal);
  return set;
}

// The parent of a process from /proc/PID/stat, whose second field, the name in parentheses, may hold anything.
pid_t parent_of(const char* pid) {
  const int fd = open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  const char* after_name = std::strrchr(text, ')');
  int parent = 0;
  if (after_name == nullptr || std::sscanf(after_name + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return found;
  const pid_t self = getpid();
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) == self) found.push_back(pid_t(std::atoi(entry->d_name)));
  }
  closedir(directory);
  return found;
}

[[noreturn]] void run_body(pid_t guard, const std::function<int()>& body) {
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);  // a background group may still write to the terminal
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "tutti-run-ranks");  // killall -9 tutti-run leaves this one to clean up
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (getppid() != guard) std::_Exit(128 + SIGKILL);
  std::_Exit(body());
}

// Waits for a child and passes signals on; its wait status.
int watch(pid_t child) {
  const sigset_t set = guarded_signals();
  for (;;) {
    const int signal = sigwaitinfo(&set, nullptr);
    if (signal == SIGCHLD) {
      int status = 0;
      for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
        if (ended == child) return status;
    } else if (signal == SIGTSTP) {
      kill(child, SIGTSTP);
      raise(SIGSTOP);
    } else if (signal > 0 && signal != SIGUSR2) {
      kill(child, signal);
    }
  }
}

}  // namespace

bool end_descendants() {
  constexpr int rounds_max = 500;
  for (int round = 0; round < rounds_max; ++round) {
    // A killed child's own children become ours, so this goes on until there is none.
    const std::vector<pid_t> living = children();
    for (const pid_t child : living) kill(child, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (living.empty()) return true;
    const timespec pause{0, round < 20 ? 500'000 : 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

int guarded(const std::function<int()>& body) {
  const sigset_t set = guarded_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    fmt::print(stderr, "tutti-run: cannot start: fork: {}\n", std::strerror(errno));
    return 1;
  }
  if (child == 0) run_body(self, body);
  const int status = watch(child);
  if (!end_descendants()) fmt::print(stderr, "tutti-run: a process of the job could not be ended within 5 s\n");
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  fmt::print(stderr, "tutti-run: the process that runs the ranks was killed by SIG{}; all ranks were ended\n",
             sigabbrev_np(WTERMSIG(status)));
  return 128 + WTERMSIG(status);
}

}  // namespace tutti::run
