// Joining a job, and the Bootstrap that comes of it.
#include <sodium.h>
#include <unistd.h>

#include <array>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/control.h"
#include "bootstrap/dial.h"
#include "bootstrap/messages.h"
#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

// Most ranks of a job.
constexpr int size_max = 65536;
// A meeting place that refuses for so long is gone for good.
constexpr TimeNs hopeless_ns = 2 * ns_per_s;
// The meeting place watches each rank's deadline and names who is missing; the rank waits a little longer to hear it.
constexpr TimeNs grace_ns = 2 * ns_per_s;
// So often a rank that waits looks whether it should give up.
constexpr TimeNs look_interval_ns = 50 * ns_per_ms;

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

class Joiner {
 public:
  Joiner(const JobId& id, int rank, int size, const BootstrapOptions& options, const Log& log, const GivesUp& gives_up)
      : id_(id), options_(options), log_(log), gives_up_(gives_up), system_(options.system),
        deadline_(now_ns(options.system) + options.timeout_ns), secret_{id.key, 0, options.protocol_version} {
    me_.rank = rank;
    me_.size = size;
    ::randombytes_buf(&me_.identity, sizeof me_.identity);
    me_.identity |= 1;  // 0 is the meeting place's
    me_.host = system_ != nullptr ? system_->host_name() : host_name();
    me_.pid = system_ != nullptr ? system_->process_id() : ::getpid();
  }

  std::unique_ptr<Control> join() {
    std::unique_ptr<Control> control = prepare();
    FramedSocket meeting = meet();
    for (const Member& neighbour : neighbours_) control->know(neighbour.rank, encode(neighbour));
    control->adopt_meeting(std::move(meeting));
    try {
      link(*control);
    } catch (const Error& error) {
      control->finish_meeting(FrameType::failure, encode(Failure{error.code(), me_.rank, error.what()}));
      control->fail({error.code(), me_.rank, error.what()});
      throw;
    }
    control->finish_meeting(FrameType::linked, {});
    return control;
  }

