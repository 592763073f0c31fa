// Which kernel serves a type, an operator and a number of inputs. Private to this room; plain C++.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "device/partition.h"

namespace tutti {

inline constexpr uint32_t kernel_threads = 256;
// That a multiprocessor has room for at once, of linked plans' kernels: they are compiled for it.
inline constexpr int linked_blocks_each = 2;

// A kernel as the CUDA runtime knows it: by the address of a function of the host that stands for it. Null: there is none.
struct Kernel {
  const void* function = nullptr;
  uint32_t unrolled = 1;
};

// What a reduction is for its kernel: fewer types and operators than callers have come to the same bits.
struct KernelCall {
  DataType type;
  ReduceOp op;
  uint64_t count;
};

// Sums of complex numbers are those of their parts; bits are joined as words where output and size allow, else as bytes;
// products wrap alike with a sign and without; truth values are those of unsigned integers.
constexpr KernelCall kernel_call(DataType type, ReduceOp op, uint64_t count, uintptr_t output) {
  constexpr DataType unsigned_of[] = {DataType::uint8, DataType::uint16, DataType::uint32, DataType::uint64};
  const size_t bytes = element_bytes(type), width = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
  if (op == ReduceOp::avg) op = ReduceOp::sum;
  if (gives_truth(op, type)) {
    const bool all = op == ReduceOp::land || op == ReduceOp::band || op == ReduceOp::prod || op == ReduceOp::min;
    const ReduceOp truth = op == ReduceOp::bxor ? ReduceOp::bxor : all ? ReduceOp::land : ReduceOp::lor;
    return {truth == ReduceOp::bxor ? DataType::boolean : unsigned_of[width], truth, count};
  }
  if (op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor) {
    const uint64_t size = count * bytes;
    const bool words = size % 4 == 0 && output % 4 == 0;
    return {words ? DataType::uint32 : DataType::uint8, op, words ? size / 4 : size};
  }
  if (family(type) == Family::complex && op == ReduceOp::sum)
    return {type == DataType::complex64 ? DataType::float32 : DataType::float64, op, 2 * count};
  if (family(type) == Family::integer && op == ReduceOp::prod) return {unsigned_of[width], op, count};
  return {type, op, count};
}

// Each for the types of its source. `op` and `type` are those of a KernelCall.
Kernel integer_kernel(DataType type, ReduceOp op, int n_inputs) noexcept;
Kernel float_kernel(DataType type, ReduceOp op, int n_inputs) noexcept;
Kernel float16_kernel(DataType type, ReduceOp op, int n_inputs) noexcept;
Kernel float8_kernel(DataType type, ReduceOp op, int n_inputs) noexcept;
Kernel compound_kernel(DataType type, ReduceOp op) noexcept;  // truth values, complex products, pairs
Kernel scale_kernel(DataType type) noexcept;                  // of types that have premulsum, signed ones as unsigned
Kernel cast_kernel(DataType from, DataType to) noexcept;      // sums of floats of up to 32 bits into others of them
Kernel copy_kernel() noexcept;                                // of bytes

// Of linked plans: sums of numbers, and products, greatest and least of floats of 16 bits and more. Each such kernel is as
// large as two others, so what is rare has none.
// `packets`: of plans of packets.
Kernel linked_integer_kernel(DataType type, ReduceOp op, bool packets) noexcept;
Kernel linked_float_kernel(DataType type, ReduceOp op, bool packets) noexcept;

// The one of the above.
inline Kernel reduce_kernel(const KernelCall& call, int n_inputs) noexcept {
  if (gives_truth(call.op, call.type)) return compound_kernel(call.type, call.op);
  switch (family(call.type)) {
    case Family::integer: return integer_kernel(call.type, call.op, n_inputs);
    case Family::floating: break;
    default: return compound_kernel(call.type, call.op);
  }
  switch (element_bytes(call.type)) {
    case 1: return float8_kernel(call.type, call.op, n_inputs);
    case 2: return float16_kernel(call.type, call.op, n_inputs);
    default: return float_kernel(call.type, call.op, n_inputs);
  }
}

inline Kernel linked_kernel(const KernelCall& call, bool packets) noexcept {
  if (family(call.type) == Family::integer && !gives_truth(call.op, call.type))
    return linked_integer_kernel(call.type, call.op, packets);
  return family(call.type) == Family::floating ? linked_float_kernel(call.type, call.op, packets) : Kernel{};
}

}  // namespace tutti
