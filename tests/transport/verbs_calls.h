// Communicators whose messages all go by verbs, and calls on them that are checked element by element.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "communicator/communicator.h"
#include "communicator/links.h"
#include "transport/verbs_support.h"
#include "tutti/tutti.h"

namespace tutti {

// Collective over threads of one process. `options` lack channels and peers. The transport is the communicator's.
inline std::unique_ptr<Communicator> join_by_verbs(const tuttiUniqueId& id, int rank, int ranks, VerbsOptions options, bool devices,
                                                   TimeNs timeout_ns, const Transport*& transport) {
  const Log log("rank " + std::to_string(rank));
  auto bootstrap = Bootstrap::join(decode(std::span<const char, 128>(id.internal)), rank, ranks, {}, log);
  options.channels = 2;  // one of them point to point's
  options.peers.assign(size_t(ranks), true);
  options.library = verbs_under_test();
  Communicator::Given given;
  given.devices = devices;
  given.links.transports.push_back(make_verbs(*bootstrap, options, log));
  Transport& verbs = *given.links.transports[0];
  transport = &verbs;
  for (int channel = 0; channel < options.channels; ++channel)
    for (int peer = 0; peer < ranks; ++peer)
      given.links.endpoints.push_back(peer == rank ? nullptr : verbs.endpoint(peer, channel));
  given.links.names.assign(size_t(ranks), "verbs");
  given.links.message_bytes_max = verbs.message_bytes_max();
  given.costs.n = ranks;
  given.costs.classes.resize(1);
  given.costs.link_class.assign(size_t(ranks) * size_t(ranks), 0);
  given.host_of.assign(size_t(ranks), 0);
  given.patience = patience_policy(true, 0);
  CommunicatorOptions communicator;
  communicator.timeout_ms = int(timeout_ns / ns_per_ms);
  return Communicator::over(std::move(bootstrap), std::move(given), communicator);
}

// A sum of `count` elements, or an exchange of blocks of so many, of values that follow from rank and round. Where the call succeeds,
// `wrong` says what of its result is not right, or "".
inline Code call_and_check(Communicator& communicator, bool all_to_all, size_t count, int round, int64_t* in, int64_t* out,
                           std::string& wrong) {
  const size_t n = size_t(communicator.size()), me = size_t(communicator.rank()), given = all_to_all ? count * n : count;
  for (size_t i = 0; i < given; ++i) in[i] = int64_t(i) * int64_t(me + 1) + round;
  Request request;
  request.call = {all_to_all ? Collective::all_to_all : Collective::all_reduce, DataType::int64, ReduceOp::sum, 0, count};
  request.input = reinterpret_cast<const std::byte*>(in);
  request.output = reinterpret_cast<std::byte*>(out);
  if (const Code code = communicator.run(request); code != Code::success) return code;
  const int64_t weight = int64_t(n * (n + 1) / 2);
  wrong.clear();
  for (size_t i = 0; i < given && wrong.empty(); ++i) {
    const int64_t wanted = all_to_all ? int64_t(me * count + i % count) * int64_t(i / count + 1) + round
                                      : int64_t(i) * weight + round * int64_t(n);
    if (out[i] != wanted)
      wrong = fmt::format("round {}: element {} of {} is {} and should be {}", round, i, given, out[i], wanted);
  }
  return Code::success;
}

}  // namespace tutti
