// The path through the memory of all ranks, by itself: how it takes its memory back.
#include "communicator/shared_path.h"

#include <chrono>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "memory/memory_file.h"
#include "memory/shared_memory.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

// A peer that stays in this rank's memory, as one that was stopped there does.
class StuckPeer final : public Endpoint {
 public:
  bool stuck = true;
  Status send(const std::byte*, size_t, uint64_t, size_t&) noexcept override { return Status::again; }
  std::byte* reserve(size_t) noexcept override { return nullptr; }
  void commit(size_t, uint64_t) noexcept override {}
  Status flush() noexcept override { return Status::done; }
  Status recv(std::byte*, size_t, uint64_t, size_t&) noexcept override { return Status::again; }
  Status view(size_t, uint64_t, const std::byte*&) noexcept override { return Status::again; }
  Status release() noexcept override { return Status::done; }
  const Fault& fault() const noexcept override { return fault_; }
  bool tell(const LentRegion&) noexcept override { return true; }
  bool is_entered() const noexcept override { return stuck; }

 private:
  Fault fault_;
};

TEST(SharedPath, TakesItsMemoryBackFromAPeerThatStaysInIt) {
  for (const bool stuck : {true, false}) {
    constexpr size_t bytes = size_t{1} << 20;
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, bytes), tuttiSuccess);
    const auto block = process_memory().find(memory, bytes);
    const Mapping peers_view(block->region->fd(), block->offset, bytes, "a test");
    std::memset(memory, 1, bytes);
    StuckPeer peer;
    peer.stuck = stuck;
    std::vector<Endpoint*> peers = {nullptr, &peer};
    SharedPath path(peers, 0, size_t{32} << 20);
    SharedCall call;
    call.call = {Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, bytes / 4, 0};
    call.input = call.output = static_cast<std::byte*>(memory);
    call.in_place = true;
    call.input_region = call.output_region = &block->region->lent();
    path.begin(call, [](const std::byte*, std::byte*, size_t) {}, [] {});
    EXPECT_TRUE(path.is_running());
    EXPECT_EQ(path.progress([] { return Status::again; }), Status::again);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(path.let_go(20 * ns_per_ms));
    EXPECT_EQ(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(20), stuck);
    EXPECT_EQ(block->region->is_taken_back(), stuck);
    std::memset(peers_view.data(), 2, bytes);  // it goes on
    EXPECT_FALSE(path.is_running());
    const char* const own = static_cast<const char*>(memory);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(own[i], stuck ? 1 : 2);
  }
}

TEST(SharedPath, NamesThePeerThatHasRevokedItsMemory) {
  constexpr size_t bytes = size_t{1} << 20;
  void* memory = nullptr;
  ASSERT_EQ(tuttiMemAlloc(&memory, bytes), tuttiSuccess);
  const auto block = process_memory().find(memory, bytes);
  StuckPeer peer;  // which lets nobody enter
  std::vector<Endpoint*> peers = {nullptr, &peer};
  SharedPath path(peers, 0, size_t{32} << 20);
  SharedCall call;
  call.call = {Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, bytes / 4, 0};
  call.input = call.output = static_cast<std::byte*>(memory);
  call.in_place = true;
  call.input_region = call.output_region = &block->region->lent();
  bool falls_back = false;
  path.begin(
      call,
      [](const std::byte* mine, std::byte* all, size_t size) {
        for (size_t r = 0; r < 2 && size > 0; ++r) std::memcpy(all + r * size, mine, size);  // the peer says the same
      },
      [&] { falls_back = true; });
  EXPECT_EQ(path.progress([] { return Status::done; }), Status::failed) << "it is nowhere to be reached";
  EXPECT_EQ(path.broken_peer(), 1);
  EXPECT_FALSE(falls_back);
}

}  // namespace
}  // namespace tutti
