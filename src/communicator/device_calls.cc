// Recognising the buffers of a call, before it is made.
#include "communicator/device_calls.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "device/platform.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

// A stretch of memory that holds all that a call has of a buffer; no bytes: nothing.
struct Extent {
  const char* name;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// only: the one block that the buffer has, where the layout knows the sizes of others too; -1: all of them.
Extent extent_of_blocks(const char* name, const std::byte* data, const BlockLayout& blocks, int only, size_t width,
                        size_t vectors, size_t stride) {
  size_t first = ~size_t{0}, end = 0;
  for (size_t i = 0; i < blocks.sizes.size(); ++i) {
    if (blocks.sizes[i] == 0 || (only >= 0 && i != size_t(only))) continue;
    first = std::min(first, blocks.firsts[i]);
    end = std::max(end, blocks.firsts[i] + blocks.sizes[i]);
  }
  if (end == 0) return {name};
  return {name, data + first * width, (end - first + (vectors - 1) * stride) * width};
}

size_t elements_of(const Communicator& communicator, const Call& call, Part part) {
  const Meaning& kind = meaning(call.kind);
  return part == Part::none ? 0 : kind.blocks && part == Part::all ? call.count * size_t(communicator.size()) : call.count;
}

Part input_part(const Communicator& communicator, const Request& request) {
  if (request.call.kind == Collective::send_recv) return request.sending ? Part::all : Part::none;
  return meaning(request.call.kind).input_of(int(request.call.root) == communicator.rank());
}
Part output_part(const Communicator& communicator, const Request& request) {
  if (request.call.kind == Collective::send_recv) return request.sending ? Part::none : Part::all;
  return meaning(request.call.kind).output_of(int(request.call.root) == communicator.rank());
}

int only_block(const Communicator& communicator, const Request& request, Part part) {
  return part == Part::own && !request.layout->of_pairs ? communicator.rank() : -1;
}

// In place, a rank's own block of the other buffer: both begin where that buffer does.
Extent input_extent(const Communicator& communicator, const Request& request) {
  const size_t width = element_bytes(request.call), vectors = request.terms.inputs;
  if (request.input == nullptr) return {"sendbuff"};
  if (request.layout != nullptr)
    return extent_of_blocks("sendbuff", request.input, request.layout->input,
                            only_block(communicator, request, input_part(communicator, request)), width, vectors,
                            request.vector_stride);
  const size_t elements = elements_of(communicator, request.call, input_part(communicator, request));
  if (elements == 0) return {"sendbuff"};
  return {"sendbuff", request.input, (elements + (vectors - 1) * request.vector_stride) * width};
}

Extent output_extent(const Communicator& communicator, const Request& request) {
  const size_t width = element_bytes(request.call);
  if (request.output == nullptr) return {"recvbuff"};
  if (request.layout != nullptr)
    return extent_of_blocks("recvbuff", request.output, request.layout->output,
                            only_block(communicator, request, output_part(communicator, request)), width, 1, 0);
  return {"recvbuff", request.output,
          elements_of(communicator, request.call, output_part(communicator, request)) * width};
}

// What no platform knows is the host's, if anybody's.
bool is_readable(const std::byte* data) {
  std::byte byte;
  const iovec here{&byte, 1}, there{const_cast<std::byte*>(data), 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

Location checked_location(const Platform& platform, const Extent& extent) {
  const Location location = platform.locate(extent.data);
  switch (location.kind) {
    case MemoryKind::freed:
      refuse(fmt::format("{} {} lies in memory of device {} that was freed", extent.name, fmt::ptr(extent.data),
                         location.device));
    case MemoryKind::device: {
      const size_t left = location.bytes - size_t(extent.data - location.base);
      if (extent.bytes <= left) break;
      refuse(fmt::format("{} {} of {} bytes ends beyond its allocation on device {}, of which {} bytes are left there",
                         extent.name, fmt::ptr(extent.data), extent.bytes, location.device, left));
    }
    case MemoryKind::unknown:
      if (is_readable(extent.data) && is_readable(extent.data + extent.bytes - 1)) break;
      refuse(fmt::format("{} {} of {} bytes is neither memory of a device nor memory that the host can read (was it "
                         "freed?)", extent.name, fmt::ptr(extent.data), extent.bytes));
    case MemoryKind::managed:
    case MemoryKind::registered: break;
  }
  return location;
}

bool is_of_device(const Location& location) {
  return location.kind == MemoryKind::device || location.kind == MemoryKind::managed;
}

}  // namespace

DeviceSide& device_side_for(Communicator& communicator, const CallStream& stream) {
  DeviceSide& side = *communicator.device_side();
  try {
    side.bind(stream.device_number);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("stream {}: {}", fmt::ptr(stream.device), error.what()));
  }
  return side;
}

CallStream device_call_stream(DeviceStream stream) {
  Platform::StreamInfo info;
  const Outcome outcome = process_platform()->describe_stream(stream, &info);
  if (!outcome.ok())
    throw Error(outcome.code, fmt::format("stream {} is not a live stream: {}", fmt::ptr(stream), outcome.sentence));
  if (info.capturing)
    throw Error(Code::unsupported, fmt::format("stream {} is being captured into a graph, but the host takes part in every "
                                               "call, and a graph runs without it", fmt::ptr(stream)));
  return {nullptr, stream, info.device};
}

bool runs_elsewhere(const CallStream& stream) {
  if (!stream.is_device()) return stream.host != nullptr;
  static const bool streams_wait = environment_flag("TUTTI_DEVICE_ASYNC");
  return streams_wait;
}

void check_of_host(const char* name, const void* buffer) {
  const Platform* const platform = process_platform();
  if (platform == nullptr || buffer == nullptr) return;
  const Location location = platform->locate(buffer);
  if (location.kind == MemoryKind::device || location.kind == MemoryKind::freed)
    throw Error(Code::unsupported, fmt::format("{} {} lies on device {}: windows are of host memory", name,
                                               fmt::ptr(buffer), location.device));
}

void place(Request& request, Communicator& communicator, const CallStream& stream) {
  if (stream.is_device()) device_side_for(communicator, stream);
  DeviceSide& side = *communicator.device_side();
  request.on_device = false;
  request.in_reach = true;
  for (const Extent& extent : {input_extent(communicator, request), output_extent(communicator, request)}) {
    if (extent.bytes == 0) continue;
    const Location location = checked_location(side.platform(), extent);
    if (location.kind == MemoryKind::unknown) request.in_reach = false;
    if (!is_of_device(location)) continue;
    request.on_device = true;
    try {
      side.bind(location.device);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{} {}: {}", extent.name, fmt::ptr(extent.data), error.what()));
    }
  }
}

void enter(Request& request, Communicator& communicator, const CallStream& stream) {
  if (stream.host != nullptr || (!stream.is_device() && !request.on_device)) return;
  if (request.on_device) communicator.prepare_device(request);
  request.entry = communicator.device_side()->enter(stream.device);
}

}  // namespace tutti
