// The devices, the network and its faults, behind the functions of libibverbs.
#include "transport/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "transport/verbs_support.h"

namespace tutti {
namespace {

constexpr int tries_max = 40;  // of a packet that nobody answers, before its queue pair is in error
constexpr int completions_max = 1 << 20;

struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> news;
};

struct Queue : ibv_cq {
  std::deque<ibv_wc> done;
  bool armed = false;
};

struct Region : ibv_mr {
  int access;
};

struct Send {
  ibv_send_wr request;
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> data;  // of what was posted inline
};

struct QueuePair : ibv_qp {
  ibv_qp_cap room;
  uint32_t peer = 0;         // its number; 0: not connected
  std::deque<Send> sends;
  std::deque<uint64_t> receives;
  bool delivered = false;    // the first of sends, whose acknowledgement is under way
  int tries = 0;
};

struct Context : ibv_context {
  std::deque<ibv_async_event> events;
};

// All of it, behind one lock.
struct World {
  std::mutex mutex;
  std::mt19937_64 random{1};
  std::array<ibv_device, FakeVerbs::devices> devices{};
  std::array<bool, FakeVerbs::devices> dead{};
  bool cut = false;
  uint32_t refused_one_in = 0;
  uint32_t last_number = 0, last_key = 0;
  std::vector<Context*> contexts;
  std::map<uint32_t, QueuePair*> pairs;
  std::map<uint32_t, Region*> regions;
  int armed = 0;  // queues
  std::string misuse;

  World() {
    for (size_t i = 0; i < devices.size(); ++i) std::strcpy(devices[i].name, ("fake" + std::to_string(i)).c_str());
  }
  bool chance(uint32_t one_in) { return random() % one_in == 0; }
  int device_of(const ibv_context* context) const { return int(context->device - devices.data()); }
  void refuse(const std::string& what) {
    if (misuse.empty()) misuse = what;
  }

  void complete(ibv_cq* cq, const ibv_wc& completion) {
    Queue& queue = *static_cast<Queue*>(cq);
    if (int(queue.done.size()) >= queue.cqe) return refuse("a completion queue has no room");
    queue.done.push_back(completion);
    if (!queue.armed) return;
    queue.armed = false;
    --armed;
    Channel& channel = *static_cast<Channel*>(queue.channel);
    channel.news.push_back(&queue);
    signal(channel.fd);
  }
  void complete_send(QueuePair& pair, ibv_wc_status status) {
    ibv_wc completion{};
    completion.wr_id = pair.sends.front().request.wr_id;
    completion.status = status;
    completion.opcode = IBV_WC_RDMA_WRITE;
    completion.qp_num = pair.qp_num;
    const bool signalled = (pair.sends.front().request.send_flags & IBV_SEND_SIGNALED) != 0;
    pair.sends.pop_front();
    pair.delivered = false;
    pair.tries = 0;
    if (signalled || status != IBV_WC_SUCCESS) complete(pair.send_cq, completion);
  }
  void complete_receive(QueuePair& pair, ibv_wc_status status, uint32_t immediate, size_t bytes) {
    ibv_wc completion{};
    completion.wr_id = pair.receives.front();
    completion.status = status;
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.imm_data = immediate;
    completion.wc_flags = IBV_WC_WITH_IMM;
    completion.byte_len = uint32_t(bytes);
    completion.qp_num = pair.qp_num;
    pair.receives.pop_front();
    complete(pair.recv_cq, completion);
  }
  void fail(QueuePair& pair, ibv_wc_status status) {
    complete_send(pair, status);
    pair.state = IBV_QPS_ERR;
  }

  QueuePair* reached(const QueuePair& pair) {
    const auto found = pairs.find(pair.peer);
    if (found == pairs.end() || found->second->state < IBV_QPS_RTR || found->second->state == IBV_QPS_ERR) return nullptr;
    const int here = device_of(pair.context), there = device_of(found->second->context);
    return dead[size_t(there)] || (cut && here != there) ? nullptr : found->second;
  }
  bool may(uint32_t key, uint64_t address, size_t bytes, const ibv_pd* pd, int access) {
    const auto found = regions.find(key);
    if (found == regions.end() || found->second->pd != pd || (found->second->access & access) != access) return false;
    const uint64_t begin = reinterpret_cast<uintptr_t>(found->second->addr);
    return address >= begin && bytes <= found->second->length && address - begin <= found->second->length - bytes;
  }

