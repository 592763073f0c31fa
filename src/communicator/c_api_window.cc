// The C interface: windows.
#include <memory>

#include <fmt/format.h>

#include "communicator/arguments.h"
#include "communicator/c_api.h"
#include "communicator/device_calls.h"
#include "communicator/window.h"

namespace tutti {
namespace {

// What a handle leads to: the communicator owns the window.
struct WindowOf {
  std::weak_ptr<const void> life;  // of the communicator
  Communicator* communicator;
  Window* window;
};

}  // namespace
}  // namespace tutti

struct tuttiWindow : tutti::Handle<tutti::WindowOf> {};

namespace tutti {
namespace {

HandleStore<WindowOf, tuttiWindow>& store() { return all_of<HandleStore<WindowOf, tuttiWindow>>(); }

WindowOf& live_window(tuttiWindow_t window) {
  check_not_null("window", window);
  if (!window->is_live()) refuse_handle("window", *window, "not live: it was deregistered, or never made");
  return *window->object;
}

// The window, for a call that names one of its ranks.
WindowOf& window_to(tuttiWindow_t window, int peer) {
  WindowOf& of = live_window(window);
  if (of.life.expired()) throw Error(Code::invalid_usage, "the communicator of the window was destroyed");
  check_peer(peer, of.window->size());
  return of;
}

void check_range(const WindowOf& of, int peer, size_t offset, size_t bytes) {
  const size_t opened = of.window->bytes_of(peer);
  if (offset <= opened && bytes <= opened - offset) return;
  throw Error(Code::invalid_argument, fmt::format("offset is {} and bytes {}, but rank {} opened {} bytes", offset, bytes,
                                                  peer, opened));
}

void check_not_in_group(const char* function) {
  if (CallingThread::current().group_depth > 0)
    throw Error(Code::invalid_usage, fmt::format("{} inside a group: it waits for the other ranks", function));
}

tuttiResult_t told(const WindowOf& of, Code code) {
  return code == Code::success ? tuttiSuccess : report(code, of.communicator->failure()->sentence);
}

}  // namespace
}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buffer, size_t bytes, tuttiWindow_t* window) {
  return at_the_border([&] {
    check_not_null("window", window);
    *window = nullptr;
    Communicator& communicator = communicator_of(comm);
    check_buffer("buffer", buffer, bytes);
    check_of_host("buffer", buffer);
    check_not_in_group("tuttiCommWindowRegister");
    if (communicator.has_left())
      throw Error(Code::invalid_usage, "comm has been finalized: only tuttiCommDestroy may follow");
    auto block = bytes == 0 ? nullptr : process_memory().find(buffer, bytes);
    if (block != nullptr && block->region->is_taken_back()) block = nullptr;
    Window& opened = communicator.open_window({static_cast<std::byte*>(buffer), bytes}, std::move(block));
    *window = store().make(std::make_unique<WindowOf>(WindowOf{communicator.life(), &communicator, &opened}));
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t window) {
  return at_the_border([&] {
    if (window == nullptr) return tuttiSuccess;
    const WindowOf& of = live_window(window);
    if (!of.life.expired() && &communicator_of(comm) != of.communicator)
      throw Error(Code::invalid_argument, fmt::format("window {} is of another communicator than comm {}",
                                                      fmt::ptr(window), fmt::ptr(comm)));
    check_not_in_group("tuttiCommWindowDeregister");
    const std::unique_ptr<WindowOf> ended = store().take(window);
    if (!ended->life.expired()) ended->communicator->close_window(*ended->window);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiPut(const void* source, size_t bytes, int peer, size_t offset, tuttiWindow_t window) {
  return at_the_border([&] {
    const WindowOf& of = window_to(window, peer);
    check_buffer("source", source, bytes);
    check_of_host("source", source);
    check_range(of, peer, offset, bytes);
    return told(of, of.window->put({static_cast<const std::byte*>(source), bytes}, peer, offset));
  });
}

tuttiResult_t tuttiGet(void* target, size_t bytes, int peer, size_t offset, tuttiWindow_t window) {
  return at_the_border([&] {
    const WindowOf& of = window_to(window, peer);
    check_buffer("target", target, bytes);
    check_of_host("target", target);
    check_range(of, peer, offset, bytes);
    return told(of, of.window->get({static_cast<std::byte*>(target), bytes}, peer, offset));
  });
}

tuttiResult_t tuttiSignal(int peer, tuttiWindow_t window) {
  return at_the_border([&] {
    const WindowOf& of = window_to(window, peer);
    return told(of, of.window->signal(peer));
  });
}

tuttiResult_t tuttiWaitSignal(int peer, int count, tuttiWindow_t window) {
  return at_the_border([&] {
    const WindowOf& of = window_to(window, peer);
    if (count < 1) throw Error(Code::invalid_argument, fmt::format("count is {}, below 1", count));
    return told(of, of.window->wait_signal(peer, uint32_t(count)));
  });
}

tuttiResult_t tuttiWindowFlush(int peer, tuttiWindow_t window) {
  return at_the_border([&] {
    const WindowOf& of = window_to(window, peer);
    return told(of, of.window->flush(peer));
  });
}

}  // extern "C"
