// Host streams: an ordered queue of jobs with a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/outcome.h"

namespace tutti {

// Thread-safe.
class Stream {
 public:
  // A job runs on the stream's thread, or on one that waits for the stream, and says what came of it.
  using Job = std::function<Outcome()>;

  Stream();   // Throws Error(system_error) where no thread can be had.
  ~Stream();  // runs what is enqueued, then ends

  void enqueue(Job job);
  // Whether everything enqueued so far is done.
  bool idle();
  // What came of a job that was not enqueued, because the stream was idle.
  void note(const Outcome& outcome);
  // Runs what the stream's thread has not come to yet, and blocks until everything enqueued so far is done; the first error since
  // the last call.
  Outcome synchronize();
  // As synchronize, but in_progress instead of blocking.
  Outcome query();

 private:
  void work();
  void run_front(std::unique_lock<std::mutex>& lock);
  Outcome take_first_error();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  bool running_ = false;  // a job
  bool ending_ = false;
  Code first_error_ = Code::success;
  std::string first_sentence_;
  std::thread thread_;
};

}  // namespace tutti