  // One thing that happens to a queue pair. False: nothing can, before somebody does something.
  bool advance(QueuePair& pair) {
    if (dead[size_t(device_of(pair.context))]) return false;
    if (pair.state == IBV_QPS_ERR) {
      if (!pair.sends.empty()) complete_send(pair, IBV_WC_WR_FLUSH_ERR);
      else if (!pair.receives.empty()) complete_receive(pair, IBV_WC_WR_FLUSH_ERR, 0, 0);
      else return false;
      return true;
    }
    if (pair.state != IBV_QPS_RTS || pair.sends.empty()) return false;
    QueuePair* const there = reached(pair);
    const Send& first = pair.sends.front();
    const bool tells = first.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (there == nullptr || (tells && !pair.delivered && there->receives.empty())) {
      if (++pair.tries > tries_max) fail(pair, there == nullptr ? IBV_WC_RETRY_EXC_ERR : IBV_WC_RNR_RETRY_EXC_ERR);
      return true;
    }
    if (!pair.delivered) {
      if (!deliver(pair, *there, first) || chance(4)) return true;  // later the rest, or the acknowledgement
    }
    complete_send(pair, IBV_WC_SUCCESS);
    return true;
  }
  // False: not the whole of it yet, or it is in error.
  bool deliver(QueuePair& pair, QueuePair& there, const Send& first) {
    std::vector<std::byte> data = first.data;
    for (const ibv_sge& piece : first.pieces) {
      if (!may(piece.lkey, piece.addr, piece.length, pair.pd, 0)) {
        fail(pair, IBV_WC_LOC_PROT_ERR);
        return false;
      }
      const auto* const begin = reinterpret_cast<const std::byte*>(piece.addr);
      data.insert(data.end(), begin, begin + piece.length);
    }
    const uint64_t address = first.request.wr.rdma.remote_addr;
    if (!data.empty() && !may(first.request.wr.rdma.rkey, address, data.size(), there.pd, IBV_ACCESS_REMOTE_WRITE)) {
      there.state = IBV_QPS_ERR;
      fail(pair, IBV_WC_REM_ACCESS_ERR);
      return false;
    }
    const bool whole = chance(2);
    const size_t bytes = whole || data.empty() ? data.size() : random() % data.size();
    std::copy_n(data.begin(), bytes, reinterpret_cast<std::byte*>(address));
    if (!whole) return false;
    pair.delivered = true;
    if (first.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
      complete_receive(there, IBV_WC_SUCCESS, first.request.imm_data, data.size());
    return true;
  }

  void step() {
    for (const auto& [number, pair] : pairs)
      for (int times = int(random() % 4); times > 0 && advance(*pair); --times) {}
  }
  void settle() {
    for (bool moves = true; moves;) {
      moves = false;
      for (const auto& [number, pair] : pairs) moves |= advance(*pair);
    }
  }

  static void signal(int fd) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t result = ::write(fd, &one, sizeof one);
  }
  static void drain(int fd) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t result = ::read(fd, &count, sizeof count);
  }
  void tell(int device, ibv_event_type type) {
    for (Context* context : contexts) {
      if (device_of(context) != device) continue;
      ibv_async_event event{};
      event.event_type = type;
      event.element.port_num = 1;
      context->events.push_back(event);
      signal(context->async_fd);
    }
  }
};

World& world() {
  static World the_world;
  return the_world;
}
using Lock = std::lock_guard<std::mutex>;

// --- The driver's part, which verbs.h calls through a context.

int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) {
  const Lock lock(world().mutex);
  world().step();
  Queue& queue = *static_cast<Queue*>(cq);
  int n = 0;
  for (; n < most && !queue.done.empty(); ++n) {
    completions[n] = queue.done.front();
    queue.done.pop_front();
  }
  return n;
}

