// A rank's membership in a communicator: its links to the other ranks, and the operations that run over them.
//
// Threads: one thread at a time drives it (the caller's, or a stream's: see admission below); abort(), failure() and
// waiting for admission may come from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/signature.h"
#include "bootstrap/bootstrap.h"
#include "communicator/device_side.h"
#include "communicator/peer_path.h"
#include "communicator/operators.h"
#include "communicator/patience.h"
#include "communicator/registrations.h"
#include "communicator/request.h"
#include "communicator/lending.h"
#include "communicator/shared_path.h"
#include "communicator/flight_recorder.h"
#include "communicator/links.h"
#include "communicator/on_signal.h"
#include "communicator/window.h"
#include "engine/engine.h"
#include "engine/planner.h"
#include "topology/topology.h"
#include "transport/doorbell.h"
#include "transport/transport.h"

namespace tutti {

// Settings, with the environment already looked up.
struct CommunicatorOptions {
  int timeout_ms = 300000;
  std::string algorithm;        // forced, or ""
  std::string transports;       // comma list allowed, or "" for all
  std::string interface_names;  // comma list allowed, or "" for all
  int channels = -1;            // -1: decide
  int device = -1;              // its number; -1: that of the first buffer or stream
  Determinism determinism = Determinism::bitwise;  // never as_communicator
  std::string schedule_files;   // colon list of a user's schedules, or ""
  std::shared_ptr<const std::vector<UserSchedule>> schedules{};  // from those files; null: not loaded yet
  uint64_t link_bits_per_s = 0;  // of this rank's host to others, measured by the communicator it comes from; 0: not yet
  double ranks_per_core = 1;     // where most crowded, of the communicator it comes from: its ranks share the cores with others
};

// Differs between kernels that run; containers of one host share it. A hint only: it decides how ranks wait, and
// transports find out by trying.
std::string boot_id();

class Communicator {
 public:
  // Joins; blocks until all ranks have, or gives_up says why one will not. Throws Error.
  static std::unique_ptr<Communicator> join(const JobId& id, int rank, int size, const CommunicatorOptions& options,
                                            const GivesUp& gives_up = {});
  // Over links that are there already: nothing is discovered, measured or agreed on. Where ranks are simulated.
  struct Given {
    Links links;    // channels + 1, the last one point to point's
    int channels = 1;
    CostModel costs;
    std::vector<int> host_of;
    PatiencePolicy patience;
    bool point_to_point = true;
    bool devices = false;  // whether buffers may lie on devices of this process
  };
  static std::unique_ptr<Communicator> over(std::unique_ptr<Bootstrap> bootstrap, Given given,
                                            const CommunicatorOptions& options);
  ~Communicator();

  // --- New communicators from this one, in regroup.cc; collective over its ranks, blocking, one thread at a time.
  // Throw Error.

  // The ranks that give one colour, in the order of their keys, then of their ranks. Null for a negative colour.
  std::unique_ptr<Communicator> split(int color, int key, const CommunicatorOptions& options);
  // The ranks that are not excluded, in their order; only they call, with one list. This one may have failed.
  std::unique_ptr<Communicator> shrink(std::span<const int> excluded, const CommunicatorOptions& options);
  // The ranks that live, in their order, who agree on who that is and that all of them have joined; only they call. This
  // one may have failed.
  std::unique_ptr<Communicator> shrink_to_living(const CommunicatorOptions& options);
  // The ranks that live, who keep their numbers and agree on who that is, and newcomers for the others, who join by `id`.
  // One rank gives the id, others null. This one may have failed.
  std::unique_ptr<Communicator> replace(const JobId* id, const CommunicatorOptions& options);
  // All ranks, who keep their numbers, and newcomers who join by `id` up to `size`. One rank gives the id, others null.
  std::unique_ptr<Communicator> grow(int size, const JobId* id, const CommunicatorOptions& options);

