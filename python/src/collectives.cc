// Collectives and point to point as methods of Communicator.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "objects.h"

namespace {

using MaybeType = std::optional<int>;
using MaybeIn = std::optional<Array>;
using MaybeOut = std::optional<WritableArray>;
using Sizes = std::vector<size_t>;

// Where and how a call runs. Its objects outlive the call.
class Terms {
 public:
  Terms(PyStream* stream, const Options* options)
      : stream_(stream == nullptr ? nullptr : stream->get()),
        kept_(stream == nullptr ? nullptr : &stream->kept),
        has_options_(options != nullptr) {
    if (options != nullptr) options_ = options->get();
  }
  tuttiStream_t stream() const { return stream_; }
  const tuttiOptions_t* options() const { return has_options_ ? &options_ : nullptr; }
  size_t inputs() const { return options_.inputs; }
  // The arrays that a call goes on using after it has returned.
  void keep_arrays(std::initializer_list<nb::handle> arrays) const {
    for (const nb::handle array : arrays)
      if (array.is_valid()) keep(kept_, array);
  }

 private:
  tuttiStream_t stream_;
  Kept* kept_;
  bool has_options_;
  tuttiOptions_t options_ = TUTTI_OPTIONS_INITIALIZER;
};

template <class A>
Elements given(const char* name, const std::optional<A>& array, MaybeType as) {
  return array ? elements_of(name, *array, as) : Elements{};
}
template <class A>
nb::object object_of(const A& array) {
  return nb::cast(array);
}
template <class A>
nb::object object_of(const std::optional<A>& array) {
  return array ? nb::cast(*array) : nb::object();
}

void check_count(const char* name, size_t count, size_t wanted, const char* why) {
  if (count != wanted)
    raise(tuttiInvalidArgument, std::string(name) + " has " + std::to_string(count) + " elements in place of " +
                                    std::to_string(wanted) + ": " + why);
}

size_t size_of(tuttiComm_t comm) {
  int size = 0;
  check(tuttiCommCount(comm, &size));
  return size_t(size);
}
int rank_of(tuttiComm_t comm) {
  int rank = 0;
  check(tuttiCommUserRank(comm, &rank));
  return rank;
}

// Blocks of sizes of their own must end within their array.
void check_blocks(const char* name, size_t count, const Sizes& counts, const std::optional<Sizes>& displs,
                  size_t ranks) {
  if (counts.size() != ranks || (displs && displs->size() != ranks))
    raise(tuttiInvalidArgument, std::string(name) + " has " + std::to_string(counts.size()) + " counts and " +
                                    std::to_string(displs ? displs->size() : ranks) + " displacements for " +
                                    std::to_string(ranks) + " ranks");
  size_t next = 0;
  for (size_t r = 0; r < ranks; ++r) {
    if (counts[r] == 0) continue;
    const size_t first = displs ? (*displs)[r] : next;
    if (first > count || counts[r] > count - first)
      raise(tuttiInvalidArgument, std::string(name) + " has " + std::to_string(count) + " elements, but block " +
                                      std::to_string(r) + " has " + std::to_string(counts[r]) + " from element " +
                                      std::to_string(first));
    next = first + counts[r];
  }
}
const size_t* pointer(const std::optional<Sizes>& sizes) { return sizes ? sizes->data() : nullptr; }

// The type of whichever there is.
tuttiDataType_t type_of_either(bool first_given, const Elements& first, const Elements& second) {
  return first_given ? first.type : second.type;
}

using Reducing = tuttiResult_t (*)(const void*, void*, size_t, tuttiDataType_t, tuttiRedOp_t, tuttiComm_t,
                                   tuttiStream_t, const tuttiOptions_t*);
// all_reduce, scan and exscan: buffers of one size.
template <Reducing call>
void reduce_alike(PyCommunicator& self, const Array& send, const MaybeOut& recv, int op, PyStream* stream,
                  const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype);
  if (!recv && terms.inputs() == 1) {  // in place
    const Elements out = elements_of("send", nb::cast<WritableArray>(nb::cast(send)), datatype);
    terms.keep_arrays({object_of(send)});
    return run_unlocked([&] {
      return call(out.data, out.data, out.count, out.type, tuttiRedOp_t(op), comm, terms.stream(), terms.options());
    });
  }
  const Elements out = given("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count * terms.inputs(), "as many as recv for each input");
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return call(in.data, out.data, out.count, out.type, tuttiRedOp_t(op), comm, terms.stream(), terms.options());
  });
}

