// Job ids as 128 bytes and back, keys, and the id of a meeting place agreed beforehand.
#include <sodium.h>

#include <algorithm>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace {

constexpr uint32_t id_magic = 0x44495454;  // "TTID"
constexpr uint8_t id_version = 1;
constexpr size_t id_bytes = 128;
constexpr size_t checksum_bytes = 16;
using Checksum = std::array<unsigned char, checksum_bytes>;

Checksum checksum_of(std::span<const char> bytes) {
  Checksum checksum{};
  ::crypto_generichash(checksum.data(), checksum.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size(), nullptr, 0);
  return checksum;
}

[[noreturn]] void refuse(const char* why) {
  throw Error(Code::invalid_argument, fmt::format("the unique id is none: {}", why));
}

}  // namespace

void encode(const JobId& id, std::span<char, 128> bytes) {
  TUTTI_ASSERT(!id.addresses.empty() && id.addresses.size() <= JobId::address_max);
  ByteWriter writer;
  writer.u32(id_magic);
  writer.u8(id_version);
  writer.u8(uint8_t(id.addresses.size()));
  writer.u8(id.port_count);
  writer.raw(std::as_bytes(std::span(id.key)));
  for (const JobId::Address& address : id.addresses) write(writer, address);
  const Bytes body = writer.take();
  TUTTI_ASSERT(body.size() <= id_bytes - checksum_bytes);
  std::fill(bytes.begin(), bytes.end(), '\0');
  std::transform(body.begin(), body.end(), bytes.begin(), [](std::byte b) { return char(b); });
  const Checksum checksum = checksum_of(bytes.first(id_bytes - checksum_bytes));
  std::copy(checksum.begin(), checksum.end(), bytes.end() - checksum_bytes);
}

JobId decode(std::span<const char, 128> bytes) {
  ByteReader reader(std::as_bytes(bytes.first(id_bytes - checksum_bytes)));
  if (reader.u32() != id_magic) refuse("it was not made by tuttiGetUniqueId, or was not carried over whole");
  if (reader.u8() != id_version) refuse("another version of the library made it");
  const Checksum checksum = checksum_of(bytes.first(id_bytes - checksum_bytes));
  if (!std::equal(checksum.begin(), checksum.end(), bytes.end() - checksum_bytes,
                  [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); }))
    refuse("its checksum does not fit; it was changed on the way");
  JobId id;
  const size_t count = reader.u8();
  id.port_count = reader.u8();
  if (count < 1 || count > JobId::address_max || id.port_count < 1) refuse("it holds no address");
  const std::span<const std::byte> key = reader.raw(id.key.size());
  std::transform(key.begin(), key.end(), id.key.begin(), [](std::byte b) { return static_cast<unsigned char>(b); });
  for (size_t i = 0; i < count; ++i) id.addresses.push_back(read_address(reader));
  return id;
}

Key derive_key(const std::string& text) {
  constexpr std::string_view purpose = "tutti job key 1";
  Key key{};
  ::crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                       reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size());
  return key;
}

JobId agreed_meeting_place(const std::string& address, uint16_t port, const Key& key) {
  JobId id;
  id.key = key;
  id.port_count = uint8_t(meeting_ports);
  id.addresses = resolve(address, port);
  if (id.addresses.size() > JobId::address_max) id.addresses.resize(JobId::address_max);
  return id;
}

}  // namespace tutti
