// Why a communicator would choose an algorithm: all candidates with their predicted times, and the reason in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/signature.h"
#include "schedule/user_schedule.h"
#include "topology/cost.h"
#include "topology/topology.h"

namespace tutti {

struct Question {
  Collective collective = Collective::all_reduce;
  uint64_t bytes = 0;
  int n = 1;
  int hosts = 1;               // ranks fill them in blocks; all are like the one given
  bool bound = false;          // each rank to its share of its host's allowed cores, in blocks; else all to all of them
  bool shared_memory = true;   // inside a host
  LinkKind others = LinkKind::tcp;  // what connects the other pairs: tcp or verbs
  size_t message_bytes_max = 256 * 1024;
  std::string forced;          // an algorithm's name, or ""
  std::vector<UserSchedule> schedules{};  // proven; candidates where they fit
};

// An algorithm at its best number of chunks in flight.
struct Answer {
  std::string algorithm;
  int pipeline = 1;
  double time_ns = 0;
  int rounds = 0;                  // messages on the longest chain of dependent ones
  double bytes_sent = 0;           // by the busiest rank, in units of the buffer
  uint64_t messages = 0;           // over all ranks, of one tile
  double bytes_between_hosts = 0;  // over all ranks, in units of the buffer
};

struct Explanation {
  Question question;
  MachineCosts costs;
  double contention = 1;
  std::vector<Answer> answers;  // best first
  std::string reason;
};

// From a command line's words; throws Error(invalid_argument) that names the argument and its value.
Collective parse_collective(const std::string& text);
uint64_t parse_size(const std::string& text);

// Throws Error(invalid_argument) where Question::forced names no algorithm.
Explanation explain(const Question& question, const Host& host, const MachineCosts& costs);

std::string to_text(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

}  // namespace tutti
