// What the arguments of tutti-schedule name: an algorithm of the catalog for one group of ranks, or a user's schedule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/algorithm.h"
#include "schedule/user_schedule.h"

namespace tutti {

inline constexpr int pipeline_max = 4096;

// As they stand on the command line.
struct Arguments {
  std::string name;   // an algorithm's, or a file of JSON
  std::string ranks;  // "8", "1..64"; "": 4, or those of the file
  std::string hosts, cores;
  std::string size = "1M";
  std::string message_max = "256K";
  std::string file;
  std::string new_name;
  int root = 0, rank = -1, pipeline = 0;
  bool lowered = false, in_place = false, text = false, check = false;
  double latency_ns = 80, message_ns = 20, gbps = 80, memory_gbps = 80, step_ns = 15;
};

// All throw Error(invalid_argument) with a sentence that names argument and value.
[[noreturn]] void refuse(const std::string& sentence);
int number(std::string_view text, std::string_view argument, std::string_view whole, int least, int most);
// "8" or "1..64".
std::pair<int, int> range_of(const std::string& text);
// "4,4,2": ranks of each host, or core. Empty: as Group has it then.
std::vector<int> sites_of(const std::string& text, std::string_view argument, int n);
uint64_t bytes_of(const std::string& text, std::string_view argument, uint64_t least);
double positive(double value, std::string_view argument);
double not_negative(double value, std::string_view argument);

const Algorithm& algorithm_named(const std::string& name);
// Whether a name is that of a file of JSON.
bool is_file(std::string_view name);

// All ranks' schedules, as they are to be shown. A file's are not proven yet.
struct Subject {
  const Algorithm* algorithm = nullptr;  // null: a file's
  Group group;                           // of the catalog's; host_of is hosts, core_of cores
  std::vector<int> hosts, cores;
  UserSchedule schedule;

  std::string title() const { return schedule.full_name(); }
  std::vector<Plan> plans() const;
};

// Throws as above, and where a file's schedule is wrong.
Subject subject_of(const Arguments& arguments);

}  // namespace tutti