void broadcast(PyCommunicator& self, const WritableArray& data, int root, PyStream* stream, const Options* options,
               MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements all = elements_of("data", data, datatype);
  terms.keep_arrays({object_of(data)});
  run_unlocked([&] {
    return tuttiBroadcastWith(all.data, all.data, all.count, all.type, root, comm, terms.stream(), terms.options());
  });
}

void reduce(PyCommunicator& self, const Array& send, const MaybeOut& recv, int op, int root, PyStream* stream,
            const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = given("recv", recv, datatype);
  if (rank_of(comm) == root) {
    check_same_type("send", in, "recv", out);
    check_count("send", in.count, out.count * terms.inputs(), "as many as recv for each input");
  }
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiReduceWith(in.data, out.data, in.count / terms.inputs(), in.type, tuttiRedOp_t(op), root, comm,
                           terms.stream(), terms.options());
  });
}

void all_gather(PyCommunicator& self, const Array& send, const WritableArray& recv, PyStream* stream,
                const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("recv", out.count, in.count * size_of(comm), "a block like send for each rank");
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked(
      [&] { return tuttiAllGatherWith(in.data, out.data, in.count, in.type, comm, terms.stream(), terms.options()); });
}

void reduce_scatter(PyCommunicator& self, const Array& send, const WritableArray& recv, int op, PyStream* stream,
                    const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count * size_of(comm) * terms.inputs(),
              "a block like recv for each rank and input");
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiReduceScatterWith(in.data, out.data, out.count, in.type, tuttiRedOp_t(op), comm, terms.stream(),
                                  terms.options());
  });
}

void gather(PyCommunicator& self, const Array& send, const MaybeOut& recv, int root, PyStream* stream,
            const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = given("recv", recv, datatype);
  if (rank_of(comm) == root) {
    check_same_type("send", in, "recv", out);
    check_count("recv", out.count, in.count * size_of(comm), "a block like send for each rank");
  }
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiGatherWith(in.data, out.data, in.count, in.type, root, comm, terms.stream(), terms.options());
  });
}

void scatter(PyCommunicator& self, const MaybeIn& send, const WritableArray& recv, int root, PyStream* stream,
             const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = given("send", send, datatype), out = elements_of("recv", recv, datatype);
  if (rank_of(comm) == root) {
    check_same_type("send", in, "recv", out);
    check_count("send", in.count, out.count * size_of(comm), "a block like recv for each rank");
  }
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiScatterWith(in.data, out.data, out.count, out.type, root, comm, terms.stream(), terms.options());
  });
}

void all_to_all(PyCommunicator& self, const Array& send, const WritableArray& recv, PyStream* stream,
                const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count, "as many as recv");
  const size_t ranks = size_of(comm);
  if (in.count % ranks != 0)
    raise(tuttiInvalidArgument, "send has " + std::to_string(in.count) + " elements, which are no whole blocks for " +
                                    std::to_string(ranks) + " ranks");
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiAlltoAllWith(in.data, out.data, in.count / ranks, in.type, comm, terms.stream(), terms.options());
  });
}

void all_gather_v(PyCommunicator& self, const Array& send, const WritableArray& recv, const Sizes& counts,
                  const std::optional<Sizes>& displs, PyStream* stream, const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_blocks("recv", out.count, counts, displs, size_of(comm));
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiAllGatherVWith(in.data, in.count, out.data, counts.data(), pointer(displs), in.type, comm,
                               terms.stream(), terms.options());
  });
}

