// Lists of tensors as blocks of one buffer, and the checks of both.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "calls.h"

namespace tutti_torch {

using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;

inline std::vector<size_t> sizes_of(const Tensors& tensors) {
  std::vector<size_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(size_t(tensor.numel()));
  return sizes;
}
inline bool all_equal(const std::vector<size_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](size_t size) { return size == sizes.front(); });
}

// The elements of tensors, one tensor's after the other's: where the first is where they lie so in memory.
inline bool follow_each_other(const Tensors& tensors) {
  const char* next = static_cast<const char*>(tensors.front().data_ptr());
  for (const Tensor& tensor : tensors) {
    if (!lies_plain(tensor) || tensor.data_ptr() != next) return false;
    next += tensor.nbytes();
  }
  return tensors.front().numel() > 0;
}
// Where `tensors` lie one after the other, their memory; else a copy of them.
inline Tensor flat(const Tensors& tensors) {
  if (follow_each_other(tensors)) {
    const Tensor& first = tensors.front();
    int64_t count = 0;
    for (const Tensor& tensor : tensors) count += tensor.numel();
    return at::for_blob(first.data_ptr(), count).options(first.options()).target_device(first.device()).make_tensor();
  }
  Tensors parts;
  for (const Tensor& tensor : tensors) parts.push_back(plain(tensor).reshape({-1}));
  return at::cat(parts);
}
// Memory for results that go to `tensors`.
inline Tensor flat_room(const Tensors& tensors) {
  if (follow_each_other(tensors)) return flat(tensors);
  int64_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.numel();
  return at::empty({count}, tensors.front().options().memory_format(at::MemoryFormat::Contiguous));
}
inline void* data_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
inline void put_back_parts(const Tensor& flat_result, const Tensors& tensors) {
  if (flat_result.data_ptr() == tensors.front().data_ptr() && follow_each_other(tensors)) return;
  int64_t first = 0;
  for (const Tensor& tensor : tensors) {
    tensor.copy_(flat_result.narrow(0, first, tensor.numel()).view(tensor.sizes()));
    first += tensor.numel();
  }
}

inline void check_same_type(const Tensor& a, const Tensor& b, const char* what) {
  if (a.scalar_type() != b.scalar_type())
    refuse(std::string(what) + " has elements of " + c10::toString(b.scalar_type()) + " in place of " +
           c10::toString(a.scalar_type()));
}
inline void check_count(const char* what, int64_t count, int64_t wanted) {
  if (count != wanted)
    refuse(std::string(what) + " has " + std::to_string(count) + " elements in place of " + std::to_string(wanted));
}
inline void check_blocks(const Tensors& tensors, const char* what) {
  for (const Tensor& tensor : tensors) {
    check_place(tensor, what);
    check_same_type(tensors.front(), tensor, what);
  }
}

// Rows of a tensor for each rank, in elements.
inline std::vector<size_t> shares_of(const Tensor& tensor, const std::vector<int64_t>& rows, int ranks,
                                     const char* what) {
  const int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  const size_t width = all == 0 ? 0 : size_t(tensor.numel() / all);
  if (rows.empty()) {
    if (all % ranks != 0)
      refuse(std::string(what) + " has " + std::to_string(all) + " rows, which cannot be shared out evenly among " +
             std::to_string(ranks) + " ranks, and no split sizes were given");
    return std::vector<size_t>(size_t(ranks), size_t(all / ranks) * width);
  }
  if (int(rows.size()) != ranks)
    refuse(std::string(what) + " has " + std::to_string(rows.size()) + " split sizes for " + std::to_string(ranks) +
           " ranks");
  std::vector<size_t> sizes;
  int64_t sum = 0;
  for (const int64_t count : rows) {
    if (count < 0) refuse(std::string(what) + " has a split size of " + std::to_string(count));
    sum += count;
    sizes.push_back(size_t(count) * width);
  }
  if (sum != all)
    refuse(std::string(what) + " has " + std::to_string(all) + " rows, but its split sizes add up to " +
           std::to_string(sum));
  return sizes;
}

}  // namespace tutti_torch
