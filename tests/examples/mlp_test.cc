// The trainer: data, sampler, gradients, averaging, checkpoints, and both ways of dividing the work.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint.h"
#include "files.h"
#include "gradients.h"
#include "idx.h"
#include "network.h"
#include "sampler.h"
#include "trainer.h"

namespace mlp {
namespace {

namespace fs = std::filesystem;

// Runs body on n ranks that are threads.
template <class Body>
void on_ranks(int n, Body body) {
  std::vector<tutti::Communicator> ranks = tutti::Communicator::local(n);
  std::vector<std::jthread> threads;
  for (tutti::Communicator& communicator : ranks)
    threads.emplace_back([&communicator, &body] {
      try {
        body(communicator);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
}

// A small set that can be learned: the label is the brightest of ten pixel groups.
Dataset toy_data(size_t n, uint64_t seed) {
  Dataset data{n, 20, {}, {}};
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t label = uint8_t(random() % 10);
    for (size_t p = 0; p < 20; ++p)
      data.pixels.push_back(uint8_t(p / 2 == label ? 200 + random() % 50 : random() % 100));
    data.labels.push_back(label);
  }
  return data;
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("tutti_mlp_test_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  size_t entries() const { return size_t(std::distance(fs::directory_iterator(path_), {})); }

 private:
  fs::path path_;
};

template <class Work>
std::string refusal(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Idx, TheDigitsInTheRepositoryAreRead) {
  const Dataset training = load_mnist(MNIST_FOLDER, "train"), test = load_mnist(MNIST_FOLDER, "t10k");
  EXPECT_EQ(training.n, 8004u);
  EXPECT_EQ(test.n, 1996u);
  EXPECT_EQ(training.pixels_per_image, 784u);
  std::set<int> labels(training.labels.begin(), training.labels.end());
  EXPECT_EQ(labels.size(), 10u);
}

TEST(Idx, AWrongFileIsNamedWithWhatIsWrong) {
  const Folder folder;
  EXPECT_NE(refusal([&] { load_mnist(folder.path(), "train"); }).find("train-images-idx3-ubyte: no such file"),
            std::string::npos);
  const std::string images = folder.file("train-images-idx3-ubyte");
  std::ofstream(images, std::ios::binary) << "no digits at all";
  EXPECT_NE(refusal([&] { load_mnist(folder.path(), "train"); }).find("begins with"), std::string::npos);
  std::ofstream(images, std::ios::binary) << std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01x", 17);
  EXPECT_NE(refusal([&] { load_mnist(folder.path(), "train"); }).find("ends after 1 of 2 bytes"), std::string::npos);
}

TEST(Sampler, EveryRankGetsEquallyManyAndTogetherTheySeeEverything) {
  for (const size_t n : {size_t{1}, size_t{10}, size_t{101}})
    for (const int ranks : {1, 2, 3, 4, 7, 8}) {
      std::multiset<size_t> seen;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<size_t> mine = sample_indices(n, ranks, rank, 5, 2);
        EXPECT_EQ(mine.size(), (n + size_t(ranks) - 1) / size_t(ranks));
        seen.insert(mine.begin(), mine.end());
      }
      for (size_t i = 0; i < n; ++i) EXPECT_GE(seen.count(i), 1u);
    }
}

TEST(Sampler, WithoutShufflingItDealsAndPadsAsPyTorchDoes) {
  // DistributedSampler(range(10), num_replicas=4, shuffle=False): padded with 0, 1.
  EXPECT_EQ(sample_indices(10, 4, 0, 0, 0, false), (std::vector<size_t>{0, 4, 8}));
  EXPECT_EQ(sample_indices(10, 4, 2, 0, 0, false), (std::vector<size_t>{2, 6, 0}));
  EXPECT_EQ(sample_indices(10, 4, 3, 0, 0, false), (std::vector<size_t>{3, 7, 1}));
}

TEST(Sampler, EpochsDifferAndRunsDoNot) {
  EXPECT_EQ(sample_indices(100, 2, 1, 7, 3), sample_indices(100, 2, 1, 7, 3));
  EXPECT_NE(sample_indices(100, 2, 1, 7, 3), sample_indices(100, 2, 1, 7, 4));
}

struct Example {
  Sizes sizes{20, 16, 10};
  Matrix inputs;
  std::vector<uint8_t> labels;
  std::vector<float> parameters;
};

Example example(size_t n) {
  Example e;
  const Dataset data = toy_data(n, 3);
  e.inputs.resize(Eigen::Index(n), 20);
  for (size_t i = 0; i < data.pixels.size(); ++i) e.inputs.data()[i] = float(data.pixels[i]) / 255;
  e.labels = data.labels;
  e.parameters = initial_parameters(e.sizes, 11);
  return e;
}

// The mean cross-entropy once more, in plain loops and double: steps can be so short that no hidden unit crosses its
// ReLU's corner, where no difference quotient agrees with a gradient.
double plain_loss(const Example& e, const std::vector<double>& parameters) {
  const double* second = parameters.data();
  const double* first = second + e.sizes.second_layer();
  const size_t inputs = size_t(e.sizes.inputs), units = size_t(e.sizes.hidden), outputs = size_t(e.sizes.outputs);
  double loss = 0;
  for (size_t sample = 0; sample < e.labels.size(); ++sample) {
    std::vector<double> hidden(units), logits(outputs);
    for (size_t h = 0; h < units; ++h) {
      double sum = first[units * inputs + h];
      for (size_t i = 0; i < inputs; ++i) sum += first[h * inputs + i] * double(e.inputs.data()[sample * inputs + i]);
      hidden[h] = std::max(sum, 0.0);
    }
    double exponentials = 0;
    for (size_t o = 0; o < outputs; ++o) {
      logits[o] = second[outputs * units + o];
      for (size_t h = 0; h < units; ++h) logits[o] += second[o * units + h] * hidden[h];
      exponentials += std::exp(logits[o]);
    }
    loss += std::log(exponentials) - logits[e.labels[sample]];
  }
  return loss / double(e.labels.size());
}

TEST(Network, TheGradientAgreesWithFiniteDifferences) {
  const Example e = example(8);
  std::vector<float> gradient(e.parameters.size());
  const float loss = loss_and_gradient(e.sizes, e.parameters, e.inputs, e.labels, gradient, [](size_t, size_t) {});
  std::vector<double> moved(e.parameters.begin(), e.parameters.end());
  EXPECT_NEAR(loss, plain_loss(e, moved), 1e-6);
  constexpr double step = 1e-6;
  for (size_t i = 0; i < moved.size(); ++i) {
    const double kept = moved[i];
    moved[i] = kept + step;
    const double above = plain_loss(e, moved);
    moved[i] = kept - step;
    const double below = plain_loss(e, moved);
    moved[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-6) << i;
  }
}

TEST(Network, GradientsAreReadyInOrderWithoutGaps) {
  const Example e = example(4);
  std::vector<float> gradient(e.parameters.size());
  size_t next = 0;
  loss_and_gradient(e.sizes, e.parameters, e.inputs, e.labels, gradient, [&](size_t first, size_t count) {
    EXPECT_EQ(first, next);
    next += count;
  });
  EXPECT_EQ(next, gradient.size());
}

TEST(GradientAveraging, OverAnyRanksEqualsTheGradientOfTheWholeBatch) {
  constexpr int batch = 48;
  const Example e = example(batch);
  std::vector<float> whole(e.parameters.size());
  loss_and_gradient(e.sizes, e.parameters, e.inputs, e.labels, whole, [](size_t, size_t) {});
  float scale = 0;
  for (const float g : whole) scale = std::max(scale, std::fabs(g));
  for (const int n : {1, 2, 3, 4, 8})
    on_ranks(n, [&](tutti::Communicator& communicator) {
      const int each = batch / n, rank = communicator.rank();
      const Matrix part = e.inputs.middleRows(rank * each, each);
      std::vector<float> gradient(whole.size());
      GradientAverager averager(communicator, gradient, 512);
      loss_and_gradient(e.sizes, e.parameters, part, std::span(e.labels).subspan(size_t(rank * each), size_t(each)),
                        gradient, [&](size_t first, size_t count) { averager.ready(first, count); });
      averager.finish();
      EXPECT_GT(averager.buckets_started(), 1u);
      for (size_t i = 0; i < whole.size(); ++i)
        ASSERT_NEAR(gradient[i], whole[i], 1e-6 * scale) << n << " ranks, " << i;
    });
}

// loss = sum over the batch of (w·x − 0)², w = 1, rank r holds x = [2r, 2r + 1]: gradients 2·(0 + 1) = 2 and
// 2·(4 + 9) = 26, averaged 14.
TEST(GradientAveraging, TheKnownCaseIsExact) {
  on_ranks(2, [](tutti::Communicator& communicator) {
    const float w = 1;
    std::vector<float> gradient = {0};
    for (const float x : {float(2 * communicator.rank()), float(2 * communicator.rank() + 1)})
      gradient[0] += 2 * (w * x - 0) * x;
    GradientAverager averager(communicator, gradient, 1 << 20);
    averager.ready(0, 1);
    averager.finish();
    EXPECT_EQ(gradient[0], 14.0f);
  });
}

TEST(GradientAveraging, WeightsStartAsThoseOfRank0) {
  on_ranks(2, [](tutti::Communicator& communicator) {
    std::vector<float> weights = {communicator.rank() == 0 ? 0.0f : 1.0f};
    broadcast_parameters(communicator, weights);
    EXPECT_EQ(weights[0], 0.0f);
  });
}

TEST(Training, LearnsAndKeepsTheWeightsOfAllRanksEqualBitByBit) {
  const Dataset training = toy_data(500, 1), test = toy_data(200, 2);
  for (const int n : {1, 3})
    on_ranks(n, [&](tutti::Communicator& communicator) {
      TrainOptions options;
      options.epochs = 12;
      options.batch = 16;
      options.bucket_bytes = 4096;
      options.verify = true;
      options.progress = false;
      const TrainResult result = train(communicator, training, test, options);
      EXPECT_GT(result.epochs.back().test_accuracy, 0.95) << n << " ranks";
      EXPECT_LT(result.epochs.back().loss, result.epochs.front().loss);
    });
}

TEST(Training, AWeightThatDiffersIsFound) {
  on_ranks(2, [](tutti::Communicator& communicator) {
    std::vector<float> weights(100, 1.0f);
    verify_equal(communicator, weights);
    if (communicator.rank() == 1) weights[42] = -0.0f;
    else weights[42] = 0.0f;
    EXPECT_EQ(refusal([&] { verify_equal(communicator, weights); }), "weight 42 differs between ranks");
  });
}

TEST(Training, OneLayerOnEachOfTwoRanksGivesTheWeightsOfOneRank) {
  const Dataset training = toy_data(300, 1), test = toy_data(100, 2);
  TrainOptions options;
  options.epochs = 2;
  options.batch = 32;
  options.progress = false;
  std::vector<float> alone;
  on_ranks(1, [&](tutti::Communicator& c) { alone = train(c, training, test, options).parameters; });
  options.model_parallel = true;
  on_ranks(2, [&](tutti::Communicator& c) {
    const TrainResult result = train(c, training, test, options);
    if (c.rank() == 0) {
      EXPECT_EQ(result.parameters, alone);
    }
  });
  on_ranks(3, [&](tutti::Communicator& c) {
    EXPECT_EQ(refusal([&] { train(c, training, test, options); }), "model parallel training needs 2 ranks, not 3");
  });
}

TEST(Training, GoingOnFromACheckpointGivesTheWeightsOfAnUnbrokenRun) {
  const Folder folder;
  const Dataset training = toy_data(200, 1), test = toy_data(100, 2);
  on_ranks(2, [&](tutti::Communicator& c) {
    TrainOptions options;
    options.epochs = 4;
    options.progress = false;
    const std::vector<float> unbroken = train(c, training, test, options).parameters;
    options.epochs = 2;
    options.checkpoint = folder.file("half");
    train(c, training, test, options);
    options.epochs = 4;
    options.resume = options.checkpoint;
    options.seed = 99;  // the checkpoint's holds
    EXPECT_EQ(train(c, training, test, options).parameters, unbroken);
    options.resume = folder.file("none");
    EXPECT_NE(refusal([&] { train(c, training, test, options); }).find("none: cannot open"), std::string::npos);
  });
}

TEST(Checkpoint, SurvivesARoundTripAndRefusesWhatIsDamaged) {
  const Folder folder;
  const std::string path = folder.file("c");
  save_checkpoint(path, {7, 8, {1, 2, 3}});
  const Checkpoint loaded = load_checkpoint(path);
  EXPECT_EQ(loaded.epochs_done, 7);
  EXPECT_EQ(loaded.seed, 8u);
  EXPECT_EQ(loaded.parameters, (std::vector<float>{1, 2, 3}));
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = char(damaged[i] ^ 0x10);
    std::ofstream(folder.file("d"), std::ios::binary) << damaged;
    EXPECT_NE(refusal([&] { load_checkpoint(folder.file("d")); }), "accepted") << "byte " << i;
    std::ofstream(folder.file("d"), std::ios::binary) << bytes.substr(0, i);
    EXPECT_NE(refusal([&] { load_checkpoint(folder.file("d")); }), "accepted") << "cut at " << i;
  }
}

// A disk that takes no more, by the limit on a file's size.
TEST(Checkpoint, AFullDiskLosesNothing) {
  const Folder folder;
  const std::string path = folder.file("c");
  save_checkpoint(path, {1, 1, {5}});
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit small = old_limit;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string sentence = refusal([&] { save_checkpoint(path, {2, 2, std::vector<float>(100000)}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_action);
  EXPECT_NE(sentence.find("cannot write"), std::string::npos) << sentence;
  EXPECT_EQ(load_checkpoint(path).parameters, std::vector<float>{5});
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Files, WhatCannotBeWrittenIsKnownBefore) {
  const Folder folder;
  refuse_unwritable("");
  refuse_unwritable("in_this_folder");
  refuse_unwritable(folder.file("new"));
  EXPECT_NE(refusal([&] { refuse_unwritable(folder.path()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(refusal([&] { refuse_unwritable("/no/such/x"); }).find("/no/such/x: no file can be made"),
            std::string::npos);
}

TEST(Checkpoint, AFolderThatIsNotThereIsNamed) {
  EXPECT_NE(refusal([] { save_checkpoint("/no/such/folder/c", {}); }).find("/no/such/folder/c"), std::string::npos);
}

}  // namespace
}  // namespace mlp
