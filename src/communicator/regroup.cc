// New communicators from old ones. Each way comes down to one thing: the ranks that shall form it agree on a job id, and
// join by it as any job does.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "bootstrap/liveness.h"
#include "bootstrap/wire.h"
#include "communicator/communicator.h"

namespace tutti {
namespace {

using IdBytes = std::array<char, 128>;

// Tags of data connections that carry an id: no transport's channels reach so far.
constexpr uint32_t shrink_tag = 0x8000'0000;

TimeNs deadline_of(const CommunicatorOptions& options) { return now_ns() + options.timeout_ms * ns_per_ms; }

IdBytes new_id(const CommunicatorOptions& options) {
  IdBytes bytes{};
  encode(open_meeting_place(options.interface_names, deadline_of(options)), bytes);
  return bytes;
}

Bytes to_bytes(std::span<const char> text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

// The id in a part of an all_gather; its first byte tells it from the sentence of who could not make one.
Bytes id_part(const CommunicatorOptions& options) {
  try {
    const IdBytes id = new_id(options);
    Bytes part = to_bytes(id);
    part.insert(part.begin(), std::byte{'i'});
    return part;
  } catch (const Error& error) {
    return to_bytes(fmt::format("e{}", error.what()));
  }
}

JobId id_of_part(const Bytes& part, const std::string& leader) {
  const auto* text = reinterpret_cast<const char*>(part.data());
  if (part.size() == 1 + sizeof(IdBytes) && text[0] == 'i') return decode(std::span<const char, 128>(text + 1, 128));
  const std::string_view why = part.empty() ? "" : std::string_view(text + 1, part.size() - 1);
  throw Error(Code::system_error, fmt::format("{} could not open a meeting place: {}", leader, why));
}

template <class T>
Bytes bytes_of(const T& value) {
  return to_bytes(std::span(reinterpret_cast<const char*>(&value), sizeof value));
}
template <class T>
T value_of(std::span<const std::byte> bytes) {
  T value;
  TUTTI_ASSERT(bytes.size() >= sizeof value);
  std::copy_n(bytes.data(), sizeof value, reinterpret_cast<std::byte*>(&value));
  return value;
}

// An id on its way to or from a peer. The wait is given up where one that the id is for has gone.
struct Handover {
  int fd;
  TimeNs deadline;
  const std::string& peer;
  const GivesUp& gives_up;

  void check() const {
    if (const std::string why = gives_up(); !why.empty()) throw Error(Code::remote_error, why);
  }
  // A peer that closes may have heard first of who has gone.
  [[noreturn]] void throw_closed() const {
    for (int i = 0; i < 20; ++i) {
      check();
      ::poll(nullptr, 0, 50);
    }
    throw Error(Code::remote_error, fmt::format("{} closed its connection while shrinking", peer));
  }
};

// Moves all of an id over a connection that does not block: `move` sends or receives some of the bytes.
template <class Move>
void move_id(const Handover& over, short event, IdBytes& id, Move move) {
  for (size_t done = 0; done < id.size();) {
    const ssize_t moved = move(over.fd, id.data() + done, id.size() - done);
    if (moved > 0) {
      done += size_t(moved);
      continue;
    }
    if (moved == 0 || errno == ECONNRESET || errno == EPIPE) over.throw_closed();
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw system_error("cannot hand over the id of the new communicator", errno);
    over.check();
    const TimeNs left = over.deadline - now_ns();
    if (left <= 0) throw Error(Code::timeout, fmt::format("{} was silent while shrinking until the deadline", over.peer));
    pollfd waiting{over.fd, event, 0};
    ::poll(&waiting, 1, int(std::min<TimeNs>(left / ns_per_ms + 1, 50)));
  }
}

void send_id(const Handover& over, IdBytes& id) {
  move_id(over, POLLOUT, id,
          [](int to, char* data, size_t bytes) { return ::send(to, data, bytes, MSG_NOSIGNAL); });
}

IdBytes receive_id(const Handover& over) {
  IdBytes id{};
  move_id(over, POLLIN, id,
          [](int from, char* data, size_t bytes) { return ::recv(from, data, bytes, 0); });
  return id;
}

struct Colored {
  int color;
  int key;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const std::vector<Bytes> parts = bootstrap_->all_gather(bytes_of(Colored{color, key}));
  std::vector<Colored> all(parts.size());
  std::transform(parts.begin(), parts.end(), all.begin(), [](const Bytes& part) { return value_of<Colored>(part); });
  std::vector<int> members;
  for (int r = 0; r < size_; ++r)
    if (all[size_t(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return all[size_t(a)].key < all[size_t(b)].key; });
  const bool leads = color >= 0 && members[0] == rank_;
  const std::vector<Bytes> ids = bootstrap_->all_gather(leads ? id_part(options) : Bytes());
  if (color < 0) return nullptr;
  const int rank = int(std::find(members.begin(), members.end(), rank_) - members.begin());
  return join_from(members, id_of_part(ids[size_t(members[0])], bootstrap_->describe(members[0])), rank,
                   int(members.size()), options);
}

// The verdict's tree may be broken, so the survivor with the lowest number hands the id to each of the others over a
// connection of their own; they reach its listener as they did for data.
std::unique_ptr<Communicator> Communicator::shrink(std::span<const int> excluded, const CommunicatorOptions& options) {
  std::vector<int> members;
  for (int r = 0; r < size_; ++r)
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) members.push_back(r);
  const Verdict* verdict = failure();
  if (verdict != nullptr && verdict->code == Code::remote_error && verdict->rank >= 0 &&
      std::find(members.begin(), members.end(), verdict->rank) != members.end())
    throw Error(Code::invalid_argument, fmt::format("the list of excluded ranks ({}) lacks rank {}, which has failed: {}",
                                                    fmt::join(excluded, ", "), verdict->rank, verdict->sentence));
  const uint32_t tag = shrink_tag + shrinks_++;
  const TimeNs deadline = deadline_of(options);
  const int leader = members[0];
  const int rank = int(std::find(members.begin(), members.end(), rank_) - members.begin());
  const GivesUp gives_up = [&] { return who_has_gone(members); };
  const auto connect = [&](std::span<const Bootstrap::Wish> wishes) {
    try {
      return bootstrap_->connect(wishes);
    } catch (const Error&) {
      if (const std::string why = gives_up(); !why.empty()) throw Error(Code::remote_error, why);
      throw;
    }
  };
  IdBytes id{};
  if (rank_ != leader) {
    const Bootstrap::Wish wish{leader, tag, true};
    const std::vector<Fd> link = connect({&wish, 1});
    id = receive_id({link[0].get(), deadline, bootstrap_->describe(leader), gives_up});
  } else {
    id = new_id(options);
    std::vector<Bootstrap::Wish> wishes;
    for (size_t i = 1; i < members.size(); ++i) wishes.push_back({members[i], tag, true});
    const std::vector<Fd> links = connect(wishes);
    for (size_t i = 0; i < links.size(); ++i)
      send_id({links[i].get(), deadline, bootstrap_->describe(wishes[i].peer), gives_up}, id);
  }
  return join_from(members, decode(id), rank, int(members.size()), options);
}

// What is agreed on: who lives and the id, or why there is none.
Communicator::Regrouped Communicator::agree_on_living(Bytes wish, TimeNs deadline,
                                                      const std::function<std::optional<JobId>(const Ballot&)>& make_id) {
  const auto make = [&](const Ballot& ballot) {
    ByteWriter writer;
    try {
      IdBytes bytes{};
      const std::optional<JobId> id = make_id(ballot);
      if (id) encode(*id, bytes);
      writer.u32(uint32_t(Code::success));
      writer.text({bytes.data(), id ? bytes.size() : 0});
    } catch (const Error& error) {
      writer.u32(uint32_t(error.code()));
      writer.text(error.what());
    }
    for (const int member : ballot.members) writer.u32(uint32_t(member));
    return writer.take();
  };
  const Bytes agreed = bootstrap_->agree(++agreements_, std::move(wish), deadline, make);
  ByteReader reader(agreed);
  const auto code = Code(reader.u32());
  const std::string text = reader.text();
  if (code != Code::success) throw Error(code, text);
  Regrouped regrouped;
  while (!reader.empty()) regrouped.members.push_back(int(reader.u32()));
  if (!text.empty()) regrouped.id = decode(std::span<const char, 128>(text.data(), 128));
  if (std::ranges::find(regrouped.members, rank_) == regrouped.members.end())
    throw Error(Code::remote_error, fmt::format("the other ranks have given up {}", bootstrap_->describe(rank_)));
  return regrouped;
}

std::unique_ptr<Communicator> Communicator::shrink_to_living(const CommunicatorOptions& options) {
  const auto new_place = [&](const Ballot&) -> std::optional<JobId> {
    try {
      return open_meeting_place(options.interface_names, deadline_of(options));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", bootstrap_->describe(rank_), error.what()));
    }
  };
  Regrouped agreed = agree_on_living({}, deadline_of(options), new_place);
  for (;;) {
    std::unique_ptr<Communicator> joined;
    Bytes problem;
    // Who could not join meets the others after they have waited for it.
    const TimeNs deadline = deadline_of(options) + options.timeout_ms * ns_per_ms;
    try {
      const int rank = int(std::ranges::find(agreed.members, rank_) - agreed.members.begin());
      joined = join_from(agreed.members, agreed.id.value(), rank, int(agreed.members.size()), options);
    } catch (const Error& error) {
      problem = tutti::to_bytes(Verdict{error.code(), rank_, error.what()});
    }
    // Where one dies meanwhile, some may have joined and others not: all agree on how they go on.
    const std::vector<int> members = std::move(agreed.members);
    agreed = agree_on_living(std::move(problem), deadline, [&](const Ballot& ballot) -> std::optional<JobId> {
      if (ballot.members != members) return new_place(ballot);
      if (ballot.wishes.empty()) return std::nullopt;
      // Verdicts begin with their code, and what one rank cannot do comes before that others waited for it in vain.
      const Verdict first = verdict_from(ballot.wishes[0].bytes);
      throw Error(first.code, first.sentence);
    });
    if (!agreed.id) return joined;
  }
}

std::unique_ptr<Communicator> Communicator::join_from(const std::vector<int>& members, const JobId& id, int rank, int size,
                                                      const CommunicatorOptions& options) const {
  return join(id, rank, size, options, [&] { return who_has_gone(members); });
}

// Who died is the reason of others' going.
std::string Communicator::who_has_gone(std::span<const int> members) const {
  for (const Presence how : {Presence::died, Presence::left}) {
    const auto gone = std::ranges::find_if(members, [&](int member) { return bootstrap_->presence(member) == how; });
    if (gone != members.end()) return gone_sentence(bootstrap_->describe(*gone));
  }
  return "";
}

std::unique_ptr<Communicator> Communicator::replace(const JobId* id, const CommunicatorOptions& options) {
  Bytes wish;
  if (id != nullptr) {
    IdBytes bytes{};
    encode(*id, bytes);
    wish = to_bytes(bytes);
  }
  const Regrouped agreed = agree_on_living(std::move(wish), deadline_of(options), [this](const Ballot& ballot) {
    if (ballot.wishes.empty())
      throw Error(Code::invalid_usage, "no rank gives the id by which those who replace others join");
    if (ballot.wishes.size() > 1)
      throw Error(Code::invalid_usage, fmt::format("ranks {} and {} both give an id",
                                                   std::min(ballot.wishes[0].rank, ballot.wishes[1].rank),
                                                   std::max(ballot.wishes[0].rank, ballot.wishes[1].rank)));
    if (ballot.members.size() == size_t(size_))
      throw Error(Code::invalid_usage, fmt::format("nobody is to be replaced: all {} ranks live", size_));
    return decode(std::span<const char, 128>(reinterpret_cast<const char*>(ballot.wishes[0].bytes.data()), 128));
  });
  return join_from(agreed.members, agreed.id.value(), rank_, size_, options);
}

std::unique_ptr<Communicator> Communicator::grow(int size, const JobId* id, const CommunicatorOptions& options) {
  Bytes mine = bytes_of(size);
  if (id != nullptr) {
    IdBytes bytes{};
    encode(*id, bytes);
    const Bytes tail = to_bytes(bytes);
    mine.insert(mine.end(), tail.begin(), tail.end());
  }
  const std::vector<Bytes> parts = bootstrap_->all_gather(mine);
  std::optional<JobId> agreed;
  for (int r = 0; r < size_; ++r) {
    const Bytes& part = parts[size_t(r)];
    const int wanted = value_of<int>(part);
    if (wanted != value_of<int>(parts[0]))
      throw Error(Code::invalid_usage, fmt::format("rank 0 wants to grow to {} ranks, rank {} to {}",
                                                   value_of<int>(parts[0]), r, wanted));
    if (part.size() == sizeof(int)) continue;
    if (agreed) throw Error(Code::invalid_usage, fmt::format("rank {} gives an id, and so does a rank before it", r));
    agreed = decode(std::span<const char, 128>(reinterpret_cast<const char*>(part.data()) + sizeof(int), 128));
  }
  if (!agreed) throw Error(Code::invalid_usage, "no rank gives the id by which the newcomers join");
  return join_from(all_ranks(size_), *agreed, rank_, size, options);
}

}  // namespace tutti
