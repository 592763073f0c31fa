// What an operation needs whose buffers lie on a device: a stream for each of its channels, and memory beside them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/outcome.h"
#include "device/device.h"
#include "transport/transport.h"

namespace tutti {

// One channel's. Used by one operation at a time.
struct DeviceLane {
  DeviceStream stream = nullptr;
  uint32_t* passed = nullptr;   // pinned: the last of `marks` that the stream has passed; a look at it costs no call
  uint32_t marks = 0, looks = 0;
  std::byte* aside = nullptr;   // on the device: places_max places for one message each
  std::byte* pinned = nullptr;  // of the host: pinned_places places of pinned_bytes each
  size_t pinned_bytes = 0;

  // For operands that lie where no kernel reaches, and for what is passed on.
  static constexpr int places_max = DeviceReduction::inputs_max + 1;
  // For local operands of what only the host can join, and their result.
  static constexpr int pinned_places = 3;
};

// Memory of the host that devices reach.
class PinnedRanges {
 public:
  virtual ~PinnedRanges() = default;
  virtual bool holds(const std::byte* data, size_t bytes) const noexcept = 0;
};

// Outlives its operation's run.
struct DeviceWork {
  Device* device = nullptr;
  const PinnedRanges* pinned = nullptr;
  DataType type = DataType::int8;
  ReduceOp op = ReduceOp::sum;
  bool folds = false;           // the device has a kernel for it, and reaches the buffers; else the host joins
  size_t place_bytes = 0;       // of a DeviceLane's places aside
  std::span<DeviceLane> lanes;  // one a channel
  // Where input and output lie, as network cards may reach them; null: they do not.
  std::shared_ptr<const DeviceRegion> input_region, output_region;
  Outcome failure{};            // the first of the device
};

}  // namespace tutti
