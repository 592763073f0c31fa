// Point to point as PyTorch means it: sends and receives that go on by themselves, tags, and receives from any source.
//
// Between two ranks there is a lane for each direction: a communicator of the two, made when it is first used. The sender
// sends, for each message, a header and then its bytes. The receiver reads a header and gives the bytes to the first
// receive that asks for its sender and tag. Where there is none, but somebody waits for another message behind it, the
// bytes are put aside; else they wait where they are.
//
// Who waits for a call works the lane on the spot, which is what plain dist.send and dist.recv do. Calls that nobody
// waits for are left to a thread of the lane, which a clock wakes a moment after they were made.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "calls.h"
#include "clock.h"
#include "device.h"
#include "mailbox.h"
#include "python_thread.h"
#include "work.h"

namespace tutti_torch {

struct Header {
  enum Kind : uint64_t { message, end };
  uint64_t kind = message;
  int64_t tag = 0;
  uint64_t bytes = 0;
};

// What all lanes of a rank share.
struct OfRank {
  std::atomic<int> untouched{0};  // calls that nobody has taken up
  Mailbox mailbox{untouched};
  std::function<void()> wake_all;  // leaves what is untouched to the lanes' threads
};

// What both ends of a lane know, and how they meet: the sender asks for the lane in the store, the receiver answers
// with the id of a communicator, and both join. Nobody blocks before the other is there.
class LaneEnd : public Runner {
 public:
  // `group`: the communicator of all ranks, whose failure ends the meeting.
  LaneEnd(c10::intrusive_ptr<c10d::Store> store, int from, int to, tuttiComm_t group, milliseconds timeout, OfRank& rank)
      : from_(from),
        to_(to),
        rank_(rank),
        store_(std::move(store)),
        name_("tutti/lane/" + std::to_string(from) + "/" + std::to_string(to)),
        group_(group),
        timeout_(timeout) {}
  LaneEnd(const LaneEnd&) = delete;
  LaneEnd& operator=(const LaneEnd&) = delete;

  // Ends whatever somebody waits for here. Any thread.
  void interrupt() {
    const std::lock_guard lock(comm_mutex_);
    interrupted_ = true;
    if (comm_ != nullptr) tuttiCommAbort(comm_);
  }

  // One who waits for `call` does what stands before it and the call itself, if the other end is there already and nobody
  // works here yet; else the thread does. (Who asks for less than the group's timeout must not end the lane by it.)
  void help(Call& call, milliseconds asked) override {
    std::unique_lock lock(mutex_);
    if (asked.count() > 0 || !met_) return wake_with(lock);
    if (busy_ || closing_ || !has_work()) return;
    const bool others_wait = rank_.untouched > 1 && may_block();
    if (others_wait) {  // the other end may wait for one of them before it gets to this
      busy_ = true;     // the thread is not wanted here
      lock.unlock();
      rank_.wake_all();
      lock.lock();
      busy_ = false;
    }
    Patience patience(call.longest_wait());
    while (!busy_ && !closing_ && has_work() && !call.has_run()) work_once(lock, patience);
  }
  // What there is to be done is left to the thread.
  void wake() {
    const std::unique_lock lock(mutex_);
    wake_with(lock);
  }

