// Arrays of Python as the buffers of calls, and how long they are kept.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.h>

namespace nb = nanobind;

// Any object with the buffer protocol or DLPack: of host memory, in C order, never copied.
using Array = nb::ndarray<nb::ro>;
using WritableArray = nb::ndarray<>;

// Raises the Python exception of a failed call, with the whole sentence.
void check(tuttiResult_t result);
[[noreturn]] void raise(tuttiResult_t result, const std::string& sentence);

// Elements of an array. Refuses, with the argument's name: memory of a device, strides, types that Tutti does not have.
struct Elements {
  void* data = nullptr;
  size_t count = 0;
  tuttiDataType_t type = tuttiUint8;
};
// `as`: the elements are of that type instead, and the array is nothing but their bytes.
Elements elements_of(const char* name, const nb::ndarray<nb::ro>& array, std::optional<int> as);
Elements elements_of(const char* name, const nb::ndarray<>& array, std::optional<int> as);
// Both must have the same type.
void check_same_type(const char* name, const Elements& a, const char* other, const Elements& b);

// Keeps arrays until a call that goes on after its function has returned is over: those of an open group until its end,
// those of a prepared call as long as it lives, those on a stream until the stream is known to have passed them.
using Kept = std::vector<nb::object>;
// Where calls of this thread leave their arrays while a group or prepared call is open; null: none is.
Kept*& open_collection();
void keep(Kept* of_stream, const nb::handle& array);
