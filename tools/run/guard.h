// Nothing outlives the launcher: a process that does the work, watched by one that does nothing else.
#pragma once

#include <functional>

namespace tutti::run {

// Forks: the child runs `body` in a process group of its own, its result is the exit code; the parent passes on SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGTSTP and SIGCONT and waits. Returns the exit code, in the parent only, once every
// descendant is gone. Should the parent be killed, the child gets SIGUSR2; should the child be killed, the parent
// ends what it leaves. The signals named are blocked in the child.
int guarded(const std::function<int()>& body);

// Kills every descendant of this process (a child subreaper) and waits for it. False where one was still there after
// five seconds.
bool end_descendants();

}  // namespace tutti::run
