// What a transport is: messages in order between two ranks on a channel. It knows nothing of collectives.
//
// Between two ranks, per channel, there is one FIFO each way. A message takes exactly one slot of it. Every message
// carries its bytes and a 64-bit signature of the call it belongs to; the receiver says both that it expects, and a
// difference is a fault of that endpoint, not a wrong result.
//
// Threads: an endpoint and its transport are used by one thread at a time (the one that drives the communicator).
// Everything here but construction is data path: noexcept, no allocation, no lock; system calls only where a byte has
// to move through the kernel.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/status.h"
#include "memory/device_region.h"
#include "memory/lent_region.h"
#include "reduce/copy.h"

namespace tutti {

enum class FaultKind : uint8_t {
  none,
  mismatch,  // the peer's message belongs to another call: see signature and bytes
  closed,    // the peer's side of the link is gone
  system     // the operating system refused: see error_number
};

// Why an endpoint failed. It stays failed.
struct Fault {
  FaultKind kind = FaultKind::none;
  int error_number = 0;
  uint64_t signature = 0;  // received
  uint64_t bytes = 0;      // received
  std::string_view text;   // of a system's fault: what failed, in words; "": error_number says all. As long as the endpoint
};

// A word of memory that an arrival changes to `until`. Where `word` is null, only asking tells.
struct Watch {
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t until = 0;

  // False also where only asking tells.
  bool arrived() const noexcept {
    return word != nullptr && word->load(std::memory_order_acquire) == until;  // pairs with the sender's store
  }

  // Looks for a few microseconds. False: nothing came, or only asking tells. Each of the first looks waits until this
  // rank's own stores are out, as a message just sent: where two ranks wait for each other, a look that runs ahead takes
  // the line from a sender about to write it, who then fetches it back. Later looks are rarer, for the same reason.
  bool wait() const noexcept {
    constexpr int eager_looks = 32, looks_max = 200;
    if (word == nullptr) return false;
    for (int look = 0; look < looks_max; ++look) {
      if (look < eager_looks) await_own_stores();
      else cpu_relax();
      if (arrived()) return true;
    }
    return false;
  }
};

// No message that is smaller is ever lent, if it is not put: a copy costs less than the sender's waiting at its end.
inline constexpr size_t lent_bytes_min = 32 * 1024;
// The same of what lies in ordinary memory, which the kernel copies. (Measured, Xeon 6, far, a send and a receive of 16, 32 and 48 KiB:
// 0.89, 0.75, 0.66 of the time; of 8 KiB it is not faster.)
inline constexpr size_t lent_private_bytes_min = 16 * 1024;
// The same of what is lent at leisure.
inline constexpr size_t lent_at_leisure_bytes_min = 8 * 1024;

// Messages that will be received one after another, the k-th to data + k × stride. Of what the peer sends, the next message
// is the first of them, and of every `every` messages one follows.
struct ExpectedMessages {
  std::byte* data;
  size_t bytes;   // of each
  size_t stride;
  uint32_t every;
  uint32_t count;
};

// A block is read so much at a time where that is done from its end, or by turns with something else.
inline constexpr size_t block_piece_bytes = size_t{256} << 10;

// A copy that a rank makes for itself while a block of a peer's comes, piece by piece, from its beginning or from its end.
struct OwnCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0, copied = 0;
  Store how = Store::cached;
  bool from_end = false;

  size_t left() const noexcept { return bytes - copied; }
  void copy_next(size_t piece_max) noexcept {
    const size_t piece = std::min(piece_max, left()), at = from_end ? left() - piece : copied;
    copy_bytes(to + at, from + at, piece, how);
    copied += piece;
  }
};

class Endpoint;

// A message that is received, past the caches, while another is sent.
struct Meanwhile {
  Endpoint& from;
  std::byte* data;
  size_t bytes;
  uint64_t signature;
  size_t& bytes_done;
};

// Smaller messages are not worth an outbox: they ride in their flags' lines, or nearly. In an exchange one to each takes fewer instructions.
inline constexpr size_t outbox_bytes_min = 128, exchanged_outbox_bytes_min = 1024;

// Memory of one channel where one message to several peers lies once, and all of them read it. They receive it as any other.
class Outbox {
 public:
  virtual ~Outbox() = default;

