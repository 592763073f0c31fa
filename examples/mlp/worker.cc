// Data-parallel and model-parallel steps.
#include "worker.h"

#include <algorithm>
#include <numeric>

#include "gradients.h"

namespace mlp {
namespace {

}  // namespace

Batch batch_of(const Dataset& data, std::span<const size_t> chosen) {
  Batch batch{Matrix(Eigen::Index(chosen.size()), Eigen::Index(data.pixels_per_image)), {}};
  for (size_t i = 0; i < chosen.size(); ++i) {
    const uint8_t* pixels = data.pixels.data() + chosen[i] * data.pixels_per_image;
    float* row = batch.inputs.data() + i * data.pixels_per_image;
    for (size_t p = 0; p < data.pixels_per_image; ++p) row[p] = float(pixels[p]) / 255.0f;
    batch.labels.push_back(data.labels[chosen[i]]);
  }
  return batch;
}

void for_batches(size_t first, size_t end, const std::function<void(std::span<const size_t>)>& work) {
  for (; first < end; first += evaluation_batch) {
    std::vector<size_t> chosen(std::min(evaluation_batch, end - first));
    std::iota(chosen.begin(), chosen.end(), first);
    work(chosen);
  }
}

namespace {

class DataParallelWorker : public Worker {
 public:
  DataParallelWorker(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options,
                     std::vector<float> parameters)
      : communicator_(communicator),
        sizes_(sizes),
        learning_rate_(options.learning_rate),
        parameters_(std::move(parameters)),
        gradient_(parameters_.size()),
        averager_(communicator, gradient_, options.bucket_bytes) {}

  int data_ranks() const override { return communicator_.size(); }
  int data_rank() const override { return communicator_.rank(); }
  int loss_ranks() const override { return communicator_.size(); }

  float step(const Dataset& data, std::span<const size_t> chosen) override {
    const Batch batch = batch_of(data, chosen);
    const float loss = loss_and_gradient(sizes_, parameters_, batch.inputs, batch.labels, gradient_,
                                         [this](size_t first, size_t count) { averager_.ready(first, count); });
    averager_.finish();
    descend(parameters_, gradient_, learning_rate_);
    return loss;
  }

  size_t count_right_of(const Dataset& data) override {
    const size_t n = size_t(data_ranks()), r = size_t(data_rank());
    std::vector<int64_t> right = {0};
    for_batches(data.n * r / n, data.n * (r + 1) / n, [&](std::span<const size_t> chosen) {
      const Batch batch = batch_of(data, chosen);
      Matrix hidden;
      const std::span<const float> all = parameters_;
      forward_first(sizes_, all.subspan(sizes_.second_layer()), batch.inputs, hidden);
      right[0] += int64_t(count_right(sizes_, all.first(sizes_.second_layer()), hidden, batch.labels));
    });
    communicator_.all_reduce(std::span(right), tuttiSum);
    return size_t(right[0]);
  }

  std::vector<float> gathered_parameters() override { return parameters_; }
  void verify() override { verify_equal(communicator_, parameters_); }

 private:
  tutti::Communicator& communicator_;
  Sizes sizes_;
  float learning_rate_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  GradientAverager averager_;
};

class ModelParallelWorker : public Worker {
 public:
  ModelParallelWorker(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options,
                      std::vector<float> parameters)
      : communicator_(communicator),
        sizes_(sizes),
        learning_rate_(options.learning_rate),
        first_(communicator.rank() == 0),
        parameters_(std::move(parameters)),
        gradient_(first_ ? sizes.first_layer() : sizes.second_layer()) {}

  int data_ranks() const override { return 1; }  // both ranks see every sample
  int data_rank() const override { return 0; }
  int loss_ranks() const override { return 1; }

  float step(const Dataset& data, std::span<const size_t> chosen) override {
    const Batch batch = batch_of(data, chosen);
    Matrix hidden(Eigen::Index(chosen.size()), sizes_.hidden), hidden_gradient(hidden.rows(), hidden.cols());
    float loss = 0;
    if (first_) {
      forward_first(sizes_, mine(), batch.inputs, hidden);
      communicator_.send(std::span<const float>(hidden.data(), size_t(hidden.size())), 1);
      communicator_.recv(std::span<float>(hidden_gradient.data(), size_t(hidden_gradient.size())), 1);
      backward_first(sizes_, batch.inputs, hidden, hidden_gradient, gradient_, [](size_t, size_t) {});
    } else {
      Matrix logits_gradient;
      communicator_.recv(std::span<float>(hidden.data(), size_t(hidden.size())), 0);
      loss = forward_second(sizes_, mine(), hidden, batch.labels, logits_gradient);
      backward_second(sizes_, mine(), hidden, logits_gradient, gradient_, hidden_gradient);
      communicator_.send(std::span<const float>(hidden_gradient.data(), size_t(hidden_gradient.size())), 0);
    }
    descend(mine(), gradient_, learning_rate_);
    return loss;
  }

  size_t count_right_of(const Dataset& data) override {
    std::vector<int64_t> right = {0};
    for_batches(0, data.n, [&](std::span<const size_t> chosen) {
      const Batch batch = batch_of(data, chosen);
      Matrix hidden(Eigen::Index(chosen.size()), sizes_.hidden);
      const std::span<float> activations(hidden.data(), size_t(hidden.size()));
      if (first_) {
        forward_first(sizes_, mine(), batch.inputs, hidden);
        communicator_.send(std::span<const float>(activations), 1);
      } else {
        communicator_.recv(activations, 0);
        right[0] += int64_t(count_right(sizes_, mine(), hidden, batch.labels));
      }
    });
    communicator_.broadcast(std::span(right), 1);
    return size_t(right[0]);
  }

  std::vector<float> gathered_parameters() override {
    const std::span<float> second = std::span(parameters_).first(sizes_.second_layer());
    if (first_) communicator_.recv(second, 1);
    else communicator_.send(std::span<const float>(second), 0);
    return parameters_;
  }
  void verify() override {}  // the ranks share no weights

 private:
  std::span<float> mine() {
    const size_t second = sizes_.second_layer();
    return first_ ? std::span(parameters_).subspan(second) : std::span(parameters_).first(second);
  }

  tutti::Communicator& communicator_;
  Sizes sizes_;
  float learning_rate_;
  bool first_;                     // holds the first layer
  std::vector<float> parameters_;  // of both layers; only mine() is trained here
  std::vector<float> gradient_;
};

}  // namespace

std::unique_ptr<Worker> make_data_parallel_worker(tutti::Communicator& communicator, const Sizes& sizes,
                                                  const TrainOptions& options, std::vector<float> parameters) {
  return std::make_unique<DataParallelWorker>(communicator, sizes, options, std::move(parameters));
}

std::unique_ptr<Worker> make_model_parallel_worker(tutti::Communicator& communicator, const Sizes& sizes,
                                                   const TrainOptions& options, std::vector<float> parameters) {
  return std::make_unique<ModelParallelWorker>(communicator, sizes, options, std::move(parameters));
}

}  // namespace mlp