void reduce_scatter_v(PyCommunicator& self, const Array& send, const Sizes& counts, const WritableArray& recv, int op,
                      const std::optional<Sizes>& displs, PyStream* stream, const Options* options,
                      MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_blocks("send", in.count / terms.inputs(), counts, displs, size_of(comm));
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiReduceScatterVWith(in.data, counts.data(), pointer(displs), out.data, out.count, in.type,
                                   tuttiRedOp_t(op), comm, terms.stream(), terms.options());
  });
}

void gather_v(PyCommunicator& self, const Array& send, const MaybeOut& recv, const std::optional<Sizes>& counts,
              int root, const std::optional<Sizes>& displs, PyStream* stream, const Options* options,
              MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = given("recv", recv, datatype);
  if (rank_of(comm) == root) {
    check_same_type("send", in, "recv", out);
    check_blocks("recv", out.count, counts.value_or(Sizes()), displs, size_of(comm));
  }
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiGatherVWith(in.data, in.count, out.data, pointer(counts), pointer(displs), in.type, root, comm,
                            terms.stream(), terms.options());
  });
}

void scatter_v(PyCommunicator& self, const MaybeIn& send, const std::optional<Sizes>& counts, const WritableArray& recv,
               int root, const std::optional<Sizes>& displs, PyStream* stream, const Options* options,
               MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = given("send", send, datatype), out = elements_of("recv", recv, datatype);
  if (rank_of(comm) == root) {
    check_same_type("send", in, "recv", out);
    check_blocks("send", in.count, counts.value_or(Sizes()), displs, size_of(comm));
  }
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiScatterVWith(in.data, pointer(counts), pointer(displs), out.data, out.count, out.type, root, comm,
                             terms.stream(), terms.options());
  });
}

void all_to_all_v(PyCommunicator& self, const Array& send, const Sizes& send_counts, const WritableArray& recv,
                  const Sizes& recv_counts, const std::optional<Sizes>& send_displs,
                  const std::optional<Sizes>& recv_displs, PyStream* stream, const Options* options,
                  MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("send", send, datatype), out = elements_of("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  const size_t ranks = size_of(comm);
  check_blocks("send", in.count, send_counts, send_displs, ranks);
  check_blocks("recv", out.count, recv_counts, recv_displs, ranks);
  terms.keep_arrays({object_of(send), object_of(recv)});
  run_unlocked([&] {
    return tuttiAlltoAllVWith(in.data, send_counts.data(), pointer(send_displs), out.data, recv_counts.data(),
                              pointer(recv_displs), in.type, comm, terms.stream(), terms.options());
  });
}

void barrier(PyCommunicator& self, PyStream* stream, const Options* options) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  run_unlocked([&] { return tuttiBarrierWith(comm, terms.stream(), terms.options()); });
}

void send(PyCommunicator& self, const Array& data, int peer, PyStream* stream, const Options* options,
          MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements out = elements_of("data", data, datatype);
  terms.keep_arrays({object_of(data)});
  run_unlocked(
      [&] { return tuttiSendWith(out.data, out.count, out.type, peer, comm, terms.stream(), terms.options()); });
}

void recv(PyCommunicator& self, const WritableArray& data, int peer, PyStream* stream, const Options* options,
          MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements in = elements_of("data", data, datatype);
  terms.keep_arrays({object_of(data)});
  run_unlocked([&] { return tuttiRecvWith(in.data, in.count, in.type, peer, comm, terms.stream(), terms.options()); });
}

void send_recv(PyCommunicator& self, const Array& output, int to, const WritableArray& input, int from,
               PyStream* stream, const Options* options, MaybeType datatype) {
  const Terms terms(stream, options);
  const tuttiComm_t comm = self.get();
  const Elements out = elements_of("send", output, datatype), in = elements_of("recv", input, datatype);
  check_same_type("send", out, "recv", in);
  terms.keep_arrays({object_of(output), object_of(input)});
  run_unlocked([&] {
    return tuttiSendRecvWith(out.data, out.count, to, in.data, in.count, from, type_of_either(true, out, in), comm,
                             terms.stream(), terms.options());
  });
}

}  // namespace

