// The C interface: collectives whose blocks have sizes of their own. The caller's arrays become a Layout, and are read
// no more.
#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api_operations.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

// One buffer of a call, as its caller names it. `counts` is the array, or the one count of the rank's own block.
struct Side {
  const char *buffer, *counts, *displacements;
  std::byte* data = nullptr;
  Part part = Part::none;
  BlockLayout blocks{};  // of every rank; where part is own, all but its own are unknown, and its first is 0

  size_t total() const { return std::accumulate(blocks.sizes.begin(), blocks.sizes.end(), size_t{0}); }
};

void check_end(const Side& side, size_t block, size_t first, size_t size, const ElementType& type) {
  size_t end = 0, bytes = 0;
  if (!__builtin_add_overflow(first, size, &end) && !__builtin_mul_overflow(end, size_t{type.bytes}, &bytes) &&
      bytes <= size_t(std::numeric_limits<int64_t>::max()))
    return;
  refuse(fmt::format("{}[{}] is {}, which from element {} on, times {} bytes of {}, exceeds 2^63", side.counts, block,
                     size, first, type.bytes, describe(type)));
}

void check_data(const Side& side) {
  const size_t total = side.total();
  if (side.data == nullptr && total != 0)
    refuse(fmt::format("{} is NULL with {} {} {}", side.buffer, side.counts,
                       side.part == Part::own ? "of" : "that add up to", total));
}

Side own_block(Side side, const void* data, size_t count, int rank, int n, const ElementType& type) {
  check_count(count, type);
  side.data = static_cast<std::byte*>(const_cast<void*>(data));
  side.part = Part::own;
  side.blocks.sizes.assign(size_t(n), 0);
  side.blocks.firsts.assign(size_t(n), 0);
  side.blocks.sizes[size_t(rank)] = count;
  check_data(side);
  return side;
}

// Without displacements, each block follows the one before. An empty block lies nowhere.
Side all_blocks(Side side, const void* data, const size_t* counts, const size_t* displacements, int n,
                const ElementType& type) {
  check_not_null(side.counts, counts);
  side.data = static_cast<std::byte*>(const_cast<void*>(data));
  side.part = Part::all;
  side.blocks.sizes.assign(counts, counts + n);
  side.blocks.firsts.assign(size_t(n), 0);
  size_t next = 0;
  for (size_t i = 0; i < size_t(n); ++i) {
    const size_t size = counts[i], first = size == 0 ? 0 : displacements == nullptr ? next : displacements[i];
    check_end(side, i, first, size, type);
    side.blocks.firsts[i] = first;
    if (size > 0) next = first + size;
  }
  check_end(side, size_t(n) - 1, 0, side.total(), type);
  check_data(side);
  return side;
}

// The blocks that are not empty, in the order of memory.
std::vector<size_t> in_memory_order(const BlockLayout& blocks) {
  std::vector<size_t> order;
  for (size_t i = 0; i < blocks.sizes.size(); ++i)
    if (blocks.sizes[i] > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks.firsts[a] < blocks.firsts[b]; });
  return order;
}

// "block 2 (elements 5 to 7)".
std::string block_text(const BlockLayout& blocks, size_t i) {
  return fmt::format("block {} (elements {} to {})", i, blocks.firsts[i], blocks.firsts[i] + blocks.sizes[i] - 1);
}

// Whether each block that is not empty begins where, or after, the one before it ends: as most callers lay them.
bool are_in_order(const BlockLayout& blocks) {
  size_t next = 0;
  for (size_t i = 0; i < blocks.sizes.size(); ++i) {
    if (blocks.sizes[i] == 0) continue;
    if (blocks.firsts[i] < next) return false;
    next = blocks.firsts[i] + blocks.sizes[i];
  }
  return true;
}

// What is written, or must stay while something is written beside it.
void check_disjoint(const Side& side) {
  if (are_in_order(side.blocks)) return;
  const std::vector<size_t> order = in_memory_order(side.blocks);
  for (size_t k = 1; k < order.size(); ++k) {
    const size_t before = order[k - 1], i = order[k];
    if (side.blocks.firsts[before] + side.blocks.sizes[before] > side.blocks.firsts[i])
      refuse(fmt::format("{} and {}: {} and {} of {} overlap", side.counts, side.displacements,
                         block_text(side.blocks, before), block_text(side.blocks, i), side.buffer));
  }
}

