// Gradient averaging: buckets that start while the backward pass still runs.
#pragma once

#include <cstddef>
#include <span>

#include <tutti/tutti.hpp>

namespace mlp {

// Averages a gradient over all ranks. ready() is told of final ranges in order; whenever a bucket is full its all_reduce
// starts on a stream. finish() starts the rest and waits for all.
class GradientAverager {
 public:
  GradientAverager(tutti::Communicator& communicator, std::span<float> gradient, size_t bucket_bytes)
      : communicator_(&communicator), gradient_(gradient), bucket_floats_(bucket_bytes / sizeof(float)) {}

  void ready(size_t first, size_t count) {
    filled_ = first + count;
    if (filled_ - started_ >= bucket_floats_) start();
  }
  void finish() {
    if (filled_ != started_) start();
    stream_.synchronize();
    started_ = filled_ = 0;
  }
  size_t buckets_started() const { return buckets_started_; }

 private:
  void start() {
    communicator_->all_reduce(gradient_.subspan(started_, filled_ - started_), tuttiAvg, &stream_);
    started_ = filled_;
    ++buckets_started_;
  }

  tutti::Communicator* communicator_;
  std::span<float> gradient_;
  size_t bucket_floats_;
  tutti::Stream stream_;
  size_t started_ = 0;  // floats handed to the stream
  size_t filled_ = 0;   // floats that are final
  size_t buckets_started_ = 0;
};

}  // namespace mlp
