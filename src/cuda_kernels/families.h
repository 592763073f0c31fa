// Which body serves which type and operator, one function a family. `Make` makes of a body what runs it: a kernel, or
// in tests a function of the host.
//
//   struct Make {
//     using Body = …;  // default constructed: there is none
//     template <class In, class Out, class Op, int inputs_max, uint32_t unrolled> static Body reduce();
//     template <class Element, class Op> static Body scale();
//     template <class Element, class Op> static Body linked(bool packets);
//   };
#pragma once

#include <type_traits>

#include "base/types.h"
#include "device/partition.h"
#include "reduce/elements.h"

namespace tutti {

// Up to two inputs, which is what most steps have, with several packets under way in each thread; or any number.
template <class Make, class Element, class Op>
typename Make::Body body_for(int n_inputs) {
  constexpr uint32_t unrolled = sizeof(typename Element::Stored) == 1 ? 2 : 4;  // of small elements one packet is much work
  return n_inputs <= 2 ? Make::template reduce<Element, Element, Op, 2, unrolled>()
                       : Make::template reduce<Element, Element, Op, kernel_inputs_max, 1>();
}
// Operators that are rare have one body for any number of inputs.
template <class Make, class Element, class Op>
typename Make::Body rare_body() {
  return Make::template reduce<Element, Element, Op, kernel_inputs_max, 1>();
}

// One input: nothing is joined.
template <class Make>
typename Make::Body copy_body() {
  return Make::template reduce<PlainElement<uint8_t>, PlainElement<uint8_t>, scalar::BitOr, 1, 4>();
}

template <class Make, class Element>
typename Make::Body float_body(ReduceOp op, int n_inputs) {
  switch (op) {
    case ReduceOp::prod: return rare_body<Make, Element, scalar::Prod>();
    case ReduceOp::max: return body_for<Make, Element, scalar::Max>(n_inputs);
    case ReduceOp::min: return body_for<Make, Element, scalar::Min>(n_inputs);
    case ReduceOp::sum: return body_for<Make, Element, scalar::Sum>(n_inputs);
    default: return {};
  }
}

// Of linked plans.
template <class Make, class Element>
typename Make::Body linked_float_body(ReduceOp op, bool packets) {
  switch (op) {
    case ReduceOp::sum: return Make::template linked<Element, scalar::Sum>(packets);
    case ReduceOp::prod: return Make::template linked<Element, scalar::Prod>(packets);
    case ReduceOp::max: return Make::template linked<Element, scalar::Max>(packets);
    case ReduceOp::min: return Make::template linked<Element, scalar::Min>(packets);
    default: return {};
  }
}

template <class Make, class T>
typename Make::Body integer_body(ReduceOp op, int n_inputs) {
  using Element = PlainElement<T>;
  if constexpr (std::is_unsigned_v<T>)
    if (op == ReduceOp::prod) return rare_body<Make, Element, scalar::Prod>();
  if constexpr (std::is_same_v<T, uint8_t> || std::is_same_v<T, uint32_t>) {
    if (op == ReduceOp::band) return rare_body<Make, Element, scalar::BitAnd>();
    if (op == ReduceOp::bor) return rare_body<Make, Element, scalar::BitOr>();
    if (op == ReduceOp::bxor) return rare_body<Make, Element, scalar::BitXor>();
  }
  switch (op) {
    case ReduceOp::max: return rare_body<Make, Element, scalar::Max>();
    case ReduceOp::min: return rare_body<Make, Element, scalar::Min>();
    case ReduceOp::sum: return body_for<Make, Element, scalar::Sum>(n_inputs);
    default: return {};
  }
}

template <class Make>
typename Make::Body integer_body(DataType type, ReduceOp op, int n_inputs) {
  switch (type) {
    case DataType::int8: return integer_body<Make, int8_t>(op, n_inputs);
    case DataType::uint8: return integer_body<Make, uint8_t>(op, n_inputs);
    case DataType::int16: return integer_body<Make, int16_t>(op, n_inputs);
    case DataType::uint16: return integer_body<Make, uint16_t>(op, n_inputs);
    case DataType::int32: return integer_body<Make, int32_t>(op, n_inputs);
    case DataType::uint32: return integer_body<Make, uint32_t>(op, n_inputs);
    case DataType::int64: return integer_body<Make, int64_t>(op, n_inputs);
    case DataType::uint64: return integer_body<Make, uint64_t>(op, n_inputs);
    default: return {};
  }
}

template <class Make, class T>
typename Make::Body truth_body(ReduceOp op) {
  return op == ReduceOp::land ? rare_body<Make, PlainElement<T>, scalar::And>()
                              : rare_body<Make, PlainElement<T>, scalar::Or>();
}

template <class Make, class T>
typename Make::Body pair_body(ReduceOp op) {
  return op == ReduceOp::maxloc ? rare_body<Make, PlainElement<T>, scalar::Locate<true>>()
                                : rare_body<Make, PlainElement<T>, scalar::Locate<false>>();
}

// Truth values, complex products, pairs.
template <class Make>
typename Make::Body compound_body(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::boolean: return rare_body<Make, PlainElement<uint8_t>, scalar::Differ>();
    case DataType::uint8: return truth_body<Make, uint8_t>(op);
    case DataType::uint16: return truth_body<Make, uint16_t>(op);
    case DataType::uint32: return truth_body<Make, uint32_t>(op);
    case DataType::uint64: return truth_body<Make, uint64_t>(op);
    case DataType::complex64: return rare_body<Make, PlainElement<Complex<float>>, scalar::Prod>();
    case DataType::complex128: return rare_body<Make, PlainElement<Complex<double>>, scalar::Prod>();
    case DataType::float32_int32: return pair_body<Make, Pair<float, int32_t>>(op);
    case DataType::float64_int64: return pair_body<Make, Pair<double, int64_t>>(op);
    case DataType::int32_int32: return pair_body<Make, Pair<int32_t, int32_t>>(op);
    case DataType::int64_int64: return pair_body<Make, Pair<int64_t, int64_t>>(op);
    default: return {};
  }
}

// Of types whose elements need no toolkit; signed integers as unsigned ones.
template <class Make>
typename Make::Body plain_scale_body(DataType type) {
  switch (type) {
    case DataType::uint8: return Make::template scale<PlainElement<uint8_t>, scalar::Prod>();
    case DataType::uint16: return Make::template scale<PlainElement<uint16_t>, scalar::Prod>();
    case DataType::uint32: return Make::template scale<PlainElement<uint32_t>, scalar::Prod>();
    case DataType::uint64: return Make::template scale<PlainElement<uint64_t>, scalar::Prod>();
    case DataType::bfloat16: return Make::template scale<ScalarBfloat16, scalar::Prod>();
    case DataType::float32: return Make::template scale<PlainElement<float>, scalar::Prod>();
    case DataType::float64: return Make::template scale<PlainElement<double>, scalar::Prod>();
    case DataType::complex64: return Make::template scale<PlainElement<Complex<float>>, scalar::Prod>();
    case DataType::complex128: return Make::template scale<PlainElement<Complex<double>>, scalar::Prod>();
    default: return {};
  }
}

}  // namespace tutti
