// Processes of their own for tests, and limits to set there.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

namespace tutti::test {

// The wait status of a forked child, which ends with 0 where body() is true.
inline int in_child(const std::function<bool()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body() ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

// False: the system refuses.
inline bool limit(decltype(RLIMIT_AS) resource, rlim_t value) {
  rlimit now{};
  ::getrlimit(resource, &now);
  now.rlim_cur = std::min(value, now.rlim_max);
  return ::setrlimit(resource, &now) == 0;
}

}  // namespace tutti::test