 protected:
  // With the mutex held: whether there is something to do, and whether it may have to wait for the other end.
  virtual bool has_work() = 0;
  virtual bool may_block() = 0;
  // Without the mutex, on one thread at a time: does one thing, where it is still there to be done.
  virtual void work(Patience& patience) = 0;
  // Without the mutex, once, before all else: meets the other end.
  virtual void meet() = 0;
  // Who is at work comes to its end, and nobody begins.
  void end_work(std::unique_lock<std::mutex>& lock) {
    closing_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy_; });
    lock.unlock();
    if (thread_.joinable()) thread_.join();
    lock.lock();
  }
  void leave() { tuttiCommDestroy(std::exchange(comm_, nullptr)); }

  bool interrupted() {
    const std::lock_guard lock(comm_mutex_);
    return interrupted_;
  }
  void meet_as_sender() {
    store_->set(name_ + "/asked", std::vector<uint8_t>{1});
    await(name_ + "/id");
    join(store_->get(name_ + "/id"), 0);
  }
  void meet_as_receiver() {
    await(name_ + "/asked");
    tuttiUniqueId id;
    check(tuttiGetUniqueId(&id));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(id.internal);
    const std::vector<uint8_t> text(bytes, bytes + sizeof id.internal);
    store_->set(name_ + "/id", text);
    join(text, 1);
  }

  // As check(), with the group's ranks in place of the lane's, which are 0 and 1.
  void check_lane(tuttiResult_t result) const {
    if (result == tuttiSuccess) return;
    std::string sentence = tuttiGetLastError(nullptr);
    const std::string word = "rank ";
    for (size_t at = 0; (at = sentence.find(word, at)) != std::string::npos;) {
      at += word.size();
      const bool alone = at + 1 >= sentence.size() || !std::isdigit(static_cast<unsigned char>(sentence[at + 1]));
      if (at < sentence.size() && alone && (sentence[at] == '0' || sentence[at] == '1'))
        sentence.replace(at, 1, std::to_string(sentence[at] == '0' ? from_ : to_));
    }
    raise(result, sentence.empty() ? tuttiGetErrorString(result) : sentence);
  }

  const int from_, to_;  // ranks of the group
  OfRank& rank_;
  tuttiComm_t comm_ = nullptr;  // of who works
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // somebody waits for what is left to be done
  bool met_ = false;

 private:
  void wake_with(const std::unique_lock<std::mutex>&) {
    if (busy_ || closing_ || awake_ || !has_work()) return;
    if (!thread_.joinable()) thread_ = std::thread([this] { be_thread(); });
    awake_ = true;
    changed_.notify_all();
  }
  void be_thread() {
    Patience endless;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || (awake_ && !busy_); });
      if (closing_) return;
      awake_ = has_work();
      if (awake_) work_once(lock, endless);
    }
  }
  void work_once(std::unique_lock<std::mutex>& lock, Patience& patience) {
    const bool meets = !std::exchange(met_, true);
    busy_ = true;
    lock.unlock();
    if (meets) {
      meet();
      be_known_to_python();
    } else {
      work(patience);
    }
    lock.lock();
    busy_ = false;
    if (awake_ || ending_ || closing_) changed_.notify_all();
  }
  // Looks for a key now and then: a wait inside the store would keep other threads from it.
  void await(const std::string& key) {
    for (milliseconds pause(1); !store_->check({key}); pause = std::min(2 * pause, milliseconds(20))) {
      tuttiResult_t state = tuttiSuccess;
      tuttiCommGetAsyncError(group_, &state);
      if (state != tuttiSuccess) raise(state, tuttiGetLastError(group_));
      if (interrupted()) raise(tuttiAborted, "the process group has been shut down");
      std::this_thread::sleep_for(pause);
    }
  }
  void join(const std::vector<uint8_t>& text, int rank) {
    tuttiUniqueId id;
    TORCH_CHECK(text.size() == sizeof id.internal, "tutti: the store holds ", text.size(), " bytes under ", name_);
    std::memcpy(id.internal, text.data(), sizeof id.internal);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeout_ms = int32_t(std::min<int64_t>(timeout_.count(), INT32_MAX));
    tuttiComm_t made = nullptr;
    check_lane(tuttiCommInitRankConfig(&made, 2, id, rank, &config));
    const std::lock_guard lock(comm_mutex_);
    comm_ = made;
    if (interrupted_) tuttiCommAbort(comm_);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string name_;
  tuttiComm_t group_;
  milliseconds timeout_;
  std::mutex comm_mutex_;  // of who ends it meanwhile
  bool interrupted_ = false;
  bool busy_ = false;   // somebody works
  bool awake_ = false;  // the thread is to work
  bool closing_ = false;
  std::thread thread_;
};

class SendLane : public LaneEnd, public std::enable_shared_from_this<SendLane> {
 public:
  using LaneEnd::LaneEnd;

