// C++ over tutti.h: handles that free themselves, spans instead of pointers and counts, exceptions instead of codes.
// Header-only; C++20. Meaning, blocking and thread rules are those of the C functions that each member names.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
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

// tuttiTypeCreate.
inline tuttiDataType_t type_of_bytes(size_t element_bytes) {
  tuttiDataType_t type = tuttiNumTypes;
  check(tuttiTypeCreate(&type, element_bytes));
  return type;
}

// The tuttiDataType_t of a C++ type; of any other class that can be copied as bytes, the type of its size. For 16- and
// 8-bit floats call the overloads that take a tuttiDataType_t.
template <class T>
constexpr tuttiDataType_t data_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return tuttiFloat32;
  else if constexpr (std::is_same_v<U, double>) return tuttiFloat64;
  else if constexpr (std::is_same_v<U, bool>) return tuttiBool;
  else if constexpr (std::is_same_v<U, std::complex<float>>) return tuttiComplex64;
  else if constexpr (std::is_same_v<U, std::complex<double>>) return tuttiComplex128;
  else if constexpr (std::is_same_v<U, tuttiFloat32Int32_t>) return tuttiFloat32Int32;
  else if constexpr (std::is_same_v<U, tuttiFloat64Int64_t>) return tuttiFloat64Int64;
  else if constexpr (std::is_same_v<U, tuttiInt32Int32_t>) return tuttiInt32Int32;
  else if constexpr (std::is_same_v<U, tuttiInt64Int64_t>) return tuttiInt64Int64;
  else if constexpr (std::is_class_v<U>) {
    static_assert(std::is_trivially_copyable_v<U>, "elements are copied as bytes");
    return type_of_bytes(sizeof(U));
  } else {
    static_assert(std::is_integral_v<U>, "no tuttiDataType_t for this element type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return is_signed ? tuttiInt8 : tuttiUint8;
    else if constexpr (sizeof(U) == 2) return is_signed ? tuttiInt16 : tuttiUint16;
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

// tuttiMemAlloc for containers: std::vector<float, tutti::Allocator<float>>. Every allocation takes whole pages: for
// large buffers. Throws std::bad_alloc; tuttiGetLastError(nullptr) says why. Memory that a pending call uses is not
// freed by a container's end: wait for the call first. All are equal: containers swap and move without copies.
template <class T>
class Allocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) noexcept {}

  T* allocate(size_t n) {
    static_assert(alignof(T) <= 4096, "memory begins at a page");
    if (n > max_size()) throw std::bad_array_new_length();
    void* memory = nullptr;
    if (tuttiMemAlloc(&memory, n * sizeof(T)) != tuttiSuccess) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) noexcept { tuttiMemFree(memory); }
  size_t max_size() const noexcept { return size_t(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T); }

  template <class U>
  bool operator==(const Allocator<U>&) const noexcept {
    return true;
  }
};

// The same as a resource of std::pmr, where every request is a call of tuttiMemAlloc. memory_resource() pools small ones.
class MemoryResource final : public std::pmr::memory_resource {
  static constexpr size_t page_bytes = 4096;

  // Of a stricter alignment than a page's: the whole begins before it, and where, is written before it.
  void* do_allocate(size_t bytes, size_t alignment) override {
    const size_t before = alignment > page_bytes ? alignment : 0;
    void* whole = nullptr;
    if (bytes > std::numeric_limits<size_t>::max() - before) throw std::bad_alloc();
    if (tuttiMemAlloc(&whole, (bytes > 0 ? bytes : 1) + before) != tuttiSuccess) throw std::bad_alloc();
    if (before == 0) return whole;
    char* const memory = static_cast<char*>(whole) + (alignment - reinterpret_cast<uintptr_t>(whole) % alignment);
    std::memcpy(memory - sizeof whole, &whole, sizeof whole);
    return memory;
  }
  void do_deallocate(void* memory, size_t, size_t alignment) override {
    if (alignment > page_bytes) std::memcpy(&memory, static_cast<char*>(memory) - sizeof memory, sizeof memory);
    tuttiMemFree(memory);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return dynamic_cast<const MemoryResource*>(&other) != nullptr;
  }
};

