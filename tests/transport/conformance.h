// The conformance suite's interface: what a transport gives so that every test of conformance.cc holds it to
// transport.h. An executable links conformance.cc and defines transport_cases().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace tutti {

// The connected transports of all ranks, in one process, and whatever must outlive them.
class TransportSet {
 public:
  virtual ~TransportSet() = default;

  virtual Transport& transport(int rank) = 0;
  // Called whenever a single-threaded test has nothing to do but wait: virtual time passes here.
  virtual void pass_time() {}
};

// The usual set: real transports, and things that outlive them (bootstraps, doorbells).
class OwnedTransports final : public TransportSet {
 public:
  explicit OwnedTransports(std::vector<std::unique_ptr<Transport>> transports, std::shared_ptr<void> keep = {})
      : keep_(std::move(keep)), transports_(std::move(transports)) {}

  Transport& transport(int rank) override { return *transports_[size_t(rank)]; }

 private:
  std::shared_ptr<void> keep_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// One way to connect a transport (shm; tcp with one stream; tcp with CRC; …), all of whose pairs must be reached.
struct TransportCase {
  std::string name;  // letters, digits and _: part of the test's name
  std::function<std::unique_ptr<TransportSet>(int ranks, int channels)> make;
  bool threads = true;  // each rank may be driven by a thread of its own
  bool sleeps = true;   // arm(), poll on poll_fds(), disarm() work in real time
  uint64_t handshakes = 20'000;  // of the test that looks for lost wake-ups
  bool watched = false;  // arrivals show in a word of memory, and nothing is staged

  friend void PrintTo(const TransportCase& c, std::ostream* out) { *out << c.name; }
};

// Defined once by each executable that links conformance.cc.
std::vector<TransportCase> transport_cases();

}  // namespace tutti
