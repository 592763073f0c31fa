// Kernels of linked plans: sums of integers.
#include "cuda_kernels/linked_kernel.cuh"

namespace tutti {
namespace {

template <class T>
Kernel sum_of() {
  return linked_kernel_of<PlainElement<T>, scalar::Sum>();
}

}  // namespace

Kernel linked_integer_kernel(DataType type, ReduceOp op) noexcept {
  if (op != ReduceOp::sum) return {};
  switch (type) {
    case DataType::int8: return sum_of<int8_t>();
    case DataType::uint8: return sum_of<uint8_t>();
    case DataType::int16: return sum_of<int16_t>();
    case DataType::uint16: return sum_of<uint16_t>();
    case DataType::int32: return sum_of<int32_t>();
    case DataType::uint32: return sum_of<uint32_t>();
    case DataType::int64: return sum_of<int64_t>();
    case DataType::uint64: return sum_of<uint64_t>();
    default: return {};
  }
}

}  // namespace tutti
