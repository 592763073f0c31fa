// Calls of the C interface with their errors as exceptions.
#include "bench/perf/rank.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tutti::perf {

void refuse(tuttiResult_t result, const char* call, tuttiComm_t comm) {
  const std::string sentence = tuttiGetLastError(comm);
  throw LibraryError(fmt::format("{}: {}{}{}", call, tuttiGetErrorString(result), sentence.empty() ? "" : ": ",
                                 sentence));
}

Rank::Rank(tuttiComm_t comm, bool with_stream) : comm_(comm) {
  check(tuttiCommUserRank(comm_, &rank_), "tuttiCommUserRank");
  check(tuttiCommCount(comm_, &ranks_), "tuttiCommCount");
  if (with_stream) check(tuttiStreamCreate(&stream_), "tuttiStreamCreate");
}

Rank::~Rank() {
  tuttiStreamDestroy(stream_);
  tuttiCommDestroy(comm_);
}

void Rank::synchronize() {
  if (stream_ != nullptr) check(tuttiStreamSynchronize(stream_), "tuttiStreamSynchronize", comm_);
}

void Rank::barrier() { check(tuttiBarrier(comm_, nullptr), "tuttiBarrier", comm_); }

void Rank::even_barrier() {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "recursive_doubling";
  check(tuttiBarrierWith(comm_, nullptr, &options), "tuttiBarrierWith", comm_);
}

void Rank::reduce(std::vector<double>& values, tuttiRedOp_t op) {
  check(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat64, op, comm_, nullptr),
        "tuttiAllReduce of the results", comm_);
}

double Rank::reduce(double value, tuttiRedOp_t op) {
  std::vector<double> values = {value};
  reduce(values, op);
  return values[0];
}

double Rank::from_rank_0(double value) {
  check(tuttiBroadcast(&value, &value, 1, tuttiFloat64, 0, comm_, nullptr), "tuttiBroadcast of a setting", comm_);
  return value;
}

std::vector<std::string> Rank::gather(std::string_view mine) {
  std::vector<std::string> all;
  for (int root = 0; root < ranks_; ++root) {
    std::array<char, 256> text{};
    if (root == rank_) std::copy_n(mine.begin(), std::min(mine.size(), text.size() - 1), text.begin());
    check(tuttiBroadcast(text.data(), text.data(), text.size(), tuttiUint8, root, comm_, nullptr),
          "tuttiBroadcast of the ranks' places", comm_);
    all.emplace_back(text.data());
  }
  return all;
}

void Rank::abort() noexcept { tuttiCommAbort(comm_); }

}  // namespace tutti::perf