 private:
  // Others may be told why, so it names this rank.
  std::unique_ptr<Control> prepare() try {
    auto control = std::make_unique<Control>(me_.rank, me_.size, Secret{secret_.key, me_.identity, secret_.version},
                                             options_, log_);
    me_.addresses = reachable_addresses(options_.interface_names, control->port(), rank_address_max, system_);
    control->know(me_.rank, encode(me_));
    return control;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} could not join: {}", me_.describe(), error.what()));
  }

  // Reports to the meeting place and waits until all have.
  FramedSocket meet() {
    for (;;) {
      FramedSocket meeting = find_meeting_place();
      const TimeNs left_ns = std::max<TimeNs>(0, deadline_ - now_ns(system_));
      meeting.queue(make_frame(FrameType::report, encode(Report{me_, left_ns})));
      Frame frame;
      FramedSocket::Received received = FramedSocket::Received::closed;
      if (meeting.flush_until(deadline_, system_)) received = await_answer(meeting, frame);
      if (received == FramedSocket::Received::again)
        throw Error(Code::timeout, fmt::format("not all of {} ranks joined {}, and the meeting place at {} does not "
                                               "say which are missing",
                                               me_.size, within(options_.timeout_ns), place_));
      if (received == FramedSocket::Received::frame) {
        if (frame.type == FrameType::failure) throw_failure(frame);
        neighbours_ = decode_members(frame.payload);
        return meeting;
      }
      // At agreed ports this may have been the end of the job before this one.
      if (id_.port_count == 1 || now_ns(system_) >= deadline_)
        throw Error(Code::remote_error,
                    fmt::format("the meeting place at {} closed before all ranks had joined", place_));
      sleep_until(system_, now_ns(system_) + 50 * ns_per_ms);
    }
  }

  std::string reason_to_give_up() const { return gives_up_ ? gives_up_() : ""; }

  // Who gives up tells the meeting place, and hears of it as all others do.
  FramedSocket::Received await_answer(FramedSocket& meeting, Frame& frame) const {
    const TimeNs end = deadline_ + grace_ns;
    for (bool looks = bool(gives_up_);;) {
      const TimeNs until = looks ? std::min(end, now_ns(system_) + look_interval_ns) : end;
      const FramedSocket::Received received = meeting.receive_until(frame, until, system_);
      if (received != FramedSocket::Received::again || until == end) return received;
      const std::string why = reason_to_give_up();
      if (why.empty()) continue;
      looks = false;
      meeting.queue(make_frame(FrameType::failure, encode(Failure{Code::remote_error, me_.rank, why})));
      if (!meeting.flush()) return FramedSocket::Received::closed;
    }
  }

  [[noreturn]] static void throw_failure(const Frame& frame) {
    const Failure failure = decode_failure(frame.payload);
    throw Error(failure.code, failure.sentence);
  }

  FramedSocket find_meeting_place() {
    std::vector<JobId::Address> addresses;
    for (const JobId::Address& address : id_.addresses)
      for (int i = 0; i < id_.port_count && address.port + i <= 65535; ++i) {
        addresses.push_back(address);
        addresses.back().port = uint16_t(address.port + i);
      }
    DialOptions dialling;
    dialling.deadline = deadline_;
    dialling.system = system_;
    // At agreed ports rank 0 may come later than the others; an id's place was open before the id was given out.
    dialling.hopeless_ns = id_.port_count > 1 ? -1 : hopeless_ns;
    std::string why;
    dialling.stop = [&] { return !(why = reason_to_give_up()).empty(); };
    DialResult result = dial(addresses, secret_, hello(Purpose::join), dialling);
    place_ = result.address;
    switch (result.kind) {
      case DialResult::Kind::connected: return FramedSocket(std::move(result.fd));
      case DialResult::Kind::other_version:
        throw Error(Code::invalid_usage,
                    version_sentence(secret_.version, result.version, "the meeting place at " + result.address));
      case DialResult::Kind::stranger:
        throw Error(Code::invalid_usage,
                    "the id is of another job, or its meeting place has closed and another has its port now: " +
                        result.detail);
      case DialResult::Kind::refused:
        throw Error(Code::remote_error,
                    "the meeting place has closed, or its process has ended: " + result.detail);
      case DialResult::Kind::system:
        throw descriptor_error(me_.describe() + " cannot make a socket to join", result.error_number);
      case DialResult::Kind::stopped: throw Error(Code::remote_error, why);
      default:
        throw Error(Code::timeout, fmt::format("rank {} found no meeting place {}: {}", me_.rank,
                                               within(options_.timeout_ns), result.detail));
    }
  }

  Hello hello(Purpose purpose) const { return {purpose, uint32_t(me_.rank), uint32_t(me_.size), 0}; }

  // To the parent; the children come by themselves. Then everyone learns of everyone.
  void link(Control& control) {
    if (const int parent = Liveness::parent_of(me_.rank); parent >= 0) {
      const Member member = control.member(parent);
      DialOptions dialling;
      dialling.deadline = deadline_;
      dialling.system = system_;
      // It listened before it reported: where it does no more, it has given up, and the meeting place will say why.
      dialling.hopeless_ns = hopeless_ns;
      std::string why;
      dialling.stop = [&] { return control.verdict() != nullptr || !(why = reason_to_give_up()).empty(); };
      DialResult result = dial(member.addresses, Secret{secret_.key, member.identity, secret_.version},
                               hello(Purpose::tree), dialling);
      if (const Verdict* verdict = control.verdict()) throw Error(verdict->code, verdict->sentence);
      if (result.kind == DialResult::Kind::stopped) throw Error(Code::remote_error, why);
      if (result.kind == DialResult::Kind::system)
        throw descriptor_error(me_.describe() + " cannot make a socket", result.error_number);
      if (result.kind != DialResult::Kind::connected)
        throw Error(result.kind == DialResult::Kind::refused ? Code::remote_error : Code::timeout,
                    fmt::format("{} cannot reach {}: {}{}", me_.describe(), member.describe(), result.detail,
                                control.meets() ? "" : fmt::format("; the meeting place at {} has ended too", place_)));
      control.adopt_link(parent, std::move(result.fd));
    }
    control.wait_linked(deadline_);
    const std::vector<Bytes> members = control.all_gather(encode(me_), deadline_);
    for (int rank = 0; rank < me_.size; ++rank) control.know(rank, members[size_t(rank)]);
  }

  const JobId& id_;
  const BootstrapOptions& options_;
  const Log& log_;
  const GivesUp& gives_up_;
  System* const system_;
  const TimeNs deadline_;
  const Secret secret_;  // of the meeting place
  Member me_;
  std::string place_;
  std::vector<Member> neighbours_;
};

class Joined final : public Bootstrap {
 public:
  Joined(int rank, int size, const JobId& id, const BootstrapOptions& options, std::unique_ptr<Control> control)
      : rank_(rank), size_(size), key_(id.key), options_(options), control_(std::move(control)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const Key& key() const noexcept override { return key_; }
  const std::string& describe(int rank) const noexcept override {
    const std::lock_guard lock(names_mutex_);
    const auto [entry, is_new] = names_.try_emplace(rank);
    if (is_new) entry->second = control_->describe(rank);
    return entry->second;
  }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine) override {
    return control_->all_gather(mine, now_ns(options_.system) + options_.timeout_ns);
  }
  void barrier() override { all_gather({}); }

