// What ranks of one process have in common, found by a number that one of them tells the others. Who has failed leaves at
// once: then there is nothing by its number.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace tutti {

// Of all communicators of the process. Thread-safe.
template <class T>
class ByNumber {
 public:
  static uint64_t publish(const std::shared_ptr<T>& thing) {
    ByNumber& all = of_process();
    const std::lock_guard lock(all.mutex_);
    std::erase_if(all.things_, [](const auto& entry) { return entry.second.expired(); });
    all.things_[++all.last_] = thing;
    return all.last_;
  }
  // Null: it has gone.
  static std::shared_ptr<T> find(uint64_t number) {
    ByNumber& all = of_process();
    const std::lock_guard lock(all.mutex_);
    const auto found = all.things_.find(number);
    return found == all.things_.end() ? nullptr : found->second.lock();
  }

 private:
  static ByNumber& of_process() {
    static ByNumber& all = *new ByNumber();  // never destroyed: ranks may outlive main
    return all;
  }

  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<T>> things_;
  uint64_t last_ = 0;
};

}  // namespace tutti
