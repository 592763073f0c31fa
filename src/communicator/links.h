// A rank's endpoints to all others: which of the allowed transports reaches whom.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "topology/topology.h"
#include "transport/doorbell.h"
#include "transport/transport.h"

namespace tutti {

struct LinksOptions {
  std::string transports;  // comma list allowed, or "" for all
  int channels = 1;
  TimeNs timeout_ns = 0;   // of the connecting
  const Log* log = nullptr;  // null: one is made
  const Host* host = nullptr;  // this machine, for its caches; null: common ones are taken for granted
};

struct Links {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Endpoint*> endpoints;  // [channel * size + peer]; null for the rank itself
  std::vector<const char*> names;    // of the transport that reaches each rank: "self", "shm", "verbs", "tcp"
  size_t message_bytes_max = ~size_t{0};  // of this rank's transports; others' may be less
  size_t spread_bytes_max = ~size_t{0};   // as Transport has it
  Clock* clock = nullptr;            // null: the machine's
  TimeNs grace_ns = 500 * ns_per_ms;  // how long a broken link waits for the control plane to say who died
};

// Collective. doorbell outlives the links. Throws Error: invalid_argument (a transport that is none), invalid_usage (no
// allowed transport reaches some rank, who is named), and what the transports throw.
Links make_links(Bootstrap& bootstrap, const LinksOptions& options, Doorbell& doorbell);

// A link to `peer` has broken. That is a symptom, and the control plane knows soon who died; where it does not, the link
// itself ends the communicator. of_what: "", or whose link it is, as " of a window".
void settle_broken_link(Bootstrap& bootstrap, const Links& links, int peer, const Fault& fault,
                        std::string_view of_what = "") noexcept;

// Throws Error(invalid_argument) where the list names what is no transport.
void check_transports(const std::string& list);

}  // namespace tutti
