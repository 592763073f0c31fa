// docs/algorithms.md and its pictures, written from the catalog.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/price.h"

namespace tutti {

// "all_reduce/ring".
std::string full_name(const Algorithm& algorithm);

// Ranks alike on one kind of link.
CostModel uniform_costs(int n, const LinkCost& link, double copy_byte_ns, double reduce_byte_ns, double step_ns);

// The cheapest number of pipeline chunks among 1, 2, 4, … 64 (1 where the algorithm is not pipelined), and its price.
struct BestPrice {
  int pipeline = 1;
  Price price;
};
BestPrice best_price(const Algorithm& algorithm, Group group, const CostModel& costs, uint64_t bytes,
                     uint64_t message_bytes_max);

// A file's name below docs/ and its text.
struct Document {
  std::string name;
  std::string text;
};
std::vector<Document> documents();

}  // namespace tutti
