// A window's link to a peer without its thread: requests of every kind, in small messages, and one that asks too much.
#include "communicator/window_link.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transport/tcp_loopback.h"

namespace tutti {
namespace {

using Kind = WindowRequest::Kind;

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

std::shared_ptr<WindowRequest> request(Kind kind, size_t offset = 0, std::span<std::byte> data = {}) {
  auto made = std::make_shared<WindowRequest>();
  made->kind = kind;
  made->offset = offset;
  made->tiles = {data.data(), data.size()};
  return made;
}

// Two ranks, each with a link to the other and ten bytes of memory, over messages of at most 64 bytes.
struct Pair {
  std::vector<std::unique_ptr<Transport>> transports;
  std::array<std::string, 2> memory;
  std::array<SharedCounter, 2> counters;
  std::array<std::unique_ptr<WindowLink>, 2> links;

  explicit Pair(size_t bytes) : memory{std::string(bytes, '.'), std::string(bytes, '.')} {
    TcpOptions options;
    options.channels = 2;
    options.message_bytes_max = 64;
    transports = connected_tcp(2, options);
    for (int r = 0; r < 2; ++r) {
      Transport& mine = *transports[size_t(r)];
      links[size_t(r)] = std::make_unique<WindowLink>(*mine.endpoint(1 - r, 0), *mine.endpoint(1 - r, 1), 64,
                                                      bytes_of(memory[size_t(r)]), counters[size_t(r)]);
    }
  }
  // Moves both until the request is done or a link fails; the rank whose link failed, or -1.
  int run_until_done(WindowRequest& awaited) {
    while (awaited.done.value() == 0)
      for (int r = 0; r < 2; ++r) {
        if (links[size_t(r)]->progress() == WindowLink::Progress::failed) return r;
        transports[size_t(r)]->progress();
      }
    return -1;
  }
};

TEST(WindowLink, CarriesRequestsOfEveryKindInOrder) {
  Pair pair(1000);
  std::string sent(777, 'x'), got(500, ' '), theirs(10, ' ');
  const auto flush = request(Kind::flush), get = request(Kind::get, 200, bytes_of(got));
  const auto other_get = request(Kind::get, 5, bytes_of(theirs));
  pair.links[0]->enqueue(request(Kind::put, 100, bytes_of(sent)));
  pair.links[0]->enqueue(request(Kind::signal));
  pair.links[0]->enqueue(get);
  pair.links[1]->enqueue(other_get);
  pair.links[0]->enqueue(flush);
  EXPECT_EQ(pair.run_until_done(*flush), -1);
  EXPECT_EQ(pair.run_until_done(*other_get), -1);
  EXPECT_EQ(get->done.value(), 1u);
  EXPECT_FALSE(get->failed);
  EXPECT_EQ(pair.memory[1], std::string(100, '.') + sent + std::string(123, '.'));
  EXPECT_EQ(got, std::string(500, 'x'));
  EXPECT_EQ(theirs, std::string(10, '.'));
  EXPECT_EQ(pair.counters[1].value(), 1u);
}

TEST(WindowLink, NothingBeyondTheMemoryIsTouched) {
  for (const size_t offset : {size_t{991}, size_t{1001}, ~size_t{0}}) {
    Pair pair(1000);
    std::string sent(10, 'x');
    pair.links[0]->enqueue(request(Kind::put, offset, bytes_of(sent)));
    const auto flush = request(Kind::flush);
    pair.links[0]->enqueue(flush);
    EXPECT_EQ(pair.run_until_done(*flush), 1);
    EXPECT_EQ(pair.links[1]->fault().kind, FaultKind::none);
    EXPECT_EQ(pair.memory[1], std::string(1000, '.'));
    pair.links[0]->drop();
    EXPECT_TRUE(flush->failed);
    EXPECT_EQ(flush->done.value(), 1u);
  }
}

TEST(WindowLink, AClosedPeerIsAFault) {
  Pair pair(10);
  const auto flush = request(Kind::flush);
  pair.links[0]->enqueue(flush);
  pair.links[1].reset();
  pair.transports[1].reset();
  WindowLink::Progress progress = WindowLink::Progress::nothing;
  while (progress != WindowLink::Progress::failed) progress = pair.links[0]->progress();
  EXPECT_NE(pair.links[0]->fault().kind, FaultKind::none);
}

}  // namespace
}  // namespace tutti
