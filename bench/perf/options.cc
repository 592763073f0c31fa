// The command line of tutti-perf, after nccl-tests'.
#include "bench/perf/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/perf/flush.h"
#include "schedule/collective.h"

namespace tutti::perf {
namespace {

constexpr std::array types_table = std::to_array<Type>({
    {tuttiInt8, "int8", "char", 1, 0, 0, true},
    {tuttiUint8, "uint8", "", 1, 0, 0, false},
    {tuttiInt32, "int32", "int", 4, 0, 0, true},
    {tuttiUint32, "uint32", "", 4, 0, 0, false},
    {tuttiInt64, "int64", "", 8, 0, 0, true},
    {tuttiUint64, "uint64", "", 8, 0, 0, false},
    {tuttiFloat16, "half", "float16", 2, 5, 10, true},
    {tuttiFloat32, "float", "float32", 4, 8, 23, true},
    {tuttiFloat64, "double", "float64", 8, 11, 52, true},
    {tuttiBfloat16, "bfloat16", "", 2, 8, 7, true},
    {tuttiFloat8e4m3, "fp8_e4m3", "float8e4m3", 1, 4, 3, true},
    {tuttiFloat8e5m2, "fp8_e5m2", "float8e5m2", 1, 5, 2, true},
    {tuttiBool, "bool", "", 1, 0, 0, false},
    {tuttiInt16, "int16", "", 2, 0, 0, true},
    {tuttiUint16, "uint16", "", 2, 0, 0, false},
    {tuttiComplex64, "complex64", "", 8, 8, 23, false},
    {tuttiComplex128, "complex128", "", 16, 11, 52, false},
    {tuttiFloat32Int32, "float32_int32", "", 8, 8, 23, true},
    {tuttiFloat64Int64, "float64_int64", "", 16, 11, 52, true},
    {tuttiInt32Int32, "int32_int32", "", 8, 0, 0, true},
    {tuttiInt64Int64, "int64_int64", "", 16, 0, 0, true},
});
constexpr std::array operators_table = std::to_array<Operator>(
    {{tuttiSum, "sum"}, {tuttiProd, "prod"}, {tuttiMax, "max"}, {tuttiMin, "min"}, {tuttiAvg, "avg"},
     {tuttiBand, "band"}, {tuttiBor, "bor"}, {tuttiBxor, "bxor"}, {tuttiLand, "land"}, {tuttiLor, "lor"},
     {tuttiMinloc, "minloc"}, {tuttiMaxloc, "maxloc"}, {mul_sum, "mulsum"}});
constexpr std::array<std::string_view, 18> operation_names = {
    "all_reduce", "broadcast", "sendrecv", "barrier", "reduce", "all_gather", "reduce_scatter", "gather", "scatter",
    "alltoall",   "scan",      "exscan",   "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "alltoall_v",
    "pass_round"};
constexpr std::array<Collective, 18> operation_collectives = {
    Collective::all_reduce, Collective::broadcast,  Collective::none,           Collective::barrier,
    Collective::reduce,     Collective::all_gather, Collective::reduce_scatter, Collective::gather,
    Collective::scatter,    Collective::all_to_all, Collective::scan,           Collective::exscan,
    Collective::all_gather_v, Collective::reduce_scatter_v, Collective::gather_v, Collective::scatter_v,
    Collective::all_to_all_v, Collective::none};
constexpr std::string_view operations_text =
    "all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, alltoall, scan, exscan, sendrecv, "
    "pass_round, barrier, all_gather_v, reduce_scatter_v, gather_v, scatter_v or alltoall_v";

constexpr size_t cases_max = 100'000;

constexpr const char* footer =
    "Ranks come from the launcher (tutti-run, mpirun, srun, torchrun), from --local N (N processes started here) or\n"
    "from -t N (N threads of this process; under a launcher, of each process).\n\n"
    "Sizes take K, M and G (powers of 1024). Times are of one operation, the greatest mean of all ranks (see -a);\n"
    "algbw is size / time, the size being all ranks' blocks together; busbw is algbw times 2(n-1)/n for all_reduce,\n"
    "(n-1)/n for the collectives of blocks, n for pass_round (from rank 0 from each to the next, and back; between two\n"
    "ranks a ping-pong) and 1 for the others. Blocks of the v-forms are as 1 to 2 to 3 ... to n. Each case is\n"
    "checked on every rank, element by element; the exit code is 1 if anything was wrong, 2 for a wrong command line,\n"
    "3 if the library failed.\n\n"
    "  tutti-run -n 4 tutti-perf all_reduce -b 8 -e 64M -f 2\n"
    "  tutti-perf broadcast --local 4 -d half -r all --json broadcast.json --plot broadcast.svg";

// nccl-tests' options that mean nothing here. They are taken with the value that changes nothing.
struct Refused {
  const char* flag;
  const char* neutral;
  const char* why;
};
constexpr std::array refused_table = std::to_array<Refused>({
    {"-g,--ngpus", "1", "use -t for several ranks in a process, and --device cuda for GPUs"},
    {"-G,--cudagraph", "0", "the host has a part in every call, which a graph would run without"},
    {"-C,--report_cputime", "0", "the time on the host is the time that is always reported"},
    {"-N,--run_cycles", "1", "one cycle is measured; call tutti-perf again for more"},
    {"-y,--blocking_coll", "0", "use -z with --stream"},
});

// The command line as text, before it is understood.
struct Raw {
  std::string operation, min_bytes, max_bytes, step_bytes, factor, sizes, type = "float", op = "sum", root = "0";
  std::string iterations = "auto", parallel_init = "0", blocking = "0", average = "3", timeout = "0";
  std::string local_register = "0", determinism, warmup = "5", grouped = "1", checks = "1", threads = "1", local = "0";
  std::string algorithms, turns = "1";
  std::array<std::string, refused_table.size()> refused;
  std::string device = "cpu";
  bool bind = false, line_exchange = false, stream = false, percentiles = false, apart = false, by_clock = false, cold = false;
  std::string json_file, csv_file, plot_file;
};

void declare(CLI::App& app, Raw& raw) {
  app.add_option("collective", raw.operation, std::string(operations_text))->required();
  app.add_option("-b,--minbytes", raw.min_bytes, "Smallest size (8)");
  app.add_option("-e,--maxbytes", raw.max_bytes, "Greatest size (64M)");
  app.add_option("-f,--stepfactor", raw.factor, "Factor between sizes (2)");
  app.add_option("-i,--stepbytes", raw.step_bytes, "Bytes between sizes, instead of a factor");
  app.add_option("--sizes", raw.sizes, "These sizes only, separated by commas, instead of -b, -e, -f and -i");
  app.add_option("-n,--iters", raw.iterations, "Timed iterations; auto (default): about 20 ms a size, 20 to 200000");
  app.add_option("-w,--warmup_iters", raw.warmup, "Iterations before the timed ones (5)");
  app.add_option("-m,--agg_iters", raw.grouped, "Operations put into one group (1)");
  app.add_option("-d,--datatype", raw.type, "Element type, or all (float)");
  app.add_option("-o,--op", raw.op,
                 "Operator: sum, prod, max, min, avg, band, … , mulsum; or all that the type has (sum)");
  app.add_option("-r,--root", raw.root, "Root of broadcast, reduce, gather and scatter, or all (0)");
  app.add_option("-c,--check", raw.checks, "Checked runs of each case; 0: none (1)");
  app.add_option("--algorithms", raw.algorithms,
                 "These algorithms in turn, separated by commas (tutti-schedule lists them), in place of the library's choice");
  app.add_option("--turns", raw.turns, "How often each case is measured, algorithms taking turns; the least time is told (1)");
  app.add_option("-a,--average", raw.average, "Which rank's time: 0 rank 0, 1 mean, 2 min, 3 max (3)");
  app.add_option("-p,--parallel_init", raw.parallel_init, "0 or 1; the set-up is always parallel");
  app.add_option("-t,--nthreads", raw.threads, "Ranks as threads of each process (1)");
  app.add_option("--local", raw.local, "Start so many ranks as processes here");
  app.add_flag("--bind", raw.bind, "With --local or -t: give each rank one core");
  app.add_flag("--stream", raw.stream, "Enqueue on a host stream instead of calling on the rank's own thread");
  app.add_option("-z,--blocking", raw.blocking, "With --stream, 1: wait for each operation (0)");
  app.add_option("-T,--timeout", raw.timeout, "Deadline of an operation in seconds; 0: the library's");
  app.add_option("-R,--local_register", raw.local_register,
                 "1: buffers from tuttiMemAlloc, which ranks of one host read where they lie (0)");
  app.add_option("--device", raw.device,
                 "Where buffers lie: cpu, cuda, or simulated (which says nothing about speed). On a device, calls are on a "
                 "stream of it; ranks of one host take its devices in turn (cpu)");
  app.add_option("--determinism", raw.determinism, "bitwise, strict or invariant; the library's where not given");
  app.add_flag("--apart", raw.apart, "A barrier before each timed operation; else they follow each other and may overlap");
  app.add_flag("--by-clock", raw.by_clock,
               "All ranks begin each timed operation at one moment, where a barrier may let one go first; for ranks of one "
               "host with cores of their own; implies --apart");
  app.add_flag("--cold", raw.cold, "Take the buffers out of all caches before each timed operation; implies --apart");
  app.add_flag("--percentiles", raw.percentiles, "Also min, median and p99 of iterations (greatest of all ranks)");
  app.add_flag("--line-exchange", raw.line_exchange, "First measure how fast two cores exchange a cache line");
  app.add_option("-J,--json", raw.json_file, "Write the results as JSON")->type_name("FILE");
  app.add_option("--csv", raw.csv_file, "Write the results as CSV")->type_name("FILE");
  app.add_option("--plot", raw.plot_file, "Draw bandwidth and time over size")->type_name("FILE.svg");
  for (size_t i = 0; i < refused_table.size(); ++i) app.add_option(refused_table[i].flag, raw.refused[i])->group("");
  app.set_version_flag("--version", fmt::format("tutti-perf {}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH));
  app.footer(footer);
}

[[noreturn]] void refuse(std::string_view option, std::string_view value, std::string_view why) {
  throw UsageError(fmt::format("{} {}: {}", option, value, why));
}

int64_t number(std::string_view option, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) refuse(option, text, "not a whole number");
  if (value < low || value > high) refuse(option, text, fmt::format("must be between {} and {}", low, high));
  return value;
}

size_t size(std::string_view option, const std::string& text) {
  const std::optional<size_t> bytes = parse_size(text);
  if (!bytes) refuse(option, text, "not a size such as 8, 64K or 1M");
  if (*bytes > size_t{1} << 40) refuse(option, text, "more than 1024G");
  return *bytes;
}

template <typename Row>
std::string names_of(std::span<const Row> table) {
  std::string names;
  for (const Row& row : table) names += std::string(row.name) + ", ";
  return names + "all";
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void read_list(const Raw& raw, Options& options) {
  for (const auto& [option, text] : {std::pair{"-b", raw.min_bytes}, {"-e", raw.max_bytes}, {"-f", raw.factor},
                                     {"-i", raw.step_bytes}})
    if (!text.empty()) refuse(option, text, "--sizes names the sizes already");
  for (const std::string& word : words_of(raw.sizes)) options.sizes.push_back(size("--sizes", word));
  options.max_bytes = *std::max_element(options.sizes.begin(), options.sizes.end());
}

void read_sizes(const Raw& raw, Options& options) {
  if (!raw.sizes.empty()) return read_list(raw, options);
  if (!raw.min_bytes.empty()) options.min_bytes = size("-b", raw.min_bytes);
  if (!raw.max_bytes.empty()) options.max_bytes = size("-e", raw.max_bytes);
  else options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  if (raw.min_bytes.empty()) options.min_bytes = std::min(options.max_bytes, options.min_bytes);
  if (options.min_bytes > options.max_bytes)
    refuse("-b", raw.min_bytes, fmt::format("greater than the greatest size, -e {}", raw.max_bytes));
  if (!raw.factor.empty()) options.factor = size_t(number("-f", raw.factor, 2, 1 << 20));
  if (raw.step_bytes.empty()) return;
  if (!raw.factor.empty()) refuse("-i", raw.step_bytes, "sizes grow by a step (-i) or by a factor (-f), not both");
  options.step_bytes = size("-i", raw.step_bytes);
  if (options.step_bytes == 0) refuse("-i", raw.step_bytes, "must be at least 1");
}

void read_names(const Raw& raw, Options& options) {
  const std::string_view wanted = raw.operation == "all_to_all"     ? "alltoall"
                                  : raw.operation == "all_to_all_v" ? "alltoall_v"
                                                                    : std::string_view(raw.operation);
  const auto found = std::find(operation_names.begin(), operation_names.end(), wanted);
  if (found == operation_names.end())
    throw UsageError(fmt::format("collective {}: not {}", raw.operation, operations_text));
  options.operation = Operation(found - operation_names.begin());
  for (const Type& type : all_types())
    if (raw.type == "all" || raw.type == type.name || (raw.type == type.other_name && !raw.type.empty()))
      options.types.push_back(type);
  if (options.types.empty()) refuse("-d", raw.type, "none of " + names_of(all_types()));
  for (const Operator& op : all_operators())
    if (raw.op == "all" || raw.op == op.name) options.operators.push_back(op);
  if (options.operators.empty()) refuse("-o", raw.op, "none of " + names_of(all_operators()));
  const std::span modes = std::span(determinism_names).subspan(1);  // without "the communicator's"
  const auto mode = std::find(modes.begin(), modes.end(), raw.determinism);
  if (mode != modes.end()) options.determinism = int(mode - modes.begin());
  else if (!raw.determinism.empty()) refuse("--determinism", raw.determinism, "none of bitwise, strict and invariant");
  options.root = raw.root == "all" ? -1 : int(number("-r", raw.root, -1, 1 << 20));
}

Options understand(const Raw& raw) {
  Options options;
  read_names(raw, options);
  read_sizes(raw, options);
  if (raw.iterations != "auto") options.iterations = int(number("-n", raw.iterations, 1, 1'000'000'000));
  options.warmup = int(number("-w", raw.warmup, 0, 1'000'000));
  options.grouped = int(number("-m", raw.grouped, 1, 1024));
  options.turns = int(number("--turns", raw.turns, 1, 1000));
  if (!raw.algorithms.empty()) options.algorithms = words_of(raw.algorithms);
  for (const std::string& algorithm : options.algorithms)
    if (algorithm.empty() && !raw.algorithms.empty()) refuse("--algorithms", raw.algorithms, "a name is missing");
  if (!raw.algorithms.empty() && is_point_to_point(options.operation))
    refuse("--algorithms", raw.algorithms, "point to point has none");
  options.checks = int(number("-c", raw.checks, 0, 1'000'000));
  options.average = Average(number("-a", raw.average, 0, 3));
  number("-p", raw.parallel_init, 0, 1);
  options.threads = int(number("-t", raw.threads, 1, 1024));
  options.local = int(number("--local", raw.local, 0, 1024));
  options.shared_memory = number("-R", raw.local_register, 0, 1) == 1;
  options.blocking = number("-z", raw.blocking, 0, 1) == 1;
  options.timeout_s = int(number("-T", raw.timeout, 0, 1'000'000));
  options.bind = raw.bind, options.line_exchange = raw.line_exchange;
  options.stream = raw.stream, options.percentiles = raw.percentiles;
  options.cold = raw.cold, options.by_clock = raw.by_clock;
  options.apart = raw.apart || raw.cold || raw.by_clock;
  if (options.cold && !can_flush) throw UsageError("--cold: caches cannot be emptied on this kind of processor");
  options.device = raw.device;
  if (raw.device != "cpu" && raw.device != "cuda" && raw.device != "simulated")
    refuse("--device", raw.device, "none of cpu, cuda and simulated");
  if (raw.device != "cpu" && options.shared_memory) refuse("-R", "1", "buffers lie on a device");
  if (raw.device != "cpu" && options.cold) refuse("--device", raw.device, "--cold is for the caches of processors");
  if (raw.device != "cpu" && options.stream) refuse("--device", raw.device, "--stream is the host's; on devices there always is one");
  options.json_file = raw.json_file, options.csv_file = raw.csv_file, options.plot_file = raw.plot_file;
  for (size_t i = 0; i < refused_table.size(); ++i) {
    const Refused& row = refused_table[i];
    if (!raw.refused[i].empty() && raw.refused[i] != row.neutral)
      refuse(std::string_view(row.flag).substr(0, 2), raw.refused[i], row.why);
  }
  if (options.grouped > 1 && options.operation == Operation::barrier)
    refuse("-m", raw.grouped, "a group of barriers is one barrier");
  if (options.grouped > 1 && options.operation == Operation::pass_round)
    refuse("-m", raw.grouped, "in a group nobody waits for what is to be passed on");
  return options;
}

// The sizes of one type in whole elements, without repetition.
std::vector<size_t> sizes_of(const Options& options, size_t element_bytes) {
  std::vector<size_t> sizes;
  for (const size_t bytes : options.sizes) sizes.push_back(bytes / element_bytes * element_bytes);
  if (!sizes.empty()) return sizes;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    const size_t whole = bytes / element_bytes * element_bytes;
    if (sizes.empty() || sizes.back() != whole) sizes.push_back(whole);
    if (sizes.size() > cases_max) throw UsageError(fmt::format("-b, -e, -i: more than {} sizes", cases_max));
    const size_t next = options.step_bytes > 0 ? bytes + options.step_bytes : bytes * options.factor;
    bytes = bytes == 0 && options.step_bytes == 0 ? element_bytes : next;
  }
  return sizes;
}

}  // namespace

std::string_view name(Operation operation) { return operation_names[size_t(operation)]; }
std::span<const Type> all_types() { return types_table; }
std::span<const Operator> all_operators() { return operators_table; }

std::optional<size_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(stop, size_t(text.data() + text.size() - stop));
  if (unit.empty()) return value;
  constexpr std::string_view units = "KMGTkmgt";
  const size_t at = unit.size() == 1 ? units.find(unit[0]) : std::string_view::npos;
  if (at == std::string_view::npos) return std::nullopt;
  const unsigned shift = 10 * unsigned(at % 4 + 1);
  if (value > (std::numeric_limits<uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

std::optional<Options> parse_options(int argc, const char* const* argv, std::string& text) {
  CLI::App app("tutti-perf COLLECTIVE [options]\nMeasures a collective and checks its results.", "tutti-perf");
  Raw raw;
  declare(app, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    text = std::string(version.what()) + "\n";
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw UsageError(error.what());
    text = app.help();
    return std::nullopt;
  }
  return understand(raw);
}

Collective collective_of(Operation operation) { return operation_collectives[size_t(operation)]; }

std::vector<Case> make_cases(const Options& options, int ranks) {
  std::vector<Case> cases;
  const auto add = [&](Case one) {
    for (const std::string& algorithm : options.algorithms) {
      one.algorithm = algorithm;
      cases.push_back(one);
    }
  };
  if (options.operation == Operation::barrier) {
    add({});
    return cases;
  }
  const Meaning means = meaning(collective_of(options.operation));
  const bool reduces = means.reduces, rooted = means.rooted;
  if (rooted && options.root >= ranks)
    throw UsageError(fmt::format("-r {}: there are ranks 0 to {} only", options.root, ranks - 1));
  const bool even = means.blocks && !is_v_form(collective_of(options.operation));
  const size_t blocks = even ? size_t(ranks) : 1;
  for (const Type& type : options.types) {
    const std::vector<size_t> sizes = sizes_of(options, type.bytes);
    for (size_t o = 0; o < (reduces ? options.operators.size() : 1); ++o) {
      if (reduces && !defined(options.operators[o], type)) continue;
      for (int root = 0; root < (rooted && options.root < 0 ? ranks : 1); ++root)
        for (const size_t bytes : sizes) {
          const size_t count = bytes / type.bytes / blocks;
          Case one{count * type.bytes * blocks, count, type, std::nullopt, -1};
          if (reduces) one.op = options.operators[o];
          if (rooted) one.root = options.root < 0 ? root : options.root;
          add(one);
        }
    }
  }
  if (cases.empty())
    throw UsageError(fmt::format("-o {}: type {} does not have it", options.operators[0].name, options.types[0].name));
  return cases;
}

}  // namespace tutti::perf
