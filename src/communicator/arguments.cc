// Argument checks and the merging of settings.
#include "communicator/arguments.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "base/environment.h"
#include "base/error.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

// A caller compiled against another version knows fewer or more fields of a struct: takes those that both know.
template <class T>
void take_known_fields(const char* name, const char* advice, T& known, const T& given, size_t size_min) {
  constexpr size_t size_max = 4096;
  if (given.size < size_min || given.size > size_max)
    refuse(fmt::format("{}->size is {}; {}", name, given.size, advice));
  std::memcpy(&known, &given, std::min(given.size, sizeof known));
}

Determinism checked_determinism(const char* argument, int32_t value) {
  if (value < tuttiDeterminismBitwise || value > tuttiDeterminismInvariant)
    refuse(fmt::format("{} is {}, none of tuttiDeterminismBitwise (0), tuttiDeterminismStrict (1) and "
                       "tuttiDeterminismInvariant (2)",
                       argument, value));
  return Determinism(value + 1);
}

Determinism determinism_setting(int32_t configured) {
  const std::optional<std::string> text = environment_text("TUTTI_DETERMINISM");
  if (!text) return configured == -1 ? Determinism::bitwise : checked_determinism("config->determinism", configured);
  for (const Determinism mode : {Determinism::bitwise, Determinism::strict, Determinism::invariant})
    if (*text == name(mode)) return mode;
  throw Error(Code::invalid_usage,
              fmt::format("environment variable TUTTI_DETERMINISM={} is none of bitwise, strict and invariant", *text));
}

std::string text_setting(const char* variable, const char* configured) {
  if (const auto value = environment_text(variable)) return *value;
  return configured == nullptr ? std::string() : std::string(configured);
}

}  // namespace

// Values of types that have nothing but a size: a mark, and the size.
constexpr unsigned opaque_mark = 1u << 30;

tuttiDataType_t opaque_type(size_t bytes) {
  if (bytes < 1 || bytes > opaque_bytes_max)
    refuse(fmt::format("element_bytes is {}, outside 1 to {}", bytes, opaque_bytes_max));
  return tuttiDataType_t(opaque_mark + unsigned(bytes));
}

size_t opaque_type_bytes(tuttiDataType_t type) noexcept {
  const unsigned value = unsigned(type);
  return value > opaque_mark && value <= opaque_mark + opaque_bytes_max ? value - opaque_mark : 0;
}

ElementType checked_type(tuttiDataType_t type) {
  if (const size_t bytes = opaque_type_bytes(type)) return {DataType::opaque, bytes};
  if (int(type) < 0 || int(type) >= tuttiNumTypes)
    refuse(fmt::format("datatype is {}, which is no type (0 to {})", int(type), int(tuttiNumTypes) - 1));
  return DataType(type);
}

void check_defined(ReduceOp op, const ElementType& type) {
  if (defined(op, type.type)) return;
  std::string others;
  for (size_t i = 0; i < reduce_op_names.size(); ++i)
    if (defined(ReduceOp(i), type.type)) others += fmt::format("{}{}", others.empty() ? "" : ", ", reduce_op_names[i]);
  refuse(fmt::format("op is {} ({}), which datatype {} does not have: it has {}", name(op), int(op), describe(type),
                     others.empty() ? "only operators made by tuttiRedOpCreate" : others));
}

CheckedOp checked_op(tuttiRedOp_t op, const ElementType& type, const Operators& operators, uint32_t number) {
  if (Operators::is_made(op)) {
    std::shared_ptr<const MadeOperator> made = operators.find(number, op);
    if (made->type != type)
      refuse(fmt::format("op is {:#x}, made for {}, but datatype is {}", unsigned(op), describe(made->type),
                         describe(type)));
    return {made->op, made};
  }
  if (int(op) < 0 || int(op) >= tuttiNumOps)
    refuse(fmt::format("op is {}, which is no operator (0 to {})", int(op), int(tuttiNumOps) - 1));
  check_defined(ReduceOp(op), type);
  return {ReduceOp(op)};
}

void check_root(int root, int size) {
  if (root < 0 || root >= size) refuse(fmt::format("root is {}, outside the ranks 0 to {}", root, size - 1));
}

void check_peer(int peer, int size) {
  if (peer < 0 || peer >= size) refuse(fmt::format("peer is {}, outside the ranks 0 to {}", peer, size - 1));
}

void check_rank(int rank, int size) {
  if (size < 1) refuse(fmt::format("nranks is {}, but a communicator has at least 1 rank", size));
  if (size > int(signature_root_max) + 1)
    refuse(fmt::format("nranks is {}, but at most {} are possible", size, signature_root_max + 1));
  if (rank < 0 || rank >= size) refuse(fmt::format("rank is {}, outside 0 to {}", rank, size - 1));
}

