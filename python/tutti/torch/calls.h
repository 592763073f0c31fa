// What the backend's parts share: PyTorch's types and operators in Tutti's words, errors, and tensors as buffers.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.h>

namespace tutti_torch {

using std::chrono::milliseconds;

// Throws what PyTorch's users expect of a failed call: ValueError where the call was refused, else DistBackendError, in
// both cases with Tutti's sentence.
[[noreturn]] inline void raise(tuttiResult_t result, const std::string& sentence) {
  const std::string text = (result == tuttiTimeout ? "tutti: the timeout has passed: " : "tutti: ") + sentence;
  if (result == tuttiInvalidArgument) C10_THROW_ERROR(ValueError, text);
  if (result == tuttiUnsupported) C10_THROW_ERROR(NotImplementedError, text);
  C10_THROW_ERROR(DistBackendError, text);
}

inline void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  const std::string sentence = tuttiGetLastError(nullptr);
  raise(result, sentence.empty() ? tuttiGetErrorString(result) : sentence);
}

[[noreturn]] inline void refuse(const std::string& sentence) { raise(tuttiInvalidArgument, sentence); }

// Numbers as Tutti knows them; nothing for the others (quantised, sub-byte, other float8).
inline std::optional<tuttiDataType_t> number_type(at::ScalarType type) {
  switch (type) {
    case at::kChar: return tuttiInt8;
    case at::kByte: return tuttiUint8;
    case at::kShort: return tuttiInt16;
    case at::kInt: return tuttiInt32;
    case at::kLong: return tuttiInt64;
    case at::kHalf: return tuttiFloat16;
    case at::kFloat: return tuttiFloat32;
    case at::kDouble: return tuttiFloat64;
    case at::kBFloat16: return tuttiBfloat16;
    case at::kBool: return tuttiBool;
    case at::kComplexFloat: return tuttiComplex64;
    case at::kComplexDouble: return tuttiComplex128;
    case at::kFloat8_e4m3fn: return tuttiFloat8e4m3;
    case at::kFloat8_e5m2: return tuttiFloat8e5m2;
    default: break;
  }
  // uint16 and its larger kin are of PyTorch 2.3 and later, and named so only there.
  const std::string name = c10::toString(type);
  if (name == "UInt16") return tuttiUint16;
  if (name == "UInt32") return tuttiUint32;
  if (name == "UInt64") return tuttiUint64;
  return std::nullopt;
}

// For calls that only move elements: those that are no numbers are opaque bytes.
inline tuttiDataType_t moved_type(const at::Tensor& tensor) {
  if (const auto type = number_type(tensor.scalar_type())) return *type;
  tuttiDataType_t opaque = tuttiNumTypes;
  check(tuttiTypeCreate(&opaque, tensor.element_size()));
  return opaque;
}

inline tuttiDataType_t reduced_type(const at::Tensor& tensor) {
  const auto type = number_type(tensor.scalar_type());
  if (!type) refuse(std::string("tensors of ") + c10::toString(tensor.scalar_type()) + " cannot be reduced");
  return *type;
}

// Whether Tutti can reach a tensor, as far as its type tells: of a device, see Backend::check_device.
inline void check_place(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) refuse(std::string(what) + " is an undefined tensor");
  const c10::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_cuda() && device.type() != c10::DeviceType::PrivateUse1)
    raise(tuttiUnsupported,
          std::string(what) + " is on " + device.str() + "; Tutti moves memory of the host and of CUDA devices");
  if (tensor.layout() != at::kStrided)
    refuse(std::string(what) + " is not strided: only all_reduce takes sparse tensors");
}

inline const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() != 1)
    refuse(std::string(what) + " has " + std::to_string(tensors.size()) + " tensors in place of one");
  check_place(tensors[0], what);
  return tensors[0];
}

inline bool lies_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}
// The tensor's elements one after the other: itself where they lie so, else a copy.
inline at::Tensor plain(const at::Tensor& tensor) {
  return lies_plain(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
}
// Memory for a result that goes to `tensor`: itself where its elements lie one after the other.
inline at::Tensor plain_room(const at::Tensor& tensor) {
  return lies_plain(tensor) ? tensor
                            : at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}
inline void put_back(const at::Tensor& result, const at::Tensor& tensor) {
  if (!result.is_same(tensor)) tensor.copy_(result);
}

// Equal to "with nothing asked for" (null) where the deadline is the communicator's: such calls may go the short way.
class Terms {
 public:
  Terms(milliseconds asked, milliseconds of_group) {
    if (asked.count() <= 0 || asked == of_group) return;
    options_ = TUTTI_OPTIONS_INITIALIZER;
    options_->deadline_ms = int32_t(std::min<int64_t>(asked.count(), INT32_MAX));
  }
  const tuttiOptions_t* get() const { return options_ ? &*options_ : nullptr; }

 private:
  std::optional<tuttiOptions_t> options_;
};

// A reduction operator of one call; of PREMUL_SUM, made for it. Lives until the call has returned.
class Operator {
 public:
  Operator(const c10d::ReduceOp& op, const at::Tensor& tensor, tuttiComm_t comm) : comm_(comm) {
    switch (op.op_) {
      case c10d::ReduceOp::SUM: op_ = tuttiSum; break;
      case c10d::ReduceOp::AVG: op_ = tuttiAvg; break;
      case c10d::ReduceOp::PRODUCT: op_ = tuttiProd; break;
      case c10d::ReduceOp::MIN: op_ = tuttiMin; break;
      case c10d::ReduceOp::MAX: op_ = tuttiMax; break;
      case c10d::ReduceOp::BAND: op_ = tuttiBand; break;
      case c10d::ReduceOp::BOR: op_ = tuttiBor; break;
      case c10d::ReduceOp::BXOR: op_ = tuttiBxor; break;
      case c10d::ReduceOp::PREMUL_SUM: make_premultiplied(op, tensor); break;
      default: refuse("the reduction operator is unknown");
    }
  }
  ~Operator() {
    if (made_) tuttiRedOpDestroy(op_, comm_);
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  tuttiRedOp_t get() const { return op_; }

 private:
  void make_premultiplied(const c10d::ReduceOp& op, const at::Tensor& tensor) {
    const auto* const factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    if (factor == nullptr) refuse("PREMUL_SUM without a factor");
    const at::Tensor scalar = factor->tensor_factor.defined()
                                  ? factor->tensor_factor.to(at::kCPU, tensor.scalar_type()).contiguous()
                                  : at::full({1}, factor->double_factor, at::TensorOptions(tensor.scalar_type()));
    check(tuttiRedOpCreatePreMulSum(&op_, scalar.data_ptr(), reduced_type(tensor), tuttiScalarHostImmediate, comm_));
    made_ = true;
  }

  tuttiComm_t comm_;
  tuttiRedOp_t op_ = tuttiNumOps;
  bool made_ = false;
};

}  // namespace tutti_torch