  const CommunicatorOptions& options() const noexcept { return options_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int channels() const noexcept { return channels_; }  // of collectives
  const Log& log() const noexcept { return log_; }
  Operators& operators() noexcept { return operators_; }
  Registrations& registrations() noexcept { return registrations_; }
  // Elements must fit into one message.
  size_t message_bytes_max() const noexcept { return message_bytes_max_; }

  // Runs one call on the calling thread until it is done. success, or the code of failure().
  Code run(const Request& request) noexcept;

  // Whether a call of a stream has nothing before it, and is so small that it may as well begin on the calling thread, which returns at
  // once all the same. Its bytes are taken from `room`, which is bytes_begun_now_max at first.
  bool may_begin_now(const Request& request, size_t& room) noexcept;
  static constexpr size_t bytes_begun_now_max = 64 * 1024;  // copied in about the time in which another thread is woken
  // Begins it, where the communicator has not failed, and waits for a few microseconds. Null: it is over, and came to
  // `code`. Else it goes on in end(), by any thread, with the next ticket.
  Operation* begin_now(const Request& request, Code& code) noexcept;
  Code end(Operation& operation) noexcept { return wait_for(operation, timeout_ns_); }

  // What a call is known by among those made lately: of a send or a receive, the root says with whom, and which it is.
  // What is no rank has a root that none has.
  static uint32_t root_of_point_to_point(bool sending, int peer) noexcept {
    return uint32_t(peer) < 1u << 30 ? uint32_t(peer) * 2 + uint32_t(sending) : ~uint32_t{0};
  }
  Call key_of(const Request& request) const noexcept {
    Call key = request.call;
    if (key.kind == Collective::send_recv) key.root = root_of_point_to_point(request.sending, request.peer);
    if (request.layout != nullptr) key.count = count_of_v_form(*request.layout, key);
    return key;
  }
  // The place of calls like this one among those made lately; run() fills it where the call is small.
  Repeat& repeat_of(const Call& call) noexcept {
    return repeats_.find(call);
  }
  // Likewise of large ones: a program has few of those, but may have many small ones beside them.
  Repeat& large_repeat_of(const Call& call) noexcept {
    return large_repeats_.find(call);
  }
  // Runs the call that `repeat` holds, which is not large, on other buffers, which it allows.
  Code run_again(Repeat& repeat, const std::byte* input, std::byte* output) noexcept;
  // Likewise a large one, where may_run_large_again(): it may have to ask its peers where their buffers lie, and then goes the
  // long way.
  bool may_run_large_again(const Repeat& repeat) const noexcept {
    return !repeat.asks_shared_path || !shared_path_->would_try(repeat.call);
  }
  Code run_large_again(Repeat& repeat, const std::byte* input, std::byte* output) noexcept;

  // --- For sets of calls that progress together (groups); the caller drives them.

  // Whether what a request comes after on a stream of the device has passed: only then it begins, so that a call which ends
  // before has put nothing on the device that would touch its buffers later. (The direct path sees to that itself.)
  // failed: the communicator has failed.
  Status may_begin(const Request& request) noexcept;
  // Waits until it may. False: the communicator has failed.
  bool await_begin(const Request& request) noexcept;
  // As expire(), of a request that may not begin yet.
  void expire_before(const Request& request, TimeNs timeout_ns) noexcept;

  // Prepares `operation` for a request. False: the communicator has failed.
  bool begin(Operation& operation, const Request& request) noexcept;
  // The same request once more: no argument is read, no plan sought. `since` is scratch_epoch() as it was after begin();
  // false where begin() is needed again, because scratch memory has moved, or the buffers of a call that may lend them lie in other regions.
  bool begin_again(Operation& operation, uint32_t since, bool may_lend, bool lends) noexcept {
    if (since != scratch_epoch_) return false;
    if ((may_lend || operation.work().bytes() >= lent_call_bytes_min) && !lies_as_before(operation.work(), lends)) return false;
    recorder_->begin(operation, operation.work().signature);
    engine_->rewind(operation);
    return true;
  }
  uint32_t scratch_epoch() const noexcept { return scratch_epoch_; }
  // Whether a request needs nothing but its buffers and its peers, so that it may be begun while another one runs.
  bool may_begin_beside(const Request& request) noexcept;
  // As Engine's; of what goes another way than by messages nothing is known before it is done, and nothing follows it.
  Status follow(Operation& operation, const Operation& other, bool all_sent) noexcept;
  bool has_sent(const Operation& operation) const noexcept { return goes_by_messages(operation) && engine_->has_sent(operation); }
  bool has_passed(const Operation& operation) const noexcept {
    return goes_by_messages(operation) && engine_->has_passed(operation);
  }
  // While small messages of several requests are sent, which then go together where that is faster.
  void hold_small(bool holds) noexcept {
    if (!engine_->stages()) return;
    for (const auto& transport : links_.transports) transport->hold_small(holds);
  }
  // --- Devices. Null where this process has none.
  DeviceSide* device_side() noexcept { return device_side_.get(); }
  // Whether a running operation may wait for a device, which wakes nobody when it is done.
  bool waits_for_device() const noexcept {
    return device_side_ != nullptr &&
           (awaits_begin_ || device_side_->is_running() || (peer_path_ != nullptr && peer_path_->waits_for_device()));
  }
  // What may wait for all that the device does, by the calling thread: before a stream waits for a call like this one.
  void prepare_device(const Request& request) noexcept {
    device_side_->device()->prepare(request.call.type, request.call.op);
    if (peer_path_ != nullptr) peer_path_->close_forgotten();
  }
  // Null where some rank's device is out of reach of another's, or not named.
  const PeerPath* peer_path() const noexcept { return peer_path_.get(); }
  // Whether a call tries the direct path, where it cannot be begun again from what was planned.
  bool goes_by_peers(const Request& request) const noexcept {
    return peer_path_ != nullptr && request.layout == nullptr && request.algorithm.empty() && options_.algorithm.empty() &&
           request.terms.inputs == 1 && !adds_exactly(request) && peer_path_->serves(request.call);
  }
  // Null where some rank is not of this host, or there are more than the path serves.
  const SharedPath* shared_path() const noexcept { return shared_path_.get(); }
  // Whether a call may go through the memory of all ranks, as far as its arguments tell; likewise. The same on all ranks.
  bool may_go_by_shared_memory(const Request& request) const noexcept;
  // What this rank has to do so that the kernel copies a call that goes through ordinary memory, as far as is known before it
  // begins. Not the same on all ranks. Of sends and receives: where they stand alone; is_root: it sends.
  Lending::Duty kernel_duty(const Call& call, const Layout* layout, bool is_root, bool in_place) const noexcept {
    if (!lends_private_ || !Lending::serves(call.kind)) return Lending::Duty::none;
    const size_t block_bytes = sent_block_elements(call, layout) * element_bytes(call);
    // (A message there and back, copied and put, Xeon, far: 64 KiB 12.6 and 15.7 us, 96 KiB 18.7 and 20.1, 128 and 256 KiB alike.)
    constexpr size_t put_alone_bytes_min = size_t{128} << 10;
    const size_t bytes_min = call.kind == Collective::send_recv ? put_alone_bytes_min : lent_bytes_min_of(call);
    if (buffer_bytes(call, layout) < bytes_min) return Lending::Duty::none;
    if (crowded_ && block_bytes < crowded_block_bytes_min(served_as(call.kind))) return Lending::Duty::none;
    return Lending::duty_of(call.kind, {size_, is_root, in_place, crowded_});
  }
  // The same of any request: whether there is something, or may be, so that it cannot be begun again as it was.
  bool may_copy_by_kernel(const Request& request) const noexcept {
    if (request.call.kind == Collective::send_recv && request.beside_others) return false;  // may_lend_beside()
    return kernel_duty(request.call, request.layout.get(), is_root_of(request.call, request.sending), false) != Lending::Duty::none;
  }
  // The same of a send beside others, in a group: all those of a rank go alike. Where ranks share cores, from so many bytes on. (Measured,
  // Xeon, 2 cores, a send and a receive at once of 32 KiB 1.00 and 1.02 of the time among 4 and 8 ranks, of 48 KiB 0.85 and 0.77.)
  bool may_lend_beside(const Request& request) const noexcept {
    return lends_private_ && request.sending && request.beside_others && !request.on_device &&
           request.call.count * element_bytes(request.call) >= (crowded_ ? lent_bytes_min : lent_private_bytes_min);
  }
  // How a call goes that may lend ordinary memory, and since when; end_lending() is to be called once it has ended.
  struct TimedWay {
    Lending::Way way;
    TimeNs since = 0;
  };
  // The first send of that kind in a group begins. leads: no receive of the group is from a rank before this one.
  TimedWay begin_sends(const Request& first, bool leads) noexcept;
  void end_lending(const TimedWay& trial) noexcept;
  // Copies between buffers of one call that is the rank's own with itself. Throws Error.
  void copy_on_device(const EntryEvent* entry, std::byte* to, const std::byte* from, size_t bytes);
  // Expires with this communicator.
  std::weak_ptr<const void> life() const noexcept { return life_; }
  // Moves what can move. failed: the communicator has failed, failure() is set.
  Status progress(Operation& operation) noexcept;
  // Of one that is begun, and alone: waits for a few microseconds as a call that is no group does, at less cost than asking about it.
  // done or again: progress() tells of failure.
  Status linger_at(Operation& operation) noexcept;
  // Another number once something has moved, most likely.
  uint64_t position(const Operation& operation) const noexcept {
    return engine_->position(operation) + (&operation == by_shared_memory_ ? shared_path_->position() : 0);
  }
  // The deadline, timeout_ns after the wait's begin, has passed while this operation waited: fails the communicator with
  // a sentence that says so.
  void expire(const Operation& operation, TimeNs timeout_ns) noexcept;
  // This request is not over, and will not be, for that reason: fails the communicator with a sentence that says so.
  void leave(const Request& request, const std::string& reason) noexcept;

  // An operation that is a collective has waited for long, and so many collectives were begun after it: tells the other ranks.
  void tell_waiting(const Operation& operation, uint64_t begun_since) noexcept;
  // It has waited for longer still, and all calls before it have ended, or are receives, or sends that have sent everything: tells the
  // others what it waits for.
  void tell_stuck(const Operation& operation) noexcept;

  // Before an operation that has failed gives its memory back: nobody reads or writes it any more.
  void let_go() noexcept;
  bool await_leaving() noexcept;

  // --- Waiting; see drive() in wait.h.
  const PatiencePolicy& patience() const noexcept { return patience_; }
  TimeNs timeout_ns() const noexcept { return timeout_ns_; }
  TimeNs timeout_ns(const Request& request) const noexcept {
    return request.timeout_ns > 0 ? request.timeout_ns : timeout_ns_;
  }
  void arm() noexcept;
  void disarm() noexcept;
  // Writes the descriptors whose readiness means that progress() may move something.
  size_t poll_fds(std::span<pollfd> space) noexcept;

  // --- Windows; collective over its ranks, blocking, one thread at a time. Throw Error.

  // Lives until close_window, or as long as the communicator. A null block: peers cannot map the memory.
  Window& open_window(std::span<std::byte> memory, std::shared_ptr<const SharedBlock> block);
  // Frees the window in any case.
  void close_window(Window& window);
  size_t open_windows() const noexcept { return windows_.size(); }

  // --- Failure; any thread. Null while healthy; never changes once set.
  const Verdict* failure() const noexcept { return verdict_.load(std::memory_order_acquire); }
  // Fails the communicator on all ranks.
  void fail(Code code, const std::string& sentence) noexcept;
  void abort() noexcept;

  // --- Admission: calls enter in the order of their tickets, one at a time.
  // The next place in the order. Called by the thread that makes the call.
  uint64_t take_ticket() noexcept { return next_ticket_++; }
  // True where nothing is pending on any stream: then a call on the calling thread needs no ticket.
  bool idle() const noexcept { return serving_.load(std::memory_order_acquire) == next_ticket_; }
  void await_turn(uint64_t ticket) noexcept;
  void end_turn() noexcept;

  // Says that this rank calls no more; pending operations must be over.
  void leave() noexcept;
  // Around a fork; the child's copy is not used again.
  void before_fork() noexcept { bootstrap_->before_fork(); }
  void after_fork(bool in_child) noexcept { bootstrap_->after_fork(in_child); }
  bool has_left() const noexcept { return left_; }

  const FlightRecorder& recorder() const noexcept { return *recorder_; }
  // "self", "shm", "verbs", "tcp".
  const char* transport_to(int peer) const noexcept;
  // The algorithm that a call would run.
  std::string_view algorithm_for(Collective collective, size_t bytes);
  // The algorithm that a call names, for its terms; see Planner::named(), which throws. Any thread.
  Planner::Named named_algorithm(std::string_view algorithm, const Request& request) const;
  // What the bits of a call's result may depend on.
  Determinism determinism_of(const Terms& terms) const noexcept {
    return terms.determinism == Determinism::as_communicator ? options_.determinism : terms.determinism;
  }
  // Whether the call's sum is exact, and rounded once.
  bool adds_exactly(const Request& request) const noexcept;
  // Whether the call's input is made of the caller's each time that it begins.
  bool makes_its_input(const Request& request) const noexcept {
    return request.call.op == ReduceOp::premulsum || joins_its_vectors(request);
  }

 private:
  Communicator(std::unique_ptr<Bootstrap> bootstrap, const CommunicatorOptions& options, Log log);
  Communicator(std::unique_ptr<Bootstrap> bootstrap, Given given, const CommunicatorOptions& options);
  // How the ranks that live go on: who they are, and the id of what they join, or none: they have joined.
  struct Regrouped {
    std::vector<int> members;
    std::optional<JobId> id;
  };
  Regrouped agree_on_living(Bytes wish, TimeNs deadline,
                            const std::function<std::optional<JobId>(const Ballot&)>& make_id);
  bool goes_by_messages(const Operation& operation) const noexcept {
    return &operation != by_shared_memory_ && &operation != by_peers_ && operation.work().device == nullptr;
  }
  // Why one of these is waited for in vain, or "".
  std::string who_has_gone(std::span<const int> members) const;
  // As `rank` of `size`, of which `members` are ranks of this one: it is given up where one of those has gone.
  std::unique_ptr<Communicator> join_from(const std::vector<int>& members, const JobId& id, int rank, int size,
                                          const CommunicatorOptions& options) const;
  // divides: by peer, as PointToPointPlans says it.
  void make_engine(PlannerOptions planner, bool point_to_point, const std::function<bool(int)>& divides);
  void make_transports(const CommunicatorOptions& options, const Host& host);
  void measure_link_speeds(const std::vector<std::string>& networks);
  void make_planner(const CommunicatorOptions& options, const Host& host);
  void agree_on(const CommunicatorOptions& options);
  void record_on_signal();
  void compare_calls();
  void load_schedules();
  const Plan& plan_of(const Request& request);
  Demand demand_of(const Request& request) const noexcept;
  std::string describe_call(uint64_t signature) const;
  void set_reduction(Work& work, const Request& request) noexcept;
  void reserve_scratch(const Plan& plan, size_t operands);
  void make_device_side();
  std::string device_card() const;
  void make_peer_path(const std::vector<std::string>& cards);
  bool all_reach(const std::string& why_not);
  bool begin_by_peers(Operation& operation, const Request& request);
  void make_shared_path(size_t cache_bytes);
  bool goes_by_shared_memory(const Request& request);
  void begin_by_shared_memory(Operation& operation, const Request& request);
  void begin_planned(Operation& operation, const Request& asked, bool recorded = false);
  void start_exchange(Operation& operation, const Request& request, std::span<const std::byte> mine, std::byte* all);
  void begin_on_device(Work& work, const Request& request);
  std::byte* made_input(const Request& request, size_t bytes);
  static void find_regions(Work& work) noexcept;
  bool lies_as_before(const Work& work, bool lends) const noexcept;
  // Of a call's whole buffer: the larger one, where they differ.
  size_t buffer_bytes(const Call& call, const Layout* layout) const noexcept {
    if (layout != nullptr) return layout->elements * element_bytes(call);
    return call.count * element_bytes(call) * (meaning(call.kind).blocks ? size_t(size_) : 1);
  }
  // Of one rank's block, or of all where there are none; of a v-form, of an average one.
  size_t sent_block_elements(const Call& call, const Layout* layout) const noexcept {
    if (layout == nullptr) return call.count;
    return layout->elements / (meaning(call.kind).input_of(int(call.root) == rank_) == Part::all ? size_t(size_) : 1);
  }
  // Of the whole buffer; who sends to the root of a gather_v has but one block, and the root says by each whether it takes it.
  size_t lent_bytes_min_of(const Call& call) const noexcept {
    if (call.kind != Collective::gather_v || int(call.root) == rank_ || !lends_private_) return lent_call_bytes_min;
    return crowded_ ? crowded_block_bytes_min(Collective::gather) : offered_bytes_min;
  }
  // Of one rank's block, where ranks share cores. (Measured, 2 cores of a Xeon, averages of the time copied: gather of 4 and 8 blocks of
  // 32 KiB 1.45 and 0.94, of 48 KiB 0.91 and 0.68; all_to_all of 8 ranks of blocks of 64, 96 and 128 KiB 1.29, 1.07 and 0.98.)
  size_t crowded_block_bytes_min(Collective served) const noexcept {
    constexpr size_t gathered = size_t{48} << 10, exchanged_by_many = size_t{128} << 10;
    if (served == Collective::gather) return gathered;
    return served == Collective::all_to_all && !two_share_cores_ ? exchanged_by_many : lent_call_bytes_min;
  }
  bool is_root_of(const Call& call, bool sends) const noexcept {
    return call.kind == Collective::send_recv ? sends : call.kind == Collective::exscan ? rank_ == 0 : int(call.root) == rank_;
  }
  void lend_at_leisure(Work& work, const Request& request) noexcept;
  void copy_by_kernel(const Operation& operation, Work& work, const Call& call, bool sends) noexcept;
  bool tries_lending(const Operation& operation, const Lending::Way& way) noexcept;
  void lend_private(Work& work) noexcept;
  TimedWay begin_lending(const Lending::Way& way) noexcept;
  PeerLends lends_before(const Lending::Way& way) noexcept;
  void end_watching(const Operation& operation) noexcept;
  bool joins_its_vectors(const Request& request) const noexcept {
    return request.terms.inputs > 1 && !adds_exactly(request);
  }
  // Makes some elements of the input that a call begins with of those of the caller's.
  using MakeInput = std::function<void(const std::byte* from, std::byte* to, size_t count)>;
  Request with_input_to_make(const Request& asked, size_t vectors) const;
  Request with_made_input(const Request& asked, size_t vectors, const MakeInput& make);
  Request with_made_blocks(const Request& asked, size_t vectors, const MakeInput& make);
  std::array<std::byte, 16> scalar_of(const Request& asked);
  Request with_multiplied_input(const Request& asked);
  bool multiplies_by_tiles(const Request& asked) const noexcept {
    return asked.call.op == ReduceOp::premulsum && asked.layout == nullptr && asked.terms.inputs == 1 && !asked.on_device;
  }
  Request with_multiplied_tiles(const Request& asked);
  void set_multiplied_tiles(Work& work, const Request& made);
  Request with_joined_vectors(const Request& asked);
  size_t count_of_v_form(const Layout& layout, const Call& call) const noexcept;
  Repeat* place_to_repeat(const Request& request) noexcept;
  void remember(Repeat& repeat, const Request& request);
  void forget_repeats() noexcept;
  Code finish(Operation& operation, Status status) noexcept;
  Status linger(Operation& operation, Status status) noexcept;
  Status take_turns(Operation& operation, Status status) noexcept;
  // Gives the core once to the other rank on it, so that both end the call by turns.
  void give_way(Collective kind, size_t bytes) const noexcept;
  void find_neighbours() noexcept;
  Code wait_for(Operation& operation, TimeNs timeout_ns) noexcept;
  void settle(const Operation& operation) noexcept;
  std::string waiting_sentence(const Operation& operation, const WaitingOn& waiting, TimeNs timeout_ns) const;
  std::string unread_calls(uint64_t signature) const;

  Log log_;
  CommunicatorOptions options_;  // as given, then with the schedules loaded
  Doorbell doorbell_;  // outlives bootstrap_, whose thread rings it
  std::unique_ptr<FlightRecorder> recorder_;  // outlives bootstrap_, whose thread writes it
  std::unique_ptr<Bootstrap> bootstrap_;
  const std::atomic<const Verdict*>& verdict_;
  std::unique_ptr<OnSignal> on_signal_;
  int rank_;
  int size_;
  TimeNs timeout_ns_;
  bool left_ = false;
  uint32_t shrinks_ = 0;     // asked for so far: equal on all that call
  uint32_t agreements_ = 0;  // likewise

  Links links_;       // the last channel is point to point's
  std::unique_ptr<DeviceSide> device_side_;
  std::unique_ptr<PeerPath> peer_path_;
  const Operation* by_peers_ = nullptr;  // the one that goes the direct path, while it runs
  bool awaits_begin_ = false;            // a call waits for what is before it on its stream
  std::unique_ptr<SharedPath> shared_path_;
  const Operation* by_shared_memory_ = nullptr;  // likewise, of that path
  size_t shared_path_bytes_min_ = ~size_t{0};
  bool all_copy_at_a_stretch_ = false;  // all ranks: copies_at_a_stretch()
  bool lends_private_ = false;  // every peer can read this rank's ordinary memory; not the same on all
  const LentRegion private_memory_{LentRegion::private_number, nullptr, ~size_t{0}};
  std::unique_ptr<Lending> lending_;  // then
  struct Watched {
    const Operation* operation = nullptr;  // null: none is
    TimedWay trial;
  };
  Watched watched_;
  bool crowded_ = false;  // some core has several ranks; the same on all
  bool two_share_cores_ = false;  // then: none has more than two
  std::vector<uint8_t> shares_core_with_;  // [rank], where they are crowded: is taken to run on this one's core
  // Then, where some rank is not bound to a core (else empty): may run there, which is all that is known of it before it says where it
  // waits. This rank has said processor_, and looks what others have said now and then.
  std::vector<uint8_t> may_share_core_with_;
  int processor_ = -1;
  uint32_t turns_since_look_ = 0;
  int channels_ = 1;  // of collectives
  size_t message_bytes_max_ = 0;
  std::vector<Place> places_;

  std::unique_ptr<ColdOutputs> cold_outputs_;  // null over given links: runs of a simulation are alike
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Planner> planner_;
  PatiencePolicy patience_;
  std::vector<PointToPointPlans> send_plans_, recv_plans_;  // by peer
  struct ScratchDeleter {
    void operator()(std::byte* p) const noexcept;
  };
  std::unique_ptr<std::byte, ScratchDeleter> scratch_;
  size_t scratch_bytes_ = 0;
  uint32_t scratch_epoch_ = 0;        // changes whenever scratch_ moves
  std::shared_ptr<const void> life_ = std::make_shared<char>();
  std::vector<std::byte> made_input_;  // of makes_its_input()
  Layout made_layout_;                 // of a v-form's
  MultipliedInput multiplied_;
  Operators operators_;
  Registrations registrations_;
  // A send and a receive beside each other, of at most so many bytes each, move a message each by turns, so that a message is put where
  // one has just been read (transport/shm/shm_trade.h), and is made while that one is copied (Work::sends_beside). Where copies are best
  // at a stretch, as long as the last cache holds what two ranks send and receive (docs/tuning.md, groups of sends and receives).
  size_t turns_bytes_max_ = size_t{8} << 20;
  Operation operation_;               // of run()
  Repeats<16> repeats_;
  Repeats<8> large_repeats_;

  std::vector<std::unique_ptr<Window>> windows_;

  uint64_t next_ticket_ = 0;                // the calling thread's
  std::atomic<uint64_t> serving_{0};        // release by end_turn, acquire by await_turn and idle
};

}  // namespace tutti
