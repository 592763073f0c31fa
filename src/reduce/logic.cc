// Truth values: land and lor of integers, and all that bool has.
#include "reduce/elements.h"
#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

template <class T>
ReduceFunction logic_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::land:
    case ReduceOp::band:
    case ReduceOp::prod:
    case ReduceOp::min: return reduce_plain<T, scalar::And, true>;
    case ReduceOp::bxor: return reduce_plain<T, scalar::Differ, true>;
    default: return reduce_plain<T, scalar::Or, true>;
  }
}

}  // namespace

ReduceFunction logic_function(DataType type, ReduceOp op) noexcept {
  switch (element_bytes(type)) {
    case 1: return logic_for<uint8_t>(op);
    case 2: return logic_for<uint16_t>(op);
    case 4: return logic_for<uint32_t>(op);
    default: return logic_for<uint64_t>(op);
  }
}

}  // namespace tutti