  // made: of a device's tensor, when its elements are there; else null.
  void send(const CallPointer& call, at::Tensor tensor, std::shared_ptr<Reached> made, int64_t tag) {
    call->stands_in(shared_from_this());
    const std::lock_guard lock(mutex_);
    messages_.push_back({call, std::move(tensor), std::move(made), tag});
    ++rank_.untouched;
  }
  // What nobody has received after `patience` fails. Once, at the end.
  void finish(milliseconds patience) {
    wake();
    std::unique_lock lock(mutex_);
    ending_ = true;
    const bool all_sent = changed_.wait_for(lock, patience, [this] { return messages_.empty() && sending_ == 0; });
    if (!all_sent) interrupt();
    end_work(lock);
    const std::string text = "tutti: rank " + std::to_string(to_) + " has not received what was sent";
    for (const Message& message : std::exchange(messages_, {}))
      message.call->complete(
          std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text)));
    if (comm_ != nullptr && !broken_ && all_sent) say_goodbye();
    leave();
  }

 private:
  static constexpr size_t brief_bytes_max = 4096;

  struct Message {
    CallPointer call;
    at::Tensor tensor;
    std::shared_ptr<Reached> made;
    int64_t tag;
  };

  bool has_work() override { return !messages_.empty(); }
  bool may_block() override { return messages_.size() > 1 || messages_.front().tensor.nbytes() > brief_bytes_max; }
  void meet() override {
    try {
      meet_as_sender();
    } catch (...) {
      broken_ = std::current_exception();
    }
  }
  void work(Patience& patience) override {
    Message message;
    {
      const std::lock_guard lock(mutex_);
      message = std::move(messages_.front());
      messages_.pop_front();
      ++sending_;
    }
    --rank_.untouched;
    if (!broken_) broken_ = send_one(message, patience);
    message.call->complete(broken_);
    const std::lock_guard lock(mutex_);
    --sending_;
  }
  // Where the receiver does not listen, it hears of the end by the lane's.
  void say_goodbye() {
    const Header last{Header::end, 0, 0};
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.deadline_ms = 1000;
    tuttiSendWith(&last, sizeof last, tuttiUint8, 1, comm_, nullptr, &options);
  }
  std::exception_ptr send_one(const Message& message, Patience& patience) {
    try {
      if (message.made) patience.wait_for(*message.made);
      const Header header{Header::message, message.tag, message.tensor.nbytes()};
      check_lane(tuttiSendWith(&header, sizeof header, tuttiUint8, 1, comm_, nullptr, patience.left()));
      check_lane(
          tuttiSendWith(message.tensor.data_ptr(), header.bytes, tuttiUint8, 1, comm_, nullptr, patience.left()));
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  std::deque<Message> messages_;
  int sending_ = 0;
  std::exception_ptr broken_;  // of who works
};

class ReceiveLane : public LaneEnd {
 public:
  // `ended`(error): nothing more will come from `from`. Called once, by whoever works.
  ReceiveLane(c10::intrusive_ptr<c10d::Store> store, int from, int to, tuttiComm_t group, milliseconds timeout,
              OfRank& rank, std::function<void(std::exception_ptr)> ended)
      : LaneEnd(std::move(store), from, to, group, timeout, rank), ended_(std::move(ended)) {}
  // The mailbox must be closed and the lane interrupted before. Once, at the end.
  void finish() {
    std::unique_lock lock(mutex_);
    end_work(lock);
    const bool over = over_;
    lock.unlock();
    if (!over) ended_(std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)},
                                                                     "tutti: the process group has been shut down")));
    leave();
  }

 private:
  bool has_work() override { return !over_ && rank_.mailbox.wants(from_); }
  bool may_block() override { return true; }
  void meet() override {
    try {
      meet_as_receiver();
    } catch (...) {
      end_with(std::current_exception());
    }
  }
  void work(Patience& patience) override {
    std::exception_ptr error;
    try {
      if (receive_one(patience)) return;
      const std::string text = "tutti: rank " + std::to_string(from_) + " has left without sending what is waited for";
      error = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text));
    } catch (...) {
      error = std::current_exception();
    }
    end_with(error);
  }
  void end_with(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_(error);
  }
  bool receive_one(Patience& patience) {
    const auto receive_bytes = [&](void* to, size_t bytes) {
      check_lane(tuttiRecvWith(to, bytes, tuttiUint8, 0, comm_, nullptr, patience.left()));
    };
    Header header;
    receive_bytes(&header, sizeof header);
    if (header.kind == Header::end) return false;
    const auto fill = [&](void* to) { receive_bytes(to, header.bytes); };
    Mailbox::Receive wanted;
    switch (rank_.mailbox.match(from_, header.tag, wanted)) {
      case Mailbox::Next::deliver: Mailbox::deliver(wanted, from_, header.bytes, fill, patience); return true;
      case Mailbox::Next::put_aside: {
        Mailbox::Early early{from_, header.tag, std::vector<uint8_t>(header.bytes)};
        fill(early.bytes.data());
        rank_.mailbox.put_aside(std::move(early), patience);
        return true;
      }
      case Mailbox::Next::closed: break;
    }
    return false;
  }

  std::function<void(std::exception_ptr)> ended_;
  bool over_ = false;
};

