// A v-form's case as a call of the C interface.
#pragma once

#include "communicator/v_form_case.h"
#include "tutti/tutti.h"

namespace tutti::test {

// Displacements are not given where the case is dense.
// memory: where the call's memory lies; null: where it is.
inline tuttiResult_t call(const VFormCase& c, VFormCall& on, tuttiComm_t comm, tuttiStream_t stream = nullptr,
                          std::byte* memory = nullptr) {
  if (memory == nullptr) memory = on.memory();
  const auto type = tuttiDataType_t(c.type);
  const auto op = tuttiRedOp_t(c.op);
  const VFormCall::Side &send = on.send(), &recv = on.recv();
  const size_t* const sdispls = c.dense ? nullptr : send.displacements.data();
  const size_t* const rdispls = c.dense ? nullptr : recv.displacements.data();
  const size_t* const sendcounts = send.part == Part::all ? send.counts.data() : nullptr;
  const size_t* const recvcounts = recv.part == Part::all ? recv.counts.data() : nullptr;
  const void* const in = send.part == Part::none ? nullptr : memory + send.at;
  void* const out = recv.part == Part::none ? nullptr : memory + recv.at;
  switch (c.kind) {
    case Collective::all_gather_v:
      return tuttiAllGatherV(in, on.own_count(), out, recvcounts, rdispls, type, comm, stream);
    case Collective::reduce_scatter_v:
      return tuttiReduceScatterV(in, sendcounts, sdispls, out, on.own_count(), type, op, comm, stream);
    case Collective::gather_v:
      return tuttiGatherV(in, on.own_count(), out, recvcounts, rdispls, type, c.root, comm, stream);
    case Collective::scatter_v:
      return tuttiScatterV(in, sendcounts, sdispls, out, on.own_count(), type, c.root, comm, stream);
    default: return tuttiAlltoAllV(in, sendcounts, sdispls, out, recvcounts, rdispls, type, comm, stream);
  }
}

}  // namespace tutti::test
