// The module that Python loads: the backend and the allocator. Compiled on the user's machine, for one PyTorch alone.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <torch/version.h>

#include "allocator.h"
#include "backend.h"

namespace py = pybind11;
using tutti_torch::Backend;
using tutti_torch::SharedAllocator;

namespace {

// The last reference may be dropped by Python, who then holds its lock, which threads of the backend may need to end.
class WithoutLock {
 public:
  WithoutLock() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutLock() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

class PythonBackend final : public Backend {
 public:
  using Backend::Backend;
  ~PythonBackend() override {
    const WithoutLock unlocked;
    shutdown();
  }

 protected:
  tuttiStream_t ask_for_handle(const c10::Stream& stream) override {
    const py::gil_scoped_acquire locked;
    const py::object same = py::module_::import("torch").attr("cuda").attr("Stream")(
        py::arg("stream_id") = int64_t(stream.id()), py::arg("device_index") = int(stream.device_index()),
        py::arg("device_type") = int(stream.device_type()));
    return reinterpret_cast<tuttiStream_t>(same.attr("cuda_stream").cast<uintptr_t>());
  }
};

c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       double seconds, bool always_work) {
  const std::chrono::milliseconds timeout(int64_t(seconds * 1000));
  return c10::make_intrusive<PythonBackend>(store, rank, size, timeout, always_work);
}

Backend& of_tutti(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* const ours = dynamic_cast<Backend*>(backend.get());
  if (ours == nullptr) tutti_torch::refuse("the group's backend is " + backend->getBackendName() + ", not tutti");
  return *ours;
}

}  // namespace

PYBIND11_MODULE(TUTTI_MODULE_NAME, module) {
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.def("make", &make, py::call_guard<py::gil_scoped_release>());
  module.def(
      "shutdown", [](const c10::intrusive_ptr<c10d::Backend>& backend) { of_tutti(backend).shutdown(); },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "abort", [](const c10::intrusive_ptr<c10d::Backend>& backend) { of_tutti(backend).abort(); },
      py::call_guard<py::gil_scoped_release>());
  module.def("transport", [](const c10::intrusive_ptr<c10d::Backend>& backend, int peer) {
    return of_tutti(backend).transport_to(peer);
  });
  module.def("algorithm", [](const c10::intrusive_ptr<c10d::Backend>& backend, const std::string& collective,
                             size_t bytes) { return of_tutti(backend).algorithm_for(collective, bytes); });
  const py::cpp_function forks_begin([] { tutti_torch::forks().lock(); }, py::call_guard<py::gil_scoped_release>());
  const py::cpp_function forks_end([] { tutti_torch::forks().unlock(); });
  py::module_::import("os").attr("register_at_fork")(py::arg("before") = forks_begin,
                                                     py::arg("after_in_parent") = forks_end,
                                                     py::arg("after_in_child") = forks_end);
  module.def("use_shared_memory", [](bool on) { SharedAllocator::instance().use(on); });
  module.def("uses_shared_memory", [] { return SharedAllocator::instance().is_on(); });
  module.def("trim_shared_memory", [] { SharedAllocator::instance().trim(); });
}
