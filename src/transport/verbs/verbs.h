// The InfiniBand verbs transport: messages written by the network card straight into slots of the receiver's memory.
//
// Between two ranks, per channel, there is a queue pair (RC) on each of a few pairs of ports that were found to
// connect: InfiniBand, or RoCE with the first pair of GIDs that works. The receiver publishes a ring of memory, which
// the sender keeps; a message is one RDMA write with immediate data, whose immediate says where it lies. Messages are
// numbered, so it does not matter which ports they come by, nor whether one comes twice. When a path breaks, both sides
// stop it, and what it did not bring goes by another one, or by a TCP connection that stands beside it.
//
// Where libibverbs is not installed, or there is no device with a port that is up, no peer is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "transport/transport.h"

struct ibv_mr;
struct ibv_pd;

namespace tutti {

struct VerbsLibrary;

// As ibv_reg_dmabuf_mr.
using VerbsRegisterFile = ibv_mr*(ibv_pd*, uint64_t offset, size_t bytes, uint64_t address, int fd, int access);

struct VerbsOptions {
  int channels = 1;
  // Of every rank, whether verbs shall reach it from here. Symmetric, as TcpOptions::peers.
  std::vector<bool> peers;
  size_t message_bytes_max = 256 * 1024;      // a multiple of 64, from 4096; the ranks agree on the least
  size_t memory_bytes_max =
      size_t{64} << 20;  // registered for rings, of all peers together, where three messages each fit
  int paths_max = 2;                          // pairs of ports used by a pair of ranks
  bool tcp = true;                            // whether messages may go by TCP where all paths have failed
  std::string devices;                        // comma list of NAME or NAME:PORT; "": all with a port that is up
  int gid_index = -1;                         // -1: what works
  int turn = 0;                               // this rank's number among those of its host, which share the devices
  size_t inline_bytes_max = 256;              // asked of the device; it may offer less
  VerbsRegisterFile* register_file = nullptr; // for tests: in place of the library's
  const VerbsLibrary* library = nullptr;      // for tests: in place of libibverbs
  WhyNotReached* why_not = nullptr;           // one for each rank, to be filled in; null: nobody asks
};

inline constexpr int verbs_paths_max = 4;

// devices and gid_index as TUTTI_IB_HCA and TUTTI_IB_GID_INDEX say. Throws Error(invalid_usage).
VerbsOptions verbs_options_from_environment();

// Collective over all ranks. endpoint() is null for peers that no pair of ports connects, on both sides; null, on all
// ranks, where no pair of ranks is connected. Throws Error as Bootstrap's functions do, and invalid_argument where an
// option is out of range; what goes wrong with devices is logged, and is no error.
std::unique_ptr<Transport> make_verbs(Bootstrap& bootstrap, const VerbsOptions& options, const Log& log);

// What a verbs transport has done, for tests and for those who measure.
struct VerbsCounters {
  uint64_t messages = 0;          // sent, each once
  uint64_t work_requests = 0;     // posted to send queues, credit and markers among them
  uint64_t completions = 0;       // of send queues
  uint64_t doorbells = 0;         // calls that posted to send queues
  uint64_t credits = 0;           // messages that only gave room back
  uint64_t arrivals = 0;          // completions of receive queues
  uint64_t from_devices = 0;      // messages that were sent from memory of devices
  uint64_t direct = 0;            // messages that were written straight to where the receiver wanted them
  uint64_t targets = 0;           // that told senders where
  uint64_t resent = 0;            // messages that went another way again
  uint64_t paths_failed = 0;
  uint64_t bytes_registered = 0, bytes_deregistered = 0;
};
// Null where the transport is not one of verbs.
const VerbsCounters* verbs_counters(const Transport& transport) noexcept;

// For tests: breaks the queue pair of a path, as a fault of its device would. False: there is none such that lives.
bool break_verbs_path(Transport& transport, int peer, int channel, int path) noexcept;

}  // namespace tutti
