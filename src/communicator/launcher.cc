// The variables of each launcher, in a table, and what follows from them.
#include "communicator/launcher.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"

namespace tutti {
namespace {

struct Launcher {
  std::string_view name;
  std::string_view rank, size, local_rank;
  std::string_view local_size;  // "": none
  std::string_view job;         // a variable that tells jobs apart; "" none: the parent process does
  std::string_view step;        // a variable that tells apart what one job starts at once; "" none
};

// Tried in order; the first whose rank variable is set.
constexpr std::array launchers = std::to_array<Launcher>({
    {"RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", ""},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", ""},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID",
     "SLURM_STEP_ID"},
});

int number(std::string_view variable, int64_t low, int64_t high) {
  const std::optional<int64_t> value = environment_integer(variable);
  if (!value) throw Error(Code::invalid_usage, fmt::format("environment variable {} is not set", variable));
  if (*value < low || *value > high)
    throw Error(Code::invalid_usage,
                fmt::format("environment variable {}={} is not in {} to {}", variable, *value, low, high));
  return int(*value);
}

const Launcher& launcher_in_force() {
  for (const Launcher& row : launchers)
    if (environment_text(row.rank)) return row;
  throw Error(Code::invalid_usage,
              "no rank in the environment: RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID are all unset; start "
              "the program with tutti-run, torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
              "MASTER_PORT");
}

// FNV-1a: spreads jobs over ports; no secret rests on it.
uint32_t hash(std::string_view text) {
  uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

LaunchedRank ranks_of(const Launcher& row) {
  LaunchedRank found;
  found.launcher = row.name;
  found.size = number(row.size, 1, std::numeric_limits<int>::max());
  found.rank = number(row.rank, 0, found.size - 1);
  found.local_rank = environment_text(row.local_rank) ? number(row.local_rank, 0, found.size - 1) : found.rank;
  return found;
}

// Whether the launcher says that all ranks are on this host: only then may the address be a guess.
bool on_one_host(const Launcher& row, int size) {
  if (row.name == "Open MPI") return environment_integer(row.local_size).value_or(0) == size;
  if (row.name == "PMI") return environment_integer(row.local_size).value_or(size) == size;
  if (row.name == "Slurm") return environment_integer("SLURM_NNODES").value_or(0) == 1;
  return false;
}

std::string address_of(const Launcher& row, int size) {
  if (const auto given = environment_text("MASTER_ADDR")) return *given;
  if (size == 1 || on_one_host(row, size)) return "127.0.0.1";
  throw Error(Code::invalid_usage,
              fmt::format("environment variable MASTER_ADDR is not set: {} ranks need the address of rank 0", size));
}

}  // namespace

LaunchedRank launched_rank_only() { return ranks_of(launcher_in_force()); }

LaunchedRank launched_rank() {
  const Launcher& row = launcher_in_force();
  LaunchedRank found = ranks_of(row);
  found.master_address = address_of(row, found.size);
  const bool port_given = environment_text("MASTER_PORT").has_value();
  if (row.name == "RANK" && !port_given && found.size > 1) number("MASTER_PORT", 1, 65535);
  const std::optional<std::string> job = row.job.empty() ? std::nullopt : environment_text(row.job);
  const std::string step = row.step.empty() ? "" : environment_text(row.step).value_or("");
  found.job = fmt::format("{} {} {} {} {}", row.name, step,
                          job.value_or(row.name == "RANK" ? "" : fmt::format("parent {}", ::getppid())),
                          found.master_address, port_given ? number("MASTER_PORT", 1, 65535) : 0);
  found.master_port = port_given ? uint16_t(number("MASTER_PORT", 1, 65535)) : uint16_t(20000 + hash(found.job) % 12000);
  return found;
}

int launched_on_this_host() {
  constexpr int ranks_max = 1 << 20;
  for (const Launcher& row : launchers) {
    if (row.local_size.empty()) continue;
    const std::string text = environment_text(row.local_size).value_or("");
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error == std::errc() && end == text.data() + text.size() && ranks > 0 && ranks <= ranks_max) return ranks;
  }
  return 1;
}

Key job_key(const LaunchedRank& launched) {
  if (const auto secret = environment_text("TUTTI_JOB_KEY")) return derive_key("secret " + *secret);
  return derive_key("job " + launched.job);
}

}  // namespace tutti
