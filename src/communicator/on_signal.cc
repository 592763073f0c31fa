// The handler counts a signal and wakes the threads that wait for it: both are allowed where almost nothing is.
#include "communicator/on_signal.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <climits>
#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

struct Named {
  std::string_view name;
  int number;
};
constexpr auto catchable = std::to_array<Named>({{"HUP", SIGHUP},
                                                 {"INT", SIGINT},
                                                 {"QUIT", SIGQUIT},
                                                 {"USR1", SIGUSR1},
                                                 {"USR2", SIGUSR2},
                                                 {"TERM", SIGTERM},
                                                 {"XCPU", SIGXCPU}});

constexpr int answer_wait_ms = 1000;  // longest that a handler waits for the reactions

// What a handler can reach is the process's, as the signal is. Who waits, waits on `changes`.
struct Process {
  std::mutex mutex;  // never taken by the handler
  int signal = 0;    // caught now, or 0
  uint32_t watchers = 0;
  struct sigaction before {};
  std::atomic<uint32_t> changes{0};   // release by who changes, acquire by who waits
  std::atomic<uint32_t> signals{0};   // that have come
  std::atomic<uint32_t> expected{0};  // reactions to the last signal: as many as there were watchers
  std::atomic<uint32_t> answered{0};  // of them that are over
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

Process& process() {
  static Process* const it = new Process;  // never freed: a signal may come while the process ends
  return *it;
}
Process* volatile handlers_process = nullptr;  // the same, where a handler may look

void announce_change(Process& all) noexcept {
  all.changes.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &all.changes, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_answers(const Process& all, uint32_t expected) noexcept {
  const timespec millisecond = {0, 1'000'000};
  for (int i = 0; i < answer_wait_ms && all.answered.load(std::memory_order_acquire) < expected; ++i)
    ::nanosleep(&millisecond, nullptr);
}

void handle(int signal, siginfo_t* information, void* context) {
  const int error_number = errno;
  Process& all = *handlers_process;
  const struct sigaction before = all.before;
  const bool had_handler = (before.sa_flags & SA_SIGINFO) != 0 ||
                           (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  const bool ends = before.sa_handler == SIG_DFL && !had_handler && signal != SIGUSR1 && signal != SIGUSR2;
  all.answered.store(0, std::memory_order_relaxed);
  const uint32_t expected = all.expected.load(std::memory_order_relaxed);
  all.signals.fetch_add(1, std::memory_order_release);
  announce_change(all);
  if (ends || had_handler) wait_for_answers(all, expected);
  if (had_handler && (before.sa_flags & SA_SIGINFO) != 0) before.sa_sigaction(signal, information, context);
  else if (had_handler) before.sa_handler(signal);
  if (ends) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // comes when this handler returns
  }
  errno = error_number;
}

// Under the mutex.
void catch_signal(Process& all, int signal) {
  handlers_process = &all;
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  // The handler reads what was before, so that is asked for first.
  if (::sigaction(signal, nullptr, &all.before) != 0 || ::sigaction(signal, &action, nullptr) != 0)
    throw system_error(fmt::format("cannot catch signal {}", signal), errno);
  all.signal = signal;
}

// Whoever has put a handler of their own there meanwhile keeps it.
void release_signal(Process& all) noexcept {
  struct sigaction now {};
  if (::sigaction(all.signal, nullptr, &now) == 0 && now.sa_sigaction == handle)
    ::sigaction(all.signal, &all.before, nullptr);
  all.signal = 0;
}

}  // namespace

int signal_number(const std::string& name) {
  std::string_view text = name;
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  text = upper;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  std::string names;
  for (const Named& signal : catchable) {
    if (is_number ? number == signal.number : text == signal.name) return signal.number;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", signal.name);
  }
  throw Error(Code::invalid_usage, fmt::format("signal \"{}\" is none of {}", name, names));
}

OnSignal::OnSignal(int signal, std::function<void()> react) : react_(std::move(react)) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  if (all.signal == 0) catch_signal(all, signal);
  if (all.signal != signal)
    throw Error(Code::invalid_usage, fmt::format("signal {} cannot be caught: signal {} is already", signal, all.signal));
  seen_ = all.signals.load(std::memory_order_acquire);
  // The thread that reacts must not be the one that is interrupted.
  sigset_t blocked, mask;
  sigfillset(&blocked);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &mask);
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (all.watchers == 0) release_signal(all);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  all.expected.store(++all.watchers, std::memory_order_relaxed);
}

OnSignal::~OnSignal() {
  Process& all = process();
  {
    const std::lock_guard lock(all.mutex);
    all.expected.store(--all.watchers, std::memory_order_relaxed);
    if (all.watchers == 0) release_signal(all);
  }
  stopping_.store(true, std::memory_order_release);
  announce_change(all);
  thread_.join();
}

void OnSignal::watch() {
  Process& all = process();
  for (;;) {
    const uint32_t changes = all.changes.load(std::memory_order_acquire);
    const uint32_t signals = all.signals.load(std::memory_order_acquire);
    if (signals != seen_) {
      seen_ = signals;
      react_();
      all.answered.fetch_add(1, std::memory_order_release);
    } else if (stopping_.load(std::memory_order_acquire)) {
      return;
    } else {
      ::syscall(SYS_futex, &all.changes, FUTEX_WAIT_PRIVATE, changes, nullptr, nullptr, 0);
    }
  }
}

}  // namespace tutti
