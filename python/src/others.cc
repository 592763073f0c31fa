// Groups, prepared calls, windows, memory, types and operators for Python, and the module.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdlib>

#include <dlfcn.h>

#include "objects.h"

namespace {

// Calls between enter and exit run together.
class Group {
 public:
  void enter() {
    check(tuttiGroupStart());
    outer_ = std::exchange(open_collection(), open_collection() == nullptr ? &kept_ : open_collection());
  }
  // An exception inside: what was collected is dropped, since other ranks may wait for calls that never came.
  void exit(bool failed) {
    open_collection() = outer_;
    if (failed && outer_ == nullptr)
      tuttiSend(nullptr, 1, tuttiUint8, 0, nullptr, nullptr);  // refused: End runs nothing
    tuttiResult_t result;
    {
      const nb::gil_scoped_release unlocked;
      result = tuttiGroupEnd();
    }
    kept_.clear();
    if (!failed) check(result);
  }

 private:
  Kept* outer_ = nullptr;
  Kept kept_;
};

// Calls between enter and exit are kept, and run by each start.
class Prepared {
 public:
  ~Prepared() { tuttiPreparedDestroy(handle_); }
  void enter() {
    if (handle_ != nullptr) raise(tuttiInvalidUsage, "the calls are prepared already");
    check(tuttiPrepareStart());
    outer_ = std::exchange(open_collection(), &kept_);
  }
  void exit(bool failed) {
    open_collection() = outer_;
    const tuttiResult_t result = tuttiPrepareEnd(&handle_);
    if (!failed) return check(result);
    tuttiPreparedDestroy(std::exchange(handle_, nullptr));
  }
  void start(const OnStream& stream) {
    if (handle_ == nullptr)
      raise(tuttiInvalidUsage, "nothing is prepared: use `with prepared:` around the calls first");
    const tuttiStream_t queue = stream.get();
    run_unlocked([&] { return tuttiPreparedStart(handle_, queue); });
    if (stream.kept() != nullptr) stream.kept()->push_back(nb::find(this));
  }

 private:
  tuttiPrepared_t handle_ = nullptr;
  Kept* outer_ = nullptr;
  Kept kept_;
};

// Memory that a communicator knows as long as this is open, and that stays.
class Opened {
 public:
  Opened(nb::handle comm, nb::object memory) : comm_(nb::borrow(comm)), memory_(std::move(memory)) {}
  Opened(const Opened&) = delete;

 protected:
  // Null where the communicator has ended, and what it knew with it.
  tuttiComm_t live() const {
    const auto& comm = nb::cast<PyCommunicator&>(comm_);
    return comm.closed() ? nullptr : comm.get();
  }
  tuttiComm_t comm() const { return nb::cast<PyCommunicator&>(comm_).get(); }
  void let_go() { memory_.reset(); }

 private:
  nb::object comm_, memory_;
};

class Registration : public Opened {
 public:
  Registration(nb::handle_t<PyCommunicator> comm, const Array& memory) : Opened(comm, nb::cast(memory)) {
    const Elements bytes = elements_for("memory", memory, tuttiUint8, nullptr, false);
    check(tuttiCommRegister(this->comm(), bytes.data, bytes.count, &handle_));
  }
  ~Registration() {
    if (tuttiComm_t const comm = live()) tuttiCommDeregister(comm, handle_);
  }
  void close() {
    check(tuttiCommDeregister(comm(), std::exchange(handle_, nullptr)));
    let_go();
  }

 private:
  void* handle_ = nullptr;
};

// Memory of each rank that the others reach.
class Window : public Opened {
 public:
  Window(nb::handle_t<PyCommunicator> comm, const std::optional<WritableArray>& memory)
      : Opened(comm, memory ? nb::cast(*memory) : nb::object()) {
    const Elements bytes = memory ? elements_of("memory", *memory, tuttiUint8) : Elements{};
    run_unlocked([&, handle = this->comm()] {
      return tuttiCommWindowRegister(handle, bytes.data, bytes.count, &handle_);
    });
  }
  ~Window() {
    if (tuttiComm_t const comm = live()) {
      const nb::gil_scoped_release unlocked;
      tuttiCommWindowDeregister(comm, handle_);
    }
  }
  void close() {
    run_unlocked([comm = comm(), window = std::exchange(handle_, nullptr)] {
      return tuttiCommWindowDeregister(comm, window);
    });
    let_go();
  }
  tuttiWindow_t get() const {
    if (handle_ == nullptr) raise(tuttiInvalidUsage, "the window is closed");
    return handle_;
  }

