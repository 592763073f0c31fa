// The table of environment variables and their parsing.
#include "base/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"

extern char** environ;

namespace tutti {
namespace {

using enum VariableType;

constexpr std::array table = std::to_array<Variable>({
    {"LOCAL_RANK", integer, "", "This process's number among those of its host, as torchrun and tutti-run set it."},
    {"LOCAL_WORLD_SIZE", integer, "", "Number of ranks on this host, as torchrun and tutti-run set it."},
    {"MASTER_ADDR", text, "", "Host name or address where rank 0 can be reached, as torchrun and tutti-run set it."},
    {"MASTER_PORT", integer, "", "First port of rank 0's meeting place, as torchrun and tutti-run set it."},
    {"MPI_LOCALNRANKS", integer, "", "Number of ranks on this host, as MPICH's launcher sets it."},
    {"MPI_LOCALRANKID", integer, "", "This process's number on its host, as MPICH's launcher sets it."},
    {"OMPI_COMM_WORLD_LOCAL_RANK", integer, "", "This process's number on its host, as Open MPI sets it."},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", integer, "", "Number of ranks on this host, as Open MPI sets it."},
    {"OMPI_COMM_WORLD_RANK", integer, "", "This process's rank, as Open MPI sets it."},
    {"OMPI_COMM_WORLD_SIZE", integer, "", "Number of ranks, as Open MPI sets it."},
    {"PMIX_NAMESPACE", text, "", "Name of the job, as Open MPI and other PMIx launchers set it."},
    {"PMI_RANK", integer, "", "This process's rank, as MPICH and Intel MPI set it."},
    {"PMI_SIZE", integer, "", "Number of ranks, as MPICH and Intel MPI set it."},
    {"RANK", integer, "", "This process's rank, as torchrun and tutti-run set it."},
    {"SLURM_JOB_ID", text, "", "Number of the job, as Slurm sets it."},
    {"SLURM_LOCALID", integer, "", "This process's number on its host, as Slurm sets it."},
    {"SLURM_NNODES", integer, "", "Number of hosts of the job, as Slurm sets it."},
    {"SLURM_NTASKS", integer, "", "Number of ranks, as Slurm sets it."},
    {"SLURM_PROCID", integer, "", "This process's rank, as Slurm sets it."},
    {"SLURM_STEP_ID", text, "", "Number of the srun within its job, as Slurm sets it."},
    {"TORCHELASTIC_RUN_ID", text, "", "Name of the job, as torchrun sets it."},
    {"TUTTI_ALGO", text, "", "Forces an algorithm by name for every collective that has it."},
    {"TUTTI_CALIBRATE", flag, "", "Measures this machine for the cost model (25 ms); unset: fixed costs; links between hosts are measured always."},
    {"TUTTI_CHANNELS", integer, "", "Parallel channels per pair of ranks; unset: chosen from the transports."},
    {"TUTTI_DETERMINISM", text, "", "bitwise, strict or invariant: what the bits of results may depend on (docs/determinism.md); unset: bitwise."},
    {"TUTTI_DEVICE", text, "auto", "Devices with memory of their own: auto (CUDA where a driver is), none, cuda, or simulated[:devices=2,...] for tests (docs/cuda.md)."},
    {"TUTTI_DEVICE_ASYNC", flag, "0", "1: calls on a device's stream return at once, and the stream waits for them, which asks more of the program (docs/cuda.md); 0: they return when they are over."},
    {"TUTTI_IB_GID_INDEX", integer, "-1", "Index of the GID that every InfiniBand or RoCE port uses; -1: the first that works."},
    {"TUTTI_IB_HCA", text, "", "InfiniBand or RoCE devices that may be used, comma-separated, as mlx5_0 or mlx5_0:1 for a port; unset: all that connect."},
    {"TUTTI_IFNAME", text, "", "Network interfaces that may be used, comma-separated; unset: all that connect."},
    {"TUTTI_IN_PLACE_BYTES", bytes, "64K", "From so many bytes on (for some kinds and numbers of ranks: a multiple, docs/memory.md) calls go through memory of tuttiMemAlloc without a message where all ranks are of one host; 0: never. The same on all ranks."},
    {"TUTTI_JOB_KEY", text, "", "Secret of the job for environment rendezvous; all ranks need the same text."},
    {"TUTTI_LEND", flag, "", "0: ranks of one host copy all messages through shared memory, and never read or write each other's buffers where they lie; 1: they do where it is faster, in ordinary memory by trial; unset: as 1, but no trials where the kernel copies slowly (AMD before Zen 5)."},
    {"TUTTI_LOG", text, "warn", "Least severe level that is logged: off, error, warn, info or debug."},
    {"TUTTI_LOG_FILE", text, "", "File that log lines are appended to; unset: standard error."},
    {"TUTTI_MALLOC_THRESHOLD", bytes, "1M", "Read by libtutti_malloc.so alone: blocks of so many bytes and more lie in shared memory, never below 64K."},
    {"TUTTI_PEERS", flag, "1", "0: ranks never reach into the memory of each other's devices; messages go by way of the host."},
    {"TUTTI_RECORD", text, "", "When a communicator fails, its last calls are written to this name with .RANK.json appended."},
    {"TUTTI_RECORD_SIGNAL", text, "", "Signal, such as USR2 or TERM, at which every communicator writes its last calls as TUTTI_RECORD says."},
    {"TUTTI_SCHEDULES", text, "", "Files of schedules that you wrote, colon-separated; all ranks need the same (docs/schedules.md)."},
    {"TUTTI_SHM_SLOT_BYTES", bytes, "256K", "Bytes of the largest message in shared memory, a multiple of 4096; a FIFO holds four of them, between two ranks alone up to sixteen."},
    {"TUTTI_SILENCE_MS", integer, "10000", "A process whose control link is silent for so many ms is given up; at half a call's deadline, if that is earlier and a second at least."},
    {"TUTTI_SPIN_US", integer, "", "Microseconds that a waiting rank spins, then yields its core for 0.5 ms, then sleeps; unset: chosen from cores and ranks, and it yields for 20 ms while nobody else wants the core."},
    {"TUTTI_TCP_MESSAGE_BYTES", bytes, "255K", "Largest message of a TCP connection; the ranks agree on the least."},
    {"TUTTI_TIMEOUT_MS", integer, "300000", "Deadline of an operation and of the set-up, in ms."},
    {"TUTTI_TRACE", text, "", "Every call and wait is written to this name with .RANK.json appended, for tutti-trace and Perfetto."},
    {"TUTTI_TRANSPORT", text, "", "Transports that may be used, comma-separated: shm, verbs, tcp; unset: all."},
    {"WORLD_SIZE", integer, "", "Number of ranks, as torchrun and tutti-run set it."},
});

const Variable& row(std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Variable& v) { return v.name == name; });
  TUTTI_ASSERT(found != table.end());
  return *found;
}

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view wanted) {
  throw Error(Code::invalid_usage, fmt::format("environment variable {}={} is not {}", name, value, wanted));
}