  // A place of `bytes` bytes for the next message to all of `peers`, 64-byte aligned; or the place of that one among them who
  // must first read what it was sent; or neither, where each must be sent its own message: nobody waits here who would not
  // wait if all FIFOs had two slots, so what is proven of plans stays true. The peers' endpoints are of this outbox (see
  // Endpoint::outbox), and `peers` stay as they are until the message is sent.
  struct Place {
    std::byte* at = nullptr;
    int waits_for = -1;
  };
  virtual Place reserve(size_t bytes, std::span<const uint32_t> peers) noexcept = 0;
  // Copies the message to the place that was reserved last; or how it is best stored there by the caller.
  virtual void write(const std::byte* data, size_t bytes) noexcept = 0;
  virtual Store store(size_t bytes) const noexcept = 0;
  // Sends what was written there. Nothing may be sent to these peers in between.
  virtual void commit(size_t bytes, uint64_t signature) noexcept = 0;
  // From how many bytes on a message of an exchange, in which all ranks send so many receivers each something at once, lies here.
  virtual size_t exchanged_bytes_min([[maybe_unused]] size_t receivers) const noexcept { return exchanged_outbox_bytes_min; }
};

enum class PeerLends : uint8_t { unknown, no, yes };

// What a receiver offers: that the sender writes to where the data belong, the last part of them. declined: it may do so in other
// calls, and who sends had better know. reads: it writes nothing there, but is waited for by one who will read what is lent.
enum class Offer : uint8_t { none, declined, half, all, reads };
// Whether a sender that lends private memory does: not at all; where that is offered, and else lends; or else sends. in_turn: as
// else_sends, and where it was offered before, the receiver is waited for until he has all that was sent before; when_offered: and,
// other ranks running meanwhile, until he offers, for some milliseconds. Of messages after the
// first: sends, but what goes on where that was put. at_leisure: none of that; it lends to a receiver who waits, where the one before was
// not just now, and else sends.
enum class Puts : uint8_t { nowhere, else_lends, else_sends, in_turn, when_offered, goes_on, at_leisure };
// No less is offered: it takes the kernel's ways, and more of the two ranks' looking for each other, than it saves.
inline constexpr size_t offered_bytes_min = size_t{32} << 10;
// Nor is a smaller message said to be awaited, maybe: looking for its receiver takes as long as copying 2 to 10 KiB.
inline constexpr size_t awaited_bytes_min = size_t{64} << 10;

// Counts of a link, modulo 2^32, the same on both sides once what is under way has come.
struct Passed {
  uint32_t sent = 0, received = 0;
};

