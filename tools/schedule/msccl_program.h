// An MSCCL algorithm as it stands in its file, and one order of all its steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/signature.h"

namespace tutti::msccl {

enum class Op : uint8_t {
  send,
  recv,
  recv_copy_send,
  recv_reduce_send,
  recv_reduce_copy,
  recv_reduce_copy_send,
  copy,
  reduce,
  nothing
};
constexpr bool sends(Op op) {
  return op == Op::send || op == Op::recv_copy_send || op == Op::recv_reduce_send || op == Op::recv_reduce_copy_send;
}
constexpr bool receives(Op op) { return op >= Op::recv && op <= Op::recv_reduce_copy_send; }
constexpr bool reduces(Op op) {
  return op == Op::recv_reduce_send || op == Op::recv_reduce_copy || op == Op::recv_reduce_copy_send;
}

// `count` chunks of a buffer: i, o or s.
struct Area {
  char buffer = 'i';
  int first = 0;
};

struct Step {
  Op op = Op::nothing;
  Area src, dst;
  int count = 0;
  int waits_for_tb = -1, waits_for_step = -1;  // of the same gpu
  bool has_dependents = false;
};

struct ThreadBlock {
  int id = 0;
  int send_to = -1, recv_from = -1, channel = 0;
  std::vector<Step> steps;
};

struct Gpu {
  int i_chunks = 0, o_chunks = 0, s_chunks = 0;
  std::vector<ThreadBlock> blocks;  // [id]
};

struct Program {
  std::string source;
  std::string name;
  Collective collective = Collective::none;
  int root = 0;
  std::vector<Gpu> gpus;  // [id]

  int n() const { return int(gpus.size()); }
};

// One step of one thread block.
struct Node {
  int gpu = 0, block = 0, step = 0;
};
// "gpu 0, tb 1, step 2".
std::string name(const Node& node);

// Both throw Error(invalid_argument) with a sentence that begins with the source.
Program parse(std::string_view xml, std::string_view source);

// Orders of all steps in which every step comes after what it waits for, and between two gpus messages are received in
// the order in which they are sent, whatever their channels, with at most two of them under way. At least one; the most
// careful first. Throws where there is none, and says why.
std::vector<std::vector<Node>> orders(const Program& program);

}  // namespace tutti::msccl
