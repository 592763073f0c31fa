// Point to point as PyTorch means it: sends and receives that go on by themselves, tags, and receives from any source.
//
// Between two ranks there is a lane for each direction: a communicator of the two, made when it is first used, and a
// thread at each end. The sender's thread sends, for each message, a header and then its bytes. The receiver's thread
// reads a header and gives the bytes to the first receive that asks for its sender and tag. Where there is none, but
// somebody waits for another message behind it, the bytes are put aside; else they wait where they are.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "calls.h"
#include "device.h"
#include "work.h"

namespace tutti_torch {

struct Header {
  enum Kind : uint64_t { message, end };
  uint64_t kind = message;
  int64_t tag = 0;
  uint64_t bytes = 0;
};

// What both ends of a lane know, and how they meet: the sender asks for the lane in the store, the receiver answers
// with the id of a communicator, and both join. Nobody blocks before the other is there.
class LaneEnd {
 public:
  // `group`: the communicator of all ranks, whose failure ends the meeting.
  LaneEnd(c10::intrusive_ptr<c10d::Store> store, int from, int to, tuttiComm_t group, milliseconds timeout)
      : from_(from),
        to_(to),
        store_(std::move(store)),
        name_("tutti/lane/" + std::to_string(from) + "/" + std::to_string(to)),
        group_(group),
        timeout_(timeout) {}
  virtual ~LaneEnd() { tuttiCommDestroy(comm_); }
  LaneEnd(const LaneEnd&) = delete;
  LaneEnd& operator=(const LaneEnd&) = delete;

  // Ends whatever the thread waits for. Any thread.
  void interrupt() {
    const std::lock_guard lock(comm_mutex_);
    interrupted_ = true;
    if (comm_ != nullptr) tuttiCommAbort(comm_);
  }

 protected:
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
  tuttiComm_t comm_ = nullptr;

 private:
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
  std::mutex comm_mutex_;
  bool interrupted_ = false;
};

// No deadline: a lane may be silent for as long as its users like. Who waits for a message has one.
inline const tuttiOptions_t* endless() {
  static const tuttiOptions_t options = [] {
    tuttiOptions_t made = TUTTI_OPTIONS_INITIALIZER;
    made.deadline_ms = INT32_MAX;
    return made;
  }();
  return &options;
}

class SendLane : public LaneEnd {
 public:
  using LaneEnd::LaneEnd;
  ~SendLane() override { finish(milliseconds(0)); }