// No block of the one side shares a byte with one of the other, whose blocks are disjoint.
void check_apart(const Side& send, const Side& recv, size_t width) {
  const auto address = [width](const Side& side, size_t i) {
    return reinterpret_cast<uintptr_t>(side.data) + side.blocks.firsts[i] * width;
  };
  const auto a = reinterpret_cast<uintptr_t>(send.data), b = reinterpret_cast<uintptr_t>(recv.data);
  if (a + send.blocks.end() * width <= b || b + recv.blocks.end() * width <= a) return;
  const std::vector<size_t> order = in_memory_order(recv.blocks);
  for (const size_t i : in_memory_order(send.blocks)) {
    const uintptr_t begin = address(send, i), end = begin + send.blocks.sizes[i] * width;
    const auto at = std::partition_point(order.begin(), order.end(), [&](size_t k) {
      return address(recv, k) + recv.blocks.sizes[k] * width <= begin;
    });
    if (at == order.end() || address(recv, *at) >= end) continue;
    const bool both_whole = send.part == Part::all && recv.part == Part::all;
    refuse(fmt::format("sendbuff {} and recvbuff {}: {} of the one and {} of the other overlap; they must be disjoint, "
                       "or {}",
                       fmt::ptr(send.data), fmt::ptr(recv.data), block_text(send.blocks, i),
                       block_text(recv.blocks, *at),
                       both_whole ? "one buffer with the same counts and displacements"
                                  : "the one the rank's own block of the other"));
  }
}

// A call being checked: both sides are set, then it is submitted.
class VForm {
 public:
  VForm(Collective kind, tuttiDataType_t datatype, std::optional<tuttiRedOp_t> op, int root, tuttiComm_t comm)
      : communicator_(communicator_of(comm)),
        rank_(communicator_.rank()),
        n_(communicator_.size()),
        type_(checked_type(datatype)),
        kind_(kind) {
    check_fits(type_, communicator_);
    if (op) op_ = checked_op(*op, type_, communicator_.operators(), comm->number);
    check_root(root, n_);
    root_ = root;
  }

  bool is_root() const { return root_ == rank_; }

  void send_own(const void* buffer, size_t count) {
    send_ = own_block({"sendbuff", "sendcount", ""}, buffer, count, rank_, n_, type_);
  }
  void recv_own(void* buffer, size_t count) {
    recv_ = own_block({"recvbuff", "recvcount", ""}, buffer, count, rank_, n_, type_);
  }
  void send_all(const void* buffer, const size_t* counts, const size_t* displacements) {
    send_ = all_blocks({"sendbuff", "sendcounts", "sdispls"}, buffer, counts, displacements, n_, type_);
  }
  void recv_all(void* buffer, const size_t* counts, const size_t* displacements) {
    recv_ = all_blocks({"recvbuff", "recvcounts", "rdispls"}, buffer, counts, displacements, n_, type_);
    check_disjoint(recv_);
  }

  tuttiResult_t submit(tuttiStream_t stream, const tuttiOptions_t* options) {
    Request request = request_of(kind_, send_.data, recv_.data, 0, type_);
    request.call.op = op_.op;
    request.made = std::move(op_.made);
    request.call.root = uint32_t(root_);
    take_options(request, communicator_, options);
    request.vector_stride = send_.blocks.end();
    check_count(request.vector_stride, type_, 1, request.terms.inputs);
    if (send_.part != Part::none && recv_.part != Part::none) place_together(request);
    auto layout = std::make_shared<Layout>();
    layout->of_pairs = kind_ != Collective::all_gather_v && kind_ != Collective::reduce_scatter_v;
    layout->elements = std::max(send_.total(), recv_.total());
    request.call.count = send_.total();
    if (!layout->of_pairs) {
      // Whoever has its own block only knows the others' sizes all the same.
      const Side& whole = send_.part == Part::all ? send_ : recv_;
      for (Side* side : {&send_, &recv_}) side->blocks.sizes = whole.blocks.sizes;
      request.call.count = checksum(whole.blocks.sizes);
    }
    layout->input = std::move(send_.blocks);
    layout->output = std::move(recv_.blocks);
    request.layout = std::move(layout);
    return tutti::submit(communicator_, request, stream);
  }

