// The C interface: calls with options. Where there are none, what has a short way for small calls goes it.
#include "communicator/c_api_operations.h"

using namespace tutti;

extern "C" {

tuttiResult_t tuttiAllReduceWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                 tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                 const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  return at_the_border([&] {
    return collective(Collective::all_reduce, sendbuff, recvbuff, count, datatype, {op, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiBroadcastWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                                 tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
  return at_the_border([&] {
    return collective(Collective::broadcast, sendbuff, recvbuff, count, datatype, {{}, root, options}, comm, stream);
  });
}

tuttiResult_t tuttiReduceWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                              tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream,
                              const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
  return at_the_border([&] {
    return collective(Collective::reduce, sendbuff, recvbuff, count, datatype, {op, root, options}, comm, stream);
  });
}

tuttiResult_t tuttiScanWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                            tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiScan(sendbuff, recvbuff, count, datatype, op, comm, stream);
  return at_the_border([&] {
    return collective(Collective::scan, sendbuff, recvbuff, count, datatype, {op, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiExScanWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                              tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiExScan(sendbuff, recvbuff, count, datatype, op, comm, stream);
  return at_the_border([&] {
    return collective(Collective::exscan, sendbuff, recvbuff, count, datatype, {op, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiAllGatherWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                 tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return collective(Collective::all_gather, sendbuff, recvbuff, count, datatype, {{}, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiReduceScatterWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                     tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream,
                                     const tuttiOptions_t* options) {
  return at_the_border([&] {
    return collective(Collective::reduce_scatter, sendbuff, recvbuff, count, datatype, {op, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiGatherWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                              tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return collective(Collective::gather, sendbuff, recvbuff, count, datatype, {{}, root, options}, comm, stream);
  });
}

tuttiResult_t tuttiScatterWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                               tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return collective(Collective::scatter, sendbuff, recvbuff, count, datatype, {{}, root, options}, comm, stream);
  });
}

tuttiResult_t tuttiAlltoAllWith(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                                tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return collective(Collective::all_to_all, sendbuff, recvbuff, count, datatype, {{}, {}, options}, comm, stream);
  });
}

tuttiResult_t tuttiBarrierWith(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  if (options == nullptr) return tuttiBarrier(comm, stream);
  return at_the_border([&] { return barrier(comm, stream, options); });
}

tuttiResult_t tuttiSendWith(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                            tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return point_to_point(true, sendbuff, nullptr, count, datatype, peer, comm, stream, options);
  });
}

tuttiResult_t tuttiRecvWith(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                            tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    return point_to_point(false, nullptr, recvbuff, count, datatype, peer, comm, stream, options);
  });
}

tuttiResult_t tuttiSendRecvWith(const void* sendbuff, size_t sendcount, int to, void* recvbuff, size_t recvcount,
                                int from, tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream,
                                const tuttiOptions_t* options) {
  return at_the_border([&] {
    return send_recv({sendbuff, sendcount, to}, {recvbuff, recvcount, from}, datatype, comm, stream, options);
  });
}

}  // extern "C"
