// A fabric that was loaded link by link: shortest routes through any graph.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace tutti {

struct FabricGraph {
  static constexpr size_t nodes_max = 16384;

  struct Link {
    int from, to;
    uint32_t number, tier;
  };
  size_t nodes = 0;  // hosts first
  std::vector<Link> links;
  std::vector<std::vector<uint32_t>> out;  // of each node: links that leave it
  std::vector<std::vector<uint32_t>> in;

  // The link that leads from each node towards a host; ~0 where none does. Computed when it is first asked for.
  const std::vector<uint32_t>& towards(int host) const;

 private:
  mutable std::map<int, std::vector<uint32_t>> next_;
};

}  // namespace tutti
