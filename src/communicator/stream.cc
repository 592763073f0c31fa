// The thread of a host stream, and waiting for it.
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

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const Outcome outcome = job();
    lock.lock();
    if (outcome.code != Code::success && first_error_ == Code::success) {
      first_error_ = outcome.code;
      first_sentence_ = outcome.sentence;
    }
    ++done_;
    changed_.notify_all();
  }
}

Outcome Stream::take_first_error() {
  return {std::exchange(first_error_, Code::success), std::exchange(first_sentence_, {})};
}

Outcome Stream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t until = enqueued_;
  changed_.wait(lock, [&] { return done_ >= until; });
  return take_first_error();
}

Outcome Stream::query() {
  const std::lock_guard lock(mutex_);
  if (done_ < enqueued_) return {Code::in_progress, "the stream has not passed everything that is enqueued"};
  return take_first_error();
}

}  // namespace tutti
