// Finding the devices: CUDA's module is loaded where a driver is, so that one binary runs with it and without.
#include "device/platform.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "device/simulated.h"

namespace tutti {
namespace {

constexpr const char* module_file = "libtutti_cuda.so";
// The driver makes it where there is a GPU that it serves.
constexpr const char* driver_node = "/dev/nvidiactl";

// What the process has; written once.
struct Found {
  std::mutex mutex;
  std::optional<FoundPlatform> platform;
  std::atomic<Platform*> quick{nullptr};  // release by find_platform, acquire by process_platform
};
Found& found() {
  static Found& of_process = *new Found();  // never destroyed: streams may outlive main
  return of_process;
}

// Where this library lies, with the slash; "" where that cannot be known.
std::string own_folder() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

FoundPlatform load_module(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return {nullptr, reason != nullptr ? reason : path};
  }
  const auto function = reinterpret_cast<DeviceModuleFunction>(::dlsym(handle, device_module_name));
  if (function == nullptr) return {nullptr, fmt::format("{} has no {}", path, device_module_name)};
  const DeviceModule* const module = function(device_interface_version);
  if (module->version != device_interface_version)
    return {nullptr, fmt::format("{} speaks version {} of the device interface, this library version {}", path,
                                 module->version, device_interface_version)};
  if (module->platform == nullptr) return {nullptr, module->why_not};
  return {module->platform, ""};
}

// Beside this library, in a build folder, or where the loader looks.
FoundPlatform find_cuda() {
  const std::string folder = own_folder();
  FoundPlatform first{nullptr, ""};
  for (const std::string& path : {folder + module_file, folder + "src/cuda_kernels/" + module_file, std::string(module_file)}) {
    if (path.find('/') != std::string::npos && ::access(path.c_str(), R_OK) != 0) continue;
    FoundPlatform tried = load_module(path);
    if (tried.platform != nullptr) return tried;
    if (first.why_not.empty()) first.why_not = tried.why_not;
  }
  return first;
}

FoundPlatform find() {
  const std::string asked = environment_text("TUTTI_DEVICE").value_or("auto");
  const std::string_view kind = std::string_view(asked).substr(0, asked.find(':'));
  if (kind == "none" && asked == kind) return {nullptr, "TUTTI_DEVICE is none"};
  if (kind == "simulated")
    return {new SimulatedPlatform(parse_simulated(std::string_view(asked).substr(std::min(asked.size(), kind.size() + 1)))), ""};
  if (asked == "auto")
    return ::access(driver_node, F_OK) == 0 ? find_cuda() : FoundPlatform{nullptr, fmt::format("no {}", driver_node)};
  if (asked != "cuda")
    throw Error(Code::invalid_usage, fmt::format("environment variable TUTTI_DEVICE={} is not auto, none, cuda or "
                                                 "simulated[:OPTIONS]", asked));
  FoundPlatform cuda = find_cuda();
  if (cuda.platform == nullptr)
    throw Error(Code::unsupported, fmt::format("environment variable TUTTI_DEVICE=cuda, but: {}", cuda.why_not));
  return cuda;
}

}  // namespace

const FoundPlatform& find_platform() {
  Found& here = found();
  const std::lock_guard lock(here.mutex);
  if (!here.platform) {
    here.platform = find();
    here.quick.store(here.platform->platform, std::memory_order_release);
  }
  return *here.platform;
}

const DeviceModule* tuttiDeviceModule(uint32_t version) noexcept {
  static constexpr DeviceModule another_version{device_interface_version, nullptr, "the program is of another build than libtutti.so"};
  if (version != device_interface_version) return &another_version;
  struct Answer {
    std::string why_not;
    DeviceModule module;
    Answer() {
      try {
        const FoundPlatform& here = find_platform();
        module.platform = here.platform;
        why_not = here.why_not;
      } catch (const std::exception& error) {
        why_not = error.what();
      }
      if (module.platform == nullptr) module.why_not = why_not.c_str();
    }
  };
  static const Answer& answer = *new Answer();  // never destroyed, as the platform
  return &answer.module;
}

Platform* process_platform() noexcept { return found().quick.load(std::memory_order_acquire); }

}  // namespace tutti
