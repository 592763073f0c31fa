// The threads of simulated streams, and waiting for events and flags.
#include "device/simulated_stream.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

// What a handle of an exported event holds.
struct EventHandle {
  int32_t process;
  int32_t descriptor;
};

void sleep_while(const std::atomic<uint32_t>& word, uint32_t value) noexcept {
  const timespec longest{0, 20'000'000};  // then one looks whether anybody is left who could change it
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
}

}  // namespace

void SimulatedFate::lose(const std::string& sentence) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_lost()) return;
  sentence_ = sentence;
  lost_.store(true, std::memory_order_release);
}

Outcome SimulatedFate::outcome() const {
  if (!is_lost()) return {};
  const std::lock_guard lock(mutex_);
  return {Code::device_error, sentence_};
}

SimulatedEvent::SimulatedEvent(bool shared, const SimulatedFate& fate) : fate_(fate) {
  if (!shared) return;
  file_ = make_memory_file("tutti-event", page_bytes(), "a shared event");
  mapping_ = Mapping(file_.get(), 0, page_bytes(), "a shared event");
  words_ = new (mapping_.data()) Words;
}

SimulatedEvent::SimulatedEvent(const ExportedEvent& exported, const SimulatedFate& fate) : fate_(fate) {
  EventHandle handle;
  std::memcpy(&handle, exported.handle.data(), sizeof handle);
  file_ = Fd(::open(fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor).c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.valid()) throw system_error(fmt::format("cannot import an event of process {}", handle.process), errno);
  if (!is_memory_file(file_.get(), page_bytes()))
    throw Error(Code::invalid_argument, fmt::format("process {} exported no event by this handle", handle.process));
  mapping_ = Mapping(file_.get(), 0, page_bytes(), "an imported event");
  words_ = reinterpret_cast<Words*>(mapping_.data());
  process_ = handle.process;
}

void SimulatedEvent::complete(uint32_t number) noexcept {
  words_->completed.store(number, std::memory_order_release);
  ::syscall(SYS_futex, &words_->completed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string SimulatedEvent::await(uint32_t number, const SimulatedFate& fate) const {
  for (;;) {
    const uint32_t completed = words_->completed.load(std::memory_order_acquire);  // pairs with complete()'s store
    if (int32_t(completed - number) >= 0 || fate.is_lost()) return "";
    if (!imported() && fate_.is_lost()) return "an event's device was lost";
    if (imported() && ::kill(process_, 0) != 0) return fmt::format("process {}, whose event is awaited, is gone", process_);
    sleep_while(words_->completed, completed);
  }
}

ExportedEvent SimulatedEvent::exported() const {
  if (!file_.valid() || imported()) throw Error(Code::invalid_argument, "the event was not made to be shared");
  ExportedEvent exported;
  const EventHandle handle{::getpid(), file_.get()};
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  return exported;
}

SimulatedStream::SimulatedStream(int device, SimulatedFate& fate, int delay_us_max, uint64_t seed)
    : device_(device), queue_(std::make_shared<Queue>()) {
  try {
    std::thread([queue = queue_, &fate, delay_us_max, seed] { run(*queue, fate, delay_us_max, seed); }).detach();
  } catch (const std::system_error& error) {
    throw system_error("cannot start the thread of a simulated stream", error.code().value());
  }
}

SimulatedStream::~SimulatedStream() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ending = true;
  queue_->changed.notify_all();
}

void SimulatedStream::enqueue(Work work) {
  const std::lock_guard lock(queue_->mutex);
  queue_->works.push_back(std::move(work));
  ++queue_->enqueued;
  queue_->changed.notify_all();
}

void SimulatedStream::wait() {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, [this, until = queue_->enqueued] { return queue_->done >= until; });
}

bool SimulatedStream::is_idle() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->done >= queue_->enqueued;
}

void SimulatedStream::run(Queue& queue, SimulatedFate& fate, int delay_us_max, uint64_t seed) {
  std::minstd_rand random(uint32_t(seed) | 1u);
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.changed.wait(lock, [&queue] { return queue.ending || !queue.works.empty(); });
    if (queue.works.empty()) return;
    const Work work = std::move(queue.works.front());
    queue.works.pop_front();
    lock.unlock();
    if (delay_us_max > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % uint32_t(delay_us_max)));
    const std::string failure = work();
    if (!failure.empty()) fate.lose(failure);
    lock.lock();
    ++queue.done;
    queue.changed.notify_all();
  }
}

}  // namespace tutti
