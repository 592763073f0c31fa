// All ranks' plans as one: where the ranks share an address space, no message is sent. Who would receive one reads it
// where its sender has it, and waits for that sender's step only.
//
// A plan's messages are in order on each pair of ranks, and no rank looks before it chooses, so which step's message a
// step receives is known beforehand. What lies in a caller's buffer, and is surely read before it is overwritten, is read in
// place; every other message has a slot of its own, which nothing else is ever written to. So a linked plan waits for no
// more than a plan with any number of slots in each FIFO: it ends, and with the same results.
//
// Put: where a step of another rank does no more than take a message to its output, and nobody else touches that place,
// the step that makes the message writes it there too, in the same pass, and the other step vanishes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "schedule/collective.h"
#include "schedule/plan.h"

namespace tutti {

inline constexpr uint32_t linked_ranks_max = 8;
inline constexpr uint32_t linked_steps_max = 128;   // of all ranks: so that a linked plan fits a kernel's parameters
inline constexpr uint32_t linked_places_max = 8;    // operands or outputs of a step

// Where chunks lie: in a buffer of a rank, from a chunk on, or in one of its slots.
struct LinkedPlace {
  enum Kind : uint8_t { input, output, own_input, own_output, slot };  // own: the buffer has that one chunk alone
  uint8_t rank = 0;
  Kind kind = input;
  uint16_t chunk = 0;  // or the slot's number

  friend constexpr bool operator==(const LinkedPlace&, const LinkedPlace&) = default;
};

// Until so many steps of the rank are done.
struct LinkedWait {
  uint8_t rank = 0;
  uint8_t steps = 0;
};

// All its places hold `chunks` chunks, whose sizes are those of the chunks from `first_chunk` on.
struct LinkedStep {
  std::array<LinkedPlace, linked_places_max> operands{};  // joined from the left
  std::array<LinkedPlace, linked_places_max> outputs{};
  std::array<LinkedWait, linked_places_max> waits{};
  uint8_t n_operands = 0, n_outputs = 0, n_waits = 0;
  bool finish = false;
  bool awaited = false;  // some step waits for it
  uint16_t first_chunk = 0, chunks = 0;
};

// How the memory is divided that the steps are about.
struct LinkedShape {
  uint32_t ranks = 0;
  uint32_t chunks = 1;        // that a buffer is divided into
  bool blocks = false;        // chunks are blocks of equal size
  bool waits = false;         // some step waits: all ranks must be under way at once
  bool packets = false;       // see link_packets
  uint32_t slots = 0;         // of each rank
  uint32_t slot_chunks = 0;   // in a slot, at most
};

// Plain data: it travels as it is.
struct LinkedPlan : LinkedShape {
  std::array<uint16_t, linked_ranks_max + 1> first_step{};  // of each rank
  std::array<LinkedStep, linked_steps_max> steps{};
};

// plans[r] is rank r's, of the same algorithm; in_place[r]: its input and output are the same memory, as it was lowered
// for. False where the plans cannot be linked: too many ranks or steps, scratch memory, or buffers that are not divided
// alike. Then `linked` has no meaning. puts: who makes a message writes it where it is wanted, if it can; else who wants it
// reads it.
bool link(Collective collective, std::span<const Plan> plans, int root, std::span<const bool> in_place,
          LinkedPlan* linked, bool puts = true);

// As link(), but every message goes to a slot that lies with who receives it, one for each receiver, and no rank touches
// another's buffers. No step waits: whoever reads a slot sees in its packets whether they have come, so nothing else need
// be told. What check_packets() says of such a plan must hold before it is run.
bool link_packets(Collective collective, std::span<const Plan> plans, int root, std::span<const bool> in_place,
                  LinkedPlan* linked);

// The proof that a linked plan's elements are independent: no step waits or leaves anything in a slot, none touches what
// another one writes, and what a step both reads and writes it reads and writes at the same element. Then all may be done
// in any order, by any rank, and any part of a step by one rank and the rest by another, with one and the same result.
bool is_free_of_order(const LinkedPlan& linked, std::span<const bool> in_place) noexcept;

}  // namespace tutti
