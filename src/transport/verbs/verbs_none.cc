// The verbs transport of a build without libibverbs' headers: it reaches nobody, and lets ranks that have it meet.
#include "transport/verbs/verbs.h"

#include <algorithm>

#include <fmt/format.h>

#include "transport/verbs/verbs_routes.h"

namespace tutti {
namespace {

struct Nothing {
  int32_t to;
};

}  // namespace

std::unique_ptr<Transport> make_verbs(Bootstrap& bootstrap, const VerbsOptions& options, const Log& log) {
  check_verbs_options(options);
  constexpr const char* why_not = "this build of Tutti has none (libibverbs-dev was not installed)";
  log.debug(fmt::format("verbs: not used: {}", why_not));
  for (size_t peer = 0; options.why_not != nullptr && peer < options.peers.size(); ++peer)
    if (options.peers[peer]) (*options.why_not)[peer] = why_not;
  const std::vector<VerbsHello> hellos = exchange_verbs_hellos(bootstrap, {});
  if (std::count_if(hellos.begin(), hellos.end(), [](const auto& h) { return !h.ports.empty(); }) < 2) return nullptr;
  for (int round = 0; round < verbs_rounds_max; ++round) {
    gather_for_me(bootstrap, std::vector<Nothing>(), bootstrap.rank());
    bootstrap.barrier();
    gather_for_me(bootstrap, std::vector<Nothing>(), bootstrap.rank());
    if (!any_rank(bootstrap, false)) break;
  }
  return nullptr;
}

const VerbsCounters* verbs_counters(const Transport&) noexcept { return nullptr; }

bool break_verbs_path(Transport&, int, int, int) noexcept { return false; }

}  // namespace tutti
