// The launcher's loop: output, signals, ends, deadlines.
#include "tools/run/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tools/run/guard.h"
#include "tools/run/output.h"
#include "tools/run/rank_process.h"

namespace tutti::run {
namespace {

struct Stream {
  Fd fd;  // invalid once it has ended
  LineSplitter lines;
  std::string prefix;
  int target;
};

struct Rank {
  pid_t pid = -1;
  bool running = false;
  std::array<Stream, 2> streams;
  Fd log;
};

class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options), ranks_(size_t(options.ranks)) {}
  int run();

 private:
  enum class Phase { running, asked_to_end, killed };

  void start_all();
  void open_log(Rank& rank, int number);
  void wait_for_something();
  void read_stream(Rank& rank, Stream& stream);
  void write_line(Rank& rank, const Stream& stream, std::string_view line);
  void write_output();
  void take_signals();
  void on_signal(int signal);
  void reap();
  void look_at_deadlines();
  void signal_all(int signal);
  void ask_to_end();
  void kill_all();
  void say(const std::string& sentence) { output_.add(STDERR_FILENO, "tutti-run: " + sentence + "\n"); }
  void flush_streams();
  int conclude();
  int running() const;

  const RunOptions& options_;
  std::vector<Rank> ranks_;
  OutputQueue output_;
  Fd signals_;
  Phase phase_ = Phase::running;
  TimeNs end_of_time_ = 0;   // 0: none
  TimeNs end_of_grace_ = 0;  // 0: none
  bool abandoned_ = false;   // the guard is gone, or nobody reads the last words
  bool timed_out_ = false;
  bool interrupted_ = false;  // one SIGINT was passed on
  int forwarded_ = 0;         // the first signal that was passed on
  int output_error_ = 0;
  int failed_rank_ = -1;
  int failed_status_ = 0;
};

int Job::running() const {
  return int(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; }));
}

void Job::open_log(Rank& rank, int number) {
  const std::string name = fmt::format("{}/rank-{}.log", options_.output_dir, number);
  rank.log.reset(open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!rank.log.valid()) throw std::runtime_error(fmt::format("cannot write {}: {}", name, std::strerror(errno)));
}

void Job::start_all() {
  if (!options_.output_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options_.output_dir, error);
    if (error)
      throw std::runtime_error(fmt::format("--output-dir {}: {}", options_.output_dir, error.message()));
    for (size_t i = 0; i < ranks_.size(); ++i) open_log(ranks_[i], int(i));
  }
  const JobEnvironment job = make_job_environment(options_.ranks);
  std::vector<cpu_set_t> shares;
  if (options_.bind) shares = core_shares(options_.ranks);
  // Whoever wants lines as they are and looks at a terminal gets all that a terminal gives: bars, colours, no delay.
  const bool plain = !options_.prefix && options_.output_dir.empty();
  const SharedOutput shared{plain && isatty(STDOUT_FILENO) == 1, plain && isatty(STDERR_FILENO) == 1};
  const bool colour[2] = {wants_colour(STDOUT_FILENO), wants_colour(STDERR_FILENO)};
  for (int i = 0; i < options_.ranks; ++i) {
    const std::optional<cpu_set_t> cores = options_.bind ? std::optional(shares[size_t(i)]) : std::nullopt;
    RankProcess process = start_rank(i, options_.command, rank_environment(job, i), cores, shared);
    Rank& rank = ranks_[size_t(i)];
    rank.pid = process.pid;
    rank.running = true;
    rank.streams[0].fd = std::move(process.out);
    rank.streams[1].fd = std::move(process.err);
    for (int s = 0; s < 2; ++s) {
      rank.streams[size_t(s)].target = s == 0 ? STDOUT_FILENO : STDERR_FILENO;
      if (options_.prefix) rank.streams[size_t(s)].prefix = line_prefix(i, options_.ranks, colour[s]);
    }
  }
}

void Job::write_line(Rank& rank, const Stream& stream, std::string_view line) {
  std::string text = stream.prefix;
  text.append(line).push_back('\n');
  output_.add(stream.target, text);
  if (!rank.log.valid()) return;
  const char* at = text.data() + stream.prefix.size();
  for (size_t left = text.size() - stream.prefix.size(); left > 0;) {
    const ssize_t written = write(rank.log.get(), at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      say(fmt::format("a rank's log in {} ends here: {}", options_.output_dir, std::strerror(errno)));
      rank.log.reset();
      return;
    }
    at += written, left -= size_t(written);
  }
}

void Job::read_stream(Rank& rank, Stream& stream) {
  std::array<char, 64 << 10> bytes;
  const auto emit = [&](std::string_view line) { write_line(rank, stream, line); };
  const ssize_t n = read(stream.fd.get(), bytes.data(), bytes.size());
  if (n > 0) return stream.lines.feed({bytes.data(), size_t(n)}, emit);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  stream.lines.finish(emit);
  stream.fd.reset();
}

void Job::write_output() {
  if (output_.write_some() || output_error_ != 0) return;
  output_error_ = output_.error_number();
  if (running() > 0) ask_to_end();
}

void Job::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.running) kill(-rank.pid, signal);
}

void Job::ask_to_end() {
  if (phase_ != Phase::running) return;
  phase_ = Phase::asked_to_end;
  end_of_grace_ = now_ns() + TimeNs(options_.grace_s * double(ns_per_s));
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped rank could not act on it
}

void Job::kill_all() {
  phase_ = Phase::killed;
  end_of_grace_ = 0;
  signal_all(SIGKILL);
}