// One peer on one channel.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // --- Sending. A message is sent either from the caller's memory, or produced into a slot.

  // Sends bytes [bytes_done, bytes) of one message from the caller's memory and advances bytes_done. done: all of it
  // is taken (the memory may change). A message of 0 bytes is a message. Call again with the same arguments.
  virtual Status send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept = 0;

  // As send, of a slice of `region`. The transport may let the peer read it where it lies, so it must keep its content
  // until flush() says done, or revoke() was called.
  virtual Status lend([[maybe_unused]] const LentRegion& region, const std::byte* data, size_t bytes,
                      uint64_t signature, size_t& bytes_done) noexcept {
    return send(data, bytes, signature, bytes_done);
  }

  // Before memory at `data` is lent: the bytes from there on, as many as `bytes`, are lent by it and by later messages of the same call,
  // one after the other, and keep their content as the first ones do. So the peer may take all of them at once.
  // What is put is written from its end, if from_end says so.
  virtual void may_lend_on([[maybe_unused]] const std::byte* data, [[maybe_unused]] size_t bytes, [[maybe_unused]] Puts puts,
                           [[maybe_unused]] bool from_end = false) noexcept {}

  // Before a message is sent from the caller's memory: the bytes that follow it there, as many as `behind`, go to this peer next, in
  // messages of the same call and signature, each as large as this one but perhaps the last, and keep their content. So they may be
  // written with it. Holds for that message.
  virtual void may_send_on([[maybe_unused]] size_t behind) noexcept {}

  // Before a message of awaited_bytes_min bytes or more is sent to a peer who sends nothing meanwhile: he may be waiting for it, and
  // take what is written while the rest is.
  virtual void may_be_awaited() noexcept {}
  // Until this is said again: what send() writes in parts is written by turns with what has come of `other`, so that memory is read and
  // written at once; null: nothing is received meanwhile. Its end is left to recv_past_caches().
  virtual void may_receive_meanwhile([[maybe_unused]] const Meanwhile* other) noexcept {}

  // Whether the region may be a private one (LentRegion::is_private). Else it must not be.
  virtual bool lends_private() const noexcept { return false; }

  // Whether lend_from_device() takes a message of so many bytes from there.
  virtual bool reaches([[maybe_unused]] const DeviceRegion& region, [[maybe_unused]] size_t bytes) noexcept { return false; }
  // As lend, of memory of a device, once reaches() has said true. The region outlives the flush.
  virtual Status lend_from_device([[maybe_unused]] const DeviceRegion& region, [[maybe_unused]] const std::byte* data,
                                  [[maybe_unused]] size_t bytes, [[maybe_unused]] uint64_t signature) noexcept {
    return Status::failed;
  }

  // Gives up this endpoint: from now on, no peer takes what was lent and not yet read. For who must return the memory to
  // its owner though the operation has failed.
  virtual void revoke() noexcept {}

  // A place of `bytes` bytes (<= message_bytes_max) for the next message, 64-byte aligned where bytes >= 128; null:
  // again, or failed (see fault()). Asking twice gives the same place. A send may not come between reserve and commit.
  virtual std::byte* reserve(size_t bytes) noexcept = 0;
  // As reserve, while a message is viewed, which is released before the commit: the place where it lies, for an answer that is
  // put where what it is made of has been read. Null: it may not lie there; ask reserve().
  virtual std::byte* reserve_viewed([[maybe_unused]] size_t bytes) noexcept { return nullptr; }
  // How a message of so many bytes is best stored in its reserved place.
  virtual Store slot_store([[maybe_unused]] size_t bytes) const noexcept { return Store::cached; }
  // Before reserve, for who could as well send: whether the next message had better be sent, since the transport learns
  // from some of those how they are best stored.
  virtual bool learns_from_next() noexcept { return false; }
  // Sends what was produced into the reserved place.
  virtual void commit(size_t bytes, uint64_t signature) noexcept = 0;

  // Where a message to this peer and others may lie; null: in no such place.
  virtual Outbox* outbox() noexcept { return nullptr; }

  // done: everything sent so far is out of this process's hands (in shared memory, or in the kernel), and nobody reads
  // any more what was lent.
  virtual Status flush() noexcept = 0;
  // False: whatever is sent is out of this process's hands at once, and only lending needs flush().
  virtual bool stages() const noexcept { return true; }

  // --- Receiving. A message is received either into the caller's memory, or viewed where it lies.

  // Receives bytes [bytes_done, bytes) of the next message and advances bytes_done.
  virtual Status recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept = 0;

  // As recv, to an output that is in no cache and not read soon: where the message is copied there, it may go past the caches.
  virtual Status recv_past_caches(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
    return recv(data, bytes, signature, bytes_done);
  }
  // What has come of a message that is received so, of its first `until` bytes, but not its end. At once.
  virtual void recv_begin([[maybe_unused]] const Meanwhile& message, [[maybe_unused]] size_t until) noexcept {}

  // Before the next message is received to `data`: the bytes from there on, as many as `bytes`, are filled by it and by messages
  // of the same call that follow it from this peer, one after the other, and nobody looks at them before. So what has come of
  // these may be brought with it, where that is shorter; from its end, if from_end says so, by turns with what `own` (null: nothing) has
  // left, which may stay undone. Holds for that message.
  virtual void may_read_on([[maybe_unused]] const std::byte* data, [[maybe_unused]] size_t bytes, [[maybe_unused]] bool from_end = false,
                           [[maybe_unused]] OwnCopy* own = nullptr) noexcept {}

  // As may_read_on, and the peer may write there, the part that it is told, until the next message has been received, or revoke() was
  // called and is_entered() says no. Offer::reads: no memory is offered, but the peer may lend that message.
  virtual void offer([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes, [[maybe_unused]] uint64_t signature,
                     [[maybe_unused]] Offer part) noexcept {}

  // Says that recv() will be asked for these messages, to places in `region`. True: the transport may let the peer write
  // them there from now on, until each has been received or revoke() was called; then view() may not be asked for them.
  // Asking again before the first of them has been received changes nothing.
  virtual bool expect([[maybe_unused]] const LentRegion& region, [[maybe_unused]] const ExpectedMessages& messages,
                      [[maybe_unused]] uint64_t signature) noexcept {
    return false;
  }

  // done: `data` points at the whole next message, readable until release(); 64-byte aligned where bytes >= 128.
  // Asking twice gives the same place. A recv may not come between view and release.
  virtual Status view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept = 0;
  // failed: the sender revoked what was viewed, so it may have changed meanwhile and is worth nothing.
  virtual Status release() noexcept = 0;
  // Whether the last large message that was received since this was asked for had been lent from private memory.
  virtual PeerLends peer_lent() noexcept { return PeerLends::unknown; }
  // Whether the next message has arrived and is copied in order to be viewed, so that it is better received.
  virtual bool copies_to_view() const noexcept { return false; }
  // Of the next message, where it has come and is not yet received, as far as that can be seen. For who asks why it waits.
  virtual std::optional<uint64_t> next_signature() const noexcept { return {}; }

  // How much has gone each way, in whatever the transport counts; none: it does not. All that a rank which is in no send has sent has
  // been received where its `sent` is its peer's `received`.
  virtual std::optional<Passed> passed() const noexcept { return {}; }
  // What the next message's arrival can be seen at, by plain looking.
  virtual Watch watch() const noexcept { return {}; }

  // --- Memory that both ranks reach where it lies. What is in which call, the ranks tell each other by messages.

  // Sees to it that the peer finds the region, if it is ever told of a place there. False: it cannot be.
  virtual bool tell([[maybe_unused]] const LentRegion& region) noexcept { return false; }
  // Where `bytes` bytes of what the peer has told of lie here, to be read and written; null: nowhere.
  virtual std::byte* reach([[maybe_unused]] const LentPlace& place, [[maybe_unused]] size_t bytes) noexcept { return nullptr; }
  // Before this rank reads or writes in memory of the peer, and after. False: the peer has revoked it, see fault().
  virtual bool enter() noexcept { return false; }
  virtual void leave() noexcept {}
  // Whether the peer is in memory of this rank. Once revoke() has been called, it leaves soon if it runs, and never enters
  // again.
  virtual bool is_entered() const noexcept { return false; }
  // The peer is a thread of this process.
  virtual bool shares_process() const noexcept { return false; }
  // The processor of this machine on which the peer ran when it last said so; -1: not known.
  virtual int peer_processor() const noexcept { return -1; }

  virtual const Fault& fault() const noexcept = 0;
};

