// The sentences, one per status and event.
#include "transport/verbs/verbs_cause.h"

namespace tutti {
namespace {

constexpr uint8_t event_code = 0x80;

VerbsCause of_status(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return {"it succeeded", ""};
    case IBV_WC_RETRY_EXC_ERR:
      return {
          "the peer's port does not answer (retry count exceeded)",
          "a cable, port or switch is down, the peer's process or device is gone, a GID of another subnet was chosen "
          "(TUTTI_IB_GID_INDEX), or packets as large as the MTU do not pass"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"the peer had no receive posted (receiver-not-ready count exceeded)",
              "the peer's process is stopped, or its device has dropped its receive queue"};
    case IBV_WC_LOC_LEN_ERR: return {"a message is longer than the device takes", "the ports' MTUs differ"};
    case IBV_WC_LOC_QP_OP_ERR: return {"the device found the queue pair inconsistent", "a fault of the driver"};
    case IBV_WC_LOC_EEC_OP_ERR:
      return {"the device found the end-to-end context inconsistent", "a fault of the driver"};
    case IBV_WC_LOC_PROT_ERR:
      return {"the device may not read this rank's memory",
              "memory was unmapped while it was sent, or the locked-memory limit (ulimit -l) was changed"};
    case IBV_WC_WR_FLUSH_ERR: return {"the queue pair was stopped before it got there", "an earlier failure"};
    case IBV_WC_MW_BIND_ERR: return {"binding a memory window failed", "a fault of the driver"};
    case IBV_WC_BAD_RESP_ERR:
      return {"the peer's device answered with what is no answer", "a fault of its driver or firmware"};
    case IBV_WC_LOC_ACCESS_ERR: return {"the device may not write this rank's memory", "a fault of the driver"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"the peer's device refused the request as invalid", "the ports' MTUs differ, or its queue pair is gone"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"the peer's device refused to write there", "the peer has ended, or its memory is no longer registered"};
    case IBV_WC_REM_OP_ERR: return {"the peer's device failed", "its queue pair or device is in error"};
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR: return {"the reliable datagram domain does not fit", "a fault of the driver"};
    case IBV_WC_REM_ABORT_ERR: return {"the peer's device gave the request up", "its queue pair is in error"};
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR: return {"the end-to-end context is not in order", "a fault of the driver"};
    case IBV_WC_FATAL_ERR: return {"the device failed fatally", "its firmware or driver; see the kernel's log (dmesg)"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"the peer's device did not answer in time", "the network, or the peer's device"};
    default: return {"the device reported a general failure", "see the kernel's log (dmesg)"};
  }
}

VerbsCause of_event(ibv_event_type event) noexcept {
  switch (event) {
    case IBV_EVENT_PORT_ERR: return {"the port went down", "a cable, a switch, or `ip link set … down`"};
    case IBV_EVENT_DEVICE_FATAL: return {"the device failed or was removed", "see the kernel's log (dmesg)"};
    case IBV_EVENT_QP_FATAL: return {"the queue pair failed fatally", "the device or its driver; see dmesg"};
    case IBV_EVENT_QP_REQ_ERR: return {"the peer sent what the queue pair does not take", "the ports' MTUs differ"};
    case IBV_EVENT_QP_ACCESS_ERR: return {"the peer wrote where it may not", "the peer runs another version of Tutti"};
    case IBV_EVENT_PATH_MIG_ERR: return {"migrating to the other path failed", "the alternate port"};
    case IBV_EVENT_CQ_ERR: return {"the completion queue overran", "a fault of Tutti or of the driver"};
    case IBV_EVENT_SRQ_ERR: return {"the shared receive queue failed", "a fault of the driver"};
    case IBV_EVENT_WQ_FATAL: return {"the work queue failed fatally", "the device or its driver; see dmesg"};
    case IBV_EVENT_LID_CHANGE: return {"the port's LID changed", "the subnet manager was restarted"};
    case IBV_EVENT_GID_CHANGE: return {"the port's GIDs changed", "an address of its interface was added or removed"};
    case IBV_EVENT_PKEY_CHANGE: return {"the port's partition keys changed", "the subnet manager's configuration"};
    case IBV_EVENT_PORT_ACTIVE: return {"the port came up", ""};
    case IBV_EVENT_SM_CHANGE: return {"another subnet manager took over", ""};
    case IBV_EVENT_CLIENT_REREGISTER: return {"the subnet manager asks clients to register again", ""};
    case IBV_EVENT_COMM_EST: return {"a message came before the queue pair was ready to send", ""};
    case IBV_EVENT_SQ_DRAINED: return {"the send queue is drained", ""};
    case IBV_EVENT_PATH_MIG: return {"the connection migrated to its other path", ""};
    case IBV_EVENT_QP_LAST_WQE_REACHED: return {"the last receive was used", ""};
    case IBV_EVENT_SRQ_LIMIT_REACHED: return {"the shared receive queue runs low", ""};
    default: return {"an event of a kind that is not known", ""};
  }
}

}  // namespace

VerbsCause cause_of(ibv_wc_status status) noexcept {
  VerbsCause cause = of_status(status);
  cause.code = uint8_t(status);
  return cause;
}

VerbsCause cause_of(ibv_event_type event) noexcept {
  VerbsCause cause = of_event(event);
  cause.code = uint8_t(event | event_code);
  return cause;
}

VerbsCause cause_of_code(uint8_t code) noexcept {
  if ((code & event_code) != 0) return of_event(ibv_event_type(code & ~event_code));
  if (code != 0) return of_status(ibv_wc_status(code));
  return {"it failed there", "its own log says why"};
}

VerbsScope scope_of(ibv_event_type event) noexcept {
  switch (event) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: return VerbsScope::queue_pair;
    case IBV_EVENT_PORT_ERR: return VerbsScope::port;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR: return VerbsScope::device;
    default: return VerbsScope::nothing;
  }
}

}  // namespace tutti
