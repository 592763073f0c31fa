// Kernels of linked plans: sums of integers.
#include "cuda_kernels/linked_kernel.cuh"

namespace tutti {
namespace {

template <class T>
Kernel sum_of(bool packets) {
  return MakeLinkedKernel::linked<PlainElement<T>, scalar::Sum>(packets);
}

}  // namespace

Kernel linked_integer_kernel(DataType type, ReduceOp op, bool packets) noexcept {
  if (op != ReduceOp::sum) return {};
  switch (type) {
    case DataType::int8: return sum_of<int8_t>(packets);
    case DataType::uint8: return sum_of<uint8_t>(packets);
    case DataType::int16: return sum_of<int16_t>(packets);
    case DataType::uint16: return sum_of<uint16_t>(packets);
    case DataType::int32: return sum_of<int32_t>(packets);
    case DataType::uint32: return sum_of<uint32_t>(packets);
    case DataType::int64: return sum_of<int64_t>(packets);
    case DataType::uint64: return sum_of<uint64_t>(packets);
    default: return {};
  }
}

}  // namespace tutti
