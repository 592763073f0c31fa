// Simulated devices for tests: buffers on them, streams of them, and what a rank of a test works with.
#pragma once

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/elsewhere.h"
#include "device/platform.h"
#include "device/simulated.h"
#include "tutti/tutti.h"

namespace tutti::test {

// The devices of this process; the first call decides. Where processes are forked, the parent must not ask.
inline SimulatedPlatform& simulated(const char* options = "simulated:devices=3,seed=1") {
  ::setenv("TUTTI_DEVICE", options, 0);
  return dynamic_cast<SimulatedPlatform&>(*find_platform().platform);
}

// A device of whatever platform TUTTI_DEVICE names; simulated ones where it names none.
inline Device& any_device(int number) {
  ::setenv("TUTTI_DEVICE", "simulated:devices=3,seed=1", 0);
  return find_platform().platform->device(number);
}

inline void must(const Outcome& outcome) { ASSERT_TRUE(outcome.ok()) << outcome.sentence; }
inline void must(tuttiResult_t result) { ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(nullptr); }

// Memory of a device.
class DeviceBuffer {
 public:
  DeviceBuffer(int device, size_t bytes) : device_(simulated().device(device)), bytes_(bytes) {
    void* data = nullptr;
    must(device_.allocate(bytes, &data));
    data_ = static_cast<std::byte*>(data);
  }
  template <class T>
  DeviceBuffer(int device, const std::vector<T>& values) : DeviceBuffer(device, values.size() * sizeof(T)) {
    put(values.data(), bytes_);
  }
  ~DeviceBuffer() { must(device_.free(data_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // By the default stream; they block.
  void put(const void* from, size_t bytes) {
    must(device_.copy(nullptr, data_, from, bytes));
    must(device_.wait_stream(nullptr));
  }
  void get(void* to, size_t bytes) const {
    must(device_.copy(nullptr, to, data_, bytes));
    must(device_.wait_stream(nullptr));
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> values(bytes_ / sizeof(T));
    get(values.data(), bytes_);
    return values;
  }

 private:
  Device& device_;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

// A stream of a device, as a caller has it.
class UserStream {
 public:
  explicit UserStream(int device) : device_(simulated().device(device)) { must(device_.create_stream(&stream_)); }
  ~UserStream() { must(device_.destroy_stream(stream_)); }
  UserStream(const UserStream&) = delete;
  DeviceStream get() const { return stream_; }
  operator tuttiStream_t() const { return reinterpret_cast<tuttiStream_t>(stream_); }
  void wait() { must(device_.wait_stream(stream_)); }

 private:
  Device& device_;
  DeviceStream stream_ = nullptr;
};

enum class On : uint8_t { device_stream, no_stream, host_stream };

// A rank's buffers on a device, put there and taken back in the order of the stream that its calls are on.
class OnDevice final : public Elsewhere {
 public:
  // room: bytes of all buffers of one call. It is had once: giving memory back waits for all that the device does.
  OnDevice(int device, On on, size_t room = size_t{64} << 20) : device_(any_device(device)), on_(on), room_(room) {
    void* memory = nullptr;
    must(device_.allocate(room, &memory));
    memory_ = static_cast<std::byte*>(memory);
    if (on == On::device_stream) must(device_.create_stream(&stream_));
    if (on == On::host_stream) must(tuttiStreamCreate(&host_stream_));
  }
  ~OnDevice() override {
    if (stream_ != nullptr) must(device_.destroy_stream(stream_));
    must(device_.free(memory_));
    must(tuttiStreamDestroy(host_stream_));
  }

  std::byte* bring(std::span<const std::byte> bytes) override {
    std::byte* const data = memory_ + used_ + reinterpret_cast<uintptr_t>(bytes.data()) % 64;
    used_ += (bytes.size() + 127) / 64 * 64;
    EXPECT_LE(used_, room_);
    must(device_.copy(stream_, data, bytes.data(), bytes.size()));
    if (on_ == On::host_stream) must(device_.wait_stream(nullptr));
    return data;
  }
  void fetch(std::byte* there, std::span<std::byte> bytes) override {
    if (on_ == On::host_stream) must(tuttiStreamSynchronize(host_stream_));
    must(device_.copy(stream_, bytes.data(), there, bytes.size()));
    must(device_.wait_stream(stream_));
    used_ = 0;
  }
  tuttiStream_t stream() const override {
    return on_ == On::host_stream ? host_stream_ : reinterpret_cast<tuttiStream_t>(stream_);
  }

 private:
  Device& device_;
  On on_;
  size_t room_, used_ = 0;
  std::byte* memory_ = nullptr;
  DeviceStream stream_ = nullptr;
  tuttiStream_t host_stream_ = nullptr;
};

}  // namespace tutti::test
