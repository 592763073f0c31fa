// Calls as text.
#include "base/signature.h"

#include <fmt/format.h>

namespace tutti {

std::string describe(DataType type, size_t opaque_bytes) {
  if (type == DataType::opaque) return fmt::format("elements of {} bytes", opaque_bytes);
  return std::string(name(type));
}

std::string describe(const Call& call) {
  const bool known = size_t(call.type) < data_type_count && size_t(call.op) < reduce_op_count;
  if (!known) return fmt::format("a call of kind {} that this build does not know", int(call.kind));
  const std::string type = describe(call.type, call.opaque_bytes);
  switch (call.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::scan:
    case Collective::exscan:
      return fmt::format("{}(count {}, {}, {})", name(call.kind), call.count, type, name(call.op));
    case Collective::reduce:
      return fmt::format("reduce(count {}, {}, {}, root {})", call.count, type, name(call.op), call.root);
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter:
    case Collective::gather_v:
    case Collective::scatter_v:
      return fmt::format("{}(count {}, {}, root {})", name(call.kind), call.count, type, call.root);
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return fmt::format("{}(count {}, {})", name(call.kind), call.count, type);
    case Collective::all_gather_v:
      return fmt::format("all_gather_v(counts with checksum {:x}, {})", call.count, type);
    case Collective::reduce_scatter_v:
      return fmt::format("reduce_scatter_v(counts with checksum {:x}, {}, {})", call.count, type, name(call.op));
    case Collective::barrier: return "barrier()";
    case Collective::send_recv: return fmt::format("send/recv(count {}, {})", call.count, type);
    case Collective::none: break;
  }
  return fmt::format("a call of kind {} that this build does not know", int(call.kind));
}

std::string describe(const Call& call, const Terms& terms, std::string_view algorithm) {
  std::string text = describe(call), asked;
  if (terms.determinism != Determinism::as_communicator) asked += fmt::format(", {}", name(terms.determinism));
  if (terms.inputs != 1) asked += fmt::format(", {} inputs", terms.inputs);
  if (!algorithm.empty()) asked += fmt::format(", algorithm {}", algorithm);
  else if (terms.algorithm != 0) asked += fmt::format(", algorithm number {}", terms.algorithm);
  if (text.ends_with("()") && !asked.empty()) asked.erase(0, 2);
  if (text.ends_with(')')) text.insert(text.size() - 1, asked);
  return text;
}

std::string describe_signature(uint64_t signature) {
  const CallWithTerms seen = unpack_with_terms(signature);
  return describe(seen.call, seen.terms);
}

}  // namespace tutti
