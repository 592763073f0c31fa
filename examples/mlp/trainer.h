// Training: data-parallel over any number of ranks, or one layer each on two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "idx.h"
#include "network.h"

namespace mlp {

struct TrainOptions {
  int epochs = 20;
  int batch = 64;             // per rank
  float learning_rate = 0.5f;
  uint64_t seed = 1;
  size_t bucket_bytes = 256 * 1024;
  std::string checkpoint;     // file to save to after every epoch; "" none
  std::string resume;         // file to start from; "" none
  bool model_parallel = false;
  bool device = false;        // parameters and gradients lie on this rank's device, which does the arithmetic
  int device_number = 0;      // which one, where `device`
  bool verify = false;        // after every step, compare the weights of all ranks bit by bit
  bool progress = true;       // on rank 0: a line per epoch, and a bar where standard error is a terminal
};

struct EpochResult {
  int epoch = 0;
  float loss = 0;             // mean over the epoch's batches and all ranks
  double test_accuracy = 0;
  double samples_per_s = 0;   // over all ranks
};

struct TrainResult {
  std::vector<EpochResult> epochs;
  std::vector<float> parameters;
};

// Collective: all ranks call it with the same options and data. Throws std::runtime_error (files, settings) or
// tutti::Failure; where rank 0 cannot save or load, all ranks throw.
TrainResult train(tutti::Communicator& communicator, const Dataset& training, const Dataset& test,
                  const TrainOptions& options);

// parameters of rank 0 to all ranks.
void broadcast_parameters(tutti::Communicator& communicator, std::vector<float>& parameters);

// Throws std::runtime_error where the parameters differ between ranks in any bit.
void verify_equal(tutti::Communicator& communicator, const std::vector<float>& parameters);

}  // namespace mlp
