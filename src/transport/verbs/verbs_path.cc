// Queue pairs: making, connecting, posting.
#include "transport/verbs/verbs_path.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"

namespace tutti {
namespace {

// Of RC queue pairs: half a second (4.096 us << 17; devices may take four times that) until a packet is sent again, six
// times. A host that stands still for some seconds, or a switch that learns anew, is survived; shorter times make a busy
// host's packets come twice. Whether a peer lives, the control links know better; this is for a network that swallows
// packets though both ports are up. Not seven times, which to soft-RoCE means for ever.
constexpr uint8_t timeout_exponent = 17, retries = 6;
// How often a peer without a receive is asked again: never needed, since who sends knows how many there are.
constexpr uint8_t receiver_not_ready_retries = 6, receiver_not_ready_timer = 12;
constexpr uint8_t hop_limit = 64;

void check(int result, const char* what, const VerbsDevice& device) {
  if (result != 0) throw system_error(fmt::format("verbs: {} on {}", what, device.name()), result > 0 ? result : errno);
}

}  // namespace

VerbsPath::VerbsPath(VerbsEndpoint& endpoint, VerbsDevice& device, VerbsCounters& counters, int number,
                     uint32_t messages_max, size_t inline_bytes_max)
    : endpoint_(endpoint), device_(device), counters_(counters), number_(number),
      depth_(messages_max + verbs_credits_max + verbs_signal_every),
      receives_max_(messages_max + verbs_credits_max + verbs_repost_batch) {
  TUTTI_ASSERT(depth_ / verbs_signal_every + verbs_credits_max < signalled_max);
  ibv_qp_init_attr facts{};
  facts.send_cq = facts.recv_cq = device.cq();
  facts.qp_type = IBV_QPT_RC;
  facts.cap.max_send_wr = depth_;
  facts.cap.max_recv_wr = receives_max_;
  facts.cap.max_send_sge = 2;
  facts.cap.max_recv_sge = 1;
  facts.cap.max_inline_data = uint32_t(inline_bytes_max);
  ibv_qp* made = device.library().create_qp(device.pd(), &facts);
  if (made == nullptr && inline_bytes_max > 0) {  // what is refused may be the inline data alone
    facts.cap.max_inline_data = 0;
    made = device.library().create_qp(device.pd(), &facts);
  }
  if (made == nullptr) throw system_error("verbs: making a queue pair on " + device.name(), errno);
  queue_pair_ = VerbsOwner<ibv_qp>(made, VerbsDeleter{&device.library()});
  inline_bytes_max_ = facts.cap.max_inline_data;
}

void VerbsPath::to_init(uint8_t port_number) {
  port = port_number;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check(device_.library().modify_qp(queue_pair_.get(), &attributes,
                                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "initialising a queue pair", device_);
  check(post_receives(receives_max_), "posting receives", device_);
}

void VerbsPath::connect(const Route& route, uint32_t peer_number, const Target& target) {
  target_ = target;
  mtu = uint8_t(route.mtu);
  const VerbsGid& mine = route.mine->gids[route.my_gid];
  const VerbsGid& theirs = route.theirs->gids[route.their_gid];
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = route.mtu;
  attributes.dest_qp_num = peer_number;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = receiver_not_ready_timer;
  attributes.ah_attr.port_num = port;
  attributes.ah_attr.dlid = route.theirs->lid;
  attributes.ah_attr.is_global = route.mine->infiniband == 0 || route.mine->subnet != route.theirs->subnet;
  std::copy(theirs.address.begin(), theirs.address.end(), attributes.ah_attr.grh.dgid.raw);
  attributes.ah_attr.grh.sgid_index = mine.index;
  attributes.ah_attr.grh.hop_limit = hop_limit;
  check(device_.library().modify_qp(queue_pair_.get(), &attributes,
                                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "connecting a queue pair", device_);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = timeout_exponent;
  attributes.retry_cnt = retries;
  attributes.rnr_retry = receiver_not_ready_retries;
  attributes.max_rd_atomic = 1;
  check(device_.library().modify_qp(queue_pair_.get(), &attributes,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
        "readying a queue pair", device_);
  description = fmt::format("{} port {} (GID {}, {})", device_.name(), port, mine.index, name(mine.kind));
}

VerbsPath::Waiting& VerbsPath::next() noexcept {
  Waiting& waiting = waiting_[waits_];
  waiting.request = {};
  waiting.request.sg_list = waiting.parts;
  waiting.request.wr.rdma.remote_addr = target_.ring_address;
  waiting.request.wr.rdma.rkey = target_.rkey;
  return waiting;
}

int VerbsPath::post(Waiting& waiting, bool signalled, bool more) noexcept {
  ++posted_;
  if (signalled || posted_ % verbs_signal_every == 0) {
    waiting.request.send_flags |= IBV_SEND_SIGNALED;
    signalled_[signalled_last_++ % signalled_max] = posted_;
  }
  waiting.request.wr_id = id_of(*this, false);
  if (waits_ > 0) waiting_[waits_ - 1].request.next = &waiting.request;
  ++waits_;
  ++counters_.work_requests;
  return more && waits_ < verbs_batch_max ? 0 : ring();
}

int VerbsPath::ring() noexcept {
  if (waits_ == 0) return 0;
  waits_ = 0;
  ++counters_.doorbells;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(queue_pair_.get(), &waiting_[0].request, &bad);
}

int VerbsPath::post_message(const VerbsPieces& pieces, bool more) noexcept {
  if (pieces.address != 0) return post_direct(pieces, more);
  Waiting& waiting = next();
  const uint32_t key = device_.rings.lkey();
  ibv_sge* const parts = waiting.parts;
  ibv_send_wr& request = waiting.request;
  parts[0] = {reinterpret_cast<uintptr_t>(pieces.header), uint32_t(sizeof(VerbsHeader)), key};
  if (pieces.lent != nullptr) {
    parts[1] = {reinterpret_cast<uintptr_t>(pieces.lent), uint32_t(pieces.bytes), (*pieces.keys)[size_t(device_index)]};
    request.num_sge = 2;
  } else {
    parts[0].length += uint32_t(pieces.bytes);
    request.num_sge = 1;
    if (parts[0].length <= inline_bytes_max_) request.send_flags = IBV_SEND_INLINE;
  }
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(uint32_t(pieces.place));
  request.wr.rdma.remote_addr += pieces.place * verbs_unit_bytes + verbs_header_at;
  return post(waiting, false, more);
}

// The payload alone: the target says what else the header would.
int VerbsPath::post_direct(const VerbsPieces& pieces, bool more) noexcept {
  Waiting& waiting = next();
  const std::byte* const payload = pieces.lent != nullptr ? pieces.lent : pieces.header + sizeof(VerbsHeader);
  const uint32_t key = pieces.lent != nullptr ? (*pieces.keys)[size_t(device_index)] : device_.rings.lkey();
  waiting.parts[0] = {reinterpret_cast<uintptr_t>(payload), uint32_t(pieces.bytes), key};
  waiting.request.num_sge = 1;
  waiting.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  waiting.request.imm_data = htonl((pieces.number & verbs_low_bits) | verbs_direct_bit);
  waiting.request.wr.rdma.remote_addr = pieces.address;
  waiting.request.wr.rdma.rkey = pieces.key;
  return post(waiting, false, more);
}

int VerbsPath::post_target(const VerbsTarget& target, uint32_t place) noexcept {
  Waiting& waiting = next();
  waiting.parts[0] = {reinterpret_cast<uintptr_t>(&target), sizeof target, device_.rings.lkey()};
  waiting.request.num_sge = 1;
  if (sizeof target <= inline_bytes_max_) waiting.request.send_flags = IBV_SEND_INLINE;
  waiting.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  waiting.request.imm_data = htonl(place | verbs_target_bit);
  waiting.request.wr.rdma.remote_addr = target_.targets_address + place * sizeof target;
  return post(waiting, false, false);
}

int VerbsPath::post_credit(uint32_t immediate) noexcept {
  Waiting& waiting = next();
  waiting.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  waiting.request.imm_data = htonl(immediate);
  return post(waiting, false, false);
}

int VerbsPath::post_marker(uint64_t request) noexcept {
  if (signalled_first_ != signalled_last_ && signalled_[(signalled_last_ - 1) % signalled_max] >= request)
    return ring();
  Waiting& waiting = next();
  waiting.request.opcode = IBV_WR_RDMA_WRITE;
  return post(waiting, true, false);
}

int VerbsPath::post_probe(const std::byte* data, size_t bytes) noexcept {
  Waiting& waiting = next();
  waiting.parts[0] = {reinterpret_cast<uintptr_t>(data), uint32_t(bytes), device_.rings.lkey()};
  waiting.request.num_sge = 1;
  waiting.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  waiting.request.imm_data = htonl(verbs_probe);
  return post(waiting, true, false);
}

int VerbsPath::post_receives(uint32_t count) noexcept {
  ibv_recv_wr requests[verbs_repost_batch];
  while (count > 0) {
    const uint32_t n = std::min(count, verbs_repost_batch);
    for (uint32_t i = 0; i < n; ++i) {
      requests[i] = {};
      requests[i].wr_id = id_of(*this, true);
      requests[i].next = i + 1 < n ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    const int result = ibv_post_recv(queue_pair_.get(), requests, &bad);
    if (result != 0) return result;
    receives_ += n;
    count -= n;
  }
  return 0;
}

void VerbsPath::send_completed() noexcept {
  if (signalled_first_ == signalled_last_) return;
  completed_ = signalled_[signalled_first_++ % signalled_max];
  ++counters_.completions;
}

void VerbsPath::receive_completed() noexcept {
  --receives_;
  if (state != State::alive || ++receives_due_ < verbs_repost_batch) return;
  if (post_receives(receives_due_) == 0) receives_due_ = 0;
}

void VerbsPath::stop() noexcept {
  state = State::stopping;
  stopped_at_ns = now_ns();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  device_.library().modify_qp(queue_pair_.get(), &attributes, IBV_QP_STATE);
}

}  // namespace tutti
