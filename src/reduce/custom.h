// Reductions by a caller's own function, on elements of any size.
#pragma once

#include <cstddef>

namespace tutti {

// inout[i] = in[i] op inout[i] for i < count, where `in` is what stands further left. Both lie at a multiple of 64 bytes.
using CustomFunction = void (*)(const void* in, void* inout, size_t count, void* context);

struct CustomReduction {
  CustomFunction function = nullptr;
  void* context = nullptr;
  size_t element_bytes = 1;  // at most opaque_bytes_max
};

// output[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) … for i < count; as a ReduceFunction, any alignment, and
// output may be one of the inputs. The function is called for some elements after the others, on this thread.
void reduce_custom(const CustomReduction& custom, void* output, const void* const* inputs, int n_inputs,
                   size_t count) noexcept;

}  // namespace tutti
