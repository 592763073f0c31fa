// When a path fails: both sides stop it and say so on the connection beside it; then what it did not bring goes another
// way. Neither side reuses a path's places in a ring before the other's device can no longer write there.
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>

#include <fmt/format.h>

#include "transport/verbs/verbs_endpoint.h"

namespace tutti {
namespace {

// A queue pair in error gives back its receives at once. Where its device is gone, nothing comes.
constexpr TimeNs stopping_ns_max = 200 * ns_per_ms;

}  // namespace

// --- The connection.

template <class Written>
bool VerbsStream::write(Written written) noexcept {
  while (!empty()) {
    const Out& out = out_[first_ % out_.size()];
    iovec parts[3] = {{const_cast<VerbsFrame*>(&out.frame), sizeof out.frame},
                      {const_cast<std::byte*>(out.parts[0]), out.bytes[0]},
                      {const_cast<std::byte*>(out.parts[1]), out.bytes[1]}};
    size_t skip = written_, left = 0;
    for (iovec& part : parts) {
      const size_t n = std::min(skip, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + n;
      part.iov_len -= n;
      skip -= n;
      left += part.iov_len;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    written_ += size_t(n);
    if (size_t(n) < left) return true;
    written_ = 0;
    ++first_;
    if (out.number != 0) written(out.number);
  }
  return true;
}

bool VerbsStream::is_out() const noexcept {
  int bytes = 0;
  return empty() && (::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0);
}

template <class Place, class Done>
bool VerbsStream::read(Place place, Done done) noexcept {
  for (;;) {
    std::byte* to = reinterpret_cast<std::byte*>(&in_) + read_;
    size_t wanted = sizeof in_ - std::min(read_, sizeof in_);
    if (wanted == 0) {
      std::byte* const start = place(in_);
      if (start == nullptr) return false;
      to = start + (read_ - sizeof in_);
      wanted = in_.bytes - (read_ - sizeof in_);
    }
    const ssize_t n = ::recv(socket_.get(), to, wanted, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    read_ += size_t(n);
    if (read_ < sizeof in_ || read_ < sizeof in_ + in_.bytes) continue;
    read_ = 0;
    if (!done(in_)) return false;
  }
}

// --- Paths.

void VerbsEndpoint::path_failed(VerbsPath& path, const VerbsCause& cause, std::string_view where) noexcept {
  if (path.state != VerbsPath::State::alive) return;
  path.cause = cause.code;
  try {
    stop_path(path, fmt::format("verbs: {} to {} failed: {}{}{}{}", path.description, transport_.peer_name(peer_), where,
                                cause.what, cause.likely.empty() ? "" : "; likely: ", cause.likely));
  } catch (const std::exception&) {
    stop_path(path, "");
  }
}

bool VerbsEndpoint::take_result(VerbsPath& path, int result) noexcept {
  if (result != 0) path_failed(path, {"the device took no more requests", std::strerror(result)});
  return result == 0;
}

void VerbsEndpoint::stop_path(VerbsPath& path, const std::string& why) noexcept {
  path.stop();
  if (begun_) stream_readable();  // a peer that has left is no failure
  try {
    problem_ = why;
  } catch (const std::exception&) {
    problem_.clear();
  }
  if (!begun_) return;
  ++transport_.counters().paths_failed;
  attention_ = true;
  transport_.needs_attention();
  if (!ended_ && fault_.kind == FaultKind::none && !why.empty()) transport_.log().warn(why);
}

void VerbsEndpoint::revoke() noexcept {
  fail(FaultKind::closed, 0);
  for (const auto& path : paths_)
    if (path->state == VerbsPath::State::alive) path->stop();
  transport_.regions().withdraw();  // a device that is still at a message ends with it
  ::shutdown(stream_.socket(), SHUT_RDWR);
}

void VerbsEndpoint::attend() noexcept {
  attention_ = false;  // a path that fails in what follows wants it again
  if (fault_.kind != FaultKind::none) return;
  bool settled = true, any_alive = false;
  for (const auto& path : paths_) {
    const bool stops = path->state == VerbsPath::State::stopping;
    const bool is_empty = path->all_receives_reaped() || now_ns() - path->stopped_at_ns > stopping_ns_max;
    if (stops && !is_empty) transport_.wake_at(path->stopped_at_ns + stopping_ns_max + 1);
    if (stops && is_empty && stream_.has_room()) {
      transport_.poll_all();
      stream_.push({{VerbsFrame::path_down, uint32_t(path->number() | path->cause << 8), 0}, {}, {}, 0});
      path->state = VerbsPath::State::told;
    }
    if (path->state == VerbsPath::State::told && path->peer_stopped) {
      path->state = VerbsPath::State::dead;
      resend(path->number());
    }
    any_alive |= path->state == VerbsPath::State::alive;
    settled &= path->state == VerbsPath::State::alive || path->state == VerbsPath::State::dead;
  }
  if (!stream_.empty() && !ended_) write_stream();
  if (ended_) {
    attention_ = false;  // whoever still asks for something is told
    return;
  }
  if (!settled) {
    attention_ = true;
    return;
  }
  if (!any_alive && !by_stream_) {
    if (!transport_.tcp_allowed()) {
      fail(FaultKind::system, EIO);
      fault_.text = problem_;
      return;
    }
    by_stream_ = true;
    transport_.now_streams();
    transport_.log().warn(fmt::format("verbs: no path to {} is left; its messages go by TCP",
                                      transport_.peer_name(peer_)));
  }
  unsent_ = false;
  for (uint32_t number = consumed_ + 1; int32_t(sent_ - number) >= 0; ++number)
    if (sent(number).path == by_nothing && !transmit(number, false)) unsent_ = true;
  if (credit_due_) give_credit();
  attention_ |= unsent_ || credit_due_ || !stream_.empty();
}

// What the path did not bring for certain has no path now.
void VerbsEndpoint::resend(int path) noexcept {
  credit_due_ = true;
  for (uint32_t number = consumed_ + 1; int32_t(sent_ - number) >= 0; ++number) {
    Sent& record = sent(number);
    if (record.path != path || is_delivered(number)) continue;
    record.path = by_nothing;
    record.again = true;
    repeats_ = true;
    ++transport_.counters().resent;
  }
}

// --- Frames.

void VerbsEndpoint::write_stream() noexcept {
  const bool whole = stream_.write([this](uint32_t number) { sent(number).written = true; });
  if (whole) return transport_.watch_writing(*this, !stream_.empty());
  stream_readable();  // what the peer has sent before it ended
  stream_ended();
}

void VerbsEndpoint::stream_writable() noexcept { write_stream(); }

void VerbsEndpoint::stream_readable() noexcept {
  if (ended_) return;
  const bool goes_on = stream_.read([this](const VerbsFrame& frame) { return place_of_frame(frame); },
                                    [this](const VerbsFrame& frame) { return take_frame(frame); });
  if (!goes_on) stream_ended();
}

std::byte* VerbsEndpoint::place_of_frame(const VerbsFrame& frame) noexcept {
  if (frame.kind != VerbsFrame::message || frame.bytes < sizeof(VerbsHeader)) return nullptr;
  const uint64_t at = frame.immediate * uint64_t{verbs_unit_bytes} + verbs_header_at;
  if (at > ring_bytes_ || frame.bytes > ring_bytes_ - at) return nullptr;
  return ring_ + at;
}

bool VerbsEndpoint::take_frame(const VerbsFrame& frame) noexcept {
  switch (frame.kind) {
    case VerbsFrame::message:
    case VerbsFrame::credit: received(*paths_.front(), frame.immediate); return true;
    case VerbsFrame::path_down: break;
    default: return false;
  }
  const size_t number = frame.immediate & 0xff;
  if (number >= paths_.size()) return false;
  VerbsPath& path = *paths_[number];
  path.peer_stopped = true;
  if (path.state == VerbsPath::State::alive)
    path_failed(path, cause_of_code(uint8_t(frame.immediate >> 8)), "on the peer's side, ");
  attention_ = true;
  transport_.needs_attention();
  return true;
}

void VerbsEndpoint::stream_ended() noexcept {
  if (ended_) return;
  ended_ = true;
  ended_at_ns_ = now_ns();
  transport_.watch_nothing(*this);
}

bool VerbsEndpoint::drained() noexcept {
  if (ended_ || fault_.kind != FaultKind::none) return true;
  bool all = !unsent_ && !credit_due_ && stream_.is_out();
  for (const auto& path : paths_) {
    if (path->state == VerbsPath::State::stopping || path->state == VerbsPath::State::told) all = false;
    if (path->state != VerbsPath::State::alive || path->is_completed(path->posted())) continue;
    all = false;
    if (path->has_room()) take_result(*path, path->post_marker(path->posted()));
  }
  return all;
}

// --- Events.

void VerbsTransport::look_at_events() noexcept {
  if (armed_) return;
  epoll_event events[32];
  const int n = ::epoll_wait(news_.get(), events, int(std::size(events)), 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t data = events[i].data.u64;
    if ((data & news_device_bit) != 0) {
      take_event(*hardware_.devices[data & ~news_device_bit]);
    } else if (data == news_timer) {
      uint64_t times = 0;
      [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &times, sizeof times);
      wakes_at_ns_ = 0;
    } else if (data != news_completions) {
      VerbsEndpoint& endpoint = *reinterpret_cast<VerbsEndpoint*>(events[i].data.ptr);
      if ((events[i].events & EPOLLOUT) != 0) endpoint.stream_writable();
      if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) endpoint.stream_readable();
    }
  }
}

void VerbsTransport::take_event(VerbsDevice& device) noexcept {
  ibv_async_event event{};
  while (device.library().get_async_event(device.context(), &event) == 0) {
    fail_paths(device, event);
    device.library().ack_async_event(&event);
  }
}

void VerbsTransport::fail_paths(const VerbsDevice& device, const ibv_async_event& event) noexcept {
  const VerbsScope scope = scope_of(event.event_type);
  if (scope == VerbsScope::nothing) return;
  for (const auto& endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    for (const auto& path : endpoint->paths()) {
      const bool meant = &path->device() == &device &&
                         (scope == VerbsScope::device ||
                          (scope == VerbsScope::port && path->port == event.element.port_num) ||
                          (scope == VerbsScope::queue_pair && path->queue_pair() == event.element.qp));
      if (meant) endpoint->path_failed(*path, cause_of(event.event_type));
    }
  }
}

void VerbsTransport::wake_at(TimeNs when_ns) noexcept {
  if (wakes_at_ns_ != 0 && wakes_at_ns_ <= when_ns) return;
  wakes_at_ns_ = when_ns;
  itimerspec times{};
  times.it_value = {time_t(when_ns / ns_per_s), long(when_ns % ns_per_s)};
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &times, nullptr);
}

void VerbsTransport::watch_writing(VerbsEndpoint& endpoint, bool on) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (on) event.events |= EPOLLOUT;
  event.data.ptr = &endpoint;
  ::epoll_ctl(news_.get(), EPOLL_CTL_MOD, endpoint.stream().socket(), &event);
}

void VerbsTransport::watch_nothing(VerbsEndpoint& endpoint) noexcept {
  ::epoll_ctl(news_.get(), EPOLL_CTL_DEL, endpoint.stream().socket(), nullptr);
}

}  // namespace tutti
