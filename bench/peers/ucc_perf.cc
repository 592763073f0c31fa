// The measurement of tutti-perf over UCC on host memory. Requests are persistent: made once for the same call again and again,
// then posted and tested, which is the cheapest way that UCC has.
#include <ucc/api/ucc.h>

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "bench/peers/peer_run.h"

namespace tutti::perf {
namespace {

ucc_datatype_t ucc_type(const Type& type) {
  switch (type.type) {
    case tuttiInt8: return UCC_DT_INT8;
    case tuttiUint8: return UCC_DT_UINT8;
    case tuttiInt32: return UCC_DT_INT32;
    case tuttiUint32: return UCC_DT_UINT32;
    case tuttiInt64: return UCC_DT_INT64;
    case tuttiUint64: return UCC_DT_UINT64;
    case tuttiFloat16: return UCC_DT_FLOAT16;
    case tuttiBfloat16: return UCC_DT_BFLOAT16;
    case tuttiFloat32: return UCC_DT_FLOAT32;
    case tuttiFloat64: return UCC_DT_FLOAT64;
    default: throw UsageError(fmt::format("-d {}: UCC has no such type", type.name));
  }
}

ucc_reduction_op_t ucc_op(const Case& what) {
  switch (what.op->op) {
    case tuttiSum: return UCC_OP_SUM;
    case tuttiProd: return UCC_OP_PROD;
    case tuttiMax: return UCC_OP_MAX;
    case tuttiMin: return UCC_OP_MIN;
    default: throw UsageError(fmt::format("-o {}: UCC has no such operator", what.op->name));
  }
}

void check(ucc_status_t status, const char* call) {
  if (status < 0) throw LibraryError(fmt::format("{}: {}", call, ucc_status_string(status)));
}

// Through it the ranks give each other addresses: a file of each rank for each exchange.
class Meeting {
 public:
  Meeting(int rank, int ranks, std::string folder) : rank_(rank), ranks_(ranks), folder_(std::move(folder)) {}

  ucc_oob_coll_t oob() {
    ucc_oob_coll_t result{};
    result.allgather = [](void* send, void* recv, size_t bytes, void* meeting, void** request) {
      *request = meeting;
      return static_cast<Meeting*>(meeting)->all_gather(static_cast<const char*>(send), static_cast<char*>(recv), bytes);
    };
    result.req_test = [](void*) { return UCC_OK; };
    result.req_free = [](void*) { return UCC_OK; };
    result.coll_info = this;
    result.n_oob_eps = uint32_t(ranks_);
    result.oob_ep = uint32_t(rank_);
    return result;
  }

 private:
  std::string file_name(int rank) const { return fmt::format("{}/{}.{}", folder_, exchange_, rank); }

  ucc_status_t all_gather(const char* send, char* recv, size_t bytes) {
    const std::string temporary = file_name(rank_) + ".tmp";
    std::ofstream(temporary, std::ios::binary).write(send, std::streamsize(bytes));
    std::rename(temporary.c_str(), file_name(rank_).c_str());
    for (int rank = 0; rank < ranks_; ++rank)
      if (!read(rank, recv + size_t(rank) * bytes, bytes)) return UCC_ERR_TIMED_OUT;
    ++exchange_;
    return UCC_OK;
  }

  bool read(int rank, char* recv, size_t bytes) const {
    for (int tries = 0; tries < 10000; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      std::ifstream file(file_name(rank), std::ios::binary);
      if (file.read(recv, std::streamsize(bytes))) return true;
    }
    return false;
  }