void check_count(size_t count, const ElementType& type, int blocks, size_t inputs) {
  const size_t bytes_max = size_t(std::numeric_limits<int64_t>::max());
  size_t bytes = 0;  // products are cheaper than quotients
  if (!__builtin_mul_overflow(count, size_t{type.bytes}, &bytes) &&
      !__builtin_mul_overflow(bytes, size_t(blocks) * inputs, &bytes) && bytes <= bytes_max)
    return;
  std::string times = blocks == 1 ? "" : fmt::format(" and {} ranks", blocks);
  if (inputs > 1) times += fmt::format(" and {} inputs", inputs);
  refuse(fmt::format("count is {}, which times {} bytes of {}{} exceeds 2^63", count, type.bytes, describe(type),
                     times));
}

void check_buffer(const char* name, const void* buffer, size_t count) {
  if (buffer == nullptr && count != 0) refuse(fmt::format("{} is NULL with count {}", name, count));
}

bool check_overlap(Area send, Area recv, InPlace allowed, size_t block_at) {
  constexpr std::string_view rules[] = {"be disjoint", "be equal or disjoint",
                                        "be disjoint, or sendbuff the rank's own block of recvbuff",
                                        "be disjoint, or recvbuff the rank's own block of sendbuff"};
  const auto a = reinterpret_cast<uintptr_t>(send.data), b = reinterpret_cast<uintptr_t>(recv.data);
  const uintptr_t send_at = allowed == InPlace::send_is_block_of_recv ? b + block_at : b;
  const uintptr_t recv_at = allowed == InPlace::recv_is_block_of_send ? a + block_at : a;
  if (allowed != InPlace::refused && (allowed == InPlace::recv_is_block_of_send ? b == recv_at : a == send_at))
    return true;
  if (send.data == nullptr || recv.data == nullptr) return false;
  if (a < b ? b - a >= send.bytes : a - b >= recv.bytes) return false;
  refuse(fmt::format("sendbuff {} ({} bytes) and recvbuff {} ({} bytes) overlap; they must {}", send.data, send.bytes,
                     recv.data, recv.bytes, rules[size_t(allowed)]));
}

void check_not_null(const char* name, const void* pointer) {
  if (pointer == nullptr) refuse(fmt::format("{} is NULL", name));
}

CommunicatorOptions checked_options(const tuttiConfig_t* config) {
  tuttiConfig_t given = TUTTI_CONFIG_INITIALIZER;
  if (config != nullptr)
    take_known_fields("config", "start from TUTTI_CONFIG_INITIALIZER", given, *config,
                      offsetof(tuttiConfig_t, timeout_ms));
  CommunicatorOptions options;
  if (given.timeout_ms != -1) {
    if (given.timeout_ms <= 0) refuse(fmt::format("config->timeout_ms is {}, not above 0", given.timeout_ms));
    options.timeout_ms = given.timeout_ms;
  } else {
    const int64_t timeout = environment_integer("TUTTI_TIMEOUT_MS").value_or(options.timeout_ms);
    if (timeout <= 0 || timeout > std::numeric_limits<int>::max())
      throw Error(Code::invalid_usage, fmt::format("environment variable TUTTI_TIMEOUT_MS={} is not above 0", timeout));
    options.timeout_ms = int(timeout);
  }
  options.algorithm = text_setting("TUTTI_ALGO", given.algorithm);
  options.transports = text_setting("TUTTI_TRANSPORT", given.transport);
  options.schedule_files = environment_text("TUTTI_SCHEDULES").value_or("");
  options.interface_names = text_setting("TUTTI_IFNAME", given.interface_name);
  const int64_t channels = environment_integer("TUTTI_CHANNELS").value_or(given.channels);
  if (channels != -1 && (channels < 1 || channels > channels_max - 1))
    refuse(fmt::format("channels is {}, outside 1 to {}", channels, channels_max - 1));
  options.channels = int(channels);
  options.determinism = determinism_setting(given.determinism);
  if (given.device < -1) refuse(fmt::format("config->device is {}, below -1", given.device));
  options.device = given.device;
  return options;
}

CheckedOptions checked_call_options(const tuttiOptions_t* options) {
  tuttiOptions_t given = TUTTI_OPTIONS_INITIALIZER;
  take_known_fields("options", "start from TUTTI_OPTIONS_INITIALIZER", given, *options,
                    offsetof(tuttiOptions_t, deadline_ms));
  CheckedOptions checked;
  if (given.deadline_ms != -1) {
    if (given.deadline_ms <= 0) refuse(fmt::format("options->deadline_ms is {}, not above 0", given.deadline_ms));
    checked.timeout_ms = given.deadline_ms;
  }
  if (given.algorithm != nullptr) checked.algorithm = given.algorithm;
  if (given.determinism != -1) checked.determinism = checked_determinism("options->determinism", given.determinism);
  if (given.inputs < 1 || given.inputs > signature_inputs_max)
    refuse(fmt::format("options->inputs is {}, outside 1 to {}", given.inputs, signature_inputs_max));
  checked.inputs = uint16_t(given.inputs);
  return checked;
}

}  // namespace tutti