 private:
  tuttiWindow_t handle_ = nullptr;
};

// An operator of the caller's own.
class Operator {
 public:
  Operator(nb::handle_t<PyCommunicator> comm, nb::callable function, int datatype, bool commutative)
      : comm_(nb::borrow(comm)), function_(std::move(function)), type_(tuttiDataType_t(datatype)) {
    check(tuttiRedOpCreate(&op_, &Operator::call, type_, commutative, this, communicator().get()));
  }
  Operator(nb::handle_t<PyCommunicator> comm, const Array& scalar, std::optional<int> datatype) : comm_(nb::borrow(comm)) {
    const Elements value = elements_of("scalar", scalar, datatype);
    if (value.count != 1) raise(tuttiInvalidArgument, "scalar has " + std::to_string(value.count) + " elements");
    type_ = value.type;
    check(tuttiRedOpCreatePreMulSum(&op_, value.data, type_, tuttiScalarHostImmediate, communicator().get()));
  }
  ~Operator() {
    if (!communicator().closed()) tuttiRedOpDestroy(op_, communicator().get());
  }
  Operator(const Operator&) = delete;
  int op() const { return int(op_); }

 private:
  // On whatever thread runs the operation. An exception cannot pass: it is printed, and the operand is left as it is.
  static void call(const void* in, void* inout, size_t count, void* context) {
    const auto& self = *static_cast<Operator*>(context);
    const nb::gil_scoped_acquire locked;
    try {
      const size_t bytes = count * tuttiTypeSize(self.type_);
      const nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> left(in, {bytes}, nb::none());
      const nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> right(inout, {bytes}, nb::none());
      self.function_(left, right);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("an operator of tutti.Operator");
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(self.function_.ptr());
    }
  }
  PyCommunicator& communicator() const { return nb::cast<PyCommunicator&>(comm_); }

