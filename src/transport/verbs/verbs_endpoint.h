// The verbs transport's inside: endpoints, the connection beside their paths, and what they share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/shm/shm_bulk.h"
#include "transport/verbs/verbs_cause.h"
#include "transport/verbs/verbs_path.h"

namespace tutti {

class VerbsTransport;

// The TCP connection that stands beside the paths of an endpoint: news of paths that fail, and, where none is left,
// messages. Data path; non-blocking.
class VerbsStream {
 public:
  struct Out {
    VerbsFrame frame;
    const std::byte* parts[2];
    size_t bytes[2];
    uint32_t number;   // of the message that it is; 0: none
  };
  VerbsStream() = default;
  VerbsStream(Fd socket, size_t frames_max) : socket_(std::move(socket)), out_(frames_max) {}

  int socket() const noexcept { return socket_.get(); }
  bool has_room() const noexcept { return last_ - first_ < out_.size(); }
  bool empty() const noexcept { return first_ == last_; }
  // Whether the peer's host has everything. Before, the socket may not be closed: where something comes to it that nobody has
  // read, the kernel forgets what it has yet to send.
  bool is_out() const noexcept;
  // Only where has_room().
  void push(const Out& frame) noexcept { out_[last_++ % out_.size()] = frame; }
  // Writes what the kernel takes; `written` is told the message of each frame that is out whole. False: it is broken.
  template <class Written>
  bool write(Written written) noexcept;
  // Reads frames: `place` says where the bytes of a message go (null: it is refused), `done` takes each whole frame.
  // False: it ended or broke.
  template <class Place, class Done>
  bool read(Place place, Done done) noexcept;

 private:
  Fd socket_;
  std::vector<Out> out_;
  size_t first_ = 0, last_ = 0;
  size_t written_ = 0;  // of the first frame
  VerbsFrame in_{};
  size_t read_ = 0;     // of the frame that arrives, header and bytes
};

struct VerbsEndpointMemory {
  std::byte* ring;      // which the peer writes
  std::byte* staging;   // as large as the peer's ring: what it is sent lies at the same place
  size_t ring_bytes;    // of all rings alike
  uint32_t lines;       // messages under way at most; a power of two
  std::byte* targets;   // verbs_targets_bytes that the peer writes, and as many in which this rank makes up its own
};

class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(VerbsTransport& transport, int peer, int channel, const VerbsEndpointMemory& memory,
                size_t message_bytes_max);