// Levenshtein distance, for "did you mean".
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> line(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) line[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = line[0];
    line[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = line[j];
      line[j] = std::min({line[j] + 1, line[j - 1] + 1, replace});
    }
  }
  return line[b.size()];
}

std::string_view type_name(VariableType type) {
  switch (type) {
    case text: return "text";
    case integer: return "integer";
    case bytes: return "bytes";
    case flag: return "flag";
  }
  return "";
}

}  // namespace

std::span<const Variable> environment_table() { return table; }

std::optional<std::string> environment_text(std::string_view name) {
  const Variable& variable = row(name);
  const char* value = std::getenv(std::string(name).c_str());
  if (value != nullptr && *value != '\0') return std::string(value);
  if (!variable.default_value.empty()) return std::string(variable.default_value);
  return std::nullopt;
}

std::optional<int64_t> environment_integer(std::string_view name) {
  const std::optional<std::string> value = environment_text(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end) refuse(name, *value, "an integer");
  return number;
}

std::optional<uint64_t> environment_bytes(std::string_view name) {
  const std::optional<std::string> value = environment_text(name);
  if (!value) return std::nullopt;
  const std::optional<uint64_t> number = parse_bytes(*value);
  if (!number) refuse(name, *value, "a number of bytes such as 4096, 64K or 1M");
  return number;
}

bool environment_flag(std::string_view name) {
  const std::optional<std::string> value = environment_text(name);
  if (!value) return false;
  for (std::string_view yes : {"1", "true", "on", "yes"})
    if (*value == yes) return true;
  for (std::string_view no : {"0", "false", "off", "no"})
    if (*value == no) return false;
  refuse(name, *value, "a flag (0, 1, true, false, on, off, yes or no)");
}

std::vector<UnknownVariable> unknown_environment() {
  std::vector<UnknownVariable> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with("TUTTI_") || name.starts_with("TUTTI_TEST_")) continue;  // the project's own tests read those
    if (std::any_of(table.begin(), table.end(), [&](const Variable& v) { return v.name == name; })) continue;
    const auto nearest = std::min_element(table.begin(), table.end(), [&](const Variable& a, const Variable& b) {
      return distance(a.name, name) < distance(b.name, name);
    });
    const bool near = distance(nearest->name, name) <= 3;
    unknown.push_back({std::string(name), near ? std::string(nearest->name) : std::string()});
  }
  return unknown;
}

std::string environment_markdown() {
  std::string text = "# Environment variables\n\nPrinted from the table in `src/base/environment.cc` by "
                     "`tutti-doctor --environment`. An unknown `TUTTI_*` variable is warned of.\n\n"
                     "| variable | type | default | what it does |\n|---|---|---|---|\n";
  for (const Variable& v : table)
    text += fmt::format("| `{}` | {} | {} | {} |\n", v.name, type_name(v.type),
                        v.default_value.empty() ? "unset" : v.default_value, v.sentence);
  return text;
}

}  // namespace tutti
