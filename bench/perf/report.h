// The results of tutti-perf and their forms: table, JSON, CSV, drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/options.h"

namespace tutti::perf {

// One half of a line: out of place or in place.
struct Result {
  bool present = false;  // false: this half makes no sense for the collective
  double time_us = 0;
  double algorithm_gbps = 0, bus_gbps = 0;
  int64_t wrong = -1;      // elements, over all ranks and checked runs; -1: not checked
  double min_us = 0, median_us = 0, p99_us = 0;  // with --percentiles
  std::vector<double> turns_us;                  // time_us of each turn; empty where there is one

  // Takes what another turn measured: the faster one's figures, and what both found wrong.
  void join(const Result& turn);
};

struct Row {
  Case what;
  std::string algorithm{"-"};
  int iterations = 0;
  Result out_of_place, in_place;

  void join(const Row& turn);
};

struct RankPlace {
  std::string host;
  int pid = 0;
  std::string cores;       // "0-3,8"
  std::string transports;  // "self 1, shm 3"
};

struct Heading {
  int ranks = 1;
  int library_version = 0;
  std::vector<RankPlace> places;  // one a rank
  double line_exchange_ns = 0;    // between two cores of rank 0's host; 0: not measured
};

// Bus bandwidth as nccl-tests defines it: what the links carry, comparable over numbers of ranks.
double bus_factor(Operation operation, int ranks);
// Fills algorithm_gbps and bus_gbps from time_us.
void rate(Result& result, Operation operation, size_t bytes, int ranks);
// Of a sorted list; part 0.5 is the median (nearest rank).
double percentile(const std::vector<double>& sorted, double part);

std::string heading_text(const Options& options, const Heading& heading);
std::string row_text(const Options& options, const Row& row);
int64_t total_wrong(const std::vector<Row>& rows);
double mean_bus_gbps(const std::vector<Row>& rows);
std::string summary_text(const std::vector<Row>& rows);

std::string json_text(const Options& options, const Heading& heading, const std::vector<Row>& rows);
std::string csv_text(const Options& options, const std::vector<Row>& rows);
std::string plot_text(const Options& options, const Heading& heading, const std::vector<Row>& rows);

// Before anything is measured: could the files be written? Throws UsageError.
void look_at_files(const Options& options);
// Writes a whole file or none: to a temporary name first. Throws std::runtime_error with file and reason.
void write_file(const std::string& name, const std::string& text);

}  // namespace tutti::perf
