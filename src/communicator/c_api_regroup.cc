// The C interface: new communicators from old ones.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api.h"

namespace tutti {
namespace {

// The parent's settings where there are no others.
CommunicatorOptions options_for(const Communicator& parent, const tuttiConfig_t* config) {
  CommunicatorOptions options = config == nullptr ? parent.options() : checked_options(config);
  options.ranks_per_core = 1;
  return options;
}

// Likewise of a part of it, whose ranks have the other parts' beside them.
CommunicatorOptions options_for_part(const Communicator& parent, const tuttiConfig_t* config) {
  CommunicatorOptions options = options_for(parent, config);
  options.ranks_per_core = parent.options().ranks_per_core;
  return options;
}

Communicator& parent_of(tuttiComm_t comm, tuttiComm_t* newcomm) {
  check_not_null("newcomm", newcomm);
  *newcomm = nullptr;
  Communicator& parent = communicator_of(comm);
  if (parent.has_left()) throw Error(Code::invalid_usage, "comm has been finalized: only tuttiCommDestroy may follow");
  return parent;
}

std::vector<int> checked_excluded(const int* ranks, int count, const Communicator& parent) {
  if (count < 0) throw Error(Code::invalid_argument, fmt::format("excludeRanksCount is {}, below 0", count));
  if (ranks == nullptr && count > 0)
    throw Error(Code::invalid_argument, fmt::format("excludeRanksList is NULL with excludeRanksCount {}", count));
  std::vector<int> excluded;
  for (int i = 0; i < count; ++i) {
    const int rank = ranks[i];
    const std::string which = fmt::format("excludeRanksList[{}] is {}", i, rank);
    if (rank < 0 || rank >= parent.size())
      throw Error(Code::invalid_argument, fmt::format("{}, outside the ranks 0 to {}", which, parent.size() - 1));
    if (rank == parent.rank())
      throw Error(Code::invalid_argument, which + ", the calling rank: those who are excluded do not call");
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end())
      throw Error(Code::invalid_argument, which + ", which the list has already");
    excluded.push_back(rank);
  }
  return excluded;
}

}  // namespace
}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
  return at_the_border([&] {
    Communicator& parent = parent_of(comm, newcomm);
    if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
      throw Error(Code::invalid_argument, fmt::format("color is {}, neither 0 or above nor TUTTI_SPLIT_NOCOLOR", color));
    const CommunicatorOptions options = options_for_part(parent, config);
    return join_or_defer({[&parent, color, key, options] { return parent.split(color, key, options); }, newcomm});
  });
}

tuttiResult_t tuttiCommDup(tuttiComm_t comm, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
  return at_the_border([&] {
    Communicator& parent = parent_of(comm, newcomm);
    const CommunicatorOptions options = options_for_part(parent, config);
    return join_or_defer({[&parent, options] { return parent.split(0, parent.rank(), options); }, newcomm});
  });
}

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                              tuttiComm_t* newcomm, const tuttiConfig_t* config, int shrinkFlags) {
  return at_the_border([&] {
    Communicator& parent = parent_of(comm, newcomm);
    if ((shrinkFlags & ~(TUTTI_SHRINK_ABORT | TUTTI_SHRINK_AGREE)) != 0)
      throw Error(Code::invalid_argument,
                  fmt::format("shrinkFlags is {}, which is not made of TUTTI_SHRINK_ABORT and TUTTI_SHRINK_AGREE",
                              shrinkFlags));
    const std::vector<int> excluded = checked_excluded(excludeRanksList, excludeRanksCount, parent);
    const bool agree = (shrinkFlags & TUTTI_SHRINK_AGREE) != 0;
    if (agree && !excluded.empty())
      throw Error(Code::invalid_argument,
                  fmt::format("excludeRanksCount is {}, but with TUTTI_SHRINK_AGREE who has died or left is excluded, "
                              "nobody else",
                              excludeRanksCount));
    const CommunicatorOptions options = options_for(parent, config);
    if ((shrinkFlags & TUTTI_SHRINK_ABORT) != 0) parent.abort();
    if (agree) return join_or_defer({[&parent, options] { return parent.shrink_to_living(options); }, newcomm});
    return join_or_defer({[&parent, excluded, options] { return parent.shrink(excluded, options); }, newcomm});
  });
}

tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId* id, int rank, tuttiComm_t* newcomm,
                            const tuttiConfig_t* config) {
  return at_the_border([&] {
    check_not_null("newcomm", newcomm);
    *newcomm = nullptr;
    if (comm == nullptr) {
      check_not_null("id", id);
      return tuttiCommInitRankConfig(newcomm, nranks, *id, rank, config);
    }
    Communicator& parent = parent_of(comm, newcomm);
    if (nranks <= parent.size())
      throw Error(Code::invalid_argument, fmt::format("nranks is {}, not above the {} ranks that comm has", nranks,
                                                      parent.size()));
    check_rank(parent.rank(), nranks);
    if (rank != -1 && rank != parent.rank())
      throw Error(Code::invalid_argument, fmt::format("rank is {}, but the calling rank keeps its number {} (or -1)",
                                                      rank, parent.rank()));
    std::optional<JobId> given;
    if (id != nullptr) given = decode(std::span<const char, TUTTI_UNIQUE_ID_BYTES>(id->internal));
    const CommunicatorOptions options = options_for(parent, config);
    return join_or_defer({[&parent, nranks, given, options] {
                            return parent.grow(nranks, given ? &*given : nullptr, options);
                          },
                          newcomm});
  });
}

tuttiResult_t tuttiCommReplace(tuttiComm_t comm, const tuttiUniqueId* id, tuttiComm_t* newcomm,
                               const tuttiConfig_t* config) {
  return at_the_border([&] {
    Communicator& parent = parent_of(comm, newcomm);
    std::optional<JobId> given;
    if (id != nullptr) given = decode(std::span<const char, TUTTI_UNIQUE_ID_BYTES>(id->internal));
    const CommunicatorOptions options = options_for(parent, config);
    return join_or_defer({[&parent, given, options] { return parent.replace(given ? &*given : nullptr, options); },
                          newcomm});
  });
}

}  // extern "C"
