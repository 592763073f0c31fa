// Arrays of Python as the buffers of calls: what is refused, and types.
#include "buffers.h"

namespace {

nb::object error_class(tuttiResult_t result) {
  const nb::object classes = nb::module_::import_("tutti.errors");
  const nb::object by_result = classes.attr("BY_RESULT");
  return by_result.attr("get")(int(result), classes.attr("Error"));
}

std::optional<tuttiDataType_t> type_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return std::nullopt;
  switch (Code(dtype.code)) {
    case Code::Bool: return dtype.bits == 8 ? std::optional(tuttiBool) : std::nullopt;
    case Code::Int:
      if (dtype.bits == 8) return tuttiInt8;
      if (dtype.bits == 16) return tuttiInt16;
      if (dtype.bits == 32) return tuttiInt32;
      if (dtype.bits == 64) return tuttiInt64;
      break;
    case Code::UInt:
      if (dtype.bits == 8) return tuttiUint8;
      if (dtype.bits == 16) return tuttiUint16;
      if (dtype.bits == 32) return tuttiUint32;
      if (dtype.bits == 64) return tuttiUint64;
      break;
    case Code::Float:
      if (dtype.bits == 16) return tuttiFloat16;
      if (dtype.bits == 32) return tuttiFloat32;
      if (dtype.bits == 64) return tuttiFloat64;
      break;
    case Code::Complex:
      if (dtype.bits == 64) return tuttiComplex64;
      if (dtype.bits == 128) return tuttiComplex128;
      break;
    case Code::Bfloat: return dtype.bits == 16 ? std::optional(tuttiBfloat16) : std::nullopt;
    case Code::Float8_E4M3FN: return tuttiFloat8e4m3;
    case Code::Float8_E5M2: return tuttiFloat8e5m2;
    default: break;
  }
  return std::nullopt;
}

template <class A>
Elements elements(const char* name, const A& array, std::optional<int> as) {
  const std::string argument(name);
  if (array.device_type() != nb::device::cpu::value)
    raise(tuttiUnsupported, argument + " lies in the memory of a device (DLPack's type " +
                                std::to_string(array.device_type()) + "); this version moves host memory only");
  int64_t next = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != next && array.size() != 0)
      raise(tuttiInvalidArgument, argument + " is not contiguous: its stride of axis " + std::to_string(i) + " is " +
                                      std::to_string(array.stride(i)) + " elements in place of " +
                                      std::to_string(next));
    next *= int64_t(array.shape(i));
  }
  Elements made;
  made.data = const_cast<void*>(static_cast<const void*>(array.data()));
  if (as) {
    made.type = tuttiDataType_t(*as);
    const size_t width = tuttiTypeSize(made.type);
    if (width == 0) raise(tuttiInvalidArgument, "datatype is " + std::to_string(*as) + ", which is no type");
    if (array.nbytes() % width != 0)
      raise(tuttiInvalidArgument, argument + " has " + std::to_string(array.nbytes()) +
                                      " bytes, which are no whole elements of " + std::to_string(width));
    made.count = array.nbytes() / width;
    return made;
  }
  const auto type = type_of(array.dtype());
  if (!type)
    raise(tuttiInvalidArgument, argument + " has elements of DLPack's type code " + std::to_string(array.dtype().code) +
                                    " with " + std::to_string(array.dtype().bits) +
                                    " bits, which is no type of Tutti; give datatype=tutti.opaque(bytes) to move them");
  made.type = *type;
  made.count = array.size();
  return made;
}

}  // namespace

void raise(tuttiResult_t result, const std::string& sentence) {
  const nb::object kind = error_class(result);
  PyErr_SetString(kind.ptr(), sentence.c_str());
  throw nb::python_error();
}

void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  const std::string sentence = tuttiGetLastError(nullptr);
  raise(result, sentence.empty() ? tuttiGetErrorString(result) : sentence);
}

Elements elements_of(const char* name, const nb::ndarray<nb::ro>& array, std::optional<int> as) {
  return elements(name, array, as);
}
Elements elements_of(const char* name, const nb::ndarray<>& array, std::optional<int> as) {
  return elements(name, array, as);
}

void check_same_type(const char* name, const Elements& a, const char* other, const Elements& b) {
  if (a.type != b.type)
    raise(tuttiInvalidArgument, std::string(name) + " has elements of type " + std::to_string(a.type) + ", " + other +
                                    " of type " + std::to_string(b.type));
}

// Groups are the calling thread's, in the C interface too.
Kept*& open_collection() {
  thread_local Kept* collection = nullptr;
  return collection;
}

void keep(Kept* of_stream, const nb::handle& array) {
  if (Kept* const open = open_collection()) open->push_back(nb::borrow(array));
  if (of_stream != nullptr) of_stream->push_back(nb::borrow(array));
}
