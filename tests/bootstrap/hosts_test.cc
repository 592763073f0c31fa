// Two hosts, as network namespaces: several interfaces between them, one of which is dead; IPv6 alone; a forced one.
#include <fcntl.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "support.h"

namespace tutti::test {
namespace {

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Two namespaces joined by two pairs of virtual Ethernet, "good" and "dead": both are up and have addresses, but what
// is sent on dead is dropped. Removed at the end.
class Hosts {
 public:
  Hosts() : tag_(fmt::format("tutti{}", ::getpid())) {
    ok_ = shell(fmt::format("ip netns add {}a && ip netns add {}b", tag_, tag_));
    for (int i = 0; i < 2 && ok_; ++i) {
      const char* name = i == 0 ? "dead" : "good";
      ok_ = shell(fmt::format("ip link add {1} netns {0}a type veth peer name {1} netns {0}b", tag_, name));
      for (const char host : {'a', 'b'}) {
        const int number = host == 'a' ? 1 : 2;
        const std::string in = fmt::format("ip -n {}{} ", tag_, host);
        ok_ = ok_ && shell(in + "link set lo up") && shell(fmt::format("{}link set {} up", in, name)) &&
              shell(fmt::format("{}addr add 10.77.{}.{}/24 dev {}", in, i, number, name)) &&
              shell(fmt::format("{}addr add fd77:{}::{}/64 dev {} nodad", in, i, number, name));
        // The neighbour is given an address that nobody has: every packet to it is lost without a word.
        if (i == 0)
          ok_ = ok_ && shell(fmt::format("{}neigh replace 10.77.0.{} lladdr 02:00:00:00:00:99 dev dead", in,
                                         3 - number)) &&
                shell(fmt::format("{}neigh replace fd77:0::{} lladdr 02:00:00:00:00:99 dev dead", in, 3 - number));
      }
    }
  }
  ~Hosts() {
    for (const char host : {'a', 'b'}) shell(fmt::format("ip netns del {}{}", tag_, host));
  }

  bool ok() const { return ok_; }
  // Takes the calling process, which must have one thread, to host 'a' or 'b'.
  void enter(char host) const {
    const Fd fd(::open(fmt::format("/run/netns/{}{}", tag_, host).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() || ::setns(fd.get(), CLONE_NEWNET) != 0) throw Error(Code::system_error, "cannot enter a host");
  }
  void without_ipv4() const {
    for (const char host : {'a', 'b'})
      for (const char* name : {"good", "dead"}) shell(fmt::format("ip -n {}{} -4 addr flush dev {}", tag_, host, name));
  }

 private:
  std::string tag_;
  bool ok_ = false;
};

class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.ok()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and iproute2)";
  }

  // Two ranks on each host join through an id made on a, gather, connect to each other, leave. What each said.
  std::vector<std::string> run(const std::string& interface_names) {
    int pipes[2];
    EXPECT_EQ(::pipe(pipes), 0);
    const Fd id_out(pipes[0]), id_in(pipes[1]);
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back(std::make_unique<Process>([&](Process&) {
        hosts_.enter(rank % 2 == 0 ? 'a' : 'b');
        std::array<char, 128> bytes{};
        if (rank == 0) {
          encode(open_meeting_place(interface_names, now_ns() + 20 * ns_per_s), bytes);
          for (int i = 1; i < 4; ++i)
            if (::write(id_in.get(), bytes.data(), bytes.size()) < 0) ::_exit(9);
        } else if (::read(id_out.get(), bytes.data(), bytes.size()) != ssize_t(bytes.size())) {
          ::_exit(9);
        }
        BootstrapOptions options = quick_options(15 * ns_per_s);
        options.interface_names = interface_names;
        const auto bootstrap = join(decode(bytes), rank, 4, options);
        const size_t gathered = bootstrap->all_gather(bytes_of("x")).size();
        std::vector<Bootstrap::Wish> wishes;
        for (int peer = 0; peer < 4; ++peer)
          if (peer != rank) wishes.push_back({peer, 1});
        const size_t connected = bootstrap->connect(wishes).size();
        bootstrap->barrier();
        bootstrap->leave();
        return fmt::format("{} gathered, {} connected", gathered, connected);
      }));
    std::vector<std::string> said;
    for (const auto& rank : ranks) said.push_back(rank->line());
    return said;
  }

  Hosts hosts_;
};

const std::vector<std::string> all_well(4, "4 gathered, 3 connected");

TEST_F(TwoHosts, ADeadInterfaceDoesNoHarm) { EXPECT_EQ(run(""), all_well); }

TEST_F(TwoHosts, AForcedInterfaceIsUsed) { EXPECT_EQ(run("good"), all_well); }

TEST_F(TwoHosts, IPv6AloneServes) {
  hosts_.without_ipv4();
  EXPECT_EQ(run("^lo"), all_well);
}

}  // namespace
}  // namespace tutti::test