void bind_collectives(nb::class_<PyCommunicator>& type) {
  using namespace nb::literals;
  const auto stream = nb::arg("stream").none() = nb::none();
  const auto options = nb::arg("options").none() = nb::none();
  const auto datatype = nb::arg("datatype").none() = nb::none();
  const auto op = nb::arg("op") = int(tuttiSum);
  const auto displs = nb::arg("displs").none() = nb::none();
  const auto send_arg = nb::arg("send").noconvert(), recv_arg = nb::arg("recv").noconvert();
  const auto data = nb::arg("data").noconvert();
  type.def("all_reduce", reduce_alike<tuttiAllReduceWith>, send_arg, nb::arg("recv").noconvert().none() = nb::none(),
           op, stream, options, datatype, "recv[i] = op over all ranks of send[i]; recv None: in place.")
      .def("scan", reduce_alike<tuttiScanWith>, send_arg, nb::arg("recv").noconvert().none() = nb::none(), op, stream,
           options, datatype, "recv[i] on rank r = op over the ranks 0 to r of send[i]; recv None: in place.")
      .def("exscan", reduce_alike<tuttiExScanWith>, send_arg, nb::arg("recv").noconvert().none() = nb::none(), op,
           stream, options, datatype,
           "recv[i] on rank r = op over the ranks 0 to r - 1 of send[i]; untouched on rank 0.")
      .def("broadcast", broadcast, data, nb::arg("root") = 0, stream, options, datatype, "data of root to all.")
      .def("reduce", reduce, send_arg, nb::arg("recv").noconvert().none() = nb::none(), op, nb::arg("root") = 0, stream,
           options, datatype, "recv[i] on root = op over all ranks of send[i].")
      .def("all_gather", all_gather, send_arg, recv_arg, stream, options, datatype, "recv's block r = send of rank r.")
      .def("reduce_scatter", reduce_scatter, send_arg, recv_arg, op, stream, options, datatype,
           "recv on rank r = op over all ranks of block r of send.")
      .def("gather", gather, send_arg, nb::arg("recv").noconvert().none() = nb::none(), nb::arg("root") = 0, stream,
           options, datatype, "recv's block r on root = send of rank r.")
      .def("scatter", scatter, nb::arg("send").noconvert().none(), recv_arg, nb::arg("root") = 0, stream, options,
           datatype, "recv on rank r = block r of root's send.")
      .def("all_to_all", all_to_all, send_arg, recv_arg, stream, options, datatype,
           "recv's block r on rank s = block s of send of rank r.")
      .def("all_gather_v", all_gather_v, send_arg, recv_arg, "counts"_a, displs, stream, options, datatype,
           "all_gather of blocks of counts[r] elements, from element displs[r] on.")
      .def("reduce_scatter_v", reduce_scatter_v, send_arg, "counts"_a, recv_arg, op, displs, stream, options, datatype,
           "reduce_scatter of blocks of counts[r] elements, from element displs[r] on.")
      .def("gather_v", gather_v, send_arg, nb::arg("recv").noconvert().none() = nb::none(),
           nb::arg("counts").none() = nb::none(), nb::arg("root") = 0, displs, stream, options, datatype,
           "gather of blocks of counts[r] elements, from element displs[r] on.")
      .def("scatter_v", scatter_v, nb::arg("send").noconvert().none(), nb::arg("counts").none(), recv_arg,
           nb::arg("root") = 0, displs, stream, options, datatype,
           "scatter of blocks of counts[r] elements, from element displs[r] on.")
      .def("all_to_all_v", all_to_all_v, send_arg, "send_counts"_a, recv_arg, "recv_counts"_a,
           nb::arg("send_displs").none() = nb::none(), nb::arg("recv_displs").none() = nb::none(), stream, options,
           datatype, "all_to_all of blocks of sizes of their own.")
      .def("barrier", barrier, stream, options, "Returns once every rank has called it.")
      .def("send", send, data, "peer"_a, stream, options, datatype)
      .def("recv", recv, data, "peer"_a, stream, options, datatype)
      .def("send_recv", send_recv, send_arg, "to"_a, recv_arg, "from_"_a, stream, options, datatype,
           "Sends to one rank while it receives from one.");
}
