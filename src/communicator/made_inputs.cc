// Inputs that are made of what a caller gave: vectors joined, or multiplied.
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "communicator/communicator.h"
#include "reduce/scale.h"
#include "schedule/collective.h"

namespace tutti {

// Of a v-form: blocks, and vectors of them, follow each other in memory of their own.
Request Communicator::with_made_blocks(const Request& asked, size_t vectors, const MakeInput& make) {
  Request request = asked;
  const size_t width = element_bytes(asked.call);
  made_layout_ = *asked.layout;
  BlockLayout& blocks = made_layout_.input;
  const size_t stride = std::accumulate(blocks.sizes.begin(), blocks.sizes.end(), size_t{0});
  std::byte* const target = made_input(asked, vectors * stride * width);
  std::exclusive_scan(blocks.sizes.begin(), blocks.sizes.end(), blocks.firsts.begin(), size_t{0});
  for (size_t k = 0; k < vectors; ++k)
    for (size_t i = 0; i < blocks.sizes.size(); ++i) {
      if (blocks.sizes[i] == 0) continue;
      const std::byte* const from = asked.input + (k * asked.vector_stride + asked.layout->input.firsts[i]) * width;
      make(from, target + (k * stride + blocks.firsts[i]) * width, blocks.sizes[i]);
    }
  request.in_place = false;
  request.input = target;
  request.vector_stride = stride;
  request.layout = {std::shared_ptr<const void>(), &made_layout_};  // owns nothing: the memory is of this
  return request;
}

// Where a rank has the whole result too, and its input is as large, the input is made there; else in memory of its own, which
// the caller of this says.
Request Communicator::with_input_to_make(const Request& asked, size_t vectors) const {
  Request request = asked;
  const bool blocks = meaning(asked.call.kind).blocks;
  request.in_place = !blocks && asked.output != nullptr && vectors == 1;
  request.input = request.in_place ? asked.output : nullptr;
  if (asked.in_place && blocks) request.output += size_t(rank_) * asked.call.count * element_bytes(asked.call);
  return request;
}

Request Communicator::with_made_input(const Request& asked, size_t vectors, const MakeInput& make) {
  if (asked.layout != nullptr) return with_made_blocks(asked, vectors, make);
  Request request = with_input_to_make(asked, vectors);
  const size_t count = vectors * asked.call.count * (meaning(asked.call.kind).blocks ? size_t(size_) : 1);
  std::byte* const target = request.in_place ? asked.output : made_input(asked, count * element_bytes(asked.call));
  make(asked.input, target, count);
  request.input = target;
  return request;
}

// A rank's own scalar, which a device may hold.
std::array<std::byte, 16> Communicator::scalar_of(const Request& asked) {
  const MadeOperator& made = *asked.made;
  const void* const given = made.scalar != nullptr ? made.scalar : made.immediate.data();
  std::array<std::byte, 16> scalar{};
  const size_t width = element_bytes(asked.call);
  if (device_side_ == nullptr || !device_side_->read_scalar(given, width, scalar)) std::memcpy(scalar.data(), given, width);
  return scalar;
}

// A rank's input times its scalar; all its vectors, unless they are joined already.
Request Communicator::with_multiplied_input(const Request& asked) {
  const size_t vectors = joins_its_vectors(asked) ? 1 : asked.terms.inputs;
  const std::array<std::byte, 16> scalar = scalar_of(asked);
  return with_made_input(asked, vectors, [&](const std::byte* from, std::byte* to, size_t count) {
    if (asked.on_device) device_side_->scale(asked.call.type, scalar.data(), {from, to, count}, asked.in_reach);
    else scale(asked.call.type, scalar.data(), from, to, count);
  });
}

// The same as the call goes on, of one vector.
Request Communicator::with_multiplied_tiles(const Request& asked) {
  multiplied_ = {asked.input, asked.call.type, scalar_of(asked)};
  return with_input_to_make(asked, 1);
}

void Communicator::set_multiplied_tiles(Work& work, const Request& made) {
  work.multiplied = &multiplied_;
  if (made.in_place) return;
  size_t bytes = engine_->multiplied_tiles_bytes(work, channels_), room = bytes + multiplied_tiles_alignment;
  void* tiles = made_input(made, room);
  multiplied_.tiles = static_cast<std::byte*>(std::align(multiplied_tiles_alignment, bytes, tiles, room));
  work.input = multiplied_.tiles;
}

// A rank's vectors as one, where that is the same in every order.
Request Communicator::with_joined_vectors(const Request& asked) {
  const size_t stride = asked.vector_stride * element_bytes(asked.call);
  const ReduceFunction join = reduce_function(asked.call.type, asked.call.op);
  return with_made_input(asked, 1, [&](const std::byte* from, std::byte* to, size_t count) {
    for (size_t k = 0; k < asked.terms.inputs;) {
      const void* inputs[reduce_inputs_max] = {to};
      int n = k > 0 ? 1 : 0;
      for (; n < reduce_inputs_max && k < asked.terms.inputs; ++k) inputs[n++] = from + k * stride;
      if (asked.on_device) device_side_->join(asked.call.type, asked.call.op, {inputs, size_t(n)}, to, count, asked.in_reach);
      else join(to, inputs, n, count, 0, Store::cached);
    }
  });
}

}  // namespace tutti
