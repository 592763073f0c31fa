// Handles: live, dead, and used again only late.
#include "communicator/handle.h"

#include <set>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/calling_thread.h"
#include "communicator/communicator.h"

namespace tutti {
namespace {

struct Cell : Handle<int> {};

TEST(Handle, ADeadOneIsToldFromALiveOneAndIsNotUsedAgainSoon) {
  HandleStore<int, Cell> store;
  Cell* const first = store.make(std::make_unique<int>(7));
  EXPECT_TRUE(first->is_live());
  EXPECT_EQ(*store.take(first), 7);
  EXPECT_FALSE(first->is_live());
  EXPECT_EQ(store.take(first), nullptr);
  std::set<Cell*> later;
  for (int i = 0; i < 200; ++i) {
    Cell* const cell = store.make(std::make_unique<int>(i));
    later.insert(cell);
    store.take(cell);
  }
  EXPECT_FALSE(later.contains(first));
}

TEST(CallingThread, KeepsNothingFromOtherThreads) {
  CallingThread::current().sentence = "mine";
  std::thread([] { EXPECT_EQ(CallingThread::current().sentence, ""); }).join();
  EXPECT_EQ(CallingThread::current().sentence, "mine");
}

}  // namespace
}  // namespace tutti
