// The steps of opening a window, which all ranks take together.
#include "communicator/window_opening.h"

#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "bootstrap/agreement.h"
#include "transport/shm/shm_handshake.h"

namespace tutti {
namespace {

constexpr const char* about = "window";

// What a rank tells all others.
struct Hello {
  uint64_t bytes = 0;
  uint64_t mappable = 0;    // 1: as below, or nothing needs to be mapped
  uint64_t file_bytes = 0;  // the memory file,
  uint64_t page_at = 0;     // where in it the first page of the window begins,
  uint64_t skip = 0;        // and the window in that page
  ShmToken token{};
};

class Opening {
 public:
  Opening(Bootstrap& bootstrap, const WindowOptions& options, const WindowMemory& memory)
      : bootstrap_(bootstrap), options_(options), memory_(memory), me_(size_t(bootstrap.rank())),
        size_(size_t(bootstrap.size())), agreement_(bootstrap, about, [this] { listener_.fd.reset(); }) {}

  OpenedWindow open() {
    agreement_.attempt([&] { make_board(); });
    hellos_ = agreement_.gather_values(introduction());
    std::vector<unsigned char> row(size_, 0);
    agreement_.attempt([&] { meet_peers(row); });
    const std::vector<Bytes> reached = agreement_.gather(std::as_bytes(std::span(row)));
    agreement_.attempt([&] {
      for (size_t peer = 0; peer < size_; ++peer)
        if (row[peer] != 0 && reached[peer][me_] != std::byte{0}) map_peer(peer);
    });
    opened_.peers.resize(size_);
    for (size_t peer = 0; peer < size_; ++peer) row[peer] = opened_.peers[peer].counter != nullptr;
    find_served(agreement_.gather(std::as_bytes(std::span(row))));
    return std::move(opened_);
  }

 private:
  void make_board() {
    listener_ = open_shm_listener();
    const size_t bytes = whole_pages(size_ * sizeof(SharedCounter));
    board_file_ = make_memory_file("tutti-signals", bytes, about);
    opened_.board = Mapping(board_file_.get(), 0, bytes, about);
    opened_.peers.resize(size_);
  }

  Hello introduction() const {
    Hello hello;
    hello.bytes = memory_.bytes.size();
    hello.mappable = memory_.block != nullptr || memory_.bytes.empty();
    hello.token = listener_.token;
    if (memory_.block == nullptr) return hello;
    const SharedBlock& block = *memory_.block;
    const size_t at = block.offset + size_t(memory_.bytes.data() - block.data());
    hello.file_bytes = block.region->bytes();
    hello.skip = at % page_bytes();
    hello.page_at = at - hello.skip;
    return hello;
  }

  // The gift is the board and, where there is something to map, the memory's file.
  void meet_peers(std::vector<unsigned char>& reached) {
    for (size_t peer = 0; peer < size_; ++peer) opened_.peers[peer].bytes = hellos_[peer].bytes;
    opened_.peers[me_].memory = memory_.bytes.data();
    opened_.peers[me_].counter = &counters_of(opened_.board)[me_];
    const std::array<int, 2> gift = {board_file_.get(), memory_.block == nullptr ? -1 : memory_.block->region->fd()};
    std::vector<ShmCandidate> candidates;
    for (size_t peer = 0; peer < size_; ++peer)
      if (peer != me_ && options_.local[peer]) candidates.push_back({int(peer), hellos_[peer].token});
    const auto check = [this] {
      if (const Verdict* verdict = bootstrap_.verdict()) throw Error(verdict->code, verdict->sentence);
    };
    const ShmHandshake handshake{bootstrap_.key(), bootstrap_.rank(),
                                 std::span(gift).first(memory_.block == nullptr ? 1 : 2),
                                 now_ns() + options_.timeout_ns, check};
    std::vector<ShmGift> gifts = exchange_gifts(std::move(listener_), candidates, handshake);
    gifts_.resize(size_);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto peer = size_t(candidates[i].rank);
      reached[peer] = gifts[i].empty() ? 0 : 1;
      gifts_[peer] = std::move(gifts[i]);
    }
  }

  void map_peer(size_t peer) {
    const Hello& hello = hellos_[peer];
    if (hello.mappable == 0) return;
    const ShmGift gift = std::move(gifts_[peer]);
    check_file(gift.front(), opened_.board.bytes(), "board of signals", peer);
    WindowPeer& mapped = opened_.peers[peer];
    if (hello.bytes > 0) {
      check_file(gift.back(), hello.file_bytes, "memory", peer);
      mapped.memory_mapping = Mapping(gift.back().get(), hello.page_at, hello.skip + hello.bytes, about);
      mapped.memory = mapped.memory_mapping.at(hello.skip);
    }
    mapped.board_mapping = Mapping(gift.front().get(), 0, opened_.board.bytes(), about);
    mapped.counter = &counters_of(mapped.board_mapping)[me_];
  }

  void check_file(const Fd& file, size_t bytes, const char* what, size_t peer) const {
    if (!is_memory_file(file.get(), bytes))
      throw Error(Code::internal_error, fmt::format("window: the {} of {} is no file of {} sealed bytes", what,
                                                    bootstrap_.describe(int(peer)), bytes));
  }

  // direct: of every rank, whom it reaches.
  void find_served(const std::vector<Bytes>& direct) {
    opened_.served.resize(size_);
    for (size_t from = 0; from < size_; ++from)
      for (size_t to = 0; to < size_; ++to) {
        if (direct[from][to] != std::byte{0}) continue;
        opened_.any_served = true;
        if (from == me_) opened_.served[to] = true;
        if (to == me_) opened_.served[from] = true;
      }
  }

  Bootstrap& bootstrap_;
  const WindowOptions& options_;
  const WindowMemory& memory_;
  size_t me_, size_;
  Agreement agreement_;
  ShmListener listener_;
  Fd board_file_;
  std::vector<Hello> hellos_;
  std::vector<ShmGift> gifts_;
  OpenedWindow opened_;
};

}  // namespace

OpenedWindow open_window(Bootstrap& bootstrap, const WindowOptions& options, const WindowMemory& memory) {
  return Opening(bootstrap, options, memory).open();
}

}  // namespace tutti
