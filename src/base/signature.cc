// Calls as text.
#include "base/signature.h"

#include <fmt/format.h>

namespace tutti {

std::string describe(const Call& call) {
  const bool known = size_t(call.type) < data_types.size() && size_t(call.op) < reduce_op_names.size();
  if (!known) return fmt::format("a call of kind {} that this build does not know", int(call.kind));
  switch (call.kind) {
    case Collective::all_reduce:
      return fmt::format("all_reduce(count {}, {}, {})", call.count, name(call.type), name(call.op));
    case Collective::broadcast:
      return fmt::format("broadcast(count {}, {}, root {})", call.count, name(call.type), call.root);
    case Collective::barrier: return "barrier()";
    case Collective::send_recv: return fmt::format("send/recv(count {}, {})", call.count, name(call.type));
    case Collective::none: break;
  }
  return fmt::format("a call of kind {} that this build does not know", int(call.kind));
}

}  // namespace tutti
