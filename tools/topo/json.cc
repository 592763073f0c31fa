// Writes a host as JSON, field by field.
#include "tools/topo/json.h"

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const HostDevice& device) {
  return {{"kind", name(device.kind)}, {"name", device.name},           {"model", device.model}, {"numa", device.numa},
          {"pci", device.pci},         {"bits_per_s", device.bits_per_s}, {"up", device.up}};
}

Json json_of(const LinkMatrix& matrix) {
  Json rows = Json::array();
  for (size_t from = 0; from < matrix.ends.size(); ++from) {
    Json row = Json::array();
    for (size_t to = 0; to < matrix.ends.size(); ++to) row.push_back(matrix.at(from, to));
    rows.push_back(std::move(row));
  }
  return {{"name", matrix.name}, {"bandwidth", matrix.bandwidth}, {"ends", matrix.ends}, {"values", std::move(rows)}};
}

}  // namespace

std::string host_json(const Host& host) {
  Json json = {{"name", host.name}, {"model", host.model}};
  json["packages"] = Json::array();
  for (const Package& package : host.packages)
    json["packages"].push_back({{"index", package.index}, {"model", package.model}, {"cores", package.cores}});
  json["numa"] = Json::array();
  for (const NumaNode& node : host.numa)
    json["numa"].push_back({{"index", node.index}, {"bytes", node.bytes}, {"cores", node.cores}});
  json["caches"] = Json::array();
  for (const Cache& cache : host.caches)
    json["caches"].push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"cores", cache.cores}});
  json["physical_cores"] = host.physical_cores;
  json["cores"] = host.cores;
  json["cores_allowed"] = host.cores_allowed;
  json["cpu_quota"] = host.cpu_quota;
  json["devices"] = Json::array();
  for (const HostDevice& device : host.devices) json["devices"].push_back(json_of(device));
  json["links"] = Json::array();
  for (const LinkMatrix& matrix : host.links) json["links"].push_back(json_of(matrix));
  // Names come from the kernel and from files: bytes that are no UTF-8 are replaced, not refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti
