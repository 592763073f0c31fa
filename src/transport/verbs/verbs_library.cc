// Loading libibverbs: the functions by name.
#include "transport/verbs/verbs_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr const char* library_name = "libibverbs.so.1";

struct Loaded {
  VerbsLibrary library{};
  std::string why_not;
};

template <class Function>
void find(void* handle, const char* name, Function& function, std::string& why_not) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && why_not.empty()) why_not = fmt::format("{} has no {}", library_name, name);
}

Loaded load_once() {
  Loaded loaded;
  void* const handle = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    loaded.why_not = reason != nullptr ? reason : library_name;
    return loaded;
  }
  VerbsLibrary& l = loaded.library;
  const auto get = [&](const char* name, auto& function) { find(handle, name, function, loaded.why_not); };
  get("ibv_get_device_list", l.get_device_list);
  get("ibv_free_device_list", l.free_device_list);
  get("ibv_get_device_name", l.get_device_name);
  get("ibv_open_device", l.open_device);
  get("ibv_close_device", l.close_device);
  get("ibv_query_device", l.query_device);
  get("ibv_query_port", l.query_port);
  get("ibv_query_gid", l.query_gid);
  get("ibv_alloc_pd", l.alloc_pd);
  get("ibv_dealloc_pd", l.dealloc_pd);
  get("ibv_reg_mr", l.reg_mr);
  l.reg_dmabuf_mr = reinterpret_cast<decltype(l.reg_dmabuf_mr)>(::dlsym(handle, "ibv_reg_dmabuf_mr"));
  get("ibv_dereg_mr", l.dereg_mr);
  get("ibv_create_comp_channel", l.create_comp_channel);
  get("ibv_destroy_comp_channel", l.destroy_comp_channel);
  get("ibv_create_cq", l.create_cq);
  get("ibv_destroy_cq", l.destroy_cq);
  get("ibv_get_cq_event", l.get_cq_event);
  get("ibv_ack_cq_events", l.ack_cq_events);
  get("ibv_create_qp", l.create_qp);
  get("ibv_modify_qp", l.modify_qp);
  get("ibv_destroy_qp", l.destroy_qp);
  get("ibv_get_async_event", l.get_async_event);
  get("ibv_ack_async_event", l.ack_async_event);
  return loaded;
}

}  // namespace

const VerbsLibrary* VerbsLibrary::load(std::string& why_not) {
  static const Loaded loaded = load_once();
  why_not = loaded.why_not;
  return why_not.empty() ? &loaded.library : nullptr;
}

}  // namespace tutti