 private:
  // In place both sides become the whole buffer; else they must be apart.
  void place_together(Request& request) {
    const size_t me = size_t(rank_), width = type_.bytes;
    if (send_.blocks.sizes[me] != recv_.blocks.sizes[me])
      refuse(fmt::format("{}{} is {}, but {}{} is {}: the rank's block for itself has one size", send_.counts,
                         index(send_), send_.blocks.sizes[me], recv_.counts, index(recv_), recv_.blocks.sizes[me]));
    const bool both_whole = send_.part == Part::all && recv_.part == Part::all;
    const auto own_at = [&](const Side& side) { return side.data + side.blocks.firsts[me] * width; };
    const bool same = both_whole ? send_.data == recv_.data && send_.blocks.sizes == recv_.blocks.sizes &&
                                       send_.blocks.firsts == recv_.blocks.firsts
                                 : send_.blocks.sizes[me] > 0 && own_at(send_) == own_at(recv_);
    if (!same) {
      check_apart(send_, recv_, width);
      if (request.terms.inputs > 1)
        check_overlap({send_.data, request.terms.inputs * request.vector_stride * width},
                      {own_at(recv_), recv_.blocks.sizes[me] * width}, InPlace::refused);
      return;
    }
    request.in_place = true;
    const Side& whole = send_.part == Part::all ? send_ : recv_;
    if (whole.part == Part::all) check_disjoint(whole);
    for (Side* side : {&send_, &recv_}) {
      side->data = whole.data;
      side->blocks = BlockLayout(whole.blocks);
    }
    request.input = request.output = whole.data;
  }

  std::string index(const Side& side) const { return side.part == Part::all ? fmt::format("[{}]", rank_) : ""; }

  Communicator& communicator_;
  int rank_, n_, root_ = 0;
  ElementType type_;
  Collective kind_;
  CheckedOp op_;
  Side send_{"sendbuff", "sendcounts", ""}, recv_{"recvbuff", "recvcounts", ""};
};

// What a v-form is called with, beside what says how it is done.
struct GivenCall {
  Collective kind;
  const void* send;
  void* recv;
  GivenSides blocks;  // their part is the kind's to say
  tuttiDataType_t datatype;
  tuttiRedOp_t op = tuttiSum;
  int root = 0;
};

GivenBlocks of_one(const size_t& count) { return {.counts = &count}; }
GivenBlocks of_all(const size_t* counts, const size_t* displacements) {
  return {.counts = counts, .displacements = displacements};
}

// A call that was made before.
[[gnu::always_inline]] inline bool again(GivenCall given, tuttiComm_t comm, tuttiStream_t stream,
                                         tuttiResult_t& result) noexcept {
  Communicator* const communicator = again_on(comm, stream, given.datatype, given.op);
  if (communicator == nullptr) return false;
  const Meaning& kind = meaning(given.kind);
  const bool is_root = given.root == communicator->rank();
  GivenBlocks &send = given.blocks.send, &recv = given.blocks.recv;
  send.part = kind.input_of(is_root);
  recv.part = kind.output_of(is_root);
  for (const GivenBlocks* side : {&send, &recv})
    if (side->part != Part::none && side->counts == nullptr) return false;
  const size_t n = size_t(communicator->size());
  const size_t count = send.part == Part::all ? send.total(n) : (send.part == Part::own ? send : recv).counts[0];
  fetch_first_lines(given.send, given.recv, count);
  const Call call{given.kind, DataType(given.datatype), ReduceOp(given.op), uint32_t(given.root), count};
  Repeat& repeat = communicator->repeat_of(call);
  if (repeat.allows(call, given.send, given.recv) && repeat.lies_as(given.blocks, size_t(communicator->rank())))
    return run_again(*communicator, repeat, given.send, given.recv, result);
  const Call copy = call;  // so that only these have to lie in memory
  const GivenSides sides = given.blocks;
  return run_large_again(*communicator, copy, given.send, given.recv, result, &sides);
}

}  // namespace
}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiAllGatherVWith(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                                  const size_t* rdispls, tuttiDataType_t datatype, tuttiComm_t comm,
                                  tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    VForm call(Collective::all_gather_v, datatype, {}, 0, comm);
    call.send_own(sendbuff, sendcount);
    call.recv_all(recvbuff, recvcounts, rdispls);
    return call.submit(stream, options);
  });
}

