// The c10d backend: calls of torch.distributed as calls of Tutti's C interface, on tensors of the host and of devices.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device.h"
#include "lanes.h"
#include "work.h"

namespace tutti_torch {

using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// Whether the caller says that it waits at once: all options have said so since PyTorch 2.8.
template <class Options, class = void>
struct SaysAsync : std::false_type {};
template <class Options>
struct SaysAsync<Options, std::void_t<decltype(std::declval<Options>().asyncOp)>> : std::true_type {};
template <class Options>
bool caller_waits(const Options& options) {
  if constexpr (SaysAsync<Options>::value) return !options.asyncOp;
  else return false;
}

// Who waits takes no Work for "it is over" in versions where all options say so.
inline constexpr bool waits_without_work = SaysAsync<c10d::AllreduceOptions>::value;

// Methods that are not marked override are virtual in some versions of PyTorch and missing in others.
class Backend : public c10d::Backend {
 public:
  // Joins: rank 0 hands Tutti's id to the others through the store. Blocks until all ranks are there. always_work: also
  // calls whose caller waits give a Work.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, milliseconds timeout, bool always_work);
  ~Backend() override { end(false); }

  const std::string getBackendName() const override { return "tutti"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() {
    return c10::make_intrusive<c10d::Backend::Options>("tutti", timeout_);
  }
  void setTimeout(milliseconds timeout) { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }
  // Waits for calls that are under way.
  void shutdown() { end(false); }
  // Ends them, here and on the other ranks.
  void abort() { end(true); }
  std::string transport_to(int peer) const;
  std::string algorithm_for(const std::string& collective, size_t bytes) const;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts);
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts);
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPointer gather_single(Tensor& output, Tensor& input, const c10d::GatherOptions& opts);
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts);
  WorkPointer alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

 protected:
  // The handle of a stream of a PyTorch whose C++ does not tell it.
  virtual tuttiStream_t ask_for_handle(const c10::Stream& stream) = 0;

 private:
  // What stands in a call's log line and profile, and who waits.
  struct Kind {
    c10d::OpType type;
    const char* title;
    bool caller_waits;
  };
  // What the group has on a device: a stream of its own, and a communicator whose rank is bound to that device.
  struct OfDevice {
    c10::Stream stream;
    tuttiStream_t handle;  // of the stream
    tuttiComm_t comm;      // null until the first call runs
  };
  // Where the call that runs is made.
  struct Place {
    tuttiComm_t comm;
    tuttiStream_t stream;
  };
  template <class Body>
  WorkPointer submit(const Kind& kind, const Tensors& inputs, const Tensors& outputs, const Body& body);
  c10::intrusive_ptr<Call> on_device(c10::Device device, const Kind& kind, const Tensors& inputs,
                                     const Tensors& outputs, Call::Body body);
  void check_device(c10::Device device);
  OfDevice& of_device(c10::Device device);
  void check_not_captured(c10::Device device);
  tuttiStream_t handle_of_callers(const c10::Stream& stream);
  void make_communicator(c10::Device device, OfDevice& there);
  std::shared_ptr<Reached> reached(const Tensor& tensor);
  std::vector<std::shared_ptr<Reached>> reached_by_caller();
  void wait_for_devices(const std::vector<std::shared_ptr<Reached>>& before, milliseconds timeout);
  Terms terms(milliseconds asked) const { return Terms(asked.count() > 0 ? asked : timeout_, joined_timeout_); }
  void check_open() const;
  void check_root(int64_t root) const;
  void check_peer(int peer) const;
  void check_lists(const std::vector<Tensors>& lists, const char* what) const;
  Tensors list_of_root(const std::vector<Tensors>& lists, int64_t root, const Tensor& own, const char* name) const;
  WorkPointer receive(Tensors& tensors, int source, int tag, const Kind& kind);
  std::string verdict_of_rank_0(const std::string& name, milliseconds timeout);
  std::vector<int> missing_ranks(const std::string& name, milliseconds timeout, bool all);
  void all_reduce_sparse(const Tensor& tensor, const c10d::AllreduceOptions& opts);
  void end(bool abort);

  c10::intrusive_ptr<c10d::Store> store_;
  milliseconds joined_timeout_;  // the communicator's
  milliseconds timeout_;
  const bool always_work_;
  tuttiComm_t comm_ = nullptr;
  Place at_{nullptr, nullptr};  // the queue's calls alone, of which one runs at a time
  std::mutex devices_mutex_;
  std::set<c10::DeviceIndex> found_;
  std::map<c10::DeviceIndex, OfDevice> devices_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, tuttiStream_t> handles_;  // of callers' streams
  std::atomic<uint64_t> calls_{0};
  uint64_t monitored_ = 0;
  std::atomic<bool> ended_{false};
  std::unique_ptr<PointToPoint> lanes_;
  std::shared_ptr<Queue> queue_;
};

}  // namespace tutti_torch
