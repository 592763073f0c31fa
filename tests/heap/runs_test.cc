// Runs of granules against the plainest model of them: one letter for each granule.
#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "heap/runs.h"

namespace tutti {
namespace {

// '.': free and clean, 'd': free and dirty, 'u': used.
struct Model {
  std::string granules;
  std::map<size_t, size_t> blocks;

  size_t room(size_t n, size_t alignment) const {
    for (size_t at = 0; at + n <= granules.size(); at += alignment)
      if (granules.find('u', at) >= at + n) return at;
    return Runs::none;
  }
  void fill(size_t first, size_t n, char letter) { granules.replace(first, n, n, letter); }
};

void expect_same(const Runs& runs, const Model& model) {
  EXPECT_EQ(runs.used(), size_t(std::count(model.granules.begin(), model.granules.end(), 'u')));
  EXPECT_EQ(runs.dirty_free(), size_t(std::count(model.granules.begin(), model.granules.end(), 'd')));
  std::map<size_t, size_t> seen;
  runs.each_used([&](size_t first, size_t n) { seen[first] = n; });
  EXPECT_EQ(seen, model.blocks);
  for (size_t at = 0; at < model.granules.size(); ++at)
    ASSERT_EQ(runs.used_at(at), model.blocks.contains(at) ? model.blocks.at(at) : 0) << at;
}

void take(Runs& runs, Model& model, size_t n, size_t alignment) {
  Runs::Dirty dirty;
  const size_t first = runs.take(n, alignment, dirty), wanted = model.room(n, alignment);
  ASSERT_EQ(first, wanted);
  if (first == Runs::none) return;
  const std::string before = model.granules.substr(first, n);
  const size_t first_dirty = before.find('d');
  if (first_dirty == std::string::npos) {
    ASSERT_EQ(dirty.count, 0u);
  } else {
    ASSERT_EQ(dirty.first, first + first_dirty);
    ASSERT_EQ(dirty.count, before.rfind('d') - first_dirty + 1);
  }
  model.fill(first, n, 'u');
  model.blocks[first] = n;
}

void resize(Runs& runs, Model& model, std::pair<const size_t, size_t>& block, size_t n) {
  const size_t end = block.first + block.second;
  if (n <= block.second) {
    runs.shrink(block.first, n);
    model.fill(block.first + n, block.second - n, 'd');
    block.second = n;
    return;
  }
  const size_t next = std::min(model.granules.find('u', end), model.granules.size());
  const bool fits = block.first + n <= next;
  ASSERT_EQ(runs.grow(block.first, n), fits);
  if (!fits) return;
  model.fill(block.first, n, 'u');
  block.second = n;
}

void clean(Runs& runs, Model& model) {
  runs.clean([&](size_t first, size_t n) {
    ASSERT_EQ(model.granules.substr(first, n), std::string(n, 'd'));
    model.fill(first, n, '.');
  });
  ASSERT_EQ(model.granules.find('d'), std::string::npos) << "not all were visited";
}

TEST(Runs, AreWhatAListOfGranulesSays) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random{seed};
    const size_t granules = seed == 0 ? 1 : seed == 1 ? Runs::granules_max : 1 + random() % 300;
    Runs runs(granules);
    Model model{std::string(granules, '.'), {}};
    for (int i = 0; i < 300; ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(i));
      const auto any = model.blocks.empty() ? model.blocks.end()
                                            : std::next(model.blocks.begin(), random() % model.blocks.size());
      const unsigned what = random() % 10;
      if (any == model.blocks.end() || what < 4) {
        take(runs, model, 1 + random() % (granules / 8 + 1), size_t{1} << random() % 4);
      } else if (what < 7) {
        runs.give(any->first);
        model.fill(any->first, any->second, 'd');
        model.blocks.erase(any);
      } else if (what < 9) {
        resize(runs, model, *any, 1 + random() % (2 * any->second));
      } else {
        clean(runs, model);
      }
      if (::testing::Test::HasFatalFailure()) return;
      if (i % 10 == 0) expect_same(runs, model);
    }
    expect_same(runs, model);
  }
}

}  // namespace
}  // namespace tutti
