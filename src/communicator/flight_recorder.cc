// Recording calls and waits, and writing them as JSON.
#include "communicator/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/signature.h"

namespace tutti {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) out += fmt::format("\\u{:04x}", int(c));
    else out += c;
  }
  return out;
}

void write_file(const std::string& file, std::string_view text) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) throw system_error("cannot write " + file, errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw system_error("cannot write " + file, errno);
    done += size_t(written);
  }
}

// Creates the first of NAME.RANK.json, NAME.RANK-2.json, ... that is not there yet: communicators of one rank, in this
// process or another, get files of their own.
std::string create_own_file(const std::string& name, int rank) {
  constexpr int files_max = 10'000;
  for (int i = 1;; ++i) {
    const std::string file = i == 1 ? fmt::format("{}.{}.json", name, rank) : fmt::format("{}.{}-{}.json", name, rank, i);
    const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (fd.valid()) return file;
    if (errno != EEXIST || i == files_max) throw system_error("cannot create " + file, errno);
  }
}

// What must be added to this host's monotonic clock for the time of day, to bring hosts together roughly.
TimeNs real_time_offset_ns() {
  const auto real = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(real).count() - now_ns();
}

}  // namespace

FlightRecorder::FlightRecorder(FlightRecorderOptions options) : options_(std::move(options)), tracing_(!options_.trace_file.empty()) {}

FlightRecorder::~FlightRecorder() {
  if (!tracing_) return;
  try {
    write_trace(create_own_file(options_.trace_file, options_.rank));
  } catch (const std::exception& error) {
    Log(fmt::format("rank {} of {}", options_.rank, options_.size)).error(error.what());
  }
}

void FlightRecorder::begin(const Operation& operation, uint64_t signature) noexcept {
  again(signature);
  if (!tracing_) return;
  const Work& work = operation.work();
  const TimeNs now = now_ns();
  const Span call = {calls_traced_++, signature, work.plan->algorithm, work.bytes(), now, now, {}};
  open_.push_back({&operation, call, {}, false});
}

void FlightRecorder::begin_run(uint64_t signature) noexcept {
  const uint64_t number = runs_begun_.load(std::memory_order_relaxed) + 1;
  const uint64_t before = collectives();
  Run& run = runs_[number % runs_.size()];
  // release: whoever reads one of these sees that the run before this one has begun; see collective().
  run.begin_ns.store(now_ns(), std::memory_order_release);
  run.collectives_before.store(before, std::memory_order_release);
  run.times.store(1, std::memory_order_release);
  run.signature.store(signature, std::memory_order_release);
  runs_begun_.store(number, std::memory_order_release);
}

uint64_t FlightRecorder::collectives() const noexcept {
  const Run& run = runs_[runs_begun_.load(std::memory_order_relaxed) % runs_kept];
  // Before the first run there are no times.
  const bool counts = kind_of(run.signature.load(std::memory_order_relaxed)) != Collective::send_recv;
  return run.collectives_before.load(std::memory_order_relaxed) + (counts ? run.times.load(std::memory_order_relaxed) : 0);
}

// The last run with no more collectives before it than that. Its place may be taken by another run meanwhile: then as many runs
// have begun that its number is too low, which is seen after what was read of it.
std::optional<uint64_t> FlightRecorder::collective(uint64_t number) const noexcept {
  const uint64_t last = runs_begun_.load(std::memory_order_acquire);
  const auto run_at = [this](uint64_t i) -> const Run& { return runs_[i % runs_kept]; };
  uint64_t at = last < runs_kept ? 1 : last - runs_kept + 2, end = last + 1;
  while (at + 1 < end) {
    const uint64_t middle = at + (end - at) / 2;
    (run_at(middle).collectives_before.load(std::memory_order_acquire) <= number ? at : end) = middle;
  }
  if (at > last) return std::nullopt;
  const uint64_t before = run_at(at).collectives_before.load(std::memory_order_acquire);
  const uint64_t times = run_at(at).times.load(std::memory_order_acquire);
  const uint64_t signature = run_at(at).signature.load(std::memory_order_acquire);
  if (at + runs_kept <= runs_begun_.load(std::memory_order_relaxed) + 1) return std::nullopt;
  if (!is_collective(signature) || number < before || number - before >= times) return std::nullopt;
  return signature;
}

std::vector<FlightRecorder::Open>::iterator FlightRecorder::find(const Operation& operation) noexcept {
  return std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.operation == &operation; });
}

