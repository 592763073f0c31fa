// The measurement of tutti-perf over MPI: same options, sizes, iterations, clock, checks and output, other library.
#include <mpi.h>

#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "bench/peers/peer_run.h"

namespace tutti::perf {
namespace {

MPI_Datatype mpi_type(const Type& type) {
  switch (type.type) {
    case tuttiInt8: return MPI_INT8_T;
    case tuttiUint8: return MPI_UINT8_T;
    case tuttiInt32: return MPI_INT32_T;
    case tuttiUint32: return MPI_UINT32_T;
    case tuttiInt64: return MPI_INT64_T;
    case tuttiUint64: return MPI_UINT64_T;
    case tuttiFloat32: return MPI_FLOAT;
    case tuttiFloat64: return MPI_DOUBLE;
    default: throw UsageError(fmt::format("-d {}: MPI has no such type", type.name));
  }
}

MPI_Op mpi_op(const Case& what) {
  switch (what.op->op) {
    case tuttiSum: return MPI_SUM;
    case tuttiProd: return MPI_PROD;
    case tuttiMax: return MPI_MAX;
    case tuttiMin: return MPI_MIN;
    default: throw UsageError(fmt::format("-o {}: MPI has no such operator", what.op->name));
  }
}

class Mpi final : public Library {
 public:
  Mpi(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~Mpi() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  // A broadcast has one buffer; a reduce-scatter in place leaves its block elsewhere than Tutti's. Those after all-to-all are
  // not measured in place.
  bool offers(Operation operation, bool in_place) const override {
    switch (operation) {
      case Operation::broadcast: return in_place;
      case Operation::all_reduce: case Operation::reduce: case Operation::all_gather: case Operation::alltoall: return true;
      default: return !in_place;
    }
  }

  void call(Operation operation, const Case& what, const Place& place) override {
    const MPI_Comm world = MPI_COMM_WORLD;
    if (operation == Operation::barrier) return check(MPI_Barrier(world), "MPI_Barrier");
    const int count = int(what.count);
    const MPI_Datatype type = mpi_type(what.type);
    void* const recv = place.recv;
    const void* const send = place.in_place ? MPI_IN_PLACE : place.send;
    switch (operation) {
      case Operation::all_reduce: return check(MPI_Allreduce(send, recv, count, type, mpi_op(what), world), "MPI_Allreduce");
      case Operation::broadcast: return check(MPI_Bcast(recv, count, type, what.root, world), "MPI_Bcast");
      case Operation::reduce:
        return check(MPI_Reduce(rank_ == what.root ? send : place.send, recv, count, type, mpi_op(what), what.root, world),
                     "MPI_Reduce");
      case Operation::all_gather:
        return check(MPI_Allgather(send, count, type, recv, count, type, world), "MPI_Allgather");
      case Operation::reduce_scatter:
        return check(MPI_Reduce_scatter_block(place.send, recv, count, type, mpi_op(what), world),
                     "MPI_Reduce_scatter_block");
      case Operation::alltoall: return check(MPI_Alltoall(send, count, type, recv, count, type, world), "MPI_Alltoall");
      case Operation::gather:
        return check(MPI_Gather(send, count, type, recv, count, type, what.root, world), "MPI_Gather");
      case Operation::scatter:
        return check(MPI_Scatter(send, count, type, recv, count, type, what.root, world), "MPI_Scatter");
      case Operation::scan: return check(MPI_Scan(send, recv, count, type, mpi_op(what), world), "MPI_Scan");
      case Operation::exscan: return check(MPI_Exscan(send, recv, count, type, mpi_op(what), world), "MPI_Exscan");
      case Operation::pass_round:
        if (ranks_ > 1) return pass_round(count, type, place);
        break;
      case Operation::sendrecv: break;
      default: return call_v_form(operation, what, place);
    }
    check(MPI_Sendrecv(place.send, count, type, (rank_ + 1) % ranks_, 0, recv, count, type, (rank_ + ranks_ - 1) % ranks_,
                       0, world, MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  using Library::combine;
  void combine(std::vector<double>& values, Over over) override {
    const MPI_Op op = over == Over::sum ? MPI_SUM : over == Over::min ? MPI_MIN : MPI_MAX;
    MPI_Allreduce(MPI_IN_PLACE, values.data(), int(values.size()), MPI_DOUBLE, op, MPI_COMM_WORLD);
  }
  SharedMemory shared_memory() override {
    return {[](size_t bytes) -> void* {
              void* memory = nullptr;
              return MPI_Alloc_mem(MPI_Aint(bytes), MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : nullptr;
            },
            [](void* memory) { MPI_Free_mem(memory); }};
  }

 private:
  void pass_round(int count, MPI_Datatype type, const Place& place) {
    const int next = (rank_ + 1) % ranks_, before = (rank_ + ranks_ - 1) % ranks_;
    if (rank_ == 0) check(MPI_Send(place.send, count, type, next, 0, MPI_COMM_WORLD), "MPI_Send");
    check(MPI_Recv(place.recv, count, type, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    if (rank_ != 0) check(MPI_Send(place.recv, count, type, next, 0, MPI_COMM_WORLD), "MPI_Send");
  }
  void call_v_form(Operation operation, const Case& what, const Place& place) {
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = mpi_type(what.type);
    counts_.assign(place.counts.begin(), place.counts.end());
    firsts_.assign(place.firsts.begin(), place.firsts.end());
    const int *const counts = counts_.data(), *const firsts = firsts_.data();
    const int own = counts[rank_];
    switch (operation) {
      case Operation::all_gather_v:
        return check(MPI_Allgatherv(place.send, own, type, place.recv, counts, firsts, type, world), "MPI_Allgatherv");
      case Operation::reduce_scatter_v:
        return check(MPI_Reduce_scatter(place.send, place.recv, counts, type, mpi_op(what), world), "MPI_Reduce_scatter");
      case Operation::gather_v:
        return check(MPI_Gatherv(place.send, own, type, place.recv, counts, firsts, type, what.root, world), "MPI_Gatherv");
      case Operation::scatter_v:
        return check(MPI_Scatterv(place.send, counts, firsts, type, place.recv, own, type, what.root, world), "MPI_Scatterv");
      default:
        return check(MPI_Alltoallv(place.send, counts, firsts, type, place.recv, counts, firsts, type, world),
                     "MPI_Alltoallv");
    }
  }

  static void check(int result, const char* call) {
    if (result != MPI_SUCCESS) throw LibraryError(fmt::format("{}: code {}", call, result));
  }

  int rank_ = 0, ranks_ = 1;
  std::vector<int> counts_, firsts_;  // of a call with blocks of any size, as MPI wants them
};

std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return {text.data(), std::strcspn(text.data(), "\n")};
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  return run_peer(argc, argv, "mpi_perf", [&](const Options&, std::string& title) {
    auto library = std::make_unique<Mpi>(argc, argv);
    title = version();
    return library;
  });
}
