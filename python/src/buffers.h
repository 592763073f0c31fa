// Arrays of Python as the buffers of calls, and how long they are kept.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.h>

namespace nb = nanobind;

// Any object with the buffer protocol, DLPack or __cuda_array_interface__, of the host or of a CUDA device, in C order; never
// copied. One that has the last alone is read when its elements are asked for.
template <class Base>
struct Buffer : Base {
  nb::object source;
  bool read_only = false;  // though it is to be written: the array itself is not held then
};
using Array = Buffer<nb::ndarray<nb::ro>>;
using WritableArray = Buffer<nb::ndarray<>>;

// Raises the Python exception of a failed call, with the whole sentence.
void check(tuttiResult_t result);
[[noreturn]] void raise(tuttiResult_t result, const std::string& sentence);

// Elements of an array of the host. Refuses, with the argument's name: memory of devices, strides, read-only memory that is
// to be written, types that Tutti does not have.
struct Elements {
  void* data = nullptr;
  size_t count = 0;
  tuttiDataType_t type = tuttiUint8;
};
// `as`: the elements are of that type instead, and the array is nothing but their bytes.
template <class A>
Elements elements_of(const char* name, const A& array, std::optional<int> as);
// The same of an array of the host or of a device, for a call on a stream of that device, or on none (null): the array's
// producer makes it come after its own work.
template <class A>
Elements elements_for(const char* name, const A& array, std::optional<int> as, tuttiStream_t stream, bool on_host_stream);
// Both must have the same type.
void check_same_type(const char* name, const Elements& a, const char* other, const Elements& b);

// Keeps arrays until a call that goes on after its function has returned is over: those of an open group until its end,
// those of a prepared call as long as it lives, those on a stream until the stream is known to have passed them.
using Kept = std::vector<nb::object>;
// Where calls of this thread leave their arrays while a group or prepared call is open; null: none is.
Kept*& open_collection();
void keep(Kept* of_stream, const nb::handle& array);

namespace nanobind::detail {

template <class Base>
struct type_caster<Buffer<Base>> {
  NB_TYPE_CASTER(Buffer<Base>, const_name("_Array"))  // which the stub defines

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<Base> base;
    make_caster<nb::ndarray<nb::ro>> to_read;
    if (base.from_python(source, flags, cleanup)) {
      static_cast<Base&>(value) = std::move(base.value);
    } else if (PyErr_Clear(); to_read.from_python(source, flags, cleanup)) {
      value.read_only = true;
    } else {
      PyErr_Clear();
      if (!hasattr(source, "__cuda_array_interface__")) return false;
    }
    value.source = borrow(source);
    return true;
  }
  static handle from_cpp(const Buffer<Base>& array, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<Base>::from_cpp(array, policy, cleanup);
  }
};

}  // namespace nanobind::detail