// Of every rank, why a transport does not reach it: a clause, or "" where it does or is not asked to.
using WhyNotReached = std::vector<std::string>;

// All endpoints of one kind of one rank of a communicator.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const noexcept = 0;  // "shm", "tcp", …
  // Null where this transport does not reach that peer. channel < the number it was made with.
  virtual Endpoint* endpoint(int peer, int channel) noexcept = 0;
  // Largest message of its endpoints, in bytes.
  virtual size_t message_bytes_max() const noexcept = 0;

  // Largest message that keeps memory in caches where every rank sends every other one of its own at once; the same on all
  // ranks. The transport's messages may be larger.
  virtual size_t spread_bytes_max() const noexcept { return ~size_t{0}; }

  // Appends the memory in which reserve() and view() give places, where that stays the same: devices may be told of it.
  virtual void slot_memory([[maybe_unused]] std::vector<std::span<std::byte>>& memory) noexcept {}

  // Whether some memory of devices may be sent from where it lies.
  virtual bool may_reach_devices() const noexcept { return false; }

  // While it holds, small messages may wait in this process for those that follow; held no more, all are on their way. A
  // flush takes those of its endpoint along.
  virtual void hold_small([[maybe_unused]] bool holds) noexcept {}

  // Tells peers on this machine where this rank runs, for peer_processor().
  virtual void say_processor([[maybe_unused]] int processor) noexcept {}

  // Moves what can move without being asked for (staged bytes into sockets). Cheap where there is nothing.
  virtual void progress() noexcept = 0;

  // --- Sleeping: arm(); look once more whether anything moves; poll() on poll_fds; disarm().

  // From now on every arrival makes one of poll_fds ready. Includes whatever fence that promise needs.
  virtual void arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  // Writes the descriptors to sleep on, with their events, and returns how many (at most space.size()).
  virtual size_t poll_fds(std::span<pollfd> space) noexcept = 0;
};

}  // namespace tutti
