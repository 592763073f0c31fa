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

// A call of the C interface: on what, where and how it runs. Its objects outlive it.
class Call {
 public:
  Call(const PyCommunicator& self, const OnStream& stream, const Options* options)
      : comm_(self.get()),
        stream_(stream.get()),
        kept_(stream.kept()),
        has_options_(options != nullptr) {
    if (options != nullptr) options_ = options->get();
  }
  size_t inputs() const { return options_.inputs; }
  size_t size() const {
    int size = 0;
    check(tuttiCommCount(comm_, &size));
    return size_t(size);
  }
  int rank() const {
    int rank = 0;
    check(tuttiCommUserRank(comm_, &rank));
    return rank;
  }
  template <class A>
  Elements elements(const char* name, const A& array, MaybeType as) const {
    return elements_for(name, array, as, stream_, kept_ != nullptr);
  }
  template <class A>
  Elements elements(const char* name, const std::optional<A>& array, MaybeType as) const {
    return array ? elements(name, *array, as) : Elements{};
  }
  // What must stay as long as the call uses it after it has returned; nothing where it does not.
  template <class A>
  nb::object kept(const A& array) const {
    return kept_ == nullptr && open_collection() == nullptr ? nb::object() : nb::cast(array);
  }
  // `arrays`: what it goes on using after it has returned. `function` takes `arguments`, then what every call takes.
  template <class Function, class... Arguments>
  void run(std::initializer_list<nb::handle> arrays, Function function, Arguments... arguments) const {
    for (const nb::handle array : arrays)
      if (array.is_valid()) keep(kept_, array);
    run_unlocked([&] { return function(arguments..., comm_, stream_, has_options_ ? &options_ : nullptr); });
  }

 private:
  tuttiComm_t comm_;
  tuttiStream_t stream_;
  Kept* kept_;
  bool has_options_;
  tuttiOptions_t options_ = TUTTI_OPTIONS_INITIALIZER;
};

void check_count(const char* name, size_t count, size_t wanted, const char* why) {
  if (count != wanted)
    raise(tuttiInvalidArgument, std::string(name) + " has " + std::to_string(count) + " elements in place of " +
                                    std::to_string(wanted) + ": " + why);
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
template <Reducing function>
void reduce_alike(PyCommunicator& self, const Array& send, const MaybeOut& recv, int op, const OnStream& stream,
                  const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype);
  if (!recv && call.inputs() == 1) {  // in place
    const Elements out = call.elements("send", nb::cast<WritableArray>(send.source, false), datatype);
    return call.run({call.kept(send)}, function, out.data, out.data, out.count, out.type, tuttiRedOp_t(op));
  }
  const Elements out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count * call.inputs(), "as many as recv for each input");
  call.run({call.kept(send), call.kept(recv)}, function, in.data, out.data, out.count, out.type, tuttiRedOp_t(op));
}

void broadcast(PyCommunicator& self, const WritableArray& data, int root, const OnStream& stream, const Options* options,
               MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements all = call.elements("data", data, datatype);
  call.run({call.kept(data)}, tuttiBroadcastWith, all.data, all.data, all.count, all.type, root);
}

void reduce(PyCommunicator& self, const Array& send, const MaybeOut& recv, int op, int root, const OnStream& stream,
            const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  if (call.rank() == root) {
    check_same_type("send", in, "recv", out);
    check_count("send", in.count, out.count * call.inputs(), "as many as recv for each input");
  }
  call.run({call.kept(send), call.kept(recv)}, tuttiReduceWith, in.data, out.data, in.count / call.inputs(), in.type,
           tuttiRedOp_t(op), root);
}

void all_gather(PyCommunicator& self, const Array& send, const WritableArray& recv, const OnStream& stream,
                const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("recv", out.count, in.count * call.size(), "a block like send for each rank");
  call.run({call.kept(send), call.kept(recv)}, tuttiAllGatherWith, in.data, out.data, in.count, in.type);
}

void reduce_scatter(PyCommunicator& self, const Array& send, const WritableArray& recv, int op, const OnStream& stream,
                    const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count * call.size() * call.inputs(), "a block like recv for each rank and input");
  call.run({call.kept(send), call.kept(recv)}, tuttiReduceScatterWith, in.data, out.data, out.count, in.type,
           tuttiRedOp_t(op));
}

void gather(PyCommunicator& self, const Array& send, const MaybeOut& recv, int root, const OnStream& stream,
            const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  if (call.rank() == root) {
    check_same_type("send", in, "recv", out);
    check_count("recv", out.count, in.count * call.size(), "a block like send for each rank");
  }
  call.run({call.kept(send), call.kept(recv)}, tuttiGatherWith, in.data, out.data, in.count, in.type, root);
}

