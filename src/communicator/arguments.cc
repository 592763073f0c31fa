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

std::string text_setting(const char* variable, const char* configured) {
  if (const auto value = environment_text(variable)) return *value;
  return configured == nullptr ? std::string() : std::string(configured);
}

}  // namespace

DataType checked_type(tuttiDataType_t type) {
  if (int(type) < 0 || int(type) >= tuttiNumTypes)
    refuse(fmt::format("datatype is {}, which is no type (0 to {})", int(type), int(tuttiNumTypes) - 1));
  return DataType(type);
}

ReduceOp checked_op(tuttiRedOp_t op) {
  if (int(op) < 0 || int(op) >= tuttiNumOps)
    refuse(fmt::format("op is {}, which is no operator (0 to {})", int(op), int(tuttiNumOps) - 1));
  return ReduceOp(op);
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

void check_count(size_t count, DataType type) {
  const size_t bytes_max = size_t(std::numeric_limits<int64_t>::max());
  size_t bytes = 0;  // a product is cheaper than a quotient
  if (__builtin_mul_overflow(count, element_bytes(type), &bytes) || bytes > bytes_max)
    refuse(fmt::format("count is {}, which times {} bytes of {} exceeds 2^63", count, element_bytes(type), name(type)));
}

void check_buffer(const char* name, const void* buffer, size_t count) {
  if (buffer == nullptr && count != 0) refuse(fmt::format("{} is NULL with count {}", name, count));
}

void check_overlap(const void* send, const void* recv, size_t bytes) {
  if (send == recv || send == nullptr || recv == nullptr) return;
  const auto a = reinterpret_cast<uintptr_t>(send), b = reinterpret_cast<uintptr_t>(recv);
  const uintptr_t apart = a < b ? b - a : a - b;
  if (apart < bytes)
    refuse(fmt::format("sendbuff {} and recvbuff {} overlap: {} bytes apart with {} bytes each; they must be equal or "
                       "disjoint",
                       send, recv, apart, bytes));
}

void check_not_null(const char* name, const void* pointer) {
  if (pointer == nullptr) refuse(fmt::format("{} is NULL", name));
}

CommunicatorOptions checked_options(const tuttiConfig_t* config) {
  tuttiConfig_t given = TUTTI_CONFIG_INITIALIZER;
  if (config != nullptr) {
    constexpr size_t size_min = offsetof(tuttiConfig_t, timeout_ms);
    if (config->size < size_min || config->size > 4096)
      refuse(fmt::format("config->size is {}; start from TUTTI_CONFIG_INITIALIZER", config->size));
    // A caller compiled against another version knows fewer or more fields: take those that both know.
    std::memcpy(&given, config, std::min(config->size, sizeof given));
  }
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
  options.interface_names = text_setting("TUTTI_IFNAME", given.interface_name);
  const int64_t channels = environment_integer("TUTTI_CHANNELS").value_or(given.channels);
  if (channels != -1 && (channels < 1 || channels > channels_max - 1))
    refuse(fmt::format("channels is {}, outside 1 to {}", channels, channels_max - 1));
  options.channels = int(channels);
  return options;
}

}  // namespace tutti