void Job::on_signal(int signal) {
  if (signal == SIGCHLD) return reap();
  if (signal == SIGUSR2) {
    abandoned_ = true;
    return kill_all();
  }
  if (signal == SIGTSTP || signal == SIGCONT) return signal_all(signal);
  if (signal == SIGINT && interrupted_) {
    // Nobody is left to wait for, or the reader of our output is stuck: the second Ctrl-C is the last word.
    if (running() == 0) abandoned_ = true;
    return kill_all();
  }
  interrupted_ |= signal == SIGINT;
  if (forwarded_ == 0) forwarded_ = signal;
  signal_all(signal);
}

void Job::take_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == ssize_t(sizeof(info))) on_signal(int(info.ssi_signo));
}

// Several ranks may have ended since the last look, in an order that nobody tells. A rank that was killed comes before
// those that left by themselves: they most likely left because of it.
void Job::reap() {
  int status = 0;
  bool failed = false;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), [pid](const Rank& r) { return r.pid == pid; });
    if (found == ranks_.end() || !found->running) continue;  // a descendant that lost its parent
    found->running = false;
    if (status == 0 || phase_ != Phase::running) continue;
    if (!failed || (WIFEXITED(failed_status_) && WIFSIGNALED(status))) {
      failed_rank_ = int(found - ranks_.begin());
      failed_status_ = status;
    }
    failed = true;
  }
  if (failed) ask_to_end();
}

void Job::look_at_deadlines() {
  const TimeNs now = now_ns();
  if (end_of_time_ != 0 && now >= end_of_time_) {
    end_of_time_ = 0;
    if (phase_ == Phase::running) timed_out_ = true;
    ask_to_end();
  }
  if (end_of_grace_ != 0 && now >= end_of_grace_) kill_all();
}

void Job::wait_for_something() {
  std::vector<pollfd> waits = {{signals_.get(), POLLIN, 0}};
  std::vector<std::pair<Rank*, Stream*>> readers;
  if (!output_.empty()) waits.push_back({output_.next_fd(), POLLOUT, 0});
  const size_t first = waits.size();
  // While the output is not read, the ranks' pipes fill up and they wait, as they would without a launcher.
  for (Rank& rank : ranks_)
    for (Stream& stream : rank.streams)
      if (stream.fd.valid() && !output_.full()) {
        waits.push_back({stream.fd.get(), POLLIN, 0});
        readers.emplace_back(&rank, &stream);
      }
  TimeNs wait_ns = -1;
  for (const TimeNs deadline : {end_of_time_, end_of_grace_})
    if (deadline != 0) {
      const TimeNs left = std::max<TimeNs>(deadline - now_ns(), 0);
      wait_ns = wait_ns < 0 ? left : std::min(wait_ns, left);
    }
  const int wait_ms = wait_ns < 0 ? -1 : int(std::min<TimeNs>(wait_ns / ns_per_ms + 1, 1 << 30));
  if (poll(waits.data(), waits.size(), wait_ms) <= 0) return;
  for (size_t i = 0; i < readers.size(); ++i)
    if (waits[first + i].revents != 0) read_stream(*readers[i].first, *readers[i].second);
}

// What the ranks wrote before their end is still in the pipes.
void Job::flush_streams() {
  for (Rank& rank : ranks_)
    for (Stream& stream : rank.streams) {
      for (pollfd ready{stream.fd.get(), POLLIN, 0}; stream.fd.valid() && poll(&ready, 1, 0) > 0;)
        read_stream(rank, stream);
      stream.lines.finish([&](std::string_view line) { write_line(rank, stream, line); });
    }
}

int Job::conclude() {
  if (output_error_ == EPIPE) return 128 + SIGPIPE;
  if (output_error_ != 0) {
    say(fmt::format("ended, because output cannot be written: {}", std::strerror(output_error_)));
    return 1;
  }
  if (timed_out_) {
    say(fmt::format("the time of {} s is over; all ranks were ended", options_.timeout_s));
    return exit_timeout;
  }
  if (failed_rank_ >= 0) {
    const std::string interrupted =
        forwarded_ != 0 ? fmt::format(" after SIG{} was passed on", sigabbrev_np(forwarded_)) : "";
    say(fmt::format("rank {} failed first{}: {}{}", failed_rank_, interrupted, describe_end(failed_status_),
                    options_.ranks > 1 ? "; all others were ended" : ""));
    return exit_code_of(failed_status_);
  }
  if (phase_ == Phase::killed) return 128 + SIGINT;
  return 0;
}

int Job::run() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD, SIGUSR2})
    sigaddset(&set, signal);
  signals_.reset(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_.valid()) throw std::runtime_error(fmt::format("signalfd: {}", std::strerror(errno)));
  if (options_.timeout_s > 0) end_of_time_ = now_ns() + TimeNs(options_.timeout_s * double(ns_per_s));
  start_all();
  while (running() > 0) {
    wait_for_something();
    write_output();
    take_signals();
    look_at_deadlines();
  }
  if (!end_descendants()) say("a process of the job could not be ended within 5 s");
  flush_streams();
  const int code = conclude();
  while (!output_.empty() && !abandoned_) {
    wait_for_something();
    write_output();
    take_signals();
  }
  return code;
}

}  // namespace

int run_job(const RunOptions& options) {
  // Two pipes a rank: as many descriptors as the hard limit allows. (The ranks inherit it.)
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < rlim_t(options.ranks) * 3 + 32) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, rlim_t(options.ranks) * 3 + 32);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  try {
    return Job(options).run();
  } catch (...) {
    end_descendants();
    throw;
  }
}

}  // namespace tutti::run
