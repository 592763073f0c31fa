// Seeded traffic for tests of transports: what a sender sends and a receiver expects follows from one seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "transport/transport.h"

namespace tutti {

// Message number `index` of a stream.
struct Message {
  size_t bytes;
  uint64_t signature;
  uint64_t content;  // seed of its bytes
};

class Traffic {
 public:
  // Sizes up to bytes_max, small ones as likely as large ones; boundary sizes are frequent.
  Traffic(uint64_t seed, size_t bytes_max) : seed_(seed), bytes_max_(bytes_max) {}

  Message message(uint64_t index) const {
    std::mt19937_64 random(seed_ * 1'000'003 + index);
    random.discard(2);
    const uint64_t signature = random();
    const uint64_t content = random();
    if (random() % 4 == 0) {
      constexpr size_t edges[] = {0, 1, 7, 8, 15, 16, 39, 40, 41, 47, 48, 56, 63, 64, 65, 127, 4095, 4096};
      const size_t edge = edges[random() % std::size(edges)];
      return {std::min(edge, bytes_max_), signature, content};
    }
    size_t bits = 1;
    while ((size_t{1} << bits) < bytes_max_) ++bits;
    const size_t below = (size_t{1} << (1 + random() % bits)) + 1;
    return {std::min(size_t(random() % below), bytes_max_), signature, content};
  }

 private:
  uint64_t seed_;
  size_t bytes_max_;
};

inline void fill(std::byte* data, size_t bytes, uint64_t content) {
  uint64_t state = content | 1;
  for (size_t i = 0; i < bytes; i += 8) {
    state = state * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    std::memcpy(data + i, &state, std::min<size_t>(8, bytes - i));
  }
}

inline bool holds(const std::byte* data, size_t bytes, uint64_t content) {
  uint64_t state = content | 1;
  for (size_t i = 0; i < bytes; i += 8) {
    state = state * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    if (std::memcmp(data + i, &state, std::min<size_t>(8, bytes - i)) != 0) return false;
  }
  return true;
}

// Sends `count` messages of a stream, each from memory or produced in place, as its own seed says.
class Sender {
 public:
  Sender(Endpoint& endpoint, Traffic traffic, uint64_t count, uint64_t ways_seed, size_t bytes_max)
      : endpoint_(&endpoint), traffic_(traffic), count_(count), ways_(ways_seed), data_(bytes_max + 64) {
    prepare();
  }

  bool finished() const { return sent_ == count_ || broken_; }
  uint64_t sent() const { return sent_; }

  // Tries once; true where a message is on its way.
  bool step() {
    if (finished()) return false;
    return produce_ ? produce() : send();
  }

 private:
  void prepare() {
    if (finished()) return;
    message_ = traffic_.message(sent_);
    produce_ = ways_() % 2 != 0;
    offset_ = ways_() % 64;
    bytes_done_ = 0;
    if (!produce_) fill(data_.data() + offset_, message_.bytes, message_.content);
  }
  bool send() {
    std::byte* data = data_.data() + offset_;
    const Status status = endpoint_->send(data, message_.bytes, message_.signature, bytes_done_);
    if (status == Status::failed) return fail();
    if (status == Status::again) return false;
    EXPECT_EQ(bytes_done_, message_.bytes);
    std::memset(data, 0xee, message_.bytes);  // done: the memory is the caller's again
    return next();
  }
  bool produce() {
    std::byte* place = endpoint_->reserve(message_.bytes);
    if (place == nullptr) return endpoint_->fault().kind == FaultKind::none ? false : fail();
    EXPECT_TRUE(message_.bytes < 128 || reinterpret_cast<uintptr_t>(place) % 64 == 0);
    EXPECT_EQ(endpoint_->reserve(message_.bytes), place);
    fill(place, message_.bytes, message_.content);
    endpoint_->commit(message_.bytes, message_.signature);
    return next();
  }
  bool next() {
    ++sent_;
    prepare();
    return true;
  }
  bool fail() {
    broken_ = true;
    ADD_FAILURE() << "sending message " << sent_ << " of " << message_.bytes << " bytes failed";
    return false;
  }

  Endpoint* endpoint_;
  Traffic traffic_;
  uint64_t count_;
  std::mt19937_64 ways_;
  std::vector<std::byte> data_;
  Message message_{};
  uint64_t sent_ = 0;
  size_t offset_ = 0;
  size_t bytes_done_ = 0;
  bool produce_ = false;
  bool broken_ = false;
};

// Receives the same stream, each message into memory or viewed where it lies (and held for a while), and checks it.
class Receiver {
 public:
  Receiver(Endpoint& endpoint, Traffic traffic, uint64_t count, uint64_t ways_seed, size_t bytes_max)
      : endpoint_(&endpoint), traffic_(traffic), count_(count), ways_(ways_seed), data_(bytes_max + 64) {
    prepare();
  }

  bool finished() const { return received_ == count_ || broken_; }
  uint64_t received() const { return received_; }

  // Tries once; true where something moved.
  bool step() {
    if (finished()) return false;
    return look_ ? look() : recv();
  }

 private:
  void prepare() {
    if (finished()) return;
    message_ = traffic_.message(received_);
    look_ = ways_() % 2 != 0;
    hold_ = ways_() % 4;
    offset_ = ways_() % 64;
    bytes_done_ = 0;
  }
  bool recv() {
    std::byte* data = data_.data() + offset_;
    const Status status = endpoint_->recv(data, message_.bytes, message_.signature, bytes_done_);
    if (status == Status::failed) return fail("failed");
    if (status == Status::again) return false;
    EXPECT_EQ(bytes_done_, message_.bytes);
    if (!holds(data, message_.bytes, message_.content)) return fail("has wrong bytes");
    return next();
  }
  bool look() {
    const std::byte* data = nullptr;
    const Status status = endpoint_->view(message_.bytes, message_.signature, data);
    if (status == Status::failed) return fail("failed");
    if (status == Status::again) return false;
    EXPECT_TRUE(message_.bytes < 128 || reinterpret_cast<uintptr_t>(data) % 64 == 0);
    if (!holds(data, message_.bytes, message_.content)) return fail("has wrong bytes");
    if (hold_-- > 0) return true;
    endpoint_->release();
    return next();
  }
  bool next() {
    ++received_;
    prepare();
    return true;
  }
  bool fail(const char* what) {
    broken_ = true;
    ADD_FAILURE() << "receiving message " << received_ << " of " << message_.bytes << " bytes: " << what;
    return false;
  }

  Endpoint* endpoint_;
  Traffic traffic_;
  uint64_t count_;
  std::mt19937_64 ways_;
  std::vector<std::byte> data_;
  Message message_{};
  uint64_t received_ = 0;
  size_t offset_ = 0;
  size_t bytes_done_ = 0;
  uint64_t hold_ = 0;
  bool look_ = false;
  bool broken_ = false;
};

}  // namespace tutti
