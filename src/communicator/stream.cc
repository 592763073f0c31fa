// The jobs of a host stream, and waiting for them.
#include "communicator/stream.h"

#include <system_error>
#include <utility>

#include "communicator/group.h"

namespace tutti {

Stream::Stream() {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw system_error("cannot start the thread of a stream", error.code().value());
  }
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::enqueue(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++enqueued_;
  }
  changed_.notify_all();
}

void Stream::note(const Outcome& outcome) {
  if (outcome.code == Code::success) return;
  const std::lock_guard lock(mutex_);
  if (first_error_ != Code::success) return;
  first_error_ = outcome.code;
  first_sentence_ = outcome.sentence;
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == enqueued_;
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !running_ && (ending_ || !jobs_.empty()); });
    if (jobs_.empty()) return;
    run_front(lock);
  }
}

// Nobody else runs a job.
void Stream::run_front(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  lock.unlock();
  const Outcome outcome = job();
  job = nullptr;  // what it holds is let go before anybody is told
  note(outcome);
  lock.lock();
  running_ = false;
  ++done_;
  changed_.notify_all();
}

Outcome Stream::take_first_error() {
  return {std::exchange(first_error_, Code::success), std::exchange(first_sentence_, {})};
}

Outcome Stream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t until = enqueued_;
  while (done_ < until) {
    if (!running_) run_front(lock);
    else changed_.wait(lock, [&] { return !running_ || done_ >= until; });
  }
  return take_first_error();
}

Outcome Stream::query() {
  const std::lock_guard lock(mutex_);
  if (done_ < enqueued_) return {Code::in_progress, "the stream has not passed everything that is enqueued"};
  return take_first_error();
}

}  // namespace tutti
