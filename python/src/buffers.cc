// Arrays of Python as the buffers of calls: what is refused, and types.
#include "buffers.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

namespace {

namespace device = nb::device;
constexpr int32_t cuda_managed = 13;  // DLPack's kDLCUDAManaged
constexpr uintptr_t legacy_default_stream = 1;  // of CUDA, as DLPack and __cuda_array_interface__ number streams

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

// What an array does not say by where and how it lies.
template <class A>
void check_itself(const std::string& argument, const A& array) {
  if (array.read_only) raise(tuttiInvalidArgument, argument + " is read-only, and is to be written");
  if (std::strcmp(Py_TYPE(array.source.ptr())->tp_name, "numpy.ndarray") == 0) return;
  for (const char* const of_torch : {"is_conj", "is_neg"})  // DLPack's producers in PyTorch overlook them
    if (nb::hasattr(array.source, of_torch) && nb::cast<bool>(array.source.attr(of_torch)()))
      raise(tuttiInvalidArgument, argument + "." + of_torch +
                                      "(): its elements do not lie in memory as they are; give .resolve_" +
                                      (of_torch + 3) + "()");
}

bool lies_on_device(int type) { return type == device::cuda::value || type == cuda_managed; }

template <class A>
bool on_device(const A& array) {
  return !array.is_valid() || lies_on_device(array.device_type());
}

// Throws where Tutti cannot reach memory of that device in this process.
void check_device(const std::string& argument, int type, int number) {
  if (type == device::cpu::value || type == device::cuda_host::value) return;
  if (!lies_on_device(type))
    raise(tuttiUnsupported, argument + " lies in the memory of a device of DLPack's type " + std::to_string(type) +
                                "; Tutti moves memory of the host and of CUDA devices");
  static std::set<int> found;  // guarded by Python's lock
  if (found.count(number) != 0) return;
  tuttiComm_t alone = nullptr;
  if (tuttiCommInitAll(&alone, 1, &number) != tuttiSuccess)
    raise(tuttiUnsupported,
          argument + " lies in the memory of CUDA device " + std::to_string(number) + ", but " + tuttiGetLastError(nullptr));
  tuttiCommDestroy(alone);
  found.insert(number);
}

// The type of "<f4" and its kin.
nb::dlpack::dtype type_of_text(const std::string& argument, const std::string& text) {
  using Code = nb::dlpack::dtype_code;
  static const std::pair<char, Code> codes[] = {
      {'b', Code::Bool}, {'i', Code::Int}, {'u', Code::UInt}, {'f', Code::Float}, {'c', Code::Complex}, {'V', Code::UInt}};
  if (text.size() >= 3 && text[0] != '>')
    for (const auto& [letter, code] : codes)
      if (text[1] == letter) return {uint8_t(code), uint8_t(8 * std::atoi(text.c_str() + 2)), 1};
  raise(tuttiInvalidArgument, argument + " has elements of the type \"" + text + "\", which is no type of Tutti");
}

// What `array` is, where only its source's __cuda_array_interface__ says so: memory of a CUDA device.
template <class Base>
Base described(const std::string& argument, const Buffer<Base>& array) {
  const nb::dict described = nb::cast<nb::dict>(array.source.attr("__cuda_array_interface__"));
  const auto [address, read_only] = nb::cast<std::pair<uintptr_t, bool>>(described["data"]);
  if (read_only && std::is_same_v<Base, nb::ndarray<>>)
    raise(tuttiInvalidArgument, argument + " is read-only");
  if (described.contains("mask") && !described["mask"].is_none())
    raise(tuttiInvalidArgument, argument + " has a mask");
  const auto shape = nb::cast<std::vector<size_t>>(described["shape"]);
  const auto type = type_of_text(argument, nb::cast<std::string>(described["typestr"]));
  std::vector<int64_t> strides;
  if (described.contains("strides") && !described["strides"].is_none())
    for (const int64_t bytes : nb::cast<std::vector<int64_t>>(described["strides"])) strides.push_back(bytes * 8 / type.bits);
  return Base(reinterpret_cast<void*>(address), shape.size(), shape.data(), array.source,
              strides.empty() ? nullptr : strides.data(), type, device::cuda::value);
}

// The producer of an array makes the stream wait for what it has still to do there; or the call is refused.
void come_after(const std::string& argument, const nb::object& source, tuttiStream_t stream, bool on_host_stream) {
  if (on_host_stream)
    raise(tuttiUnsupported, argument + " lies on a device, which a host stream does not wait for; give a stream of the "
                                       "device, or none");
  const uintptr_t number = stream == nullptr ? legacy_default_stream : reinterpret_cast<uintptr_t>(stream);
  if (nb::hasattr(source, "__dlpack__")) {
    source.attr("__dlpack__")(nb::arg("stream") = number);
    return;
  }
  const nb::dict described = nb::cast<nb::dict>(source.attr("__cuda_array_interface__"));
  if (!described.contains("stream") || described["stream"].is_none()) return;
  const auto of_producer = nb::cast<uintptr_t>(described["stream"]);
  if (of_producer != number)
    raise(tuttiUnsupported, argument + " belongs to stream " + std::to_string(of_producer) + ", and the call is on " +
                                (stream == nullptr ? "the default stream" : "stream " + std::to_string(number)) +
                                ": give it stream=" + std::to_string(of_producer) +
                                ", or wait for that stream and give an array that names none");
}

template <class A>
Elements elements(const char* name, const A& array, std::optional<int> as) {
  const std::string argument(name);
  if (array.device_type() != device::cpu::value) check_device(argument, array.device_type(), array.device_id());
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

template <class A>
Elements elements_of(const char* name, const A& array, std::optional<int> as) {
  check_itself(name, array);
  if (on_device(array))
    raise(tuttiUnsupported, std::string(name) + " lies in the memory of a device; here it must be the host's");
  return elements(name, array, as);
}
template Elements elements_of(const char*, const Array&, std::optional<int>);
template Elements elements_of(const char*, const WritableArray&, std::optional<int>);

template <class A>
Elements elements_for(const char* name, const A& array, std::optional<int> as, tuttiStream_t stream, bool on_host_stream) {
  check_itself(name, array);
  if (!on_device(array)) return elements(name, array, as);
  const Elements made = array.is_valid() ? elements(name, array, as) : elements(name, described(name, array), as);
  come_after(name, array.source, stream, on_host_stream);
  return made;
}
template Elements elements_for(const char*, const Array&, std::optional<int>, tuttiStream_t, bool);
template Elements elements_for(const char*, const WritableArray&, std::optional<int>, tuttiStream_t, bool);

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
