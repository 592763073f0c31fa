// One rank's part of the training, in either way of dividing the work.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <tutti/tutti.hpp>

#include "idx.h"
#include "network.h"
#include "trainer.h"

namespace mlp {

struct Batch {
  Matrix inputs;  // samples × pixels, 0 to 1
  std::vector<uint8_t> labels;
};
Batch batch_of(const Dataset& data, std::span<const size_t> chosen);

inline constexpr size_t evaluation_batch = 256;
// Calls work(indices) for consecutive batches of [first, end), of evaluation_batch at most.
void for_batches(size_t first, size_t end, const std::function<void(std::span<const size_t>)>& work);

class Worker {
 public:
  virtual ~Worker() = default;

  // Into how many parts the samples are divided, and which part this rank trains on.
  virtual int data_ranks() const = 0;
  virtual int data_rank() const = 0;
  // How many ranks know the loss.
  virtual int loss_ranks() const = 0;

  // One step of gradient descent on the chosen samples; this rank's loss, or 0 where it knows none.
  virtual float step(const Dataset& data, std::span<const size_t> chosen) = 0;
  // How many samples of the set are classified right: the same number on every rank. Collective.
  virtual size_t count_right_of(const Dataset& data) = 0;
  // All parameters, right on rank 0 at least. Collective.
  virtual std::vector<float> gathered_parameters() = 0;
  // Throws where ranks disagree on weights that they share. Collective.
  virtual void verify() = 0;
};

// Every rank holds the whole network and a share of the samples; gradients are averaged by all_reduce.
std::unique_ptr<Worker> make_data_parallel_worker(tutti::Communicator& communicator, const Sizes& sizes,
                                                  const TrainOptions& options, std::vector<float> parameters);

// The same on this rank's device: parameters, gradients and their averaging in its memory. In device_worker.cc. Throws
// std::runtime_error where there is no such device, or nothing that does its arithmetic.
std::unique_ptr<Worker> make_device_worker(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options,
                                           std::vector<float> parameters);

// Rank 0 holds the first layer, rank 1 the second; activations and gradients travel by send and receive.
std::unique_ptr<Worker> make_model_parallel_worker(tutti::Communicator& communicator, const Sizes& sizes,
                                                   const TrainOptions& options, std::vector<float> parameters);

}  // namespace mlp
