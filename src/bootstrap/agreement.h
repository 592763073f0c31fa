// Steps of a set-up that all ranks take together: what goes wrong on one of them is told to all, so that all throw alike.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bootstrap/bootstrap.h"

namespace tutti {

// One thread at a time. All ranks make the same gatherings in the same order.
class Agreement {
 public:
  // `about` begins sentences ("shared memory"); `give_up` is called where something goes wrong here, so that nobody waits
  // for this rank in between.
  Agreement(Bootstrap& bootstrap, std::string about, std::function<void()> give_up)
      : bootstrap_(bootstrap), about_(std::move(about)), give_up_(std::move(give_up)) {}

  // Work of this rank alone; its Error waits for the next gathering. A verdict's is thrown at once.
  template <class Work>
  void attempt(Work work) {
    if (code_ != Code::success) return;
    try {
      work();
    } catch (const Error& error) {
      if (bootstrap_.verdict() != nullptr) throw;
      code_ = error.code();
      problem_ = error.what();
      give_up_();
    }
  }

  // All ranks' `mine` (of equal sizes). Throws the problem of the lowest rank that had one.
  std::vector<Bytes> gather(std::span<const std::byte> mine) {
    const auto problem = std::as_bytes(std::span(problem_));
    Bytes packet(1 + mine.size() + problem.size(), std::byte(code_));
    std::copy(problem.begin(), problem.end(), std::copy(mine.begin(), mine.end(), packet.begin() + 1));
    std::vector<Bytes> all = bootstrap_.all_gather(packet);
    for (int rank = 0; rank < bootstrap_.size(); ++rank) {
      Bytes& theirs = all[size_t(rank)];
      if (theirs.size() < 1 + mine.size())
        throw Error(Code::invalid_usage,
                    fmt::format("{}: {} runs another version than {}", about_, bootstrap_.describe(rank),
                                bootstrap_.describe(bootstrap_.rank())));
      if (theirs[0] != std::byte{0}) {
        const auto* text = reinterpret_cast<const char*>(theirs.data() + 1 + mine.size());
        throw Error(Code(theirs[0]), fmt::format("{}: {}", bootstrap_.describe(rank),
                                                 std::string_view(text, theirs.size() - 1 - mine.size())));
      }
      theirs.erase(theirs.begin());
    }
    return all;
  }

  // The same for a plain value; by rank.
  template <class T>
  std::vector<T> gather_values(const T& mine) {
    std::vector<T> values;
    for (const Bytes& theirs : gather(std::as_bytes(std::span(&mine, 1))))
      std::memcpy(&values.emplace_back(), theirs.data(), sizeof(T));
    return values;
  }

 private:
  Bootstrap& bootstrap_;
  std::string about_;
  std::function<void()> give_up_;
  Code code_ = Code::success;
  std::string problem_;
};

}  // namespace tutti