  // made: of a device's tensor, when its elements are there; else null.
  void send(CallPointer call, at::Tensor tensor, std::shared_ptr<Reached> made, int64_t tag) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back({std::move(call), std::move(tensor), std::move(made), tag});
      ++pending_;
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    }
    changed_.notify_all();
  }
  // Ends the thread. What nobody has received after `patience` fails.
  void finish(milliseconds patience) {
    bool all_sent;
    {
      std::unique_lock lock(mutex_);
      finishing_ = true;
      changed_.notify_all();
      all_sent = changed_.wait_for(lock, patience, [this] { return pending_ == 0; });
    }
    if (!all_sent) interrupt();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Message {
    CallPointer call;
    at::Tensor tensor;
    std::shared_ptr<Reached> made;
    int64_t tag;
  };

  void work() {
    std::exception_ptr broken;
    try {
      meet_as_sender();
    } catch (...) {
      broken = std::current_exception();
    }
    for (;;) {
      Message message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return finishing_ || !messages_.empty(); });
        if (messages_.empty()) break;
        message = std::move(messages_.front());
        messages_.pop_front();
      }
      if (!broken) broken = send_one(message);
      message.call->complete(broken);
      {
        const std::lock_guard lock(mutex_);
        --pending_;
      }
      changed_.notify_all();
    }
    if (!broken && !interrupted()) say_goodbye();
  }
  // Where the receiver does not listen, it hears of the end by the lane's.
  void say_goodbye() {
    const Header last{Header::end, 0, 0};
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.deadline_ms = 1000;
    tuttiSendWith(&last, sizeof last, tuttiUint8, 1, comm_, nullptr, &options);
  }
  std::exception_ptr send_one(const Message& message) {
    try {
      if (message.made) message.made->wait();
      const Header header{Header::message, message.tag, message.tensor.nbytes()};
      check_lane(tuttiSendWith(&header, sizeof header, tuttiUint8, 1, comm_, nullptr, endless()));
      check_lane(tuttiSendWith(message.tensor.data_ptr(), header.bytes, tuttiUint8, 1, comm_, nullptr, endless()));
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  size_t pending_ = 0;  // enqueued, not yet completed
  bool finishing_ = false;
  std::thread thread_;
};

// Receives that were posted, and messages that came before the receive that asks for them.
class Mailbox {
 public:
  static constexpr int any = -1;

  struct Receive {
    CallPointer call;
    at::Tensor tensor;  // where the caller wants it
    std::shared_ptr<Reached> free;  // of a device's tensor: when it may be written; else null
    int source = any;
    int64_t tag = 0;
  };
  struct Early {
    int source;
    int64_t tag;
    std::vector<uint8_t> bytes;
  };

  // True where the message was here already; then the receive is over.
  bool post(const Receive& receive) {
    std::unique_lock lock(mutex_);
    const auto early =
        std::find_if(early_.begin(), early_.end(), [&](const Early& e) { return fits(receive, e.source, e.tag); });
    if (early == early_.end()) {
      posted_.push_back(receive);
      lock.unlock();
      changed_.notify_all();
      return false;
    }
    const Early message = std::move(*early);
    early_.erase(early);
    lock.unlock();
    deliver_early(receive, message);
    return true;
  }

  enum class Next { deliver, put_aside, closed };
  // What to do with a message that has arrived: waits until somebody wants it, or what comes after it.
  Next match(int source, int64_t tag, Receive& wanted) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found =
          std::find_if(posted_.begin(), posted_.end(), [&](const Receive& r) { return fits(r, source, tag); });
      if (found != posted_.end()) {
        wanted = std::move(*found);
        posted_.erase(found);
        return Next::deliver;
      }
      if (closed_) return Next::closed;
      const auto waits = [&](const Receive& r) { return r.source == source || r.source == any; };
      if (std::any_of(posted_.begin(), posted_.end(), waits)) return Next::put_aside;
      changed_.wait(lock);
    }
  }
  void put_aside(Early message) {
    std::unique_lock lock(mutex_);
    // The receive may have been posted while the bytes were on their way.
    const auto found = std::find_if(posted_.begin(), posted_.end(),
                                    [&](const Receive& r) { return fits(r, message.source, message.tag); });
    if (found == posted_.end()) {
      early_.push_back(std::move(message));
      return;
    }
    const Receive receive = std::move(*found);
    posted_.erase(found);
    lock.unlock();
    deliver_early(receive, message);
  }

  // Gives `bytes` bytes, which `fill`(address) writes, to a receive and completes it. fill may throw; where the size is
  // wrong it writes to memory that nobody sees, so that the next message is found. by_host: it writes to memory of the
  // host alone.
  template <class Fill>
  static void deliver(const Receive& receive, int source, size_t bytes, Fill fill, bool by_host = false) {
    std::exception_ptr error;
    try {
      const at::NoGradGuard no_grad;
      if (receive.tensor.nbytes() != bytes) {
        std::vector<uint8_t> nowhere(bytes);
        fill(nowhere.data());
        refuse("rank " + std::to_string(source) + " sent " + std::to_string(bytes) + " bytes with tag " +
               std::to_string(receive.tag) + ", but the tensor to be received has " +
               std::to_string(receive.tensor.nbytes()));
      }
      if (receive.free) receive.free->wait();
      const at::Tensor room = by_host && receive.free ? room_on_host(receive.tensor) : plain_room(receive.tensor);
      fill(room.data_ptr());
      put_back(room, receive.tensor);
      if (receive.free) Reached(receive.tensor.device()).wait();
    } catch (...) {
      error = std::current_exception();
    }
    receive.call->came_from(source);
    receive.call->complete(error);
  }

  // Nothing more will come from `source`.
  void fail(int source, const std::exception_ptr& error, bool all_sources_ended) {
    std::vector<Receive> failed;
    {
      const std::lock_guard lock(mutex_);
      for (auto r = posted_.begin(); r != posted_.end();) {
        const bool hopeless = r->source == source || (r->source == any && all_sources_ended);
        if (hopeless) failed.push_back(std::move(*r));
        r = hopeless ? posted_.erase(r) : std::next(r);
      }
    }
    for (const Receive& receive : failed) receive.call->complete(error);
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  static at::Tensor room_on_host(const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
  }
  static void deliver_early(const Receive& receive, const Early& message) {
    const auto fill = [&](void* to) {
      if (!message.bytes.empty()) std::memcpy(to, message.bytes.data(), message.bytes.size());
    };
    deliver(receive, message.source, message.bytes.size(), fill, true);
  }
  static bool fits(const Receive& receive, int source, int64_t tag) {
    return (receive.source == any || receive.source == source) && receive.tag == tag;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Receive> posted_;
  std::list<Early> early_;
  bool closed_ = false;
};

class ReceiveLane : public LaneEnd {
 public:
  // `ended`(error): nothing more will come from `from`. Called on the lane's thread, once.
  ReceiveLane(c10::intrusive_ptr<c10d::Store> store, int from, int to, tuttiComm_t group, milliseconds timeout,
              Mailbox& mailbox, std::function<void(std::exception_ptr)> ended)
      : LaneEnd(std::move(store), from, to, group, timeout),
        mailbox_(mailbox),
        ended_(std::move(ended)),
        thread_([this] { work(); }) {}
  // The mailbox must be closed and the lane interrupted before.
  ~ReceiveLane() override { thread_.join(); }

 private:
  void work() {
    std::exception_ptr error;
    try {
      meet_as_receiver();
      while (receive_one()) continue;
      const std::string text = "tutti: rank " + std::to_string(from_) + " has left without sending what is waited for";
      error = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text));
    } catch (...) {
      error = std::current_exception();
    }
    ended_(error);
  }
  bool receive_one() {
    Header header;
    receive_bytes(&header, sizeof header);
    if (header.kind == Header::end) return false;
    const auto fill = [&](void* to) { receive_bytes(to, header.bytes); };
    Mailbox::Receive wanted;
    switch (mailbox_.match(from_, header.tag, wanted)) {
      case Mailbox::Next::deliver: Mailbox::deliver(wanted, from_, header.bytes, fill); return true;
      case Mailbox::Next::put_aside: {
        Mailbox::Early early{from_, header.tag, std::vector<uint8_t>(header.bytes)};
        fill(early.bytes.data());
        mailbox_.put_aside(std::move(early));
        return true;
      }
      case Mailbox::Next::closed: break;
    }
    return false;
  }
  void receive_bytes(void* to, size_t bytes) {
    check_lane(tuttiRecvWith(to, bytes, tuttiUint8, 0, comm_, nullptr, endless()));
  }

  Mailbox& mailbox_;
  std::function<void(std::exception_ptr)> ended_;
  std::thread thread_;
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
        in_(size_t(size)) {}
  ~PointToPoint() { close(false); }

  void send(CallPointer call, at::Tensor tensor, std::shared_ptr<Reached> made, int to, int64_t tag) {
    const std::lock_guard lock(mutex_);
    check_open();
    auto& lane = out_[size_t(to)];
    if (!lane) lane = std::make_unique<SendLane>(store_, rank_, to, group_, timeout_);
    lane->send(std::move(call), std::move(tensor), std::move(made), tag);
  }
  // from: a rank, or Mailbox::any.
  void receive(const Mailbox::Receive& receive) {
    {
      const std::lock_guard lock(mutex_);
      check_open();
      for (int from = 0; from < int(in_.size()); ++from)
        if (from != rank_ && (receive.source == from || receive.source == Mailbox::any)) open_from(from);
    }
    if (mailbox_.post(receive)) return;
    const std::lock_guard lock(ended_mutex_);  // the lane may have ended before the post
    for (const auto& [from, error] : ended_)
      if (receive.source == from || ended_.size() + 1 == in_.size())
        mailbox_.fail(from, error, ended_.size() + 1 == in_.size());
  }
  // How long sends that nobody receives are kept after the end was asked for.
  static constexpr milliseconds patience{5000};

  // abort: what is under way fails; else sends are finished first.
  void close(bool abort) {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    for (const auto& lane : out_)
      if (lane && abort) lane->interrupt();
    for (const auto& lane : out_)
      if (lane) lane->finish(abort ? milliseconds(0) : patience);
    mailbox_.close();
    for (const auto& lane : in_)
      if (lane) lane->interrupt();
    for (auto& lane : in_) lane.reset();
    for (auto& lane : out_) lane.reset();
  }

 private:
  void check_open() const {
    if (closed_) raise(tuttiInvalidUsage, "the process group has been shut down");
  }
  void open_from(int from) {
    auto& lane = in_[size_t(from)];
    if (lane) return;
    lane = std::make_unique<ReceiveLane>(store_, from, rank_, group_, timeout_, mailbox_,
                                         [this, from](const std::exception_ptr& error) { lane_ended(from, error); });
  }
  void lane_ended(int from, const std::exception_ptr& error) {
    const std::lock_guard lock(ended_mutex_);
    ended_.emplace_back(from, error);
    mailbox_.fail(from, error, ended_.size() + 1 == in_.size());
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  tuttiComm_t group_;
  milliseconds timeout_;
  std::mutex mutex_;
  bool closed_ = false;
  std::mutex ended_mutex_;
  std::vector<std::pair<int, std::exception_ptr>> ended_;
  Mailbox mailbox_;
  std::vector<std::unique_ptr<SendLane>> out_;
  std::vector<std::unique_ptr<ReceiveLane>> in_;
};

}  // namespace tutti_torch
