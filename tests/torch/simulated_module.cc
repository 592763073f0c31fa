// A module of devices, as libtutti_cuda.so is one, whose devices are simulated; who loads it can reach them too.
#include "device/simulated.h"

extern "C" [[gnu::visibility("default")]] const tutti::DeviceModule* tutti_device_module(uint32_t version) noexcept {
  static const tutti::DeviceModule module{
      tutti::device_interface_version,
      version == tutti::device_interface_version
          ? new tutti::SimulatedPlatform(tutti::parse_simulated("devices=2,memory=64M,delay_us=300,seed=11"))
          : nullptr,
      "it is of another version"};
  return &module;
}
