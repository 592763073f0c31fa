// Who reaches whose device: by the cards that ranks show, and by what is really opened.
#include "communicator/peer_reach.h"

#include <gtest/gtest.h>

#include "device/devices.h"

namespace tutti {
namespace {

constexpr uint64_t machine = 7;

// Ranks of this process on devices 0 and 1, which see each other.
std::vector<DeviceCard> two_cards() {
  return {DeviceCard::of(test::simulated(), 0, machine), DeviceCard::of(test::simulated(), 1, machine)};
}
std::string why_not(const std::vector<DeviceCard>& cards) { return why_no_peers(test::simulated(), cards, 0); }

TEST(PeerReach, RanksOfOneProcessReachEachOther) {
  const auto cards = two_cards();
  EXPECT_TRUE(one_process(cards[0], cards[1]));
  EXPECT_EQ(why_not(cards), "");
}

TEST(PeerReach, SaysWhyNot) {
  auto cards = two_cards();
  cards[1].number = -1;
  EXPECT_EQ(why_not(cards), "rank 1 has named no device");
  cards = two_cards();
  cards[1].machine = machine + 1;
  EXPECT_FALSE(one_process(cards[0], cards[1]));
  EXPECT_EQ(why_not(cards), "rank 1 is elsewhere");
  cards = two_cards();
  cards[1].process_token += 1;  // a process of the same number, in another container
  EXPECT_FALSE(one_process(cards[0], cards[1]));
  EXPECT_EQ(why_not(cards), "");
  cards[1].exports = 0;
  EXPECT_EQ(why_not(cards), "rank 1 is another process, and nothing is exported");
  cards[1].exports = 1;
  cards[1].uuid[0] ^= std::byte{1};
  EXPECT_EQ(why_not(cards), "the device of rank 1 is not seen here");
}

TEST(PeerReach, TheProbeOpensWhatOtherProcessesExportAndNamesWhomItCannot) {
  Device& device = test::simulated().device(0);
  PeerProbe probe(device), other(test::simulated().device(1));
  ASSERT_GT(other.card().bytes, 0u);
  auto cards = two_cards();
  ExportedMemory broken = other.card();
  broken.bytes = 0;
  EXPECT_EQ(probe.open(cards, std::vector{probe.card(), broken}, 0), "") << "of its own process it opens nothing";
  cards[1].process_token += 1;
  EXPECT_EQ(probe.open(cards, std::vector{probe.card(), broken}, 0), "rank 1 cannot export its memory");
  EXPECT_EQ(probe.open(cards, std::vector{probe.card(), other.card()}, 0), "");
}

}  // namespace
}  // namespace tutti