// Memory that the ranks of a host read in place, for any container of std::pmr: requests of up to 64 KiB are cut from
// pools, larger ones are tuttiMemAlloc's. Any thread; it lasts until the process ends. As all memory of tuttiMemAlloc, it
// is shared with a forked child, which must leave its containers alone.
inline std::pmr::memory_resource* memory_resource() {
  constexpr size_t pooled_bytes_max = size_t{64} << 10;
  static MemoryResource& pages = *new MemoryResource();  // outlives whatever static objects keep in it
  static std::pmr::synchronized_pool_resource& pools =
      *new std::pmr::synchronized_pool_resource(std::pmr::pool_options{0, pooled_bytes_max}, &pages);
  return &pools;
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

// An operator that Communicator::make_operator or a premultiplied_sum made; passes for a tuttiRedOp_t. Move-only. Lives
// no longer than its communicator.
class Operator {
 public:
  Operator(Operator&& other) noexcept
      : op_(other.op_), comm_(std::exchange(other.comm_, nullptr)), function_(std::move(other.function_)) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(op_, other.op_);
    std::swap(comm_, other.comm_);
    std::swap(function_, other.function_);
    return *this;
  }
  // Calls on streams that use a function must have ended.
  ~Operator() {
    if (comm_ != nullptr) tuttiRedOpDestroy(op_, comm_);
  }
  operator tuttiRedOp_t() const noexcept { return op_; }

 private:
  friend class Communicator;
  Operator(tuttiRedOp_t op, tuttiComm_t comm, std::shared_ptr<void> function)
      : op_(op), comm_(comm), function_(std::move(function)) {}

  tuttiRedOp_t op_;
  tuttiComm_t comm_;
  std::shared_ptr<void> function_;
};

// tuttiOptions_t with its initial values.
struct Options : tuttiOptions_t {
  Options() : tuttiOptions_t TUTTI_OPTIONS_INITIALIZER {}
};

// How a call runs: on a stream, where there is one, and with options, where there are some. A pointer to a Stream makes
// one.
class How {
 public:
  How(const Stream* stream = nullptr, const tuttiOptions_t* options = nullptr) noexcept
      : stream_(stream), options_(options) {}
  How(const Options& options) noexcept : options_(&options) {}
  tuttiStream_t stream() const noexcept { return stream_ == nullptr ? nullptr : stream_->get(); }
  const tuttiOptions_t* options() const noexcept { return options_; }
  // Vectors that each rank gives: an input is so many times as large as a result.
  size_t inputs() const noexcept { return options_ == nullptr || options_->inputs == 0 ? 1 : options_->inputs; }

 private:
  const Stream* stream_ = nullptr;
  const tuttiOptions_t* options_ = nullptr;
};

