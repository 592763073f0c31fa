// The measurement of tutti-perf over Intel oneCCL on host memory.
#include <oneapi/ccl.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "bench/peers/peer_run.h"

// The archive of oneCCL for the CPU refers to a tracer that PyPI has not. These are its entry points: null means none.
#define TUTTI_NO_TRACER(name) extern "C" void* no_tracer_##name asm("__itt_" #name "_ptr__3_0"); void* no_tracer_##name = nullptr
TUTTI_NO_TRACER(thread_set_name);
TUTTI_NO_TRACER(event_create);
TUTTI_NO_TRACER(event_start);
TUTTI_NO_TRACER(event_end);
TUTTI_NO_TRACER(domain_create);
TUTTI_NO_TRACER(string_handle_create);
TUTTI_NO_TRACER(task_begin);
TUTTI_NO_TRACER(task_end);
TUTTI_NO_TRACER(metadata_add);

namespace tutti::perf {
namespace {

ccl::datatype ccl_type(const Type& type) {
  switch (type.type) {
    case tuttiInt8: return ccl::datatype::int8;
    case tuttiUint8: return ccl::datatype::uint8;
    case tuttiInt32: return ccl::datatype::int32;
    case tuttiUint32: return ccl::datatype::uint32;
    case tuttiInt64: return ccl::datatype::int64;
    case tuttiUint64: return ccl::datatype::uint64;
    case tuttiFloat16: return ccl::datatype::float16;
    case tuttiBfloat16: return ccl::datatype::bfloat16;
    case tuttiFloat32: return ccl::datatype::float32;
    case tuttiFloat64: return ccl::datatype::float64;
    default: throw UsageError(fmt::format("-d {}: oneCCL has no such type", type.name));
  }
}

ccl::reduction ccl_op(const Case& what) {
  switch (what.op->op) {
    case tuttiSum: return ccl::reduction::sum;
    case tuttiProd: return ccl::reduction::prod;
    case tuttiMax: return ccl::reduction::max;
    case tuttiMin: return ccl::reduction::min;
    default: throw UsageError(fmt::format("-o {}: oneCCL has no such operator", what.op->name));
  }
}

// Rank 0's key-value store, whose address the others find in a file.
std::shared_ptr<ccl::kvs> meet(int rank, const std::string& file_name) {
  using Address = ccl::kvs::address_type;
  if (rank == 0) {
    const auto store = ccl::create_main_kvs();
    const Address address = store->get_address();
    const std::string temporary = file_name + ".tmp";
    std::ofstream(temporary, std::ios::binary).write(reinterpret_cast<const char*>(address.data()), address.size());
    std::rename(temporary.c_str(), file_name.c_str());
    return store;
  }
  for (int tries = 0; tries < 1000; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    std::ifstream file(file_name, std::ios::binary);
    Address address;
    if (file.read(reinterpret_cast<char*>(address.data()), address.size())) return ccl::create_kvs(address);
  }
  throw LibraryError(fmt::format("rank 0 has not written {} after 10 s", file_name));
}

class OneCcl final : public Library {
 public:
  OneCcl(int rank, int ranks, const std::string& file_name)
      : rank_(rank), ranks_(ranks), store_((ccl::init(), meet(rank, file_name))),
        comm_(ccl::create_communicator(ranks, rank, store_)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  // A broadcast has one buffer.
  bool offers(Operation operation, bool in_place) const override { return in_place || operation != Operation::broadcast; }

  void call(Operation operation, const Case& what, const Place& place) override {
    if (operation == Operation::barrier) return ccl::barrier(comm_).wait();
    const ccl::datatype type = ccl_type(what.type);
    switch (operation) {
      case Operation::all_reduce:
        return ccl::allreduce(place.send, place.recv, what.count, type, ccl_op(what), comm_).wait();
      case Operation::broadcast: return ccl::broadcast(place.recv, what.count, type, what.root, comm_).wait();
      case Operation::reduce:
        return ccl::reduce(place.send, place.recv, what.count, type, ccl_op(what), what.root, comm_).wait();
      case Operation::all_gather: return ccl::allgather(place.send, place.recv, what.count, type, comm_).wait();
      case Operation::reduce_scatter:
        return ccl::reduce_scatter(place.send, place.recv, what.count, type, ccl_op(what), comm_).wait();
      case Operation::alltoall: return ccl::alltoall(place.send, place.recv, what.count, type, comm_).wait();
      default: throw UsageError(fmt::format("{}: not measured of oneCCL", name(operation)));
    }
  }
  void barrier() override { ccl::barrier(comm_).wait(); }
  using Library::combine;
  void combine(std::vector<double>& values, Over over) override {
    const ccl::reduction op = over == Over::sum   ? ccl::reduction::sum
                              : over == Over::min ? ccl::reduction::min
                                                  : ccl::reduction::max;
    ccl::allreduce(values.data(), values.data(), values.size(), ccl::datatype::float64, op, comm_).wait();
  }

 private:
  int rank_, ranks_;
  std::shared_ptr<ccl::kvs> store_;
  ccl::communicator comm_;
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  return run_peer(argc, argv, "oneccl_perf", [](const Options&, std::string& title) {
    const auto version = ccl::get_library_version();
    title = fmt::format("oneCCL {}.{}.{}", version.major, version.minor, version.update);
    return std::make_unique<OneCcl>(std::stoi(from_environment("PMI_RANK")), std::stoi(from_environment("PMI_SIZE")),
                                    from_environment("PEER_MEETING_FILE"));
  });
}
