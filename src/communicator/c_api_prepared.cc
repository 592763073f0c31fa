// The C interface: prepared calls.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "communicator/c_api.h"
#include "communicator/prepared.h"

struct tuttiPrepared : tutti::Handle<std::shared_ptr<tutti::Prepared>> {};

namespace tutti {
namespace {

HandleStore<std::shared_ptr<Prepared>, tuttiPrepared>& store() {
  static HandleStore<std::shared_ptr<Prepared>, tuttiPrepared> prepared;
  return prepared;
}

Prepared& prepared_of(tuttiPrepared_t prepared) {
  if (prepared == nullptr) throw Error(Code::invalid_argument, "prepared is NULL");
  if (!prepared->is_live())
    throw Error(Code::invalid_argument,
                fmt::format("prepared {} is not live: it was destroyed, or never made", fmt::ptr(prepared)));
  return **prepared->object;
}

}  // namespace
}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiPrepareStart(void) {
  return at_the_border([&] {
    CallingThread& thread = CallingThread::current();
    if (thread.group_depth > 0)
      throw Error(Code::invalid_usage, thread.preparing ? "tuttiPrepareStart inside tuttiPrepareStart"
                                                        : "tuttiPrepareStart inside a group");
    thread.preparing = true;
    thread.group_depth = 1;
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiPrepareEnd(tuttiPrepared_t* prepared) {
  return at_the_border([&] {
    CallingThread& thread = CallingThread::current();
    if (!thread.preparing) throw Error(Code::invalid_usage, "tuttiPrepareEnd without tuttiPrepareStart");
    if (thread.group_depth > 1) throw Error(Code::invalid_usage, "tuttiPrepareEnd inside a group that is still open");
    thread.preparing = false;
    thread.group_depth = 0;
    std::vector<GroupCall> calls = std::exchange(thread.calls, {});
    const Code refusal = std::exchange(thread.first_refusal, Code::success);
    if (prepared == nullptr) throw Error(Code::invalid_argument, "prepared is NULL");
    *prepared = nullptr;
    if (refusal != Code::success) return tuttiResult_t(refusal);  // the sentence is still the refused call's
    *prepared = store().make(std::make_unique<std::shared_ptr<Prepared>>(std::make_shared<Prepared>(std::move(calls))));
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiPreparedStart(tuttiPrepared_t prepared, tuttiStream_t stream) {
  return at_the_border([&] {
    Prepared& calls = prepared_of(prepared);
    const CallStream queue = call_stream(stream);
    if (CallingThread::current().group_depth > 0)
      throw Error(Code::invalid_usage, "tuttiPreparedStart inside a group");
    const Outcome outcome = calls.start(queue);
    return report(outcome.code, outcome.sentence);
  });
}

tuttiResult_t tuttiPreparedDestroy(tuttiPrepared_t prepared) {
  return at_the_border([&] {
    if (prepared == nullptr) return tuttiSuccess;
    prepared_of(prepared);
    store().take(prepared).reset();
    return tuttiSuccess;
  });
}

}  // extern "C"
