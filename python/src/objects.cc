// Streams, settings and communicators as Python objects.
#include "objects.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

PyStream::PyStream() { check(tuttiStreamCreate(&handle_)); }

PyStream::~PyStream() {
  const nb::gil_scoped_release unlocked;
  tuttiStreamDestroy(handle_);
}

tuttiStream_t PyStream::get() const {
  if (handle_ == nullptr) raise(tuttiInvalidUsage, "the stream is closed");
  return handle_;
}

void PyStream::synchronize() {
  const tuttiStream_t stream = get();
  Kept done = std::move(kept);
  kept.clear();
  run_unlocked([=] { return tuttiStreamSynchronize(stream); });
}

bool PyStream::idle() {
  const tuttiResult_t result = tuttiStreamQuery(get());
  if (result == tuttiInProgress) return false;
  kept.clear();
  check(result);
  return true;
}

void PyStream::close() {
  const tuttiStream_t stream = std::exchange(handle_, nullptr);
  run_unlocked([=] { return tuttiStreamDestroy(stream); });
  kept.clear();
}

bool stream_of(nb::handle object, OnStream& stream) {
  if (object.is_none()) return true;
  if (nb::try_cast(object, stream.host)) return true;
  try {
    nb::object number = nb::borrow(object);
    if (nb::hasattr(object, "__cuda_stream__")) number = object.attr("__cuda_stream__")()[1];
    else if (nb::hasattr(object, "cuda_stream")) number = object.attr("cuda_stream");
    else if (nb::hasattr(object, "ptr")) number = object.attr("ptr");
    stream.of_device = reinterpret_cast<tuttiStream_t>(nb::cast<uintptr_t>(number, false));
    return true;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

tuttiConfig_t Config::get() const {
  tuttiConfig_t made = TUTTI_CONFIG_INITIALIZER;
  made.timeout_ms = timeout_ms.value_or(-1);
  made.algorithm = algorithm ? algorithm->c_str() : nullptr;
  made.transport = transport ? transport->c_str() : nullptr;
  made.interface_name = interface_name ? interface_name->c_str() : nullptr;
  made.channels = channels.value_or(-1);
  made.determinism = determinism.value_or(-1);
  made.device = device.value_or(-1);
  return made;
}

tuttiOptions_t Options::get() const {
  tuttiOptions_t made = TUTTI_OPTIONS_INITIALIZER;
  if (deadline_ms) made.deadline_ms = *deadline_ms;
  made.algorithm = algorithm ? algorithm->c_str() : nullptr;
  made.determinism = determinism.value_or(-1);
  made.inputs = inputs;
  return made;
}

PyCommunicator::~PyCommunicator() {
  const nb::gil_scoped_release unlocked;
  tuttiCommDestroy(handle_);
}

tuttiComm_t PyCommunicator::get() const {
  if (handle_ == nullptr) raise(tuttiInvalidUsage, "the communicator is closed");
  return handle_;
}

void PyCommunicator::close() {
  const tuttiComm_t comm = std::exchange(handle_, nullptr);
  run_unlocked([=] { return tuttiCommDestroy(comm); });
}

namespace {

using Owned = std::unique_ptr<PyCommunicator>;

tuttiUniqueId id_of(const nb::bytes& bytes) {
  tuttiUniqueId id;
  if (bytes.size() != sizeof id.internal)
    raise(tuttiInvalidArgument,
          "id has " + std::to_string(bytes.size()) + " bytes in place of " + std::to_string(sizeof id.internal));
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

// Makes one by `call`(&handle, &config); null where it gave none.
template <class Call>
Owned make(const Config* config, Call call) {
  tuttiConfig_t settings = TUTTI_CONFIG_INITIALIZER;
  if (config != nullptr) settings = config->get();
  tuttiComm_t comm = nullptr;
  run_unlocked([&] { return call(&comm, config == nullptr ? nullptr : &settings); });
  return comm == nullptr ? nullptr : std::make_unique<PyCommunicator>(comm);
}

template <class Value, class Get>
Value read(const PyCommunicator& self, Get get) {
  Value value{};
  check(get(self.get(), &value));
  return value;
}

using Text = std::optional<std::string>;
using Int = std::optional<int>;

void bind_makers(nb::class_<PyCommunicator>& type) {
  type.def_static(
      "join",
      [](int nranks, const nb::bytes& id, int rank, const Config* config) {
        const tuttiUniqueId c_id = id_of(id);
        return make(config, [&](auto* comm, auto* settings) {
          return tuttiCommInitRankConfig(comm, nranks, c_id, rank, settings);
        });
      },
      nb::arg("nranks"), nb::arg("id"), nb::arg("rank"), nb::arg("config").none() = nb::none(),
      "Joins the communicator of `id` (unique_id() of one rank) and blocks until all ranks have.");
  type.def_static(
      "from_environment",
      [](const Config* config) {
        return make(config, [](auto* comm, auto* settings) { return tuttiCommInitEnv(comm, settings); });
      },
      nb::arg("config").none() = nb::none(),
      "Joins as torchrun, tutti-run, Open MPI, MPICH or Slurm have set the environment.");
  type.def_static(
      "all",
      [](int nranks, const std::vector<int>& devices) {
        if (nranks < 1) raise(tuttiInvalidArgument, "nranks is " + std::to_string(nranks));
        if (!devices.empty() && int(devices.size()) != nranks)
          raise(tuttiInvalidArgument, "devices has " + std::to_string(devices.size()) + " numbers for " +
                                          std::to_string(nranks) + " ranks");
        std::vector<tuttiComm_t> comms(static_cast<size_t>(nranks));
        run_unlocked([&] { return tuttiCommInitAll(comms.data(), nranks, devices.empty() ? nullptr : devices.data()); });
        std::vector<Owned> made;
        for (const tuttiComm_t comm : comms) made.push_back(std::make_unique<PyCommunicator>(comm));
        return made;
      },
      nb::arg("nranks"), nb::arg("devices") = std::vector<int>(),
      "One communicator for each rank, all in this process; each is then used by its own thread. devices: the GPU of "
      "each rank, or -1; none: all on the host.");
  type.def(
      "split",
      [](PyCommunicator& self, Int color, int key, const Config* config) {
        const tuttiComm_t comm = self.get();
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommSplit(comm, color.value_or(TUTTI_SPLIT_NOCOLOR), key, made, settings);
        });
      },
      nb::arg("color").none(), nb::arg("key") = 0, nb::arg("config").none() = nb::none(),
      nb::sig("def split(self, color: int | None, key: int = 0, config: Config | None = None) -> Communicator | None"),
      "One new communicator for each color, ranks ordered by key. color None: takes part and gets None.");
  type.def(
      "duplicate",
      [](PyCommunicator& self, const Config* config) {
        const tuttiComm_t comm = self.get();
        return make(config, [&](auto* made, auto* settings) { return tuttiCommDup(comm, made, settings); });
      },
      nb::arg("config").none() = nb::none(),
      "The same ranks once more; its operations are in no order with those of this one.");
  type.def(
      "shrink",
      [](PyCommunicator& self, const std::vector<int>& exclude, bool abort, const Config* config) {
        const tuttiComm_t comm = self.get();
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommShrink(comm, exclude.data(), int(exclude.size()), made, settings,
                                 abort ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT);
        });
      },
      nb::arg("exclude"), nb::arg("abort") = false, nb::arg("config").none() = nb::none(),
      "All ranks but those excluded, also where this communicator has failed. Only those that stay call it.");
  type.def(
      "shrink_to_living",
      [](PyCommunicator& self, const Config* config) {
        const tuttiComm_t comm = self.get();
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommShrink(comm, nullptr, 0, made, settings, TUTTI_SHRINK_AGREE);
        });
      },
      nb::arg("config").none() = nb::none(),
      "All ranks that have neither died nor left; they all call it, and agree on who that is.");
  type.def(
      "replace",
      [](PyCommunicator& self, const std::optional<nb::bytes>& id, const Config* config) {
        const tuttiComm_t comm = self.get();
        tuttiUniqueId c_id{};
        if (id) c_id = id_of(*id);
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommReplace(comm, id ? &c_id : nullptr, made, settings);
        });
      },
      nb::arg("id").none() = nb::none(), nb::arg("config").none() = nb::none(),
      "The ranks that live, with their numbers, and newcomers who join by the id under those of who died or left. Exactly "
      "one of those that live gives the id.");
  type.def(
      "grow",
      [](PyCommunicator& self, int nranks, const std::optional<nb::bytes>& id, const Config* config) {
        const tuttiComm_t comm = self.get();
        tuttiUniqueId c_id{};
        if (id) c_id = id_of(*id);
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommGrow(comm, nranks, id ? &c_id : nullptr, -1, made, settings);
        });
      },
      nb::arg("nranks"), nb::arg("id").none() = nb::none(), nb::arg("config").none() = nb::none(),
      "These ranks and newcomers (join_grown) up to nranks. Exactly one old rank gives the id.");
  type.def_static(
      "join_grown",
      [](int nranks, const nb::bytes& id, int rank, const Config* config) {
        const tuttiUniqueId c_id = id_of(id);
        return make(config, [&](auto* made, auto* settings) {
          return tuttiCommGrow(nullptr, nranks, &c_id, rank, made, settings);
        });
      },
      nb::arg("nranks"), nb::arg("id"), nb::arg("rank"), nb::arg("config").none() = nb::none(),
      "Joins, as a newcomer, those who grow().");
}

