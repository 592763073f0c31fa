// A collective library as one rank of a measurement drives it: Tutti itself, or one that it is compared with.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/perf/options.h"

namespace tutti::perf {

// The library said no; what() names call, reason and sentence.
struct LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The buffers of one call.
struct Place {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  bool in_place = false;               // send and recv lie in one buffer
  std::span<const size_t> counts{};    // of blocks: elements of each
  std::span<const size_t> firsts{};    // and where each begins
};

enum class Over { sum, min, max };  // ranks

// Where buffers come from that the library can read where they lie.
struct SharedMemory {
  void* (*allocate)(size_t bytes);  // null where there is none
  void (*release)(void* memory);
};

// One thread uses it. What fails throws LibraryError.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Whether the operation can be had out of place, or in place.
  virtual bool offers(Operation, bool /*in_place*/) const { return true; }
  // One operation, done or enqueued. Throws UsageError where the library has none such.
  virtual void call(Operation operation, const Case& what, const Place& place) = 0;
  // Around several calls that form one group.
  virtual void begin_group() { throw UsageError("-m: this library has no groups"); }
  virtual void end_group() {}
  // Which algorithm the next calls are by: a name, or "" for the library's own choice. Collective.
  virtual void use(const std::string& algorithm) {
    if (!algorithm.empty()) throw UsageError("--algorithms: this library is not asked for one by name");
  }
  // Waits for what is enqueued.
  virtual void synchronize() {}

  virtual void barrier() = 0;
  // One that lets all ranks go at about the same time, whatever is measured.
  virtual void even_barrier() { barrier(); }
  // Element by element over all ranks.
  virtual void combine(std::vector<double>& values, Over over) = 0;

  // Where calls are on memory of a device: a copy there of a buffer, with what is watched around it, made anew or brought
  // back; `part` lies in it, and so does what is returned in the copy. Else the buffer itself is used.
  virtual std::byte* bring(std::span<std::byte> /*buffer*/, std::byte* part) { return part; }
  virtual void fetch(std::span<std::byte> /*buffer*/) {}

  // What carries the operation out, in the library's words.
  virtual std::string algorithm(Operation, const Case&) { return "-"; }
  virtual SharedMemory shared_memory() { throw UsageError("-R 1: this library has no memory of its own"); }

  double combine(double value, Over over) {
    std::vector<double> values = {value};
    combine(values, over);
    return values[0];
  }
  double from_rank_0(double value) { return combine(rank() == 0 ? value : 0, Over::sum); }
};

}  // namespace tutti::perf
