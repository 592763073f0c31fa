// Traces of the ranks of a job, brought onto one clock, and what they tell of who was late.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::trace {

struct Wait {
  double begin_us = 0;
  double end_us = 0;
  int peer = 0;
};

// One call of one rank.
struct Call {
  uint64_t sequence = 0;  // counts the calls of a communicator
  std::string name;
  std::string algorithm;
  uint64_t bytes = 0;
  double begin_us = 0;
  double end_us = 0;
  std::vector<Wait> waits;
};

// One rank's file.
struct RankTrace {
  std::string file;
  int rank = 0;
  int size = 0;
  std::string host;       // equal: one clock
  double offset_us = 0;   // to be added for the common clock
  std::vector<Call> calls;  // by sequence
};

// Throws std::runtime_error that names the file: not to be read, no trace of Tutti, or of another number of ranks.
RankTrace read_trace(const std::string& file);

// Sets the offsets. Ranks of one host keep their clock. Hosts are brought together so that calls that end at once on all
// ranks (all_reduce, barrier, all_gather, all_to_all) do so: by the median difference, which stray delays do not move.
// Throws std::runtime_error where two files are of one rank, or sizes differ.
void align(std::vector<RankTrace>& ranks);

// All events in one file for Perfetto, times from the first event.
std::string merged_json(const std::vector<RankTrace>& ranks);

// A call as all its ranks made it.
struct Lateness {
  uint64_t sequence = 0;
  std::string name;
  int last_rank = 0;   // who began last
  double late_us = 0;  // how long after the median of the others
  double took_us = 0;  // from the last beginning to the last end
};
// Calls that all given ranks made with one name, by sequence. Needs at least two ranks.
std::vector<Lateness> lateness(const std::vector<RankTrace>& ranks);

struct RankSummary {
  int rank = 0;
  size_t times_last = 0;     // by more than `threshold_us`
  double late_us = 0;        // in all, of those
  double late_max_us = 0;
  double waited_us = 0;      // by this rank for others
  double waited_for_us = 0;  // by others for this rank
};
std::vector<RankSummary> summary(const std::vector<RankTrace>& ranks, double threshold_us);

}  // namespace tutti::trace
