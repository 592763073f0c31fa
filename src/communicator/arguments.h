// Checks of the C interface's arguments: each throws Error(invalid_argument) that names the argument and its value.
#pragma once

#include <cstddef>

#include "base/types.h"
#include "communicator/communicator.h"
#include "tutti/tutti.h"

namespace tutti {

DataType checked_type(tuttiDataType_t type);
ReduceOp checked_op(tuttiRedOp_t op);
void check_root(int root, int size);
void check_peer(int peer, int size);
void check_rank(int rank, int size);
// count × element size must stay below 2^63.
void check_count(size_t count, DataType type);
// A buffer that is read or written must not be null where count > 0.
void check_buffer(const char* name, const void* buffer, size_t count);
// Equal or disjoint.
void check_overlap(const void* send, const void* recv, size_t bytes);
void check_not_null(const char* name, const void* pointer);

// The settings of a config struct over the environment's; config may be null.
CommunicatorOptions checked_options(const tuttiConfig_t* config);

}  // namespace tutti