// A rank's membership. Move-only. Member functions take an optional stream: none means the calling thread, and the
// call returns when the result is in place; or options; or both, as {&stream, &options}.
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
  // tuttiCommSplit; nothing where color is TUTTI_SPLIT_NOCOLOR.
  std::optional<Communicator> split(int color, int key, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommSplit(handle_, color, key, &handle, config));
    if (handle == nullptr) return std::nullopt;
    return Communicator(handle);
  }
  Communicator duplicate(const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommDup(handle_, &handle, config));
    return Communicator(handle);
  }
  // tuttiCommShrink: those who stay go on without `excluded`, also after a failure.
  Communicator shrink(std::span<const int> excluded, int flags = TUTTI_SHRINK_DEFAULT,
                      const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommShrink(handle_, excluded.data(), int(excluded.size()), &handle, config, flags));
    return Communicator(handle);
  }
  // tuttiCommShrink: all who live go on, and agree on who that is.
  Communicator shrink_to_living(const tuttiConfig_t* config = nullptr) { return shrink({}, TUTTI_SHRINK_AGREE, config); }
  // tuttiCommReplace: newcomers take the numbers of those who died or left; exactly one of the others gives the id.
  Communicator replace(const tuttiUniqueId* id = nullptr, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommReplace(handle_, id, &handle, config));
    return Communicator(handle);
  }
  // tuttiCommGrow of an old rank; exactly one of them gives the id.
  Communicator grow(int nranks, const tuttiUniqueId* id = nullptr, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t handle = nullptr;
    check(tuttiCommGrow(handle_, nranks, id, -1, &handle, config));
    return Communicator(handle);
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

  // tuttiRedOpCreate: T function(const T& left, const T& right), called on the thread that runs the operation.
  template <class T, class F>
  Operator make_operator(F function, bool commutative = true) {
    auto held = std::make_shared<F>(std::move(function));
    const tuttiReduceFunction_t each = [](const void* in, void* inout, size_t count, void* context) {
      const T* const left = static_cast<const T*>(in);
      T* const right = static_cast<T*>(inout);
      for (size_t i = 0; i < count; ++i) right[i] = (*static_cast<F*>(context))(left[i], right[i]);
    };
    tuttiRedOp_t op = tuttiNumOps;
    check(tuttiRedOpCreate(&op, each, data_type_of<T>(), commutative, held.get(), handle_));
    return Operator(op, handle_, std::move(held));
  }
  // tuttiRedOpCreatePreMulSum: by this value; by what is there at each call.
  template <class T>
  Operator premultiplied_sum(const T& scalar) {
    return premultiplied_sum(&scalar, data_type_of<T>(), tuttiScalarHostImmediate);
  }
  Operator premultiplied_sum(const void* scalar, tuttiDataType_t type, tuttiScalarResidence_t residence) {
    tuttiRedOp_t op = tuttiNumOps;
    check(tuttiRedOpCreatePreMulSum(&op, scalar, type, residence, handle_));
    return Operator(op, handle_, nullptr);
  }

  // output[i] = op over all ranks of input[i]; the spans have one size, and are equal or disjoint. (Of all reductions: with
  // options.inputs, input has so many vectors of that size, one after the other.)
  template <class T>
  void all_reduce(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, How how = {}) {
    same_size(input.size(), output.size() * how.inputs());
    check(tuttiAllReduceWith(input.data(), output.data(), output.size(), data_type_of<T>(), op, handle_, how.stream(),
                             how.options()));
  }
  // In place.
  template <class T>
  void all_reduce(std::span<T> data, tuttiRedOp_t op, How how = {}) {
    check(tuttiAllReduceWith(data.data(), data.data(), data.size() / how.inputs(), data_type_of<T>(), op, handle_,
                             how.stream(), how.options()));
  }
  void all_reduce(const void* input, void* output, size_t count, tuttiDataType_t type, tuttiRedOp_t op, How how = {}) {
    check(tuttiAllReduceWith(input, output, count, type, op, handle_, how.stream(), how.options()));
  }

  // data of `root` to all, in place.
  template <class T>
  void broadcast(std::span<T> data, int root, How how = {}) {
    check(tuttiBroadcastWith(data.data(), data.data(), data.size(), data_type_of<T>(), root, handle_, how.stream(),
                             how.options()));
  }
  void broadcast(const void* input, void* output, size_t count, tuttiDataType_t type, int root, How how = {}) {
    check(tuttiBroadcastWith(input, output, count, type, root, handle_, how.stream(), how.options()));
  }

  // output[i] on `root` = op over all ranks of input[i]; elsewhere output is not used and may be empty.
  template <class T>
  void reduce(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, int root, How how = {}) {
    if (root == rank()) same_size(input.size(), output.size() * how.inputs());
    check(tuttiReduceWith(input.data(), output.data(), input.size() / how.inputs(), data_type_of<T>(), op, root, handle_,
                          how.stream(), how.options()));
  }

  // output[i] on rank r = op over the ranks 0 to r of input[i].
  template <class T>
  void scan(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, How how = {}) {
    same_size(input.size(), output.size() * how.inputs());
    check(tuttiScanWith(input.data(), output.data(), output.size(), data_type_of<T>(), op, handle_, how.stream(),
                        how.options()));
  }
  // output[i] on rank r = op over the ranks 0 to r - 1 of input[i]; on rank 0 output stays as it is and may be empty.
  template <class T>
  void exscan(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, How how = {}) {
    if (rank() != 0) same_size(input.size(), output.size() * how.inputs());
    check(tuttiExScanWith(input.data(), output.data(), input.size() / how.inputs(), data_type_of<T>(), op, handle_,
                          how.stream(), how.options()));
  }

  // Of the following, a span of blocks has size() of them, one after the other, block r being of or for rank r.

  // output's block r = input of rank r.
  template <class T>
  void all_gather(std::span<const T> input, std::span<T> output, How how = {}) {
    same_size(input.size() * blocks(), output.size());
    check(tuttiAllGatherWith(input.data(), output.data(), input.size(), data_type_of<T>(), handle_, how.stream(),
                             how.options()));
  }
  // output on rank r = op over all ranks of block r of their inputs.
  template <class T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, tuttiRedOp_t op, How how = {}) {
    same_size(input.size(), output.size() * blocks() * how.inputs());
    check(tuttiReduceScatterWith(input.data(), output.data(), output.size(), data_type_of<T>(), op, handle_,
                                 how.stream(), how.options()));
  }
  // output's block r on `root` = input of rank r; elsewhere output is not used and may be empty.
  template <class T>
  void gather(std::span<const T> input, std::span<T> output, int root, How how = {}) {
    if (root == rank()) same_size(input.size() * blocks(), output.size());
    check(tuttiGatherWith(input.data(), output.data(), input.size(), data_type_of<T>(), root, handle_, how.stream(),
                          how.options()));
  }
  // output on rank r = block r of the root's input; elsewhere input is not used and may be empty.
  template <class T>
  void scatter(std::span<const T> input, std::span<T> output, int root, How how = {}) {
    if (root == rank()) same_size(input.size(), output.size() * blocks());
    check(tuttiScatterWith(input.data(), output.data(), output.size(), data_type_of<T>(), root, handle_, how.stream(),
                           how.options()));
  }
  // output's block r on rank s = block s of rank r's input.
  template <class T>
  void all_to_all(std::span<const T> input, std::span<T> output, How how = {}) {
    same_size(input.size(), output.size());
    if (input.size() % blocks() != 0)
      throw Failure(tuttiInvalidArgument, std::to_string(input.size()) + " elements are no whole blocks for " +
                                              std::to_string(blocks()) + " ranks");
    const size_t count = input.size() / blocks();
    check(
        tuttiAlltoAllWith(input.data(), output.data(), count, data_type_of<T>(), handle_, how.stream(), how.options()));
  }

  // V-forms: of a span of blocks, block r is counts[r] elements from element displs[r] on; where displs is empty, each
  // block follows the one before. counts has size() entries, displs as many or none.

  // output's block r = input of rank r.
  template <class T>
  void all_gather_v(std::span<const T> input, std::span<T> output, std::span<const size_t> counts,
                    std::span<const size_t> displs = {}, How how = {}) {
    fits("output", output.size(), counts, displs);
    check(tuttiAllGatherVWith(input.data(), input.size(), output.data(), counts.data(), given(displs),
                              data_type_of<T>(), handle_, how.stream(), how.options()));
  }
  // output on rank r = op over all ranks of block r of their inputs.
  template <class T>
  void reduce_scatter_v(std::span<const T> input, std::span<const size_t> counts, std::span<const size_t> displs,
                        std::span<T> output, tuttiRedOp_t op, How how = {}) {
    fits("input", input.size() / how.inputs(), counts, displs);
    check(tuttiReduceScatterVWith(input.data(), counts.data(), given(displs), output.data(), output.size(),
                              data_type_of<T>(), op, handle_, how.stream(), how.options()));
  }
  // output's block r on `root` = input of rank r; elsewhere output, counts and displs are not used and may be empty.
  template <class T>
  void gather_v(std::span<const T> input, std::span<T> output, std::span<const size_t> counts,
                std::span<const size_t> displs, int root, How how = {}) {
    if (root == rank()) fits("output", output.size(), counts, displs);
    check(tuttiGatherVWith(input.data(), input.size(), output.data(), counts.data(), given(displs), data_type_of<T>(),
                           root, handle_, how.stream(), how.options()));
  }
  // output on rank r = block r of the root's input; elsewhere input, counts and displs are not used and may be empty.
  template <class T>
  void scatter_v(std::span<const T> input, std::span<const size_t> counts, std::span<const size_t> displs,
                 std::span<T> output, int root, How how = {}) {
    if (root == rank()) fits("input", input.size(), counts, displs);
    check(tuttiScatterVWith(input.data(), counts.data(), given(displs), output.data(), output.size(), data_type_of<T>(),
                        root, handle_, how.stream(), how.options()));
  }
  // output's block r on rank s = block s of rank r's input.
  template <class T>
  void all_to_all_v(std::span<const T> input, std::span<const size_t> sendcounts, std::span<const size_t> sdispls,
                    std::span<T> output, std::span<const size_t> recvcounts, std::span<const size_t> rdispls,
                    How how = {}) {
    fits("input", input.size(), sendcounts, sdispls);
    fits("output", output.size(), recvcounts, rdispls);
    check(tuttiAlltoAllVWith(input.data(), sendcounts.data(), given(sdispls), output.data(), recvcounts.data(),
                         given(rdispls), data_type_of<T>(), handle_, how.stream(), how.options()));
  }

  void barrier(How how = {}) { check(tuttiBarrierWith(handle_, how.stream(), how.options())); }

  template <class T>
  void send(std::span<const T> data, int peer, How how = {}) {
    check(tuttiSendWith(data.data(), data.size(), data_type_of<T>(), peer, handle_, how.stream(), how.options()));
  }
  template <class T>
  void recv(std::span<T> data, int peer, How how = {}) {
    check(tuttiRecvWith(data.data(), data.size(), data_type_of<T>(), peer, handle_, how.stream(), how.options()));
  }

  // Sends to one rank while it receives from one.
  template <class T>
  void send_recv(std::span<const T> output, int to, std::span<T> input, int from, How how = {}) {
    check(tuttiSendRecvWith(output.data(), output.size(), to, input.data(), input.size(), from, data_type_of<T>(),
                            handle_, how.stream(), how.options()));
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
  size_t blocks() const { return size_t(size()); }
  static void same_size(size_t input, size_t output) {
    if (input != output)
      throw Failure(tuttiInvalidArgument,
                    "input has " + std::to_string(input) + " elements, output " + std::to_string(output));
  }

  static const size_t* given(std::span<const size_t> displs) noexcept {
    return displs.empty() ? nullptr : displs.data();
  }
  // Blocks must end within their span.
  void fits(const char* span, size_t elements, std::span<const size_t> counts, std::span<const size_t> displs) const {
    if (counts.size() != blocks() || (!displs.empty() && displs.size() != blocks()))
      throw Failure(tuttiInvalidArgument, std::string(span) + " has " + std::to_string(counts.size()) + " counts and " +
                                              std::to_string(displs.size()) + " displacements for " +
                                              std::to_string(blocks()) + " ranks");
    size_t next = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] == 0) continue;
      const size_t first = displs.empty() ? next : displs[r];
      if (first > elements || counts[r] > elements - first)
        throw Failure(tuttiInvalidArgument, std::string(span) + " has " + std::to_string(elements) +
                                                " elements, but block " + std::to_string(r) + " has " +
                                                std::to_string(counts[r]) + " from element " + std::to_string(first));
      next = first + counts[r];
    }
  }

  tuttiComm_t handle_ = nullptr;
};