  nb::object comm_;
  nb::callable function_;
  tuttiDataType_t type_ = tuttiUint8;
  tuttiRedOp_t op_ = tuttiNumOps;
};

nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> allocate(size_t bytes) {
  void* memory = nullptr;
  check(tuttiMemAlloc(&memory, bytes));
  if (memory == nullptr) return {memory, {0}, nb::none()};
  return {memory, {bytes}, nb::capsule(memory, [](void* p) noexcept { tuttiMemFree(p); })};
}

void bind_windows(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Window> window(module, "Window",
                            "Memory of each rank that the other ranks put into and get from. Collective.");
  bind_enter(window, "Window");
  window
      .def(nb::init<nb::handle_t<PyCommunicator>, const std::optional<WritableArray>&>(), "communicator"_a,
           nb::arg("memory").none() = nb::none())
      .def(
          "put",
          [](Window& self, const Array& source, int peer, size_t offset) {
            const Elements from = elements_of("source", source, tuttiUint8);
            run_unlocked([&, window = self.get()] { return tuttiPut(from.data, from.count, peer, offset, window); });
          },
          nb::arg("source").noconvert(), "peer"_a, "offset"_a = 0,
          "Copies source to byte `offset` of what peer opened.")
      .def(
          "get",
          [](Window& self, const WritableArray& target, int peer, size_t offset) {
            const Elements to = elements_of("target", target, tuttiUint8);
            run_unlocked([&, window = self.get()] { return tuttiGet(to.data, to.count, peer, offset, window); });
          },
          nb::arg("target").noconvert(), "peer"_a, "offset"_a = 0, "Copies from byte `offset` of what peer opened.")
      .def(
          "signal",
          [](Window& self, int peer) { run_unlocked([&, window = self.get()] { return tuttiSignal(peer, window); }); },
          "peer"_a)
      .def(
          "wait_signal",
          [](Window& self, int peer, int count) {
            run_unlocked([&, window = self.get()] { return tuttiWaitSignal(peer, count, window); });
          },
          "peer"_a, "count"_a = 1)
      .def(
          "flush",
          [](Window& self, int peer) {
            run_unlocked([&, window = self.get()] { return tuttiWindowFlush(peer, window); });
          },
          "peer"_a)
      .def("close", &Window::close, "Collective: blocks until all ranks have closed theirs.")
      .def(
          "__exit__",
          [](Window& self, nb::handle kind, nb::handle, nb::handle) {
            if (kind.is_none()) self.close();
          },
          nb::arg("kind").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

void bind_registration(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Registration> type(module, "Registration",
                                "Memory that is registered with a communicator, as NCCL's programs do, until close().");
  bind_enter(type, "Registration");
  type.def(nb::init<nb::handle_t<PyCommunicator>, const Array&>(), "communicator"_a, "memory"_a)
      .def("close", &Registration::close)
      .def(
          "__exit__", [](Registration& self, nb::handle, nb::handle, nb::handle) { self.close(); },
          nb::arg("kind").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

template <class Scope>
void bind_scope(nb::class_<Scope>& type, const char* enter) {
  type.def(
          "__enter__",
          [](nb::handle self) {
            nb::cast<Scope&>(self).enter();
            return nb::borrow(self);
          },
          nb::sig(enter))
      .def(
          "__exit__", [](Scope& self, nb::handle kind, nb::handle, nb::handle) { self.exit(!kind.is_none()); },
          nb::arg("kind").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

// The file of the libtutti that runs.
std::string library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&tuttiGetVersion), &info) == 0 || info.dli_fname == nullptr)
    raise(tuttiInternalError, "the loader does not say which file tuttiGetVersion is from");
  char* const real = ::realpath(info.dli_fname, nullptr);
  const std::string path = real == nullptr ? info.dli_fname : real;
  std::free(real);
  return path;
}

void bind_functions(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "version",
      [] {
        int version = 0;
        check(tuttiGetVersion(&version));
        return version;
      },
      "TUTTI_VERSION of the library that runs: 10000 * major + 100 * minor + patch.");
  module.attr("HEADER_VERSION") = int(TUTTI_VERSION);
  module.def("library", library, "The file of the libtutti that runs.");
  module.def(
      "unique_id",
      [] {
        tuttiUniqueId id;
        check(tuttiGetUniqueId(&id));
        return nb::bytes(id.internal, sizeof id.internal);
      },
      "Opens a meeting place in this process, and gives what the ranks need to join there: its address and the job's "
      "key.");
  module.def(
      "environment_rank",
      [] {
        int rank = 0, size = 0, local = 0;
        check(tuttiEnvRank(&rank, &size, &local));
        return std::make_tuple(rank, size, local);
      },
      "(rank, number of ranks, number on this host) that Communicator.from_environment() would have.");
  module.def(
      "type_size", [](int type) { return tuttiTypeSize(tuttiDataType_t(type)); }, "datatype"_a,
      "Bytes of one element; 0 for a value that is no type.");
  module.def(
      "opaque",
      [](size_t bytes) {
        tuttiDataType_t type = tuttiNumTypes;
        check(tuttiTypeCreate(&type, bytes));
        return int(type);
      },
      "element_bytes"_a, "A type for elements that are nothing but so many bytes.");
  module.def("allocate", allocate, "bytes"_a,
             "So many bytes, all 0, that the other ranks of this host reach directly, as a numpy array.");
  module.def(
      "error_string", [](int result) { return std::string(tuttiGetErrorString(tuttiResult_t(result))); }, "result"_a);
}

}  // namespace

void bind_others(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Group> group(module, "group", "with group(): calls inside are collected and run together at its end.");
  group.def(nb::init<>());
  bind_scope(group, "def __enter__(self) -> group");
  nb::class_<Prepared> prepared(
      module, "Prepared", "with Prepared() as p: calls inside are checked and kept; p.start() runs them each time.");
  prepared.def(nb::init<>()).def("start", &Prepared::start, nb::arg("stream").none() = nb::none());
  bind_scope(prepared, "def __enter__(self) -> Prepared");
  bind_windows(module);
  bind_registration(module);
  nb::class_<Operator>(module, "Operator", "A reduction of the caller's own; op is what calls take.")
      .def(nb::init<nb::handle_t<PyCommunicator>, nb::callable, int, bool>(), "communicator"_a, "function"_a,
           "datatype"_a, "commutative"_a = true,
           nb::sig("def __init__(self, communicator: Communicator, "
                   "function: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint8], "
                   "numpy.typing.NDArray[numpy.uint8]], object], datatype: int, commutative: bool = True) -> None"))
      .def_static(
          "premultiplied_sum",
          [](nb::handle_t<PyCommunicator> comm, const Array& scalar, std::optional<int> datatype) {
            return std::make_unique<Operator>(comm, scalar, datatype);
          },
          "communicator"_a, nb::arg("scalar").noconvert(), nb::arg("datatype").none() = nb::none(),
          "A sum of inputs that each rank multiplies by its own scalar first (an array of one element).")
      .def_prop_ro("op", &Operator::op);
  bind_functions(module);
}

NB_MODULE(_core, module) {
  module.doc() = "The C interface of libtutti.";
  nb::set_leak_warnings(false);  // a program that ends by an exception may hold a communicator to its end
  bind_communicator(module);
  bind_others(module);
}