void FlightRecorder::waits(const Operation& operation, const WaitingOn& waiting) noexcept {
  const auto open = find(operation);
  if (open == open_.end()) return;
  const WaitingOn& last = open->wait.waiting;
  if (open->waits && last.peer == waiting.peer && last.step == waiting.step && last.tile == waiting.tile &&
      last.sending == waiting.sending)
    return;
  const TimeNs now = now_ns();
  close_wait(*open, now);
  open->wait = open->call;
  open->wait.begin_ns = now;
  open->wait.waiting = waiting;
  open->waits = waiting.peer >= 0;
}

void FlightRecorder::close_wait(Open& open, TimeNs now) {
  if (!open.waits) return;
  open.waits = false;
  open.wait.end_ns = now;
  const std::lock_guard lock(spans_mutex_);
  spans_.push_back(open.wait);
}

void FlightRecorder::ended(const Operation& operation) noexcept {
  const auto open = find(operation);
  if (open == open_.end()) return;
  const TimeNs now = now_ns();
  close_wait(*open, now);
  open->call.end_ns = now;
  {
    const std::lock_guard lock(spans_mutex_);
    spans_.push_back(open->call);
  }
  open_.erase(open);
}

void FlightRecorder::write_record(const std::string& file, std::string_view failure) const {
  const uint64_t last = runs_begun_.load(std::memory_order_relaxed);
  std::string text = fmt::format("{{\"rank\": {}, \"size\": {}, \"host\": \"{}\", \"written_ns\": {}, "
                                 "\"failure\": \"{}\",\n \"calls\": [",
                                 options_.rank, options_.size, escaped(options_.host), now_ns(), escaped(failure));
  const uint64_t first = last < runs_kept ? 1 : last - runs_kept + 1;
  for (uint64_t number = first; number <= last; ++number) {
    const Run& run = runs_[number % runs_kept];
    text += fmt::format("{}\n  {{\"call\": \"{}\", \"times\": {}, \"first_began_ns\": {}}}", number == first ? "" : ",",
                        describe_signature(run.signature.load(std::memory_order_relaxed)),
                        run.times.load(std::memory_order_relaxed), run.begin_ns.load(std::memory_order_relaxed));
  }
  write_file(file, text + "\n]}\n");
}

void FlightRecorder::write_record_of_failure(std::string_view failure) noexcept {
  if (options_.record_file.empty() || failure_written_.exchange(true, std::memory_order_relaxed)) return;
  write_record_on_request(failure);
}

void FlightRecorder::write_record_on_request(std::string_view failure) noexcept {
  try {
    const std::lock_guard lock(record_mutex_);
    if (own_record_file_.empty()) own_record_file_ = create_own_file(options_.record_file, options_.rank);
    write_record(own_record_file_, failure);
  } catch (const std::exception& error) {
    Log(fmt::format("rank {} of {}", options_.rank, options_.size)).error(error.what());
  }
}

void FlightRecorder::write_trace(const std::string& file) const {
  const std::lock_guard lock(spans_mutex_);
  std::string text = fmt::format("{{\"metadata\": {{\"rank\": {}, \"size\": {}, \"host\": \"{}\", "
                                 "\"real_time_offset_ns\": {}}},\n\"traceEvents\": [\n{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {}, \"args\": "
                                 "{{\"name\": \"rank {}\"}}}}",
                                 options_.rank, options_.size, escaped(options_.host), real_time_offset_ns(),
                                 options_.rank, options_.rank);
  for (const Span& span : spans_) {
    const bool wait = span.waiting.peer >= 0;
    const std::string call = describe_signature(span.signature);
    const char* how = span.waiting.sending ? "sends to" : "waits for";
    const std::string name = wait ? fmt::format("{} rank {}", how, span.waiting.peer) : call;
    text += fmt::format(",\n{{\"ph\": \"X\", \"name\": \"{}\", \"cat\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, "
                        "\"dur\": {:.3f}, \"args\": {{\"sequence\": {}, ",
                        name, wait ? "wait" : "call", options_.rank, wait ? 1 : 0, double(span.begin_ns) / 1e3,
                        double(span.end_ns - span.begin_ns) / 1e3, span.sequence);
    if (wait) text += fmt::format("\"call\": \"{}\", \"peer\": {}, \"step\": {}, \"tile\": {}, \"channel\": {}}}}}", call,
                                  span.waiting.peer, span.waiting.step + 1, span.waiting.tile, span.waiting.channel);
    else text += fmt::format("\"algorithm\": \"{}\", \"bytes\": {}}}}}", span.algorithm, span.bytes);
  }
  write_file(file, text + "\n]}\n");
}

}  // namespace tutti