  Status send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  Status lend(const LentRegion& region, const std::byte* data, size_t bytes, uint64_t signature,
              size_t& bytes_done) noexcept override;
  bool reaches(const DeviceRegion& region, size_t bytes) noexcept override;
  Status lend_from_device(const DeviceRegion& region, const std::byte* data, size_t bytes,
                          uint64_t signature) noexcept override;
  void revoke() noexcept override;
  std::byte* reserve(size_t bytes) noexcept override;
  void commit(size_t bytes, uint64_t signature) noexcept override;
  Status flush() noexcept override;
  bool stages() const noexcept override { return false; }
  std::optional<Passed> passed() const noexcept override { return Passed{sent_, received_}; }
  Status recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override {
    return receive(data, bytes, signature, bytes_done, Store::cached);
  }
  Status recv_past_caches(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override {
    return receive(data, bytes, signature, bytes_done, Store::streaming);
  }
  bool expect(const LentRegion& region, const ExpectedMessages& messages, uint64_t signature) noexcept override;
  Status view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept override;
  Status release() noexcept override;
  const Fault& fault() const noexcept override { return fault_; }

  // --- Set-up.
  // Paths that connect, in the same order on both sides; and those that do not, kept while completions may name them.
  void add_path(std::unique_ptr<VerbsPath> path);
  void bury_path(std::unique_ptr<VerbsPath> path);
  void begin(Fd socket);                // all paths have been added
  const std::string& problem() const noexcept { return problem_; }  // of the last path that failed
  const std::byte* staging() const noexcept { return staging_; }

  // --- Called by the transport.
  void received(VerbsPath& path, uint32_t immediate) noexcept;
  void path_failed(VerbsPath& path, const VerbsCause& cause, std::string_view where = "") noexcept;
  void stream_readable() noexcept;
  void stream_writable() noexcept;
  // Brings recoveries forward, and sends what could not be posted.
  void attend() noexcept;
  bool wants_attention() const noexcept { return attention_; }
  void ring_paths() noexcept;
  // Before the end: tells the peer of all that was consumed, so that it knows what need not be sent again.
  void say_what_was_consumed() noexcept;
  // Everything posted is with the peer, or never will be.
  bool drained() noexcept;

  int peer() const noexcept { return peer_; }
  int channel() const noexcept { return channel_; }
  const std::vector<std::unique_ptr<VerbsPath>>& paths() const noexcept { return paths_; }
  VerbsStream& stream() noexcept { return stream_; }
  bool streams() const noexcept { return by_stream_; }
 private:
  static constexpr int8_t by_nothing = -1, by_stream = -2;
  struct Sent {
    uint64_t place = 0;            // units
    uint64_t bytes = 0;
    const std::byte* lent = nullptr;
    const DeviceRegion* device = nullptr;  // where that is memory of a device; outlives its flush
    uint64_t request = 0;          // of its path
    int8_t path = by_nothing;
    bool written = false;          // by the stream, whole
    bool again = false;            // sent before, and perhaps received: no target is its any more
    VerbsRegions::Keys keys{};
  };
  struct Arrival {
    uint32_t number = 0;
    uint64_t place = 0;            // units
    const VerbsTarget* target = nullptr;  // where it lies, if not in the ring
  };

  VerbsHeader* header_at(std::byte* ring, uint64_t place) const noexcept {
    return reinterpret_cast<VerbsHeader*>(ring + place * verbs_unit_bytes + verbs_header_at);
  }
  Sent& sent(uint32_t number) noexcept { return sent_table_[number & mask_]; }
  Arrival& next_arrival() noexcept { return arrivals_[(received_ + 1) & mask_]; }
  const std::byte* payload(const Arrival& arrival) const noexcept {
    return ring_ + (arrival.place + 1) * verbs_unit_bytes;
  }
  bool may_send(size_t bytes) noexcept;
  void publish(uint64_t place, size_t bytes, uint64_t signature, const std::byte* lent, const VerbsRegions::Keys* keys,
               const DeviceRegion* device = nullptr) noexcept;
  bool transmit(uint32_t number, bool more) noexcept;
  bool fetch_from_device(Sent& record) noexcept;
  // What of the targets is for a message; null: none.
  static const VerbsTarget* target_of(std::span<const VerbsTarget> targets, uint32_t number) noexcept;
  std::span<const VerbsTarget> targets() const noexcept { return {targets_, verbs_targets_max}; }
  std::span<const VerbsTarget> own_targets() const noexcept { return {own_targets_, verbs_targets_max}; }
  void take_target(VerbsPath& path, uint32_t place) noexcept;
  void received_directly(VerbsPath& path, uint32_t low_bits) noexcept;
  VerbsPath* choose_path() noexcept;
  bool is_delivered(uint32_t number) noexcept;
  void ask_for_completion(uint32_t number) noexcept;
  uint32_t free_until() noexcept;
  void take_credit(uint32_t consumed) noexcept;
  void tell_consumed(VerbsHeader& header) noexcept;
  void give_credit() noexcept;
  Status arrived(size_t bytes, uint64_t signature) noexcept;
  Status receive(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done, Store how) noexcept;
  bool is_over() noexcept;
  Status fail(FaultKind kind, int error_number, uint64_t signature = 0, uint64_t bytes = 0) noexcept;
  // Of what a post has returned; where it was refused, its path has failed.
  bool take_result(VerbsPath& path, int result) noexcept;
  void stop_path(VerbsPath& path, const std::string& why) noexcept;
  void resend(int path) noexcept;
  bool take_frame(const VerbsFrame& frame) noexcept;
  std::byte* place_of_frame(const VerbsFrame& frame) noexcept;
  void stream_ended() noexcept;
  void write_stream() noexcept;

  VerbsTransport& transport_;
  int peer_, channel_;
  std::byte* ring_;
  std::byte* staging_;
  size_t ring_bytes_;
  size_t message_bytes_max_;
  uint32_t mask_;
  ShmBulk bulk_;                          // the peer's ring, as this sender keeps it
  size_t reserved_ = ShmBulk::npos;       // in bytes
  uint32_t sent_ = 0, consumed_ = 0;      // by number; consumed_: by the peer
  std::vector<Sent> sent_table_;          // by number
  uint32_t free_until_ = 0;               // of which nothing is read here any more: at most consumed_
  bool repeats_ = false;                  // some later one was sent again; while none was, consumed_ says it all
  uint32_t lent_until_ = 0;               // the last message that was lent
  bool lent_ = false;                     // and perhaps is not out yet

  uint32_t received_ = 0;                 // released
  std::vector<Arrival> arrivals_;         // by number
  uint32_t told_ = 0;                     // consumed, as the peer was told
  size_t untold_bytes_ = 0;
  size_t untold_bytes_max_;

  // The peer's targets: where it writes them, and those that were taken in. This rank's own: what the peer was told, and
  // up to which one it has taken note.
  VerbsTarget* targets_written_;
  VerbsTarget* own_targets_;
  VerbsTarget targets_[verbs_targets_max] = {};
  uint32_t targets_taken_ = 0, own_targets_told_ = 0, own_targets_taken_ = 0;

  std::vector<std::unique_ptr<VerbsPath>> paths_, graveyard_;
  VerbsStream stream_;
  bool begun_ = false;
  bool by_stream_ = false;                // no path is left
  bool attention_ = false;
  bool credit_due_ = false;
  bool unsent_ = false;                   // some messages of sent_table_ are by nothing
  bool ended_ = false;                    // the peer's side is gone
  TimeNs ended_at_ns_ = 0;
  Fault fault_;
  std::string problem_;
};

struct VerbsUnmap {
  size_t bytes = 0;
  void operator()(std::byte* memory) const noexcept;
};

class VerbsTransport final : public Transport {
 public:
  VerbsTransport(int size, const VerbsOptions& options, size_t message_bytes_max, VerbsHardware hardware, Log log,
                 std::vector<std::string> names);
  ~VerbsTransport() override;

