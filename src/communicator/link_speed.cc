// Sixteen messages each way, timed by who receives them.
#include "communicator/link_speed.h"

#include <cmath>

namespace tutti {
namespace {

constexpr int messages_max = 16, burst_messages = 4;
constexpr TimeNs sending_ns_max = 20 * ns_per_ms;
constexpr uint64_t signature = 0x6c696e6b'73706564;  // "linksped": no call has it

}  // namespace

LinkSpeed::LinkSpeed(Endpoint& out, Endpoint& in, size_t message_bytes)
    : out_(out), in_(in), outgoing_(message_bytes), incoming_(message_bytes), started_at_(now_ns()) {}

Status LinkSpeed::step() noexcept {
  const Status sending = send(), receiving = receive();
  if (sending == Status::failed || receiving == Status::failed) return Status::failed;
  return sending == Status::done && receiving == Status::done ? Status::done : Status::again;
}

Status LinkSpeed::send() noexcept {
  while (!all_sent_) {
    if (bytes_sent_ == 0) {
      const bool last = sent_ + 1 == messages_max || now_ns() - started_at_ > sending_ns_max;
      outgoing_[0] = std::byte{last};
    }
    const Status status = out_.send(outgoing_.data(), outgoing_.size(), signature, bytes_sent_);
    if (status != Status::done) return status;
    bytes_sent_ = 0;
    ++sent_;
    all_sent_ = outgoing_[0] != std::byte{0};
  }
  return out_.flush();
}

Status LinkSpeed::receive() noexcept {
  while (!all_received_) {
    const Status status = in_.recv(incoming_.data(), incoming_.size(), signature, bytes_received_);
    if (status != Status::done) return status;
    bytes_received_ = 0;
    over_at_ = now_ns();
    if (++received_ == burst_messages) burst_over_at_ = over_at_;
    all_received_ = incoming_[0] != std::byte{0};
  }
  return Status::done;
}

uint64_t LinkSpeed::bits_per_s() const noexcept {
  const TimeNs took_ns = over_at_ - burst_over_at_;
  if (received_ <= burst_messages || took_ns <= 0) return 0;
  const double bits = 8.0 * double(incoming_.size()) * double(received_ - burst_messages);
  return uint64_t(std::exp2(std::round(2 * std::log2(bits * double(ns_per_s) / double(took_ns))) / 2));
}

}  // namespace tutti