void bind_questions(nb::class_<PyCommunicator>& type) {
  type.def_prop_ro("rank", [](PyCommunicator& self) { return read<int>(self, tuttiCommUserRank); })
      .def_prop_ro("size", [](PyCommunicator& self) { return read<int>(self, tuttiCommCount); })
      .def_prop_ro(
          "device", [](PyCommunicator& self) { return read<int>(self, tuttiCommDevice); },
          "Number of this rank's GPU; -1 where it has none yet.")
      .def_prop_ro("closed", &PyCommunicator::closed)
      .def(
          "transport",
          [](PyCommunicator& self, int peer) {
            const char* name = nullptr;
            check(tuttiCommTransport(self.get(), peer, &name));
            return std::string(name);
          },
          nb::arg("peer"), "Which transport reaches `peer`: \"self\", \"shm\" or \"tcp\".")
      .def(
          "algorithm",
          [](PyCommunicator& self, const std::string& collective, size_t bytes) {
            const char* name = nullptr;
            check(tuttiCommAlgorithm(self.get(), collective.c_str(), bytes, &name));
            return std::string(name);
          },
          nb::arg("collective"), nb::arg("bytes"), "What would run for a collective of so many bytes.")
      .def(
          "state",
          [](PyCommunicator& self) {
            tuttiResult_t state = tuttiSuccess;
            check(tuttiCommGetAsyncError(self.get(), &state));
            return int(state);
          },
          "0 while healthy, else the result code that it failed with.")
      .def(
          "last_error", [](PyCommunicator& self) { return std::string(tuttiGetLastError(self.get())); },
          "The sentence of its failure, or \"\".")
      .def(
          "write_record",
          [](PyCommunicator& self, const std::string& file) { check(tuttiCommWriteRecord(self.get(), file.c_str())); },
          nb::arg("file"), "Writes the last runs of calls as JSON; also while a call hangs.")
      .def(
          "finalize",
          [](PyCommunicator& self) {
            const tuttiComm_t comm = self.get();
            run_unlocked([=] { return tuttiCommFinalize(comm); });
          },
          "Says that this rank will call no more.")
      .def(
          "abort", [](PyCommunicator& self) { check(tuttiCommAbort(self.get())); },
          "Ends every pending operation, on all ranks. From any thread.")
      .def("close", &PyCommunicator::close, "Finalizes where that was not done, and frees everything.")
      .def(
          "__exit__",
          [](PyCommunicator& self, nb::handle kind, nb::handle, nb::handle) {
            if (self.closed()) return;
            if (!kind.is_none()) check(tuttiCommAbort(self.get()));  // others need not wait for what will not come
            self.close();
          },
          nb::arg("kind").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace

void bind_communicator(nb::module_& module) {
  nb::class_<Config>(module, "Config", "Settings of a communicator; None: as the environment says, else the default.")
      .def(
          "__init__",
          [](Config* self, Int timeout_ms, Text algorithm, Text transport, Text interface_name, Int channels,
             Int determinism, Int device) {
            new (self) Config{timeout_ms, algorithm, transport, interface_name, channels, determinism, device};
          },
          nb::kw_only(), nb::arg("timeout_ms") = nb::none(), nb::arg("algorithm") = nb::none(),
          nb::arg("transport") = nb::none(), nb::arg("interface_name") = nb::none(), nb::arg("channels") = nb::none(),
          nb::arg("determinism") = nb::none(), nb::arg("device") = nb::none());
  nb::class_<Options>(module, "Options", "What one call asks for beside what it does; None: as the communicator.")
      .def(
          "__init__",
          [](Options* self, Int deadline_ms, Text algorithm, Int determinism, size_t inputs) {
            new (self) Options{deadline_ms, algorithm, determinism, inputs};
          },
          nb::kw_only(), nb::arg("deadline_ms") = nb::none(), nb::arg("algorithm") = nb::none(),
          nb::arg("determinism") = nb::none(), nb::arg("inputs") = 1);
  nb::class_<PyStream> stream(module, "Stream", "An ordered queue of calls with a thread of its own.");
  bind_enter(stream, "Stream");
  stream.def(nb::init<>())
      .def("synchronize", &PyStream::synchronize, "Blocks until everything enqueued is done; raises the first error.")
      .def("idle", &PyStream::idle, "Whether everything enqueued is done; raises the first error.")
      .def("close", &PyStream::close, "Waits for what is enqueued, then ends the stream's thread.")
      .def(
          "__exit__",
          [](PyStream& self, nb::handle kind, nb::handle, nb::handle) {
            if (kind.is_none()) self.synchronize();
            self.close();
          },
          nb::arg("kind").none(), nb::arg("value").none(), nb::arg("traceback").none());
  nb::class_<PyCommunicator> type(module, "Communicator", "A rank's membership in a communicator.");
  bind_enter(type, "Communicator");
  bind_makers(type);
  bind_questions(type);
  bind_collectives(type);
}
