// One rank of a test of hosts: joins by the real bootstrap, connects to every peer over TCP, runs all_reduce by the
// real engine, checks the sums and prints how long the fastest took.
#include <poll.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "base/clock.h"
#include "base/signature.h"
#include "bootstrap/bootstrap.h"
#include "engine/engine.h"
#include "reduce/reduce.h"
#include "schedule/check.h"
#include "schedule/plan.h"
#include "transport/tcp/tcp.h"

namespace tutti {
namespace {

struct Arguments {
  int rank, size, channels, rounds;
  std::string address;
  uint16_t port;
  size_t count;  // floats
  std::string algorithm;
};

constexpr TimeNs deadline_ns = 60 * ns_per_s;
constexpr int spins = 200;

std::unique_ptr<Bootstrap> join(const Arguments& arguments) {
  const Key key = derive_key("a test of hosts");
  if (arguments.rank == 0) open_meeting_place_at(arguments.address, arguments.port, key, now_ns() + deadline_ns);
  BootstrapOptions options;
  options.timeout_ns = deadline_ns;
  return Bootstrap::join(agreed_meeting_place(arguments.address, arguments.port, key), arguments.rank, arguments.size,
                         options, Log("a rank of a test of hosts"));
}

// Runs to the end; spins a little, then sleeps.
void run(const Engine& engine, Operation& operation, Transport& transport, const Bootstrap& bootstrap) {
  const TimeNs deadline = now_ns() + deadline_ns;
  for (int vain = 0;; ++vain) {
    const Status status = engine.progress(operation);
    if (status == Status::done) return;
    const Verdict* verdict = bootstrap.verdict();
    if (verdict != nullptr) throw Error(verdict->code, verdict->sentence);
    if (status == Status::failed) {
      const WaitingOn on = engine.waiting_on(operation);
      throw Error(Code::remote_error, fmt::format("the link to rank {} failed", on.peer));
    }
    if (now_ns() > deadline) throw Error(Code::timeout, "all_reduce did not end");
    transport.progress();
    if (vain % spins != spins - 1) continue;
    transport.arm();
    std::array<pollfd, 4> fds;
    if (engine.progress(operation) == Status::again) ::poll(fds.data(), transport.poll_fds(fds), 100);
    transport.disarm();
  }
}

void work(const Arguments& arguments) {
  const std::unique_ptr<Bootstrap> bootstrap = join(arguments);
  TcpOptions options;
  options.channels = arguments.channels;
  options.peers.assign(size_t(arguments.size), true);
  const std::unique_ptr<Transport> transport = make_tcp(*bootstrap, options);
  std::vector<Endpoint*> endpoints;
  for (int c = 0; c < arguments.channels; ++c)
    for (int peer = 0; peer < arguments.size; ++peer)
      endpoints.push_back(peer == arguments.rank ? nullptr : transport->endpoint(peer, c));
  const Engine engine(arguments.size, endpoints, transport->message_bytes_max());

  const Algorithm* algorithm = find_algorithm(Collective::all_reduce, arguments.algorithm);
  if (algorithm == nullptr) throw Error(Code::invalid_argument, "no such algorithm");
  const Group group{.rank = arguments.rank, .n = arguments.size, .pipeline = 4};
  const Plan plan = lower(record(*algorithm, group), algorithm->shape(group), algorithm->name, false);
  std::vector<std::byte> scratch(engine.scratch_bytes(plan, arguments.channels) + 64);

  std::vector<float> input(arguments.count), output(arguments.count);
  for (size_t i = 0; i < input.size(); ++i) input[i] = float(i % 1000) + float(arguments.rank);
  Work work{&plan, reinterpret_cast<const std::byte*>(input.data()), reinterpret_cast<std::byte*>(output.data())};
  work.scratch = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  work.count = arguments.count;
  work.element_bytes = sizeof(float);
  work.reduce = reduce_function(DataType::float32, ReduceOp::sum);
  work.signature = pack({Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, arguments.count});

  TimeNs least = deadline_ns;
  Operation operation;
  for (int round = 0; round < arguments.rounds; ++round) {
    bootstrap->barrier();
    std::fill(output.begin(), output.end(), -1.0f);
    const TimeNs start = now_ns();
    engine.start(operation, work, 0, arguments.channels);
    run(engine, operation, *transport, *bootstrap);
    least = std::min(least, now_ns() - start);
  }
  const int n = arguments.size;
  for (size_t i = 0; i < output.size(); ++i)
    if (output[i] != float(i % 1000) * float(n) + float(n * (n - 1) / 2))
      throw Error(Code::internal_error, fmt::format("element {} is {}", i, output[i]));
  fmt::print("ok {:.3f} ms\n", double(least) / 1e6);
  bootstrap->barrier();
  bootstrap->leave();
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 9) {
    std::fprintf(stderr, "usage: hosts_worker RANK SIZE ADDRESS PORT COUNT ROUNDS CHANNELS ALGORITHM\n");
    return 2;
  }
  try {
    tutti::work({std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[7]), std::atoi(argv[6]), argv[3],
                 uint16_t(std::atoi(argv[4])), size_t(std::atoll(argv[5])), argv[8]});
  } catch (const std::exception& error) {
    fmt::print("error: {}\n", error.what());
    return 1;
  }
  return 0;
}