  std::vector<Fd> connect(std::span<const Wish> wishes) override {
    const TimeNs deadline = now_ns(options_.system) + options_.timeout_ns;
    for (const Wish& wish : wishes)
      if (wish.peer < 0 || wish.peer >= size_ || wish.peer == rank_)
        throw Error(Code::invalid_argument, fmt::format("rank {} of {} asks for a data connection to rank {}", rank_,
                                                        size_, wish.peer));
    // All that this rank opens, before it waits for what the others open: so no two wait for each other.
    std::vector<Fd> fds(wishes.size());
    for (size_t i = 0; i < wishes.size(); ++i)
      if (wishes[i].peer < rank_) fds[i] = open(wishes[i], deadline);
    for (size_t i = 0; i < wishes.size(); ++i)
      if (wishes[i].peer > rank_) {
        const Wish& wish = wishes[i];
        fds[i] = control_->take_data(wish.peer, wish.tag, deadline, wish.although_failed);
      }
    return fds;
  }

  Presence presence(int rank) const noexcept override { return control_->presence(rank); }
  const std::atomic<const Verdict*>& verdict_cell() const noexcept override { return control_->verdict_cell(); }
  void fail(Verdict verdict) noexcept override { control_->fail(std::move(verdict)); }
  void on_verdict(std::function<void()> wake) override { control_->on_verdict(std::move(wake)); }
  void compare_calls(OwnCalls own) noexcept override { control_->compare_calls(std::move(own)); }
  void tell_waiting(uint64_t number, uint64_t signature) noexcept override { control_->tell_waiting(number, signature); }
  void tell_stuck(StuckCall call, std::vector<uint32_t> sent) noexcept override {
    control_->tell_stuck(std::move(call), std::move(sent));
  }
  Bytes agree(uint32_t number, Bytes wish, TimeNs deadline,
              const std::function<Bytes(const Ballot&)>& make) override {
    return control_->agree(number, std::move(wish), deadline, make);
  }
  void leave() noexcept override { control_->leave(); }
  void before_fork() noexcept override { control_->before_fork(); }
  void after_fork(bool in_child) noexcept override { control_->after_fork(in_child); }

 private:
  // The higher rank opens, towards the lower one's listener.
  Fd open(const Wish& wish, TimeNs deadline) {
    const Member member = control_->member(wish.peer);
    const Hello hello{Purpose::data, uint32_t(rank_), uint32_t(size_), wish.tag};
    DialOptions dialling;
    dialling.deadline = deadline;
    dialling.system = options_.system;
    dialling.stop = [&] { return wish.although_failed ? has_gone(wish.peer) : verdict() != nullptr; };
    DialResult result = dial(member.addresses, Secret{key_, member.identity, options_.protocol_version}, hello,
                             dialling);
    if (result.kind == DialResult::Kind::connected) return std::move(result.fd);
    if (const Verdict* why = verdict(); why != nullptr && !wish.although_failed) throw Error(why->code, why->sentence);
    if (wish.although_failed && has_gone(wish.peer)) throw Error(Code::remote_error, gone_sentence(describe(wish.peer)));
    if (result.kind == DialResult::Kind::system)
      throw descriptor_error(fmt::format("{} cannot make a socket for a data connection", describe(rank_)),
                             result.error_number);
    throw Error(Code::timeout, fmt::format("{} cannot open a data connection to {} {}: {}", describe(rank_),
                                           describe(wish.peer), within(options_.timeout_ns), result.detail));
  }

  const int rank_;
  const int size_;
  const Key key_;
  const BootstrapOptions options_;
  mutable std::mutex names_mutex_;
  mutable std::map<int, std::string> names_;  // those that were asked for
  std::unique_ptr<Control> control_;
};

}  // namespace

std::string gone_sentence(const std::string& name) { return name + " has gone, and is waited for in vain"; }

std::unique_ptr<Bootstrap> Bootstrap::join(const JobId& id, int rank, int size, const BootstrapOptions& options,
                                           const Log& log, const GivesUp& gives_up) {
  if (size < 1 || size > size_max || rank < 0 || rank >= size)
    throw Error(Code::invalid_argument,
                fmt::format("rank {} of {} ranks: a job has 1 to {} ranks, numbered from 0", rank, size, size_max));
  if (id.addresses.empty()) throw Error(Code::invalid_argument, "the job id holds no address");
  if (options.timeout_ns <= 0 || options.silence_ns <= 0)
    throw Error(Code::invalid_argument, "timeout and silence must be more than 0");
  if (::sodium_init() < 0) throw Error(Code::system_error, "libsodium cannot start: no source of randomness");
  std::unique_ptr<Control> control = Joiner(id, rank, size, options, log, gives_up).join();
  return std::make_unique<Joined>(rank, size, id, options, std::move(control));
}

}  // namespace tutti