// All lanes of a rank.
class PointToPoint {
 public:
  PointToPoint(c10::intrusive_ptr<c10d::Store> store, int rank, int size, tuttiComm_t group, milliseconds timeout)
      : store_(std::move(store)),
        rank_(rank),
        group_(group),
        timeout_(timeout),
        out_(size_t(size)),
        in_(size_t(size)),
        clock_([this] { wake_all(); }) {
    shared_.wake_all = [this] { wake_all(); };
  }
  ~PointToPoint() { close(false); }

  void send(const CallPointer& call, at::Tensor tensor, std::shared_ptr<Reached> made, int to, int64_t tag) {
    {
      const std::lock_guard lock(mutex_);
      check_open();
      auto& lane = out_[size_t(to)];
      if (!lane) lane = std::make_shared<SendLane>(store_, rank_, to, group_, timeout_, shared_);
      lane->send(call, std::move(tensor), std::move(made), tag);
    }
    clock_.tell();
  }
  // from: a rank, or Mailbox::any.
  void receive(const Mailbox::Receive& receive) {
    {
      const std::lock_guard lock(mutex_);
      check_open();
      for (int from = 0; from < int(in_.size()); ++from)
        if (from != rank_ && (receive.source == from || receive.source == Mailbox::any)) open_from(from);
      if (receive.source != Mailbox::any) receive.call->stands_in(in_[size_t(receive.source)]);
    }
    if (shared_.mailbox.post(receive)) return;
    {
      const std::lock_guard lock(ended_mutex_);  // the lane may have ended before the post
      const bool all = ended_.size() + 1 == in_.size();
      for (const auto& [from, error] : ended_)
        if (receive.source == from || all) shared_.mailbox.fail(from, error, all);
    }
    if (receive.source == Mailbox::any) wake_all();
    else clock_.tell();
  }
  // How long sends that nobody receives are kept after the end was asked for.
  static constexpr milliseconds patience{5000};

  // abort: what is under way fails; else sends are finished first.
  void close(bool abort) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(closed_, true)) return;
    }
    clock_.close();
    for (const auto& lane : out_)
      if (lane && abort) lane->interrupt();
    for (const auto& lane : out_)
      if (lane) lane->finish(abort ? milliseconds(0) : patience);
    shared_.mailbox.close();
    for (const auto& lane : in_)
      if (lane) lane->interrupt();
    for (const auto& lane : in_)
      if (lane) lane->finish();
  }

 private:
  void check_open() const {
    if (closed_) raise(tuttiInvalidUsage, "the process group has been shut down");
  }
  void open_from(int from) {
    auto& lane = in_[size_t(from)];
    if (lane) return;
    lane = std::make_shared<ReceiveLane>(store_, from, rank_, group_, timeout_, shared_,
                                         [this, from](const std::exception_ptr& error) { lane_ended(from, error); });
  }
  void lane_ended(int from, const std::exception_ptr& error) {
    const std::lock_guard lock(ended_mutex_);
    ended_.emplace_back(from, error);
    shared_.mailbox.fail(from, error, ended_.size() + 1 == in_.size());
  }
  void wake_all() {
    if (shared_.untouched <= 0) return;
    const std::lock_guard lock(mutex_);
    for (const auto& lane : out_)
      if (lane) lane->wake();
    for (const auto& lane : in_)
      if (lane) lane->wake();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  tuttiComm_t group_;
  milliseconds timeout_;
  std::mutex mutex_;
  bool closed_ = false;
  std::mutex ended_mutex_;
  std::vector<std::pair<int, std::exception_ptr>> ended_;
  OfRank shared_;
  std::vector<std::shared_ptr<SendLane>> out_;
  std::vector<std::shared_ptr<ReceiveLane>> in_;
  Clock clock_;
};

}  // namespace tutti_torch
