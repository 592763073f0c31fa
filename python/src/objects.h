// The handles of the C interface as Python objects that free themselves.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "buffers.h"

// A host stream.
class PyStream {
 public:
  PyStream();
  ~PyStream();
  PyStream(const PyStream&) = delete;
  PyStream& operator=(const PyStream&) = delete;

  tuttiStream_t get() const;
  void synchronize();
  bool idle();
  void close();
  Kept kept;

 private:
  tuttiStream_t handle_ = nullptr;
};

// Where a call runs: on a stream of the host, on a stream of a CUDA device, or on neither (both null). Python gives a
// Stream, the number of a CUDA stream, or what has one: __cuda_stream__, or as torch.cuda.Stream and cupy.cuda.Stream do.
struct OnStream {
  PyStream* host = nullptr;
  tuttiStream_t of_device = nullptr;

  tuttiStream_t get() const { return host == nullptr ? of_device : host->get(); }
  Kept* kept() const { return host == nullptr ? nullptr : &host->kept; }
};
// False where `object` is no stream. Of None, neither.
bool stream_of(nb::handle object, OnStream& stream);

// Settings of a communicator, as tuttiConfig_t has them.
struct Config {
  std::optional<int> timeout_ms;
  std::optional<std::string> algorithm, transport, interface_name;
  std::optional<int> channels, determinism, device;

  // Lives as long as this.
  tuttiConfig_t get() const;
};

// What one call asks for beside what it does, as tuttiOptions_t has it.
struct Options {
  std::optional<int> deadline_ms;
  std::optional<std::string> algorithm;
  std::optional<int> determinism;
  size_t inputs = 1;

  // Lives as long as this.
  tuttiOptions_t get() const;
};

// A rank's membership in a communicator; null once closed.
class PyCommunicator {
 public:
  explicit PyCommunicator(tuttiComm_t handle) : handle_(handle) {}
  ~PyCommunicator();
  PyCommunicator(const PyCommunicator&) = delete;
  PyCommunicator& operator=(const PyCommunicator&) = delete;

  // Raises InvalidUsage where it was closed.
  tuttiComm_t get() const;
  bool closed() const { return handle_ == nullptr; }
  void close();

 private:
  tuttiComm_t handle_;
};

// Runs a call of the C interface without Python's lock.
template <class Call>
void run_unlocked(Call call) {
  tuttiResult_t result;
  {
    const nb::gil_scoped_release unlocked;
    result = call();
  }
  check(result);
}

// `with`: gives the object itself, a `name`.
template <class Type>
void bind_enter(nb::class_<Type>& type, const std::string& name) {
  type.def("__enter__", [](nb::handle self) { return nb::borrow(self); },
           nb::sig(("def __enter__(self) -> " + name).c_str()));
}

void bind_communicator(nb::module_& module);
void bind_collectives(nb::class_<PyCommunicator>& communicator);
void bind_others(nb::module_& module);

namespace nanobind::detail {

template <>
struct type_caster<OnStream> {
  NB_TYPE_CASTER(OnStream, const_name("_Stream"))  // which the stub defines

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept { return stream_of(source, value); }
};

}  // namespace nanobind::detail
