// The checkpoint's bytes: a magic, the header, the parameters, and a CRC-32 over all of it.
#include "checkpoint.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

#include "files.h"

namespace mlp {
namespace {

constexpr char magic[8] = {'t', 'u', 't', 't', 'i', 'm', 'l', '1'};

struct Header {
  char magic[8];
  int32_t epochs_done;
  uint32_t reserved;
  uint64_t seed;
  uint64_t parameters;
};
static_assert(sizeof(Header) == 32);

uint32_t crc_of(const std::string& bytes) {
  return uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  Header header = {};
  std::memcpy(header.magic, magic, sizeof magic);
  header.epochs_done = checkpoint.epochs_done;
  header.seed = checkpoint.seed;
  header.parameters = checkpoint.parameters.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(checkpoint.parameters.data()),
               checkpoint.parameters.size() * sizeof(float));
  const uint32_t crc = crc_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  write_file(path, bytes);
}

Checkpoint load_checkpoint(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  Header header;
  if (bytes.size() < sizeof header + sizeof(uint32_t))
    throw std::runtime_error(fmt::format("{}: {} bytes are no whole checkpoint", path, bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0)
    throw std::runtime_error(fmt::format("{}: is no checkpoint of this program", path));
  const size_t payload = bytes.size() - sizeof header - sizeof(uint32_t);
  if (header.parameters > payload / sizeof(float) || header.parameters * sizeof(float) != payload)
    throw std::runtime_error(fmt::format("{}: is truncated: {} parameters announced, {} bytes there", path,
                                         header.parameters, payload));
  uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof crc, sizeof crc);
  if (crc != crc_of(bytes.substr(0, bytes.size() - sizeof crc)))
    throw std::runtime_error(fmt::format("{}: is damaged: its checksum does not match", path));
  Checkpoint checkpoint{header.epochs_done, header.seed, std::vector<float>(header.parameters)};
  std::memcpy(checkpoint.parameters.data(), bytes.data() + sizeof header, payload);
  return checkpoint;
}

}  // namespace mlp
