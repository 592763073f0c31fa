// Checks of the C interface's arguments: each throws Error(invalid_argument) that names the argument and its value.
#pragma once

#include <cstddef>

#include <memory>

#include "base/types.h"
#include "communicator/communicator.h"
#include "tutti/tutti.h"

namespace tutti {

ElementType checked_type(tuttiDataType_t type);
// The value of tuttiTypeCreate. Throws where there is no such type. And its size; 0 where it is no such value.
tuttiDataType_t opaque_type(size_t bytes);
size_t opaque_type_bytes(tuttiDataType_t type) noexcept;

// An operator, and what is behind it where the caller made it.
struct CheckedOp {
  ReduceOp op = ReduceOp::sum;
  std::shared_ptr<const MadeOperator> made{};
};
// It must have a meaning on the type. `number`: of the communicator's handle.
CheckedOp checked_op(tuttiRedOp_t op, const ElementType& type, const Operators& operators, uint32_t number);
void check_defined(ReduceOp op, const ElementType& type);
void check_root(int root, int size);
void check_peer(int peer, int size);
void check_rank(int rank, int size);
// count × element size × blocks × inputs must stay below 2^63.
void check_count(size_t count, const ElementType& type, int blocks = 1, size_t inputs = 1);
// A buffer that is read or written must not be null where count > 0.
void check_buffer(const char* name, const void* buffer, size_t count);
// A memory area of a caller.
struct Area {
  const void* data;
  size_t bytes;
};
enum class InPlace { refused, same_start, send_is_block_of_recv, recv_is_block_of_send };
// Disjoint, or so that the call works in place: true. block_at: bytes before the rank's own block.
bool check_overlap(Area send, Area recv, InPlace allowed, size_t block_at = 0);
void check_not_null(const char* name, const void* pointer);

// The settings of a config struct over the environment's; config may be null.
CommunicatorOptions checked_options(const tuttiConfig_t* config);

// The options of one call.
struct CheckedOptions {
  int timeout_ms = 0;            // 0: the communicator's
  std::string_view algorithm{};  // as the caller wrote it; "": none
  Determinism determinism = Determinism::as_communicator;
  uint16_t inputs = 1;
};
CheckedOptions checked_call_options(const tuttiOptions_t* options);

}  // namespace tutti
