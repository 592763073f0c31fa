// The module of CUDA: loads on any machine, and says what is missing where there is no driver or no device.
#include "cuda_kernels/cuda_platform.h"

#include <dlfcn.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include "cuda_kernels/cuda_device.h"
#include "cuda_kernels/cuda_driver.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

class CudaModule : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = std::getenv("TUTTI_TEST_CUDA_MODULE");
    ASSERT_NE(path, nullptr);
    handle_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle_, nullptr) << dlerror();
    function_ = reinterpret_cast<DeviceModuleFunction>(dlsym(handle_, device_module_name));
    ASSERT_NE(function_, nullptr) << dlerror();
  }

  void* handle_ = nullptr;
  DeviceModuleFunction function_ = nullptr;
};

TEST_F(CudaModule, RefusesAnotherVersionOfTheInterface) {
  const DeviceModule* const module = function_(device_interface_version + 1);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->platform, nullptr);
  EXPECT_EQ(module->version, device_interface_version);
  EXPECT_NE(std::string(module->why_not), "");
}

// On a machine with a GPU the second half runs, on others the first.
TEST_F(CudaModule, SaysWhatIsMissingOrHasDevices) {
  const DeviceModule* const module = function_(device_interface_version);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module, function_(device_interface_version));
  if (module->platform == nullptr) {
    const std::string why = module->why_not;
    EXPECT_TRUE(why.find("no CUDA driver") != std::string::npos || why.find("device") != std::string::npos) << why;
    return;
  }
  EXPECT_STREQ(module->platform->name(), "cuda");
  EXPECT_GT(module->platform->count(), 0);
  EXPECT_NE(module->platform->device(0).info().name, "");
}

// Kernels are chosen without a device: each type and operator that the host has is served.
TEST(CudaKernels, ServeWhateverTheHostServes) {
  const CudaPlatform platform;
  for (const DataTypeInfo& row : data_types)
    for (size_t op = 0; op < reduce_op_count; ++op)
      EXPECT_EQ(platform.supports(row.type, ReduceOp(op)), reduce_function(row.type, ReduceOp(op)) != nullptr)
          << row.name << " " << name(ReduceOp(op));
}

TEST(CudaErrors, NameTheCallTheReasonAndTheValue) {
  const Outcome outcome = cuda_outcome(cudaErrorMemoryAllocation, "cudaMalloc of 64 bytes on CUDA device 3");
  EXPECT_EQ(outcome.code, Code::device_error);
  EXPECT_EQ(outcome.sentence,
            "cudaMalloc of 64 bytes on CUDA device 3 failed: out of memory (cudaErrorMemoryAllocation)");
  EXPECT_EQ(cuda_outcome(cudaSuccess, "anything").code, Code::success);
  EXPECT_TRUE(ends_device(cudaErrorIllegalAddress));
  EXPECT_FALSE(ends_device(cudaErrorMemoryAllocation));
}

}  // namespace
}  // namespace tutti
