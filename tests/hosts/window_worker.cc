// One of the ranks that open a window on a duplicate of their communicator and put to, signal and get from all ranks, their
// own among them. Ends with 0 if all was right.
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

constexpr size_t block = 20'000;  // elements: several messages

std::vector<uint32_t> block_of(int from, int to) {
  std::vector<uint32_t> values(block);
  std::iota(values.begin(), values.end(), uint32_t(from) * 1'000'003 + uint32_t(to) * 10'007);
  return values;
}

bool run() {
  tutti::Communicator world = tutti::Communicator::from_environment();
  tutti::Communicator comm = world.duplicate();
  const int n = comm.size(), me = comm.rank();
  std::vector<uint32_t, tutti::Allocator<uint32_t>> inbox(size_t(n) * block);
  tutti::Window window(comm, std::span<uint32_t>(inbox));
  for (int peer = 0; peer < n; ++peer) {
    const std::vector<uint32_t> mine = block_of(me, peer);
    window.put(std::span<const uint32_t>(mine), peer, size_t(me) * block * sizeof(uint32_t));
    window.signal(peer);
  }
  for (int peer = 0; peer < n; ++peer) {
    window.wait_signal(peer);
    const std::vector<uint32_t> wanted = block_of(peer, me);
    if (!std::equal(wanted.begin(), wanted.end(), inbox.begin() + ptrdiff_t(size_t(peer) * block))) {
      std::fprintf(stderr, "what rank %d put to rank %d is wrong\n", peer, me);
      return false;
    }
  }
  comm.barrier();  // all that was put is there, so it can be fetched from whoever has it
  for (int peer = 0; peer < n; ++peer)
    for (int other = 0; other < n; ++other) {
      std::vector<uint32_t> got(block);
      window.get(std::span<uint32_t>(got), peer, size_t(other) * block * sizeof(uint32_t));
      if (got == block_of(other, peer)) continue;
      std::fprintf(stderr, "what rank %d fetched from rank %d of rank %d's is wrong\n", me, peer, other);
      return false;
    }
  window.close();
  return true;
}

}  // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
