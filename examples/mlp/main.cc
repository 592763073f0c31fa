// mlp: trains a network on MNIST digits with any number of ranks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "device/device.h"
#include "files.h"
#include "plot.h"
#include "trainer.h"

namespace {

struct Arguments {
  std::string data = "data/mnist-10k";
  std::string json;
  std::string plot;
  std::string device = "cpu";
  mlp::TrainOptions train;
};

constexpr int exit_usage = 2;

std::string above_zero(const std::string& text) {
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value)) return "not a number: " + text;
  return value > 0 ? "" : text + " is not above 0";
}

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("--data", arguments.data, "Folder with MNIST's four IDX files, plain or .gz")->capture_default_str();
  app.add_option("--epochs", arguments.train.epochs, "Passes over the training set")
      ->check(above_zero)->capture_default_str();
  app.add_option("--batch", arguments.train.batch, "Samples per rank and step")
      ->check(above_zero)->capture_default_str();
  app.add_option("--lr", arguments.train.learning_rate, "Learning rate of plain SGD")
      ->check(above_zero)->capture_default_str();
  app.add_option("--seed", arguments.train.seed, "Seed of the weights and of the shuffling")->capture_default_str();
  app.add_option("--bucket-bytes", arguments.train.bucket_bytes, "Gradient bytes that are averaged together")
      ->capture_default_str();
  app.add_option("--checkpoint", arguments.train.checkpoint, "File to save to after every epoch");
  app.add_option("--resume", arguments.train.resume, "Checkpoint to go on from");
  app.add_option("--json", arguments.json, "File for the results");
  app.add_option("--plot", arguments.plot, "File for a plot of loss and accuracy (SVG)");
  app.add_option("--device", arguments.device, "Where the network lives: cpu, cuda (needs cuBLAS), or simulated, for tests. "
                                               "Ranks of one host take its devices in turn, and may share them")
      ->check(CLI::IsMember({"cpu", "cuda", "simulated"}))->capture_default_str();
  app.add_flag("--model-parallel", arguments.train.model_parallel, "One layer on each of two ranks");
  app.add_flag("--verify", arguments.train.verify, "Compare the weights of all ranks bit by bit after every step");
  app.add_flag("!--quiet", arguments.train.progress, "No progress bar and no line per epoch");
}

std::string json_of(const mlp::TrainResult& result, const Arguments& arguments, int ranks) {
  nlohmann::json json;
  json["ranks"] = ranks;
  json["batch_per_rank"] = arguments.train.batch;
  json["learning_rate"] = arguments.train.learning_rate;
  json["device"] = arguments.device;
  json["model_parallel"] = arguments.train.model_parallel;
  for (const mlp::EpochResult& e : result.epochs)
    json["epochs"].push_back({{"epoch", e.epoch}, {"loss", e.loss}, {"test_accuracy", e.test_accuracy},
                              {"samples_per_s", e.samples_per_s}});
  if (!result.epochs.empty()) json["test_accuracy"] = result.epochs.back().test_accuracy;
  return json.dump(2) + "\n";
}

std::string plot_of(const mlp::TrainResult& result, int ranks) {
  tutti::plot::Series loss{"loss", {}}, accuracy{"test accuracy", {}};
  for (const mlp::EpochResult& e : result.epochs) {
    loss.points.emplace_back(e.epoch, e.loss);
    accuracy.points.emplace_back(e.epoch, e.test_accuracy);
  }
  tutti::plot::Plot loss_plot, accuracy_plot;
  loss_plot.options.title = fmt::format("MNIST, {} rank{}: training loss", ranks, ranks == 1 ? "" : "s");
  accuracy_plot.options.title = "Test accuracy";
  double least = 1;
  for (const mlp::EpochResult& e : result.epochs) least = std::min(least, e.test_accuracy);
  accuracy_plot.options.y_min = std::floor(least * 10) / 10 - (least < 1 ? 0 : 0.1);
  accuracy_plot.options.y_max = 1;
  loss_plot.options.x_label = accuracy_plot.options.x_label = "epoch";
  loss_plot.options.y_label = "cross-entropy";
  accuracy_plot.options.y_label = "share of test digits";
  loss_plot.series = {loss};
  accuracy_plot.series = {accuracy};
  const tutti::plot::Plot plots[] = {loss_plot, accuracy_plot};
  return tutti::plot::plots_svg(plots);
}

bool launched() {
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (std::getenv(variable) != nullptr) return true;
  return false;
}

// As the launcher says; without one, a single rank. Where ranks name their devices, they reach each other's memory.
tutti::Communicator join(const mlp::TrainOptions& options) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  if (options.device) config.device = options.device_number;
  if (launched()) return tutti::Communicator::from_environment(&config);
  return {1, tutti::unique_id(), 0, &config};
}

// The libraries look for devices as TUTTI_DEVICE says: it is set before they do, unless the caller has set it.
void choose_device(const std::string& kind, mlp::TrainOptions& options) {
  if (kind == "cpu") return;
  ::setenv("TUTTI_DEVICE", kind.c_str(), 0);
  const tutti::DeviceModule& module = *tutti::tuttiDeviceModule(tutti::device_interface_version);
  if (module.platform == nullptr) throw std::runtime_error(fmt::format("--device {}: {}", kind, module.why_not));
  if (module.platform->name() != kind)
    throw std::runtime_error(fmt::format("--device {}: but TUTTI_DEVICE={} gives devices of {}", kind,
                                         std::getenv("TUTTI_DEVICE"), module.platform->name()));
  int local_rank = 0;
  if (launched()) tutti::check(tuttiEnvRank(nullptr, nullptr, &local_rank));
  options.device = true;
  options.device_number = local_rank % module.platform->count();
}

void run(const Arguments& asked) {
  Arguments arguments = asked;
  choose_device(arguments.device, arguments.train);
  tutti::Communicator communicator = join(arguments.train);
  const mlp::Dataset training = mlp::load_mnist(arguments.data, "train"),
                     test = mlp::load_mnist(arguments.data, "t10k");
  const int ranks = communicator.size();
  if (communicator.rank() == 0)
    for (const std::string& path : {arguments.json, arguments.plot, arguments.train.checkpoint})
      mlp::refuse_unwritable(path);
  if (communicator.rank() == 0 && arguments.train.progress)
    std::printf("%zu training and %zu test digits, %d rank%s, %d samples per rank and step\n", training.n, test.n,
                ranks, ranks == 1 ? "" : "s", arguments.train.batch);
  const mlp::TrainResult result = mlp::train(communicator, training, test, arguments.train);
  if (communicator.rank() == 0) {
    if (!arguments.json.empty()) mlp::write_file(arguments.json, json_of(result, arguments, ranks));
    if (!arguments.plot.empty()) mlp::write_file(arguments.plot, plot_of(result, ranks));
  }
  communicator.finalize();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a 784-256-10 network on MNIST digits by plain SGD, data-parallel over all ranks. Start it with "
               "tutti-run, torchrun, mpirun or srun; alone it is one rank.");
  Arguments arguments;
  describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return exit_usage;
  }
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return 1;
  }
  return 0;
}