// Memory that the other ranks of a communicator put into and get from. Move-only. Making and ending one are collective;
// offsets are in bytes. End it before its communicator.
class Window {
 public:
  // tuttiCommWindowRegister.
  template <class T>
  Window(const Communicator& comm, std::span<T> memory) : comm_(comm.get()) {
    check(tuttiCommWindowRegister(comm_, memory.data(), memory.size_bytes(), &handle_));
  }
  Window(Window&& other) noexcept : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
  Window& operator=(Window&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  // Waits for the other ranks to end theirs; an error is dropped.
  ~Window() { tuttiCommWindowDeregister(comm_, handle_); }
  // The same with its error.
  void close() { check(tuttiCommWindowDeregister(comm_, std::exchange(handle_, nullptr))); }

  tuttiWindow_t get() const noexcept { return handle_; }
  template <class T>
  void put(std::span<const T> source, int peer, size_t offset = 0) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    check(tuttiPut(source.data(), source.size_bytes(), peer, offset, handle_));
  }
  template <class T>
  void get(std::span<T> target, int peer, size_t offset = 0) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    check(tuttiGet(target.data(), target.size_bytes(), peer, offset, handle_));
  }
  void signal(int peer) { check(tuttiSignal(peer, handle_)); }
  void wait_signal(int peer, int count = 1) { check(tuttiWaitSignal(peer, count, handle_)); }
  void flush(int peer) { check(tuttiWindowFlush(peer, handle_)); }

 private:
  tuttiComm_t comm_ = nullptr;
  tuttiWindow_t handle_ = nullptr;
};

}  // namespace v0
}  // namespace tutti