tuttiResult_t tuttiAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                              const size_t* rdispls, tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  const GivenCall given{Collective::all_gather_v, sendbuff, recvbuff,
                        {of_one(sendcount), of_all(recvcounts, rdispls)}, datatype};
  if (again(given, comm, stream, result)) return result;
  return tuttiAllGatherVWith(sendbuff, sendcount, recvbuff, recvcounts, rdispls, datatype, comm, stream, nullptr);
}

tuttiResult_t tuttiReduceScatterVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                      void* recvbuff, size_t recvcount, tuttiDataType_t datatype, tuttiRedOp_t op,
                                      tuttiComm_t comm, tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    VForm call(Collective::reduce_scatter_v, datatype, op, 0, comm);
    call.send_all(sendbuff, sendcounts, sdispls);
    call.recv_own(recvbuff, recvcount);
    return call.submit(stream, options);
  });
}

tuttiResult_t tuttiReduceScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                  void* recvbuff, size_t recvcount, tuttiDataType_t datatype, tuttiRedOp_t op,
                                  tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  const GivenCall given{Collective::reduce_scatter_v, sendbuff, recvbuff,
                        {of_all(sendcounts, sdispls), of_one(recvcount)}, datatype, op};
  if (again(given, comm, stream, result)) return result;
  return tuttiReduceScatterVWith(sendbuff, sendcounts, sdispls, recvbuff, recvcount, datatype, op, comm, stream,
                                 nullptr);
}

tuttiResult_t tuttiGatherVWith(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                               tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    VForm call(Collective::gather_v, datatype, {}, root, comm);
    call.send_own(sendbuff, sendcount);
    if (call.is_root()) call.recv_all(recvbuff, recvcounts, rdispls);
    return call.submit(stream, options);
  });
}

tuttiResult_t tuttiGatherV(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                           const size_t* rdispls, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                           tuttiStream_t stream) {
  tuttiResult_t result;
  const GivenCall given{Collective::gather_v, sendbuff, recvbuff,
                        {of_one(sendcount), of_all(recvcounts, rdispls)}, datatype, tuttiSum, root};
  if (again(given, comm, stream, result)) return result;
  return tuttiGatherVWith(sendbuff, sendcount, recvbuff, recvcounts, rdispls, datatype, root, comm, stream, nullptr);
}

tuttiResult_t tuttiScatterVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                                size_t recvcount, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                tuttiStream_t stream, const tuttiOptions_t* options) {
  return at_the_border([&] {
    VForm call(Collective::scatter_v, datatype, {}, root, comm);
    if (call.is_root()) call.send_all(sendbuff, sendcounts, sdispls);
    call.recv_own(recvbuff, recvcount);
    return call.submit(stream, options);
  });
}

tuttiResult_t tuttiScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                            size_t recvcount, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                            tuttiStream_t stream) {
  tuttiResult_t result;
  const GivenCall given{Collective::scatter_v, sendbuff, recvbuff,
                        {of_all(sendcounts, sdispls), of_one(recvcount)}, datatype, tuttiSum, root};
  if (again(given, comm, stream, result)) return result;
  return tuttiScatterVWith(sendbuff, sendcounts, sdispls, recvbuff, recvcount, datatype, root, comm, stream, nullptr);
}

tuttiResult_t tuttiAlltoAllVWith(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                 void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                 tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream,
                                 const tuttiOptions_t* options) {
  return at_the_border([&] {
    VForm call(Collective::all_to_all_v, datatype, {}, 0, comm);
    call.send_all(sendbuff, sendcounts, sdispls);
    call.recv_all(recvbuff, recvcounts, rdispls);
    return call.submit(stream, options);
  });
}

tuttiResult_t tuttiAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                             const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype,
                             tuttiComm_t comm, tuttiStream_t stream) {
  tuttiResult_t result;
  const GivenCall given{Collective::all_to_all_v, sendbuff, recvbuff,
                        {of_all(sendcounts, sdispls), of_all(recvcounts, rdispls)}, datatype};
  if (again(given, comm, stream, result)) return result;
  return tuttiAlltoAllVWith(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream,
                            nullptr);
}

}  // extern "C"