  std::string_view name() const noexcept override { return "verbs"; }
  Endpoint* endpoint(int peer, int channel) noexcept override { return at(peer, channel).get(); }
  size_t message_bytes_max() const noexcept override { return message_bytes_max_; }
  void slot_memory(std::vector<std::span<std::byte>>& memory) noexcept override {
    if (memory_ != nullptr) memory.push_back({memory_.get(), memory_.get_deleter().bytes});
  }
  bool may_reach_devices() const noexcept override { return regions_.takes_devices(); }
  void progress() noexcept override;
  void arm() noexcept override;
  void disarm() noexcept override;
  size_t poll_fds(std::span<pollfd> space) noexcept override;

  // --- Set-up. Throws Error(system_error).
  std::byte* make_memory(size_t bytes);
  VerbsEndpoint& add(int peer, int channel, const VerbsEndpointMemory& memory);
  void remove(int peer, int channel) noexcept;  // no path connects them
  // Watches events, and the endpoints' connections.
  void begin();
  std::vector<std::unique_ptr<VerbsDevice>>& devices() noexcept { return hardware_.devices; }
  const std::vector<VerbsPort>& ports() const noexcept { return hardware_.ports; }
  std::unique_ptr<VerbsEndpoint>& at(int peer, int channel) noexcept {
    return endpoints_[size_t(channel) * size_t(size_) + size_t(peer)];
  }
  const std::vector<std::unique_ptr<VerbsEndpoint>>& endpoints() const noexcept { return endpoints_; }

  // --- For the endpoints.
  // Takes in completions. True: there were some.
  bool poll() noexcept;
  void poll_all() noexcept;
  void needs_attention() noexcept { attention_ = true; }
  // Whoever sleeps then shall look again, though nothing comes.
  void wake_at(TimeNs when_ns) noexcept;
  void now_streams() noexcept { ++streaming_; }  // some endpoint: its connection is read often from now on
  void watch_writing(VerbsEndpoint& endpoint, bool on) noexcept;
  void watch_nothing(VerbsEndpoint& endpoint) noexcept;
  VerbsRegions& regions() noexcept { return regions_; }
  // Null: it cannot be registered, which is said once.
  const VerbsRegions::Keys* register_device_memory(const DeviceRegion& region) noexcept;
  VerbsCounters& counters() noexcept { return counters_; }
  const VerbsCounters& counters() const noexcept { return counters_; }
  const Log& log() const noexcept { return log_; }
  const std::string& peer_name(int peer) const noexcept { return names_[size_t(peer)]; }
  bool tcp_allowed() const noexcept { return tcp_; }

 private:
  void completed(const ibv_wc& completion) noexcept;
  void attend() noexcept;  // to the endpoints that want it
  void look_at_events() noexcept;
  void take_event(VerbsDevice& device) noexcept;
  void fail_paths(const VerbsDevice& device, const ibv_async_event& event) noexcept;

  // What the epoll set tells: a completion channel, the timer, a device's event (this bit and its index), or an endpoint.
  static constexpr uint64_t news_completions = 1, news_timer = 2, news_device_bit = uint64_t{1} << 63;
  int size_;
  bool tcp_;
  size_t message_bytes_max_;
  Log log_;
  std::vector<std::string> names_;
  VerbsCounters counters_;
  std::unique_ptr<std::byte, VerbsUnmap> memory_;
  VerbsHardware hardware_;
  VerbsRegions regions_;
  std::vector<std::unique_ptr<VerbsEndpoint>> endpoints_, removed_;  // [channel * size + peer]
  Fd news_;               // an epoll set: completion channels, events, connections, the timer
  Fd timer_;
  TimeNs wakes_at_ns_ = 0;  // when the timer goes off; 0: it is not set
  uint32_t rounds_ = 0;   // of progress
  int streaming_ = 0;     // endpoints whose messages go by their connection
  bool attention_ = false;
  bool armed_ = false;    // between arm() and disarm(): what connections bring is left for poll() to see
};

}  // namespace tutti
