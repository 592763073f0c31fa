// tutti-sim: forecasts collectives on fabrics that need not exist, and plays faults in virtual time.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "schedule/collective.h"
#include "simulation/joining.h"
#include "simulation/world.h"
#include "tools/command_line.h"
#include "tools/sim/outlook.h"

namespace tutti {
namespace {

struct Arguments {
  int n = 8, root = 0, pipeline = 0, calls = 1;
  std::string size = "1M", message_max = "256K", topology, what_if, algorithm, trace, sweep, ranks, sizes;
  double events_max = 2e8;
  bool json = false;
  std::string seeds = "1000", first = "0", seed, scene;
};

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

// "64,4K,1M", or "1K..1M": each four times the one before.
std::vector<uint64_t> list_of(const std::string& text, const char* argument, double factor) {
  std::vector<uint64_t> values;
  const size_t dots = text.find("..");
  if (dots != std::string::npos) {
    const double first = quantity(text.substr(0, dots), 'n', argument), last = quantity(text.substr(dots + 2), 'n', argument);
    if (first < 1 || last < first) refuse(fmt::format("{}: {} is no range from 1 up", argument, text));
    for (double value = first; value <= last; value *= factor) values.push_back(uint64_t(value));
    return values;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(uint64_t(quantity(text.substr(begin, end - begin), 'n', argument)));
    begin = end + 1;
  }
  return values;
}

OutlookQuestion question_of(const Arguments& arguments, Collective collective) {
  OutlookQuestion question;
  question.collective = collective;
  question.n = arguments.n;
  question.root = arguments.root;
  question.bytes = uint64_t(quantity(arguments.size, 'n', "--size"));
  question.message_bytes_max = uint64_t(quantity(arguments.message_max, 'n', "--message-max"));
  question.algorithm = arguments.algorithm;
  question.pipeline = arguments.pipeline;
  if (arguments.calls < 1 || arguments.calls > 1000) refuse(fmt::format("--calls: {} is not within 1..1000", arguments.calls));
  question.calls = uint32_t(arguments.calls);
  question.events_max = arguments.events_max;
  if (!arguments.trace.empty()) question.trace_events_max = 200'000;
  if (arguments.pipeline < 0) refuse(fmt::format("--pipeline: {} is less than 0", arguments.pipeline));
  if (question.n < 1) refuse(fmt::format("-n: {} is less than 1", question.n));
  if (question.root < 0 || question.root >= question.n)
    refuse(fmt::format("--root: {} is no rank of {}", question.root, question.n));
  if (question.message_bytes_max < 64) refuse(fmt::format("--message-max: {} is less than 64", arguments.message_max));
  return question;
}

void sweep(const Arguments& arguments, const OutlookQuestion& question) {
  std::vector<int> ranks;
  for (const uint64_t n : list_of(arguments.ranks.empty() ? fmt::format("{}", arguments.n) : arguments.ranks, "--ranks", 4)) {
    if (n < 1 || n > (1 << 24)) refuse(fmt::format("--ranks: {} is not within 1..2^24", n));
    ranks.push_back(int(n));
  }
  std::string text;
  const std::vector<uint64_t> sizes = list_of(arguments.sizes, "--sizes", 4);
  write_file(arguments.sweep, sweep_svg(question, ranks, sizes, arguments.topology, text));
  fmt::print("{}{}\n", text, arguments.sweep);
}

void forecast_on(const Arguments& arguments, OutlookQuestion question, const Fabric& fabric) {
  const bool watched = isatty(STDERR_FILENO) == 1;
  const char* const clear = "\r\x1b[2K";
  if (watched)
    question.begins = [&](std::string_view algorithm) { fmt::print(stderr, "{}simulating {} ...", clear, algorithm); };
  const Outlook seen = outlook(question, fabric);
  if (watched) fmt::print(stderr, "{}", clear);
  fmt::print("{}", arguments.json ? to_json(seen, question, fabric) : to_text(seen, question, fabric));
  if (arguments.trace.empty()) return;
  write_file(arguments.trace, perfetto_json(seen.traced));
  if (!arguments.json)
    fmt::print("\n{}: {} events of the first ranks; open it at https://ui.perfetto.dev\n", arguments.trace,
               seen.traced.trace.size());
}

void answer(const Arguments& arguments, Collective collective) {
  const OutlookQuestion question = question_of(arguments, collective);
  if (!arguments.sweep.empty()) return sweep(arguments, question);
  if (!arguments.ranks.empty()) refuse("--ranks belongs to --sweep: for one forecast, say -n");
  const bool asks_what_if = !arguments.what_if.empty();
  if (!asks_what_if || arguments.topology != "switch")
    forecast_on(arguments, question, parse_fabric(arguments.topology, question.n));
  if (asks_what_if) forecast_on(arguments, question, load_fabric(arguments.what_if, question.n));
}

// Plays one scene that shall hold, and tells what is wrong, how to see it again, and the smallest scene that fails too.
template <class Scene>
bool holds(const Scene& scene, const char* subcommand) {
  const std::string problem = play(scene).problem;
  if (problem.empty()) return true;
  fmt::print("seed {}: {}\n  replay: tutti-sim {} --seed {}\n  scene:  {}\n", scene.seed, problem, subcommand, scene.seed,
             to_text(scene));
  const Scene small = shrunk(scene, [](const Scene& one) { return play(one).problem; });
  fmt::print("  shrunk: {}\n  replay: tutti-sim {} --scene '{}'\n", play(small).problem, subcommand, to_text(small));
  return false;
}

void tell(bool good, const WorldResult& seen) {
  fmt::print("{}: {} of {} survivors were ok with all calls; {:.3f} ms of virtual time, {} events{}{}\n",
             good ? "held" : "violated", seen.all_ok, seen.survivors, double(seen.ended_at) / 1e6, seen.events,
             seen.verdict.empty() ? "" : "; verdict: ", seen.verdict);
}
void tell(bool good, const JoiningResult& seen) {
  fmt::print("{}: {} of {} survivors joined; {:.3f} ms of virtual time, {} events; {:.1f} messages a rank, {} at most{}{}\n",
             good ? "held" : "violated", seen.joined, seen.survivors, double(seen.ended_at) / 1e6, seen.events,
             seen.messages_mean, seen.messages_max, seen.sentence.empty() ? "" : "; one that failed: ", seen.sentence);
}
int good_ones(const WorldResult& seen) { return seen.all_ok; }
int good_ones(const JoiningResult& seen) { return seen.joined; }

// Scenes from seeds, or one of them, or one that is given.
template <class MakeScene, class ParseScene>
void play_scenes(const Arguments& arguments, const char* subcommand, MakeScene scene_of_seed, ParseScene parse) {
  bool good = true;
  if (!arguments.scene.empty() || !arguments.seed.empty()) {
    const auto scene = !arguments.scene.empty() ? parse(arguments.scene)
                                                : scene_of_seed(uint64_t(quantity(arguments.seed, 'n', "--seed")));
    good = holds(scene, subcommand);
    tell(good, play(scene));
  } else {
    int violations = 0, ok = 0, mixed = 0, cut = 0;
    const auto seeds = uint64_t(quantity(arguments.seeds, 'n', "--seeds"));
    const auto first = uint64_t(quantity(arguments.first, 'n', "--first"));
    for (uint64_t seed = first; seed < first + seeds && violations < 10; ++seed) {
      const auto scene = scene_of_seed(seed);
      const auto seen = play(scene);
      if (!seen.problem.empty() && !holds(scene, subcommand)) ++violations;
      (good_ones(seen) == seen.survivors ? ok : good_ones(seen) == 0 ? cut : mixed) += 1;
    }
    fmt::print("{} seeds from {}: {} violations; all survivors ok in {}, some in {}, none in {}\n", seeds, first,
               violations, ok, mixed, cut);
    good = violations == 0;
  }
  if (!good) throw Error(Code::internal_error, "what must hold does not");
}

void declare_scenes(CLI::App& app, Arguments& arguments, const char* name, const char* sentence) {
  CLI::App* sub = app.add_subcommand(name, sentence);
  sub->add_option("--seeds", arguments.seeds, "How many seeds")->capture_default_str();
  sub->add_option("--first", arguments.first, "The first of them")->capture_default_str();
  sub->add_option("--seed", arguments.seed, "This one alone");
  sub->add_option("--scene", arguments.scene, "A scene as JSON instead of a seed");
}

void declare(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  app.footer(
      "\n  tutti-sim all_reduce -n 4096 --topology fat-tree:32x16,ranks=8,rails=8,link=100G --size 1G\n"
      "  tutti-sim all_reduce --sweep sweep.svg --ranks 16..1024 --sizes 1K..64M --topology dragonfly\n"
      "  tutti-sim all_reduce -n 1024 --what-if machine.json --trace t.json\n"
      "  tutti-sim faults --seeds 10000");
  arguments.topology = "switch";
  arguments.sizes = "1K..64M";
  declare_scenes(app, arguments, "faults", "Run real communicators in virtual time with faults, from seeds");
  declare_scenes(app, arguments, "joining", "Run real bootstraps in virtual time with faults and strangers, from seeds");
  for (const Collective collective : planned_collectives) {
    CLI::App* sub = app.add_subcommand(std::string(name(collective)), "Forecast its algorithms on a fabric");
    sub->add_option("-n", arguments.n, "Ranks")->capture_default_str();
    sub->add_option("--topology", arguments.topology,
                    "The fabric: switch, fat-tree:32x16, dragonfly:9x4x2, torus:8x8x8, with keys as "
                    "fat-tree:32x16,oversubscription=2,link=100G,ranks=8,rails=8 (docs/simulation.md)")
        ->capture_default_str();
    sub->add_option("--what-if", arguments.what_if, "A file that describes a fabric, beside or instead of --topology");
    sub->add_option("--size", arguments.size, "Bytes of the whole buffer: 64, 4K, 1M, 1G")->capture_default_str();
    sub->add_option("--root", arguments.root, "Root of a collective that has one")->capture_default_str();
    sub->add_option("--algorithm", arguments.algorithm, "This one only");
    sub->add_option("--pipeline", arguments.pipeline, "Chunks of a pipelined algorithm; 0: the best of a few");
    sub->add_option("--calls", arguments.calls, "Calls that follow each other: the time is one's of the last half")
        ->capture_default_str();
    sub->add_option("--message-max", arguments.message_max, "Bytes of the largest message")->capture_default_str();
    sub->add_option("--events-max", arguments.events_max,
                    "What needs more sends and receives is forecast from fewer tiles, or only bounded")
        ->capture_default_str();
    sub->add_option("--trace", arguments.trace, "Write the best one's first ranks as a Perfetto trace to this file");
    sub->add_option("--sweep", arguments.sweep, "Draw times over --sizes, a plot for each of --ranks, to this SVG file");
    sub->add_option("--sizes", arguments.sizes, "Of --sweep: 1K,64K,4M or 1K..64M")->capture_default_str();
    sub->add_option("--ranks", arguments.ranks, "Of --sweep: 16,64 or 16..1024; default: -n");
    sub->add_flag("--json", arguments.json, "As JSON");
  }
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Forecasts collectives on fabrics in virtual time.", "tutti-sim");
  declare(app, arguments);
  return run_tool(app, argc, argv, [&](const std::string& chosen) {
    if (chosen == "faults") play_scenes(arguments, "faults", scene_of, parse_scene);
    if (chosen == "joining") {
      ::setenv("TUTTI_LOG", "off", 0);  // what ranks would say of strangers and of descriptors that ran out
      play_scenes(arguments, "joining", joining_scene_of, parse_joining_scene);
    }
    for (const Collective collective : planned_collectives)
      if (chosen == name(collective)) answer(arguments, collective);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
