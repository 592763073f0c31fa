// Runs: first fit, and neighbours that are free become one.
#include "heap/runs.h"

#include <algorithm>

namespace tutti {

Runs::Runs(size_t granules) noexcept : granules_(granules) { set(0, granules, false); }

void Runs::set(size_t first, size_t n, bool is_used) noexcept {
  length_[first] = uint16_t(n | (is_used ? used_bit : 0));
  back_[first + n - 1] = uint16_t(n);
}

void Runs::mark(size_t granule, bool dirty) noexcept {
  const uint64_t bit = uint64_t{1} << (granule % 64);
  if (dirty) dirty_[granule / 64] |= bit;
  else dirty_[granule / 64] &= ~bit;
}

size_t Runs::take(size_t n, size_t alignment, Dirty& dirty) noexcept {
  for (size_t at = 0; at < granules_; at += length_[at] & ~used_bit) {
    if ((length_[at] & used_bit) != 0) continue;
    const size_t first = (at + alignment - 1) / alignment * alignment;
    if (first + n > at + length_[at]) continue;
    occupy(at, first, n, dirty);
    return first;
  }
  return none;
}

// Cuts [first, first + n) out of the free run at `at`.
void Runs::occupy(size_t at, size_t first, size_t n, Dirty& dirty) noexcept {
  const size_t end = at + length_[at];
  if (first > at) set(at, first - at, false);
  if (first + n < end) set(first + n, end - first - n, false);
  set(first, n, true);
  used_ += n;
  dirty = {first, 0};
  for (size_t granule = first; granule < first + n; ++granule) {
    if (!is_dirty(granule)) continue;
    if (dirty.count == 0) dirty.first = granule;
    dirty.count = granule + 1 - dirty.first;
    mark(granule, false);
    --dirty_free_;
  }
}

size_t Runs::used_at(size_t first) const noexcept {
  if (first >= granules_ || (length_[first] & used_bit) == 0) return 0;
  return length_[first] & ~used_bit;
}

bool Runs::grow(size_t first, size_t n) noexcept {
  const size_t old = used_at(first), next = first + old;
  if (next >= granules_ || (length_[next] & used_bit) != 0 || old + length_[next] < n) return false;
  Dirty ignored;
  occupy(next, next, n - old, ignored);
  length_[next] = 0;
  set(first, n, true);
  return true;
}

void Runs::shrink(size_t first, size_t n) noexcept {
  const size_t old = used_at(first);
  if (n >= old) return;
  set(first, n, true);
  release(first + n, old - n);
}

void Runs::give(size_t first) noexcept { release(first, used_at(first)); }

void Runs::release(size_t first, size_t n) noexcept {
  used_ -= n;
  dirty_free_ += n;
  for (size_t granule = first; granule < first + n; ++granule) mark(granule, true);
  size_t begin = first, end = first + n;
  if (end < granules_ && (length_[end] & used_bit) == 0) {
    const size_t next = end;
    end += length_[next];
    length_[next] = 0;
  }
  if (begin > 0 && (length_[begin - back_[begin - 1]] & used_bit) == 0) {
    length_[begin] = 0;
    begin -= back_[begin - 1];
  }
  set(begin, end - begin, false);
}

}  // namespace tutti
