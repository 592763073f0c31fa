// C++ over tutti.h: handles that free themselves, spans instead of pointers and counts, exceptions instead of codes.
// Header-only; C++20. Meaning, blocking and thread rules are those of the C functions that each member names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/tutti.h>

namespace tutti {
inline namespace v0 {

// A failed call: its code and its whole sentence.
class Failure : public std::runtime_error {
 public:
  Failure(tuttiResult_t result, const std::string& sentence) : std::runtime_error(sentence), result_(result) {}
  tuttiResult_t result() const noexcept { return result_; }

 private:
  tuttiResult_t result_;
};

// Throws Failure where a call did not succeed.
inline void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  const std::string sentence = tuttiGetLastError(nullptr);
  throw Failure(result, sentence.empty() ? tuttiGetErrorString(result) : sentence);
}

// The tuttiDataType_t of a C++ type. For 16- and 8-bit floats call the overloads that take a tuttiDataType_t.
template <class T>
constexpr tuttiDataType_t data_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return tuttiFloat32;
  else if constexpr (std::is_same_v<U, double>) return tuttiFloat64;
  else {
    static_assert(std::is_integral_v<U> && !std::is_same_v<U, bool> && sizeof(U) != 2,
                  "no tuttiDataType_t for this element type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return is_signed ? tuttiInt8 : tuttiUint8;
    else if constexpr (sizeof(U) == 4) return is_signed ? tuttiInt32 : tuttiUint32;
    else return is_signed ? tuttiInt64 : tuttiUint64;
  }
}

// tuttiGetUniqueId.
inline tuttiUniqueId unique_id() {
  tuttiUniqueId id;
  check(tuttiGetUniqueId(&id));
  return id;
}

// A host stream. Move-only; its destructor waits for what is enqueued.
class Stream {
 public:
  Stream() { check(tuttiStreamCreate(&handle_)); }
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream() { tuttiStreamDestroy(handle_); }

  tuttiStream_t get() const noexcept { return handle_; }
  void synchronize() { check(tuttiStreamSynchronize(handle_)); }
  // Whether everything enqueued is done.
  bool idle() {
    const tuttiResult_t result = tuttiStreamQuery(handle_);
    if (result == tuttiInProgress) return false;
    check(result);
    return true;
  }

 private:
  tuttiStream_t handle_ = nullptr;
};

// Calls made by this thread while it lives run together when run() is called. Without run() (an exception on the way)
// the group is closed and what it held is run or refused as tuttiGroupEnd does; its error is dropped.
class Group {
 public:
  Group() { check(tuttiGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) tuttiGroupEnd();
  }
  void run() {
    open_ = false;
    check(tuttiGroupEnd());
  }

 private:
  bool open_ = true;
};

// A rank's membership. Move-only. Member functions take an optional stream: none means the calling thread, and the
// call returns when the result is in place.
class Communicator {
 public:
  Communicator(int nranks, const tuttiUniqueId& id, int rank, const tuttiConfig_t* config = nullptr) {
    check(tuttiCommInitRankConfig(&handle_, nranks, id, rank, config));
  }
  // tuttiCommInitEnv.
  static Communicator from_environment(const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommInitEnv(&handle, config));
    return Communicator(handle);
  }
  // tuttiCommInitAll on host memory.
  static std::vector<Communicator> local(int nranks) {
    std::vector<tuttiComm_t> handles(size_t(nranks > 0 ? nranks : 0));
    check(tuttiCommInitAll(handles.data(), nranks, nullptr));
    std::vector<Communicator> all;
    for (const tuttiComm_t handle : handles) all.push_back(Communicator(handle));
    return all;
  }
  Communicator(Communicator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Communicator() { tuttiCommDestroy(handle_); }

  tuttiComm_t get() const noexcept { return handle_; }
  int rank() const {
    int rank = -1;
    check(tuttiCommUserRank(handle_, &rank));
    return rank;
  }
  int size() const {
    int size = 0;
    check(tuttiCommCount(handle_, &size));
    return size;
  }

  // output[i] = op over all ranks of input[i]; the spans have one size, and are equal or disjoint.
  template <class T>
  void all_reduce(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, const Stream* stream = nullptr) {
    same_size(input.size(), output.size());
    check(tuttiAllReduce(input.data(), output.data(), input.size(), data_type_of<T>(), op, handle_, raw(stream)));
  }
  // In place.
  template <class T>
  void all_reduce(std::span<T> data, tuttiRedOp_t op, const Stream* stream = nullptr) {
    check(tuttiAllReduce(data.data(), data.data(), data.size(), data_type_of<T>(), op, handle_, raw(stream)));
  }
  void all_reduce(const void* input, void* output, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                  const Stream* stream = nullptr) {
    check(tuttiAllReduce(input, output, count, type, op, handle_, raw(stream)));
  }

  // data of `root` to all, in place.
  template <class T>
  void broadcast(std::span<T> data, int root, const Stream* stream = nullptr) {
    check(tuttiBroadcast(data.data(), data.data(), data.size(), data_type_of<T>(), root, handle_, raw(stream)));
  }
  void broadcast(const void* input, void* output, size_t count, tuttiDataType_t type, int root,
                 const Stream* stream = nullptr) {
    check(tuttiBroadcast(input, output, count, type, root, handle_, raw(stream)));
  }

  void barrier(const Stream* stream = nullptr) { check(tuttiBarrier(handle_, raw(stream))); }

  template <class T>
  void send(std::span<const T> data, int peer, const Stream* stream = nullptr) {
    check(tuttiSend(data.data(), data.size(), data_type_of<T>(), peer, handle_, raw(stream)));
  }
  template <class T>
  void recv(std::span<T> data, int peer, const Stream* stream = nullptr) {
    check(tuttiRecv(data.data(), data.size(), data_type_of<T>(), peer, handle_, raw(stream)));
  }

  void finalize() { check(tuttiCommFinalize(handle_)); }
  void abort() noexcept { tuttiCommAbort(handle_); }
  // tuttiSuccess while healthy.
  tuttiResult_t state() const {
    tuttiResult_t state = tuttiSuccess;
    check(tuttiCommGetAsyncError(handle_, &state));
    return state;
  }
  std::string transport_to(int peer) const {
    const char* name = nullptr;
    check(tuttiCommTransport(handle_, peer, &name));
    return name;
  }

 private:
  explicit Communicator(tuttiComm_t handle) noexcept : handle_(handle) {}
  static tuttiStream_t raw(const Stream* stream) noexcept { return stream == nullptr ? nullptr : stream->get(); }
  static void same_size(size_t input, size_t output) {
    if (input != output)
      throw Failure(tuttiInvalidArgument,
                    "input has " + std::to_string(input) + " elements, output " + std::to_string(output));
  }

  tuttiComm_t handle_ = nullptr;
};

}  // namespace v0
}  // namespace tutti