int req_notify_cq(ibv_cq* cq, int) {
  const Lock lock(world().mutex);
  world().settle();  // only what comes later wakes
  Queue& queue = *static_cast<Queue*>(cq);
  if (!queue.armed) ++world().armed;
  queue.armed = true;
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  const Lock lock(world().mutex);
  QueuePair& pair = *static_cast<QueuePair*>(qp);
  for (ibv_send_wr* request = requests; request != nullptr; request = request->next) {
    *bad = request;
    if (world().dead[size_t(world().device_of(qp->context))]) return EIO;
    if (world().refused_one_in > 0 && world().chance(world().refused_one_in)) return ENOMEM;
    if (pair.sends.size() >= pair.room.max_send_wr || uint32_t(request->num_sge) > pair.room.max_send_sge) {
      world().refuse("a send queue has no room");
      return ENOMEM;
    }
    Send send{*request, {}, {}};
    for (int i = 0; i < request->num_sge; ++i) {
      const ibv_sge& piece = request->sg_list[i];
      const auto* const begin = reinterpret_cast<const std::byte*>(piece.addr);
      if ((request->send_flags & IBV_SEND_INLINE) != 0) send.data.insert(send.data.end(), begin, begin + piece.length);
      else if (piece.length > 0) send.pieces.push_back(piece);
    }
    if (send.data.size() > pair.room.max_inline_data) {
      world().refuse("more is inline than was agreed");
      return EINVAL;
    }
    pair.sends.push_back(std::move(send));
  }
  if (world().armed > 0) world().settle();
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const Lock lock(world().mutex);
  QueuePair& pair = *static_cast<QueuePair*>(qp);
  for (ibv_recv_wr* request = requests; request != nullptr; request = request->next) {
    *bad = request;
    if (pair.receives.size() >= pair.room.max_recv_wr) {
      world().refuse("a receive queue has no room");
      return ENOMEM;
    }
    pair.receives.push_back(request->wr_id);
  }
  return 0;
}

// --- The library's part.

ibv_device** get_device_list(int* count) {
  const Lock lock(world().mutex);
  auto** const list = new ibv_device* [FakeVerbs::devices + 1] {};
  *count = 0;
  for (ibv_device& device : world().devices) list[(*count)++] = &device;
  return list;
}
void free_device_list(ibv_device** list) { delete[] list; }
const char* get_device_name(ibv_device* device) { return device->name; }

ibv_context* open_device(ibv_device* device) {
  const Lock lock(world().mutex);
  auto* const context = new Context{};
  context->device = device;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->async_fd = ::eventfd(0, EFD_CLOEXEC);
  world().contexts.push_back(context);
  return context;
}
int close_device(ibv_context* context) {
  const Lock lock(world().mutex);
  std::erase(world().contexts, context);
  ::close(context->async_fd);
  delete static_cast<Context*>(context);
  return 0;
}

int query_device(ibv_context*, ibv_device_attr* facts) {
  *facts = {};
  facts->phys_port_cnt = 1;
  facts->max_cqe = completions_max;
  return 0;
}
int query_port(ibv_context* context, uint8_t, _compat_ibv_port_attr* facts) {
  const Lock lock(world().mutex);
  ibv_port_attr port{};
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_1024;
  port.gid_tbl_len = 1;
  port.lid = uint16_t(world().device_of(context) + 1);
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  std::memcpy(static_cast<void*>(facts), &port, sizeof port);
  return 0;
}
int query_gid(ibv_context* context, uint8_t, int, ibv_gid* gid) {
  const Lock lock(world().mutex);
  gid->global.subnet_prefix = 0xfe;
  gid->global.interface_id = uint64_t(world().device_of(context) + 1);
  return 0;
}

