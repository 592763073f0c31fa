// The training loop, shared by both ways of dividing the work.
#include "trainer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>

#include "checkpoint.h"
#include "gradients.h"
#include "sampler.h"
#include "worker.h"

namespace mlp {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One line that is overwritten; only a terminal shows it.
class ProgressBar {
 public:
  ProgressBar(bool shown, int epoch, int epochs, size_t steps)
      : shown_(shown && ::isatty(STDERR_FILENO) == 1), epoch_(epoch), epochs_(epochs), steps_(steps) {}

  void show(size_t step, float loss, double samples_per_s) {
    const auto now = Clock::now();
    if (!shown_ || (step < steps_ && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    constexpr size_t width = 24;
    const size_t filled = step * width / std::max<size_t>(1, steps_);
    std::fprintf(stderr, "\repoch %2d/%d [%s%s] %zu/%zu  loss %.4f  %.0f samples/s ", epoch_, epochs_,
                 std::string(filled, '#').c_str(), std::string(width - filled, '.').c_str(), step, steps_, double(loss),
                 samples_per_s);
    std::fflush(stderr);
  }
  void end() {
    if (shown_) std::fprintf(stderr, "\r%*s\r", 100, "");
  }

 private:
  bool shown_;
  int epoch_, epochs_;
  size_t steps_;
  Clock::time_point last_{};
};

// Rank 0 does something that may fail; all ranks learn whether it did, and throw alike.
template <class Work>
void on_rank_0(tutti::Communicator& communicator, Work work) {
  std::vector<char> sentence(512, '\0');
  if (communicator.rank() == 0) try {
      work();
    } catch (const std::exception& error) {
      std::strncpy(sentence.data(), error.what(), sentence.size() - 1);
    }
  communicator.broadcast(sentence.data(), sentence.data(), sentence.size(), tuttiInt8, 0);
  if (sentence[0] != '\0') throw std::runtime_error(sentence.data());
}

struct Start {
  int epochs_done = 0;
  uint64_t seed = 0;
  std::vector<float> parameters;
};

Start start_of(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options) {
  Start start{0, options.seed, std::vector<float>(sizes.all())};
  if (options.resume.empty()) {
    if (communicator.rank() == 0) start.parameters = initial_parameters(sizes, options.seed);
  } else {
    on_rank_0(communicator, [&] {
      Checkpoint checkpoint = load_checkpoint(options.resume);
      if (checkpoint.parameters.size() != sizes.all())
        throw std::runtime_error(fmt::format("{}: has {} parameters, but this network has {}", options.resume,
                                             checkpoint.parameters.size(), sizes.all()));
      start = {checkpoint.epochs_done, checkpoint.seed, std::move(checkpoint.parameters)};
    });
  }
  std::vector<int64_t> numbers = {start.epochs_done, int64_t(start.seed)};
  communicator.broadcast(std::span(numbers), 0);
  start.epochs_done = int(numbers[0]);
  start.seed = uint64_t(numbers[1]);
  broadcast_parameters(communicator, start.parameters);
  return start;
}

void refuse_impossible(const tutti::Communicator& communicator, const Dataset& training, const Dataset& test,
                       const TrainOptions& options) {
  if (training.n == 0 || test.n == 0) throw std::runtime_error("the training or the test set is empty");
  if (training.pixels_per_image != test.pixels_per_image)
    throw std::runtime_error(fmt::format("training images have {} pixels, test images {}", training.pixels_per_image,
                                         test.pixels_per_image));
  if (options.batch < 1) throw std::runtime_error(fmt::format("batch is {}, below 1", options.batch));
  if (options.model_parallel && options.device) throw std::runtime_error("model parallel training is on the host only");
  if (options.model_parallel && communicator.size() != 2)
    throw std::runtime_error(fmt::format("model parallel training needs 2 ranks, not {}", communicator.size()));
}

}  // namespace

void broadcast_parameters(tutti::Communicator& communicator, std::vector<float>& parameters) {
  communicator.broadcast(std::span(parameters), 0);
}

void verify_equal(tutti::Communicator& communicator, const std::vector<float>& parameters) {
  // As integers, so that bits are compared: where the least and the greatest of all ranks agree, all do.
  std::vector<uint32_t> bits(parameters.size());
  std::memcpy(bits.data(), parameters.data(), bits.size() * sizeof(float));
  std::vector<uint32_t> least = bits, greatest = bits;
  communicator.all_reduce(std::span(least), tuttiMin);
  communicator.all_reduce(std::span(greatest), tuttiMax);
  for (size_t i = 0; i < bits.size(); ++i)
    if (least[i] != greatest[i]) throw std::runtime_error(fmt::format("weight {} differs between ranks", i));
}

TrainResult train(tutti::Communicator& communicator, const Dataset& training, const Dataset& test,
                  const TrainOptions& options) {
  refuse_impossible(communicator, training, test, options);
  Sizes sizes;
  sizes.inputs = int(training.pixels_per_image);
  Start start = start_of(communicator, sizes, options);
  std::unique_ptr<Worker> worker = options.device
                                       ? make_device_worker(communicator, sizes, options, start.parameters)
                                   : options.model_parallel
                                       ? make_model_parallel_worker(communicator, sizes, options, start.parameters)
                                       : make_data_parallel_worker(communicator, sizes, options, start.parameters);
  TrainResult result;
  if (start.epochs_done >= options.epochs && communicator.rank() == 0)
    std::fprintf(stderr, "nothing to train: %s has %d epochs behind it, of %d\n", options.resume.c_str(),
                 start.epochs_done, options.epochs);
  const int shards = worker->data_ranks(), shard = worker->data_rank();
  for (int epoch = start.epochs_done; epoch < options.epochs; ++epoch) {
    const std::vector<size_t> mine = sample_indices(training.n, shards, shard, start.seed, epoch);
    const size_t batch = size_t(options.batch), steps = (mine.size() + batch - 1) / batch;
    ProgressBar bar(options.progress && communicator.rank() == 0, epoch + 1, options.epochs, steps);
    const auto began = Clock::now();
    double loss_sum = 0;
    size_t seen = 0;
    for (size_t step = 0; step < steps; ++step) {
      const std::span<const size_t> chosen = std::span(mine).subspan(step * batch).first(
          std::min(batch, mine.size() - step * batch));
      const float loss = worker->step(training, chosen);
      loss_sum += double(loss);
      seen += chosen.size() * size_t(shards);
      bar.show(step + 1, loss, double(seen) / seconds_since(began));
      if (options.verify) worker->verify();
    }
    const double seconds = seconds_since(began);
    bar.end();
    std::vector<double> losses = {loss_sum / double(steps)};
    communicator.all_reduce(std::span(losses), tuttiSum);
    const double accuracy = double(worker->count_right_of(test)) / double(test.n);
    result.epochs.push_back({epoch + 1, float(losses[0] / worker->loss_ranks()), accuracy, double(seen) / seconds});
    if (communicator.rank() == 0 && options.progress) {
      std::printf("epoch %2d/%d  loss %.4f  test accuracy %.4f  %.0f samples/s\n", epoch + 1, options.epochs,
                  double(result.epochs.back().loss), accuracy, result.epochs.back().samples_per_s);
      std::fflush(stdout);
    }
    if (!options.checkpoint.empty()) {
      const std::vector<float> parameters = worker->gathered_parameters();
      on_rank_0(communicator,
                [&] { save_checkpoint(options.checkpoint, {epoch + 1, start.seed, parameters}); });
    }
  }
  result.parameters = worker->gathered_parameters();
  return result;
}

}  // namespace mlp
