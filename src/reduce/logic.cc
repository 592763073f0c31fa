// Truth values: land and lor of integers, and all that bool has.
#include <type_traits>

#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return T((a != 0) & (b != 0));
  }
  template <class T>
  static T finished(T a) {
    return T(a != 0);
  }
};

struct Or : And {
  template <class T>
  static T apply(T a, T b) {
    return T((a != 0) | (b != 0));
  }
};

struct Differ : And {
  template <class T>
  static T apply(T a, T b) {
    return T((a != 0) != (b != 0));
  }
};

template <class T>
ReduceFunction logic_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::land:
    case ReduceOp::band:
    case ReduceOp::prod:
    case ReduceOp::min: return reduce_plain<T, And, true>;
    case ReduceOp::bxor: return reduce_plain<T, Differ, true>;
    default: return reduce_plain<T, Or, true>;
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
