// The operators that callers make for a communicator, and their handles.
#include "communicator/operators.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

// A handle: a mark, the communicator's number, the turn of the place, and the place.
constexpr unsigned mark_bit = 1u << 30, number_bits = 14;

unsigned handle(uint32_t communicator, unsigned turn, size_t place) {
  return mark_bit | (communicator & ((1u << number_bits) - 1)) << 16 | turn << 8 | unsigned(place);
}

}  // namespace

bool Operators::is_made(tuttiRedOp_t op) { return int(op) > 0 && (unsigned(op) & mark_bit) != 0; }

tuttiRedOp_t Operators::add(uint32_t communicator, const MadeOperator& made) {
  for (size_t tried = 0; tried < made_max; ++tried) {
    const size_t at = (next_ + tried) % made_max;
    Place& place = places_[at];
    if (place.made != nullptr) continue;
    place.made = std::make_shared<const MadeOperator>(made);
    ++place.turn;
    next_ = at + 1;
    return tuttiRedOp_t(handle(communicator, place.turn, at));
  }
  throw Error(Code::invalid_usage, fmt::format("comm has {} operators already: destroy some", made_max));
}

size_t Operators::place_of(uint32_t communicator, tuttiRedOp_t op) const {
  const unsigned value = unsigned(op);
  if (!is_made(op)) throw Error(Code::invalid_argument, fmt::format("op is {}, no operator that was made", int(op)));
  if (value >> 16 != handle(communicator, 0, 0) >> 16)
    throw Error(Code::invalid_argument, fmt::format("op is {:#x}, an operator of another communicator", value));
  const size_t at = value & 0xff;
  if (places_[at].made == nullptr || (value >> 8 & 0xff) != places_[at].turn)
    throw Error(Code::invalid_argument,
                fmt::format("op is {:#x}, an operator that was destroyed, or never made", value));
  return at;
}

std::shared_ptr<const MadeOperator> Operators::find(uint32_t communicator, tuttiRedOp_t op) const {
  return places_[place_of(communicator, op)].made;
}

void Operators::remove(uint32_t communicator, tuttiRedOp_t op) { places_[place_of(communicator, op)].made = nullptr; }

}  // namespace tutti