void scatter(PyCommunicator& self, const MaybeIn& send, const WritableArray& recv, int root, const OnStream& stream,
             const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  if (call.rank() == root) {
    check_same_type("send", in, "recv", out);
    check_count("send", in.count, out.count * call.size(), "a block like recv for each rank");
  }
  call.run({call.kept(send), call.kept(recv)}, tuttiScatterWith, in.data, out.data, out.count, out.type, root);
}

void all_to_all(PyCommunicator& self, const Array& send, const WritableArray& recv, const OnStream& stream,
                const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_count("send", in.count, out.count, "as many as recv");
  const size_t ranks = call.size();
  if (in.count % ranks != 0)
    raise(tuttiInvalidArgument, "send has " + std::to_string(in.count) + " elements, which are no whole blocks for " +
                                    std::to_string(ranks) + " ranks");
  call.run({call.kept(send), call.kept(recv)}, tuttiAlltoAllWith, in.data, out.data, in.count / ranks, in.type);
}

void all_gather_v(PyCommunicator& self, const Array& send, const WritableArray& recv, const Sizes& counts,
                  const std::optional<Sizes>& displs, const OnStream& stream, const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_blocks("recv", out.count, counts, displs, call.size());
  call.run({call.kept(send), call.kept(recv)}, tuttiAllGatherVWith, in.data, in.count, out.data, counts.data(),
           pointer(displs), in.type);
}

void reduce_scatter_v(PyCommunicator& self, const Array& send, const Sizes& counts, const WritableArray& recv, int op,
                      const std::optional<Sizes>& displs, const OnStream& stream, const Options* options,
                      MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  check_blocks("send", in.count / call.inputs(), counts, displs, call.size());
  call.run({call.kept(send), call.kept(recv)}, tuttiReduceScatterVWith, in.data, counts.data(), pointer(displs),
           out.data, out.count, in.type, tuttiRedOp_t(op));
}

void gather_v(PyCommunicator& self, const Array& send, const MaybeOut& recv, const std::optional<Sizes>& counts,
              int root, const std::optional<Sizes>& displs, const OnStream& stream, const Options* options,
              MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  if (call.rank() == root) {
    check_same_type("send", in, "recv", out);
    check_blocks("recv", out.count, counts.value_or(Sizes()), displs, call.size());
  }
  call.run({call.kept(send), call.kept(recv)}, tuttiGatherVWith, in.data, in.count, out.data, pointer(counts),
           pointer(displs), in.type, root);
}

void scatter_v(PyCommunicator& self, const MaybeIn& send, const std::optional<Sizes>& counts, const WritableArray& recv,
               int root, const std::optional<Sizes>& displs, const OnStream& stream, const Options* options,
               MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  if (call.rank() == root) {
    check_same_type("send", in, "recv", out);
    check_blocks("send", in.count, counts.value_or(Sizes()), displs, call.size());
  }
  call.run({call.kept(send), call.kept(recv)}, tuttiScatterVWith, in.data, pointer(counts), pointer(displs), out.data,
           out.count, out.type, root);
}

void all_to_all_v(PyCommunicator& self, const Array& send, const Sizes& send_counts, const WritableArray& recv,
                  const Sizes& recv_counts, const std::optional<Sizes>& send_displs,
                  const std::optional<Sizes>& recv_displs, const OnStream& stream, const Options* options,
                  MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("send", send, datatype), out = call.elements("recv", recv, datatype);
  check_same_type("send", in, "recv", out);
  const size_t ranks = call.size();
  check_blocks("send", in.count, send_counts, send_displs, ranks);
  check_blocks("recv", out.count, recv_counts, recv_displs, ranks);
  call.run({call.kept(send), call.kept(recv)}, tuttiAlltoAllVWith, in.data, send_counts.data(), pointer(send_displs),
           out.data, recv_counts.data(), pointer(recv_displs), in.type);
}

void barrier(PyCommunicator& self, const OnStream& stream, const Options* options) {
  const Call call(self, stream, options);
  call.run({}, tuttiBarrierWith);
}

void send(PyCommunicator& self, const Array& data, int peer, const OnStream& stream, const Options* options,
          MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements out = call.elements("data", data, datatype);
  call.run({call.kept(data)}, tuttiSendWith, out.data, out.count, out.type, peer);
}

void recv(PyCommunicator& self, const WritableArray& data, int peer, const OnStream& stream, const Options* options,
          MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements in = call.elements("data", data, datatype);
  call.run({call.kept(data)}, tuttiRecvWith, in.data, in.count, in.type, peer);
}

void send_recv(PyCommunicator& self, const Array& output, int to, const WritableArray& input, int from,
               const OnStream& stream, const Options* options, MaybeType datatype) {
  const Call call(self, stream, options);
  const Elements out = call.elements("send", output, datatype), in = call.elements("recv", input, datatype);
  check_same_type("send", out, "recv", in);
  call.run({call.kept(output), call.kept(input)}, tuttiSendRecvWith, out.data, out.count, to, in.data, in.count, from,
           type_of_either(true, out, in));
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
