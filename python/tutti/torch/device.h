// Tensors of devices: where a call stands among the work of the caller's stream and of the group's own stream there.
// All through PyTorch's interface to any device, so that nothing of a device's own is needed to compile it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "calls.h"

namespace tutti_torch {

// Whether this PyTorch's streams tell their handles.
template <class Stream, class = void>
struct TellsHandle : std::false_type {};
template <class Stream>
struct TellsHandle<Stream, std::void_t<decltype(std::declval<const Stream&>().native_handle())>> : std::true_type {};

// The device's own handle of a stream, as far as PyTorch's C++ tells it; else `ask`(stream) does.
template <class Stream, class Ask>
tuttiStream_t handle_of(const Stream& stream, Ask ask) {
  if constexpr (TellsHandle<Stream>::value) return static_cast<tuttiStream_t>(stream.native_handle());
  else return ask(stream);
}

// The device of a call's tensors, those of the host aside; nothing where all are of the host.
inline std::optional<c10::Device> device_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && !tensor.device().is_cpu()) return tensor.device();
  return std::nullopt;
}

// All that is on a stream when it is made; of a device, on the calling thread's stream there.
class Reached {
 public:
  explicit Reached(c10::Device device) : Reached(c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {}
  explicit Reached(const c10::Stream& stream) : event_(stream.device_type()) { event_.record(stream); }
  // Whether the device is through with it. (Older versions of PyTorch can ask an event, not wait for it.)
  bool passed() const { return event_.query(); }
  void block(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

// How long something may take: as long as it likes, or until a call is due.
class Patience {
 public:
  Patience() { options_.deadline_ms = INT32_MAX; }
  explicit Patience(milliseconds longest) : Patience() {
    if (longest.count() > 0) due_ = std::chrono::steady_clock::now() + longest;
  }
  const tuttiOptions_t* left() {
    if (due_) {
      const auto rest = std::chrono::duration_cast<milliseconds>(*due_ - std::chrono::steady_clock::now()).count();
      options_.deadline_ms = int32_t(std::clamp<int64_t>(rest, 1, INT32_MAX));
    }
    return &options_;
  }

  void wait_for(const Reached& reached) const {
    constexpr std::chrono::microseconds pause{20};
    for (; !reached.passed(); std::this_thread::sleep_for(pause))
      if (due_ && std::chrono::steady_clock::now() > *due_) raise(tuttiTimeout, "a device is not through with a tensor");
  }

 private:
  tuttiOptions_t options_ = TUTTI_OPTIONS_INITIALIZER;
  std::optional<std::chrono::steady_clock::time_point> due_;
};

// One call on `own`, the group's stream of a device: it comes after what the caller's stream had when it was made.
class Turn {
 public:
  Turn(const c10::Stream& own, std::vector<at::Tensor> tensors)
      : own_(own), before_(own.device()), after_(own.device_type()), tensors_(std::move(tensors)) {}

  const c10::Stream& own() const { return own_; }
  // Once, on any thread: `body` puts its work on own(), which is the current stream meanwhile.
  template <class Body>
  void run(Body body) {
    const c10::StreamGuard current(own_);
    before_.block(own_);
    // Their memory is not given to others before own() has passed what it has now.
    const c10::impl::VirtualGuardImpl of_device(own_.device_type());
    for (const at::Tensor& tensor : tensors_)
      if (tensor.device() == own_.device()) of_device.recordDataPtrOnStream(tensor.storage().data_ptr(), own_);
    body();
    after_.record(own_);
    tensors_.clear();
  }
  // After run(): later work of the calling thread's stream comes after the call.
  void hold() const { after_.block(c10::impl::VirtualGuardImpl(own_.device_type()).getStream(own_.device())); }
  // After run(): the device is through with it.
  bool passed() const { return after_.query(); }

 private:
  c10::Stream own_;
  Reached before_;
  c10::Event after_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace tutti_torch
