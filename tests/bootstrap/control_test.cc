// A control thread that ends: who counts on a link to it hears why.
#include "bootstrap/control.h"

#include <poll.h>

#include <thread>

#include "bootstrap/address.h"
#include "bootstrap/handshake.h"
#include "bootstrap/sockets.h"
#include "support.h"

namespace tutti::test {
namespace {

// To rank 0 of `secret`, as far as the listener's proof.
Handshake half_linked(uint16_t port, const Secret& secret) {
  int error = 0;
  Fd fd = start_connect(resolve("127.0.0.1", port).front(), &error);
  pollfd wait{fd.get(), POLLOUT, 0};
  EXPECT_EQ(poll_until({&wait, 1}, now_ns() + 5 * ns_per_s), 1);
  Handshake handshake(std::move(fd), Handshake::Side::connecting, secret, now_ns());
  while (handshake.step() == Handshake::State::working) {
    wait = {handshake.fd().get(), handshake.events(), 0};
    EXPECT_EQ(poll_until({&wait, 1}, now_ns() + 5 * ns_per_s), 1);
  }
  EXPECT_EQ(handshake.state(), Handshake::State::peer_proven);
  return handshake;
}

// The child takes its link for made before the parent has heard its last word.
TEST(Control, WhoGivesUpTellsThoseWhoAreAboutToLink) {
  const BootstrapOptions options = quick_options();
  const Log log("rank 0");
  Secret secret;
  secret.key.fill(7);
  secret.identity = 77;
  auto control = std::make_unique<Control>(0, 2, secret, options, log);
  Handshake child = half_linked(control->port(), secret);
  control->fail({Code::system_error, 0, "rank 0 gives up"});
  std::thread ending([&] { control.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(child.finish({Purpose::tree, 1, 2, 0}), Handshake::State::done);
  FramedSocket link(child.take_fd());
  Liveness liveness(1, 2, options.silence_ns, now_ns());
  liveness.link_opened(0, now_ns());
  for (Frame frame; liveness.verdict() == nullptr;) {
    ASSERT_EQ(link.receive_until(frame, now_ns() + 5 * ns_per_s), FramedSocket::Received::frame);
    ASSERT_EQ(frame.type, FrameType::liveness);
    liveness.message(0, frame.payload, now_ns());
  }
  EXPECT_EQ(liveness.verdict()->sentence, "rank 0 gives up");
  link.close();
  ending.join();
}

// A stranger that has read the proof, and says no more, holds nobody for long.
TEST(Control, EndsAlthoughSomebodyNeverLinks) {
  const Log log("rank 0");
  const BootstrapOptions options = quick_options();
  Secret secret;
  auto control = std::make_unique<Control>(0, 2, secret, options, log);
  const Handshake idle = half_linked(control->port(), secret);
  control->fail({Code::system_error, 0, "rank 0 gives up"});
  const TimeNs begun = now_ns();
  control.reset();
  EXPECT_LT(now_ns() - begun, 10 * leave_wait_ns_max);
}

}  // namespace
}  // namespace tutti::test