  int rank_, ranks_, exchange_ = 0;
  std::string folder_;
};

class Ucc final : public Library {
 public:
  Ucc(int rank, int ranks, const std::string& folder)
      : rank_(rank), ranks_(ranks), crowded_(ranks > int(std::thread::hardware_concurrency())), meeting_(rank, ranks, folder) {
    ucc_lib_config_h lib_config;
    check(ucc_lib_config_read(nullptr, nullptr, &lib_config), "ucc_lib_config_read");
    ucc_lib_params_t lib_params{};
    lib_params.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
    lib_params.thread_mode = UCC_THREAD_SINGLE;
    check(ucc_init(&lib_params, lib_config, &lib_), "ucc_init");
    ucc_lib_config_release(lib_config);

    ucc_context_config_h context_config;
    check(ucc_context_config_read(lib_, nullptr, &context_config), "ucc_context_config_read");
    ucc_context_params_t context_params{};
    context_params.mask = UCC_CONTEXT_PARAM_FIELD_TYPE | UCC_CONTEXT_PARAM_FIELD_OOB;
    context_params.type = UCC_CONTEXT_SHARED;
    context_params.oob = meeting_.oob();
    check(ucc_context_create(lib_, &context_params, context_config, &context_), "ucc_context_create");
    ucc_context_config_release(context_config);

    ucc_team_params_t team_params{};
    team_params.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB;
    team_params.oob = meeting_.oob();
    team_params.ep = uint64_t(rank);
    team_params.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG;
    check(ucc_team_create_post(&context_, 1, &team_params, &team_), "ucc_team_create_post");
    ucc_status_t status;
    while ((status = ucc_team_create_test(team_)) == UCC_INPROGRESS) ucc_context_progress(context_);
    check(status, "ucc_team_create_test");

    ucc_coll_args_t barrier_args{};
    barrier_args.coll_type = UCC_COLL_TYPE_BARRIER;
    barrier_ = make(barrier_args);
  }
  ~Ucc() override {
    barrier();
    for (const ucc_coll_req_h request : {barrier_, last_})
      if (request != nullptr) ucc_collective_finalize(request);
    while (ucc_team_destroy(team_) == UCC_INPROGRESS) ucc_context_progress(context_);
    ucc_context_destroy(context_);
    ucc_finalize(lib_);
  }
  Ucc(const Ucc&) = delete;
  Ucc& operator=(const Ucc&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  // A broadcast has one buffer; a reduce-scatter in place leaves its block elsewhere than Tutti's; the others are not
  // measured in place.
  bool offers(Operation operation, bool in_place) const override {
    if (!in_place) return operation != Operation::broadcast;
    return operation == Operation::broadcast || operation == Operation::all_reduce || operation == Operation::all_gather;
  }

  void call(Operation operation, const Case& what, const Place& place) override {
    if (operation == Operation::barrier) return barrier();
    const ucc_datatype_t type = ucc_type(what.type);
    const size_t block = what.count, all = block * size_t(ranks_);
    ucc_coll_args_t args;
    std::memset(&args, 0, sizeof args);  // what lies between the fields, too: it is compared
    args.root = uint64_t(what.root);
    const auto set = [&](ucc_coll_type_t kind, size_t send_count, size_t recv_count) {
      args.coll_type = kind;
      set_buffer(args.src.info, place.send, send_count, type);
      set_buffer(args.dst.info, place.recv, recv_count, type);
    };
    switch (operation) {
      case Operation::all_reduce: set(UCC_COLL_TYPE_ALLREDUCE, block, block), args.op = ucc_op(what); break;
      case Operation::reduce_scatter: set(UCC_COLL_TYPE_REDUCE_SCATTER, all, block), args.op = ucc_op(what); break;
      case Operation::all_gather: set(UCC_COLL_TYPE_ALLGATHER, block, all); break;
      case Operation::alltoall: set(UCC_COLL_TYPE_ALLTOALL, all, all); break;
      case Operation::gather: set(UCC_COLL_TYPE_GATHER, block, all); break;
      case Operation::broadcast: set(UCC_COLL_TYPE_BCAST, 0, 0), set_buffer(args.src.info, place.recv, block, type); break;
      default: throw UsageError(fmt::format("{}: not measured of UCC", name(operation)));
    }
    if (place.in_place && operation != Operation::broadcast) args.flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
    run_again(args);
  }
  void barrier() override { run(barrier_); }
  using Library::combine;
  void combine(std::vector<double>& values, Over over) override {
    ucc_coll_args_t args{};
    args.coll_type = UCC_COLL_TYPE_ALLREDUCE;
    args.op = over == Over::sum ? UCC_OP_SUM : over == Over::min ? UCC_OP_MIN : UCC_OP_MAX;
    args.flags = UCC_COLL_ARGS_FLAG_IN_PLACE;
    set_buffer(args.src.info, values.data(), values.size(), UCC_DT_FLOAT64);
    set_buffer(args.dst.info, values.data(), values.size(), UCC_DT_FLOAT64);
    const ucc_coll_req_h request = make(args);
    run(request);
    finalize(request);
  }

 private:
  static void set_buffer(ucc_coll_buffer_info_t& info, void* buffer, size_t count, ucc_datatype_t type) {
    info.buffer = buffer;
    info.count = count;
    info.datatype = type;
    info.mem_type = UCC_MEMORY_TYPE_HOST;
  }

  // A request takes its number among the team's operations when it is made, so all ranks have to make theirs at the same
  // time: what is called next, on all ranks or on none, has the arguments of the last call.
  void run_again(const ucc_coll_args_t& args) {
    if (std::memcmp(&last_args_, &args, sizeof args) != 0) {
      finalize(last_);
      last_ = make(args);
      last_args_ = args;
    }
    run(last_);
  }

  ucc_coll_req_h make(ucc_coll_args_t args) {
    args.mask |= UCC_COLL_ARGS_FIELD_FLAGS;
    args.flags |= UCC_COLL_ARGS_FLAG_PERSISTENT;
    ucc_coll_req_h request = nullptr;
    check(ucc_collective_init(&args, &request, team_), "ucc_collective_init");
    return request;
  }
  static void finalize(ucc_coll_req_h request) {
    if (request != nullptr) check(ucc_collective_finalize(request), "ucc_collective_finalize");
  }

  void run(ucc_coll_req_h request) {
    check(ucc_collective_post(request), "ucc_collective_post");
    ucc_status_t status;
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
      ucc_context_progress(context_);
      if (crowded_) sched_yield();
    }
    check(status, "ucc_collective_test");
  }

  int rank_, ranks_;
  bool crowded_;  // more ranks than cores
  Meeting meeting_;
  ucc_lib_h lib_ = nullptr;
  ucc_context_h context_ = nullptr;
  ucc_team_h team_ = nullptr;
  ucc_coll_req_h barrier_ = nullptr, last_ = nullptr;
  ucc_coll_args_t last_args_{};
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  return run_peer(argc, argv, "ucc_perf", [](const Options&, std::string& title) {
    title = fmt::format("UCC {}", ucc_get_version_string());
    return std::make_unique<Ucc>(std::stoi(from_environment("RANK")), std::stoi(from_environment("WORLD_SIZE")),
                                 from_environment("PEER_MEETING_FOLDER"));
  });
}
