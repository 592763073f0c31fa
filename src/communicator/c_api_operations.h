// The bodies of the C interface's collectives and point to point, for the functions with and without options. All throw
// Error where an argument is wrong; `options` may be null.
#pragma once

#include <optional>

#include "base/signature.h"
#include "communicator/c_api.h"
#include "tutti/tutti.h"

namespace tutti {

// A call as its arguments say it, all but operator, root, place and layout.
Request request_of(Collective kind, const void* input, void* output, size_t count, const ElementType& type);
// Elements must fit into a message.
void check_fits(const ElementType& type, const Communicator& communicator);
// Writes what a call asks for beside what it does into its request, whose call is complete. Refuses what the determinism
// of call or communicator cannot keep.
void take_options(Request& request, const Communicator& communicator, const tuttiOptions_t* options);
// Runs a checked request now, on a stream, or at the end of the open group; finds out where its buffers lie.
tuttiResult_t submit(Communicator& communicator, Request& request, tuttiStream_t stream);

// What a collective is called with, beside its buffers and their count and type.
struct Extra {
  std::optional<tuttiRedOp_t> op;
  std::optional<int> root;
  const tuttiOptions_t* options;
};
tuttiResult_t collective(Collective kind, const void* send, void* recv, size_t count, tuttiDataType_t datatype,
                         const Extra& extra, tuttiComm_t comm, tuttiStream_t stream);

tuttiResult_t barrier(tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);

tuttiResult_t point_to_point(bool sending, const void* input, void* output, size_t count, tuttiDataType_t datatype,
                             int peer, tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options);

struct Sending {
  const void* data;
  size_t count;
  int to;
};
struct Receiving {
  void* data;
  size_t count;
  int from;
};
tuttiResult_t send_recv(const Sending& out, const Receiving& in, tuttiDataType_t datatype, tuttiComm_t comm,
                        tuttiStream_t stream, const tuttiOptions_t* options);

}  // namespace tutti
