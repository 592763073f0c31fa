// Data-parallel steps on a device: the host brings samples and hears the loss, all else stays there.
#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "device/device.h"
#include "arithmetic.h"
#include "worker.h"

namespace mlp {
namespace {

void must(const tutti::Outcome& outcome) {
  if (!outcome.ok()) throw std::runtime_error(outcome.sentence);
}

// The one that the communicators use too.
tutti::Device& device_of(int number, tutti::Platform** platform) {
  const tutti::DeviceModule& module = *tutti::tuttiDeviceModule(tutti::device_interface_version);
  if (module.platform == nullptr) throw std::runtime_error(fmt::format("there is no device: {}", module.why_not));
  if (number < 0 || number >= module.platform->count())
    throw std::runtime_error(fmt::format("device {}: outside 0 to {}", number, module.platform->count() - 1));
  *platform = module.platform;
  return module.platform->device(number);
}

// Memory of a device.
template <class T>
class Room {
 public:
  Room(tutti::Device& device, size_t count) : device_(device) {
    void* data = nullptr;
    must(device.allocate(count * sizeof(T), &data));
    data_ = static_cast<T*>(data);
  }
  ~Room() { (void)device_.free(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  T* data() const { return data_; }

 private:
  tutti::Device& device_;
  T* data_ = nullptr;
};

// A stream of a device, and an event by which another one waits for it.
class Lane {
 public:
  explicit Lane(tutti::Device& device) : device_(device) {
    must(device.create_stream(&stream_));
    if (const tutti::Outcome made = device.create_event(false, &event_); !made.ok()) {
      (void)device.destroy_stream(stream_);
      must(made);
    }
  }
  ~Lane() {
    (void)device_.wait_stream(stream_);
    (void)device_.destroy_event(event_);
    (void)device_.destroy_stream(stream_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  tutti::DeviceStream get() const { return stream_; }
  void wait() { must(device_.wait_stream(stream_)); }
  // What comes on this one from now on comes after what is on the other.
  void follow(const Lane& other) {
    must(device_.record_event(other.event_, other.stream_));
    must(device_.wait_event(stream_, other.event_));
  }

 private:
  tutti::Device& device_;
  tutti::DeviceStream stream_ = nullptr;
  tutti::DeviceEvent event_ = nullptr;
};

class DeviceWorker final : public Worker {
 public:
  DeviceWorker(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options,
               const std::vector<float>& parameters)
      : communicator_(communicator),
        sizes_(sizes),
        learning_rate_(options.learning_rate),
        bucket_floats_(options.bucket_bytes / sizeof(float)),
        device_(device_of(options.device_number, &platform_)),
        batch_max_(std::max(size_t(options.batch), evaluation_batch)),
        math_(make_math(*platform_, options.device_number, sizes, int(batch_max_))),
        parameters_(device_, sizes.all()),
        gradient_(device_, sizes.all()),
        inputs_(device_, batch_max_ * size_t(sizes.inputs)),
        loss_(device_, 1),
        right_(device_, 1),
        labels_(device_, batch_max_),
        computing_(device_),
        averaging_(device_) {
    put(parameters_.data(), parameters.data(), parameters.size());
    computing_.wait();
  }

  int data_ranks() const override { return communicator_.size(); }
  int data_rank() const override { return communicator_.rank(); }
  int loss_ranks() const override { return communicator_.size(); }

  float step(const Dataset& data, std::span<const size_t> chosen) override {
    const Batch batch = batch_of(data, chosen);
    size_t started = 0;
    const auto average = [&](size_t end) {
      averaging_.follow(computing_);
      tutti::check(tuttiAllReduce(gradient_.data() + started, gradient_.data() + started, end - started, tuttiFloat32, tuttiAvg,
                                  communicator_.get(), reinterpret_cast<tuttiStream_t>(averaging_.get())));
      started = end;
    };
    math_->loss_and_gradient(computing_.get(), parameters_.data(), brought(batch), gradient_.data(), loss_.data(),
                             [&](size_t first, size_t count) {
                               const size_t end = first + count;
                               if (end - started >= bucket_floats_ || end == sizes_.all()) average(end);
                             });
    computing_.follow(averaging_);
    math_->descend(computing_.get(), parameters_.data(), gradient_.data(), sizes_.all(), learning_rate_);
    float loss = 0;
    get(&loss, loss_.data(), 1);
    return loss;
  }

  size_t count_right_of(const Dataset& data) override {
    const size_t n = size_t(data_ranks()), r = size_t(data_rank());
    std::vector<int64_t> right = {0};
    for_batches(data.n * r / n, data.n * (r + 1) / n, [&](std::span<const size_t> chosen) {
      const Batch batch = batch_of(data, chosen);
      int32_t here = 0;
      put(right_.data(), &here, 1);
      math_->count_right(computing_.get(), parameters_.data(), brought(batch), right_.data());
      get(&here, right_.data(), 1);
      right[0] += here;
    });
    communicator_.all_reduce(std::span(right), tuttiSum);
    return size_t(right[0]);
  }

  std::vector<float> gathered_parameters() override {
    std::vector<float> parameters(sizes_.all());
    get(parameters.data(), parameters_.data(), parameters.size());
    return parameters;
  }
  void verify() override { verify_equal(communicator_, gathered_parameters()); }

 private:
  // The batch stays as it is until the next get().
  Math::Batch brought(const Batch& batch) {
    put(inputs_.data(), batch.inputs.data(), size_t(batch.inputs.size()));
    put(labels_.data(), batch.labels.data(), batch.labels.size());
    return {inputs_.data(), labels_.data(), int(batch.labels.size())};
  }
  template <class T>
  void put(T* to, const T* from, size_t count) {
    must(device_.copy(computing_.get(), to, from, count * sizeof(T)));
  }
  // Waits for all that is on the stream.
  template <class T>
  void get(T* to, const T* from, size_t count) {
    must(device_.copy(computing_.get(), to, from, count * sizeof(T)));
    computing_.wait();
    // The stream goes on also where the call that it waited for has failed.
    tuttiResult_t state = tuttiSuccess;
    tutti::check(tuttiCommGetAsyncError(communicator_.get(), &state));
    if (state != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(communicator_.get()));
  }

  tutti::Communicator& communicator_;
  Sizes sizes_;
  float learning_rate_;
  size_t bucket_floats_;
  tutti::Platform* platform_ = nullptr;
  tutti::Device& device_;
  size_t batch_max_;
  std::unique_ptr<Math> math_;
  Room<float> parameters_, gradient_, inputs_, loss_;
  Room<int32_t> right_;
  Room<uint8_t> labels_;
  Lane computing_, averaging_;
};

}  // namespace

std::unique_ptr<Worker> make_device_worker(tutti::Communicator& communicator, const Sizes& sizes, const TrainOptions& options,
                                           std::vector<float> parameters) {
  return std::make_unique<DeviceWorker>(communicator, sizes, options, parameters);
}

}  // namespace mlp
