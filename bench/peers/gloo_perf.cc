// The measurement of tutti-perf over Gloo, whose only transport on one host is TCP.
#include <chrono>

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/peers/peer_run.h"

namespace tutti::perf {
namespace {

std::shared_ptr<gloo::Context> join(int rank, int ranks, const std::string& folder) {
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::minutes(1));
  context->connectFullMesh(store, device);
  return context;
}

// float sums only: Gloo's own vectorised function.
class Gloo final : public Library {
 public:
  Gloo(int rank, int ranks, const std::string& folder) : context_(join(rank, ranks, folder)) {}

  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }
  bool offers(Operation operation, bool in_place) const override {
    return !in_place || (operation != Operation::alltoall && operation != Operation::all_gather);
  }

  void call(Operation operation, const Case& what, const Place& place) override {
    auto* const send = reinterpret_cast<float*>(place.send);
    auto* const recv = reinterpret_cast<float*>(place.recv);
    if (operation != Operation::barrier && what.type.type != tuttiFloat32)
      throw UsageError(fmt::format("-d {}: only float is measured of Gloo", what.type.name));
    switch (operation) {
      case Operation::barrier: return barrier();
      case Operation::all_reduce: {
        if (what.op->op != tuttiSum) throw UsageError("-o: only sum is measured of Gloo");
        gloo::AllreduceOptions options(context_);
        if (!place.in_place) options.setInput(send, what.count);
        options.setOutput(recv, what.count);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        return gloo::allreduce(options);
      }
      case Operation::broadcast: {
        gloo::BroadcastOptions options(context_);
        options.setRoot(what.root);
        if (rank() == what.root && !place.in_place) options.setInput(send, what.count);
        options.setOutput(recv, what.count);
        return gloo::broadcast(options);
      }
      case Operation::all_gather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(send, what.count);
        options.setOutput(recv, what.count * size_t(ranks()));
        return gloo::allgather(options);
      }
      case Operation::alltoall: {
        gloo::AlltoallOptions options(context_);
        options.setInput(send, what.count * size_t(ranks()));
        options.setOutput(recv, what.count * size_t(ranks()));
        return gloo::alltoall(options);
      }
      default: throw UsageError(fmt::format("{}: not measured of Gloo", name(operation)));
    }
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  using Library::combine;
  void combine(std::vector<double>& values, Over over) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    using Function = void (*)(void*, const void*, const void*, size_t);
    options.setReduceFunction(over == Over::sum   ? static_cast<Function>(&gloo::sum<double>)
                              : over == Over::min ? static_cast<Function>(&gloo::min<double>)
                                                  : static_cast<Function>(&gloo::max<double>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  return run_peer(argc, argv, "gloo_perf", [](const Options&, std::string& title) {
    title = "Gloo over TCP on lo";
    return std::make_unique<Gloo>(std::stoi(from_environment("RANK")), std::stoi(from_environment("WORLD_SIZE")),
                                  from_environment("PEER_MEETING_FOLDER"));
  });
}
