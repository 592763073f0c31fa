// The C interface: types and operators of the caller's own.
#include <cstring>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api.h"
#include "communicator/operators.h"

using namespace tutti;

extern "C" {

tuttiResult_t tuttiTypeCreate(tuttiDataType_t* type, size_t element_bytes) {
  return at_the_border([&] {
    check_not_null("type", type);
    *type = opaque_type(element_bytes);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t* op, tuttiReduceFunction_t function, tuttiDataType_t datatype,
                               int commutative, void* context, tuttiComm_t comm) {
  return at_the_border([&] {
    check_not_null("op", op);
    if (function == nullptr) throw Error(Code::invalid_argument, "function is NULL");
    Communicator& communicator = communicator_of(comm);
    const ElementType type = checked_type(datatype);
    const ReduceOp kind = commutative != 0 ? ReduceOp::custom : ReduceOp::custom_in_order;
    *op = communicator.operators().add(comm->number, {kind, type, {function, context, type.bytes}});
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, const void* scalar, tuttiDataType_t datatype,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm) {
  return at_the_border([&] {
    check_not_null("op", op);
    check_not_null("scalar", scalar);
    Communicator& communicator = communicator_of(comm);
    const ElementType type = checked_type(datatype);
    check_defined(ReduceOp::premulsum, type);
    MadeOperator made{ReduceOp::premulsum, type};
    switch (int(residence)) {
      case tuttiScalarHostMemory: made.scalar = scalar; break;
      case tuttiScalarHostImmediate: std::memcpy(made.immediate.data(), scalar, type.bytes); break;
      default:
        throw Error(Code::invalid_argument, fmt::format("residence is {}, neither tuttiScalarHostMemory (0) nor "
                                                        "tuttiScalarHostImmediate (1)", int(residence)));
    }
    *op = communicator.operators().add(comm->number, made);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
  return at_the_border([&] {
    communicator_of(comm).operators().remove(comm->number, op);
    return tuttiSuccess;
  });
}

}  // extern "C"