ibv_pd* alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }
int dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* data, size_t bytes, int access) {
  const Lock lock(world().mutex);
  auto* const region = new Region{};
  region->context = pd->context;
  region->pd = pd;
  region->addr = data;
  region->length = bytes;
  region->lkey = region->rkey = ++world().last_key;
  region->access = access;
  world().regions[region->lkey] = region;
  return region;
}
int dereg_mr(ibv_mr* region) {
  const Lock lock(world().mutex);
  world().regions.erase(region->lkey);
  delete static_cast<Region*>(region);
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  auto* const channel = new Channel{};
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_CLOEXEC);
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  delete static_cast<Channel*>(channel);
  return 0;
}
ibv_cq* create_cq(ibv_context* context, int room, void*, ibv_comp_channel* channel, int) {
  auto* const queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  queue->cqe = room;
  return queue;
}
int destroy_cq(ibv_cq* cq) {
  const Lock lock(world().mutex);
  world().armed -= static_cast<Queue*>(cq)->armed ? 1 : 0;
  delete static_cast<Queue*>(cq);
  return 0;
}
int get_cq_event(ibv_comp_channel* on, ibv_cq** cq, void** context) {
  const Lock lock(world().mutex);
  Channel& channel = *static_cast<Channel*>(on);
  if (channel.news.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *cq = channel.news.front();
  *context = nullptr;
  channel.news.pop_front();
  if (channel.news.empty()) World::drain(channel.fd);
  return 0;
}
void ack_cq_events(ibv_cq*, unsigned) {}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* facts) {
  const Lock lock(world().mutex);
  auto* const pair = new QueuePair{};
  pair->context = pd->context;
  pair->pd = pd;
  pair->send_cq = facts->send_cq;
  pair->recv_cq = facts->recv_cq;
  pair->qp_num = ++world().last_number;
  pair->state = IBV_QPS_RESET;
  pair->room = facts->cap;
  world().pairs[pair->qp_num] = pair;
  return pair;
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const Lock lock(world().mutex);
  QueuePair& pair = *static_cast<QueuePair*>(qp);
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes->dest_qp_num;
  pair.state = attributes->qp_state;
  if (world().armed > 0) world().settle();
  return 0;
}
int destroy_qp(ibv_qp* qp) {
  const Lock lock(world().mutex);
  world().pairs.erase(qp->qp_num);
  for (ibv_cq* cq : {qp->send_cq, qp->recv_cq})
    std::erase_if(static_cast<Queue*>(cq)->done, [&](const ibv_wc& completion) { return completion.qp_num == qp->qp_num; });
  delete static_cast<QueuePair*>(qp);
  return 0;
}

int get_async_event(ibv_context* from, ibv_async_event* event) {
  const Lock lock(world().mutex);
  Context& context = *static_cast<Context*>(from);
  if (context.events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = context.events.front();
  context.events.pop_front();
  if (context.events.empty()) World::drain(context.async_fd);
  return 0;
}
void ack_async_event(ibv_async_event*) {}

}  // namespace

const VerbsLibrary& FakeVerbs::library() {
  static const VerbsLibrary functions{
      get_device_list, free_device_list, get_device_name, open_device, close_device, query_device, query_port, query_gid,
      alloc_pd, dealloc_pd, reg_mr, nullptr, dereg_mr, create_comp_channel, destroy_comp_channel, create_cq, destroy_cq,
      get_cq_event, ack_cq_events, create_qp, modify_qp, destroy_qp, get_async_event, ack_async_event};
  return functions;
}

void FakeVerbs::reset(uint64_t seed) {
  const Lock lock(world().mutex);
  world().random.seed(seed);
  world().dead = {};
  world().cut = false;
  world().refused_one_in = 0;
  world().misuse.clear();
}

void FakeVerbs::cut_cable(bool told) {
  const Lock lock(world().mutex);
  world().cut = true;
  for (int device = 0; told && device < devices; ++device) world().tell(device, IBV_EVENT_PORT_ERR);
  if (world().armed > 0) world().settle();
}

void FakeVerbs::kill_device(int device) {
  const Lock lock(world().mutex);
  world().dead[size_t(device)] = true;
  world().tell(device, IBV_EVENT_DEVICE_FATAL);
  if (world().armed > 0) world().settle();
}

void FakeVerbs::break_queue_pair(uint64_t which) {
  const Lock lock(world().mutex);
  std::vector<QueuePair*> connected;
  for (const auto& [number, pair] : world().pairs)
    if (pair->state == IBV_QPS_RTS) connected.push_back(pair);
  if (connected.empty()) return;
  connected[which % connected.size()]->state = IBV_QPS_ERR;
  if (world().armed > 0) world().settle();
}

void FakeVerbs::refuse_sends(uint32_t one_in) {
  const Lock lock(world().mutex);
  world().refused_one_in = one_in;
}

std::string FakeVerbs::misuse() {
  const Lock lock(world().mutex);
  return world().misuse;
}

const VerbsLibrary* verbs_under_test() { return &FakeVerbs::library(); }
std::string device_of(int rank) { return "fake" + std::to_string(rank % FakeVerbs::devices); }

}  // namespace tutti
