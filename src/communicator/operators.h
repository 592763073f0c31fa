// The operators that callers make for a communicator, and the handles by which they name them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/signature.h"
#include "reduce/custom.h"
#include "tutti/tutti.h"

namespace tutti {

// A type as a call names it. Implicit from those that need not be made.
struct ElementType {
  ElementType(DataType known) : type(known), bytes(uint16_t(element_bytes(known))) {}
  ElementType(DataType known, size_t size) : type(known), bytes(uint16_t(size)) {}

  DataType type;
  uint16_t bytes;

  friend bool operator==(const ElementType&, const ElementType&) = default;
};
inline std::string describe(const ElementType& type) { return describe(type.type, type.bytes); }

// One operator. Does not change once made.
struct MadeOperator {
  ReduceOp op;        // premulsum, custom or custom_in_order
  ElementType type;   // of the elements that it joins
  CustomReduction custom{};                    // custom
  const void* scalar = nullptr;                // premulsum: where it is read at each call; null: it is `immediate`
  std::array<std::byte, 16> immediate{};
};

// Not thread-safe: of the thread that uses the communicator. Calls that still run keep what they were given.
class Operators {
 public:
  // Alive at the same time.
  static constexpr size_t made_max = 256;

  // `communicator` is the number of the communicator's handle, so that its operators are told from those of others.
  // Throws Error(invalid_usage) where made_max are alive.
  tuttiRedOp_t add(uint32_t communicator, const MadeOperator& made);
  // Both throw Error(invalid_argument): not made, destroyed, or of another communicator.
  std::shared_ptr<const MadeOperator> find(uint32_t communicator, tuttiRedOp_t op) const;
  void remove(uint32_t communicator, tuttiRedOp_t op);

  // Whether a value can be that of an operator that was made.
  static bool is_made(tuttiRedOp_t op);

 private:
  struct Place {
    std::shared_ptr<const MadeOperator> made;
    uint8_t turn = 0;  // how often the place was taken, so that a destroyed operator is told from its successor
  };
  size_t place_of(uint32_t communicator, tuttiRedOp_t op) const;

  std::array<Place, made_max> places_;
  size_t next_ = 0;  // places are taken in turn
};

}  // namespace tutti
