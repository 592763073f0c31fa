// Schedules that a user writes, from TUTTI_SCHEDULES to right results; ranks that load different ones are told so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/types.h"
#include "communicator/every_collective.h"
#include "communicator/ranks.h"
#include "schedule/check.h"
#include "schedule/user_schedule.h"

namespace tutti {
namespace {

class Schedules : public testing::Test {
 protected:
  Schedules() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-schedules-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Schedules() override {
    unsetenv("TUTTI_SCHEDULES");
    std::filesystem::remove_all(folder_);
  }

  std::string written(const std::string& file, const std::string& text) const {
    const std::string path = (folder_ / file).string();
    std::ofstream(path) << text;
    return path;
  }
  // A catalog's algorithm as a file of another name.
  std::string file_of(Collective collective, std::string_view algorithm, const std::string& name, int n,
                      int root = 0) const {
    const Algorithm& row = *find_algorithm(collective, algorithm);
    Group group{0, n, root, 1, {}};
    UserSchedule schedule{"", name, "", collective, root, row.shape(group), {}, {}};
    for (group.rank = 0; group.rank < n; ++group.rank) schedule.ranks.push_back(record(row, group));
    return written(name + "-" + std::string(tutti::name(collective)) + std::to_string(n) + ".json", to_json(schedule));
  }

  std::filesystem::path folder_;
};

// A fork a rank, each with its own TUTTI_SCHEDULES; the sentences with which joining failed, "" where it did not.
std::vector<std::string> sentences_of(const std::vector<std::string>& files) {
  const int n = int(files.size());
  std::vector<int> to_child, from_child;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < n; ++rank) {
    int down[2], up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      setenv("TUTTI_SCHEDULES", files[size_t(rank)].c_str(), 1);
      tuttiUniqueId id;
      if (::read(down[0], &id, sizeof id) != ssize_t(sizeof id)) ::_exit(3);
      const tuttiConfig_t config = test::RanksOptions().config(rank);
      tuttiComm_t comm = nullptr;
      const bool joined = tuttiCommInitRankConfig(&comm, n, id, rank, &config) == tuttiSuccess;
      const std::string sentence = joined ? "" : tuttiGetLastError(nullptr);
      if (::write(up[1], sentence.data(), sentence.size()) != ssize_t(sentence.size())) ::_exit(4);
      if (joined) tuttiCommDestroy(comm);
      ::_exit(0);
    }
    ::close(down[0]);
    ::close(up[1]);
    pids.push_back(pid);
    to_child.push_back(down[1]);
    from_child.push_back(up[0]);
  }
  tuttiUniqueId id;
  EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
  for (const int pipe : to_child) EXPECT_EQ(::write(pipe, &id, sizeof id), ssize_t(sizeof id));
  std::vector<std::string> sentences;
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    std::string sentence;
    char piece[512];
    for (ssize_t got; (got = ::read(from_child[rank], piece, sizeof piece)) > 0;) sentence.append(piece, size_t(got));
    sentences.push_back(sentence);
    ::close(from_child[rank]);
    ::close(to_child[rank]);
    int status = -1;
    ::waitpid(pids[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
  return sentences;
}

TEST_F(Schedules, GiveRightResultsByName) {
  for (const int n : {1, 2, 3, 5}) {
    std::string files;
    const auto add = [&](Collective collective, std::string_view algorithm, int root) {
      files += (files.empty() ? "" : ":") + file_of(collective, algorithm, "mine", n, root);
    };
    const int root = n / 2;
    add(Collective::all_reduce, "two_shot", 0);
    add(Collective::all_gather, "bruck", 0);
    add(Collective::reduce_scatter, "circulant", 0);
    add(Collective::all_to_all, "pairwise", 0);
    add(Collective::broadcast, "binomial", root);
    add(Collective::reduce, "binomial", root);
    setenv("TUTTI_SCHEDULES", files.c_str(), 1);
    test::run_threads(n, {.algorithm = "mine"}, [&](int rank, tuttiComm_t comm) {
      for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}) {
        const char* name = nullptr;
        ASSERT_EQ(tuttiCommAlgorithm(comm, kind, 1000, &name), tuttiSuccess);
        EXPECT_STREQ(name, "mine");
      }
      for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                    Collective::all_to_all, Collective::broadcast, Collective::reduce})
        for (const size_t count : {size_t{0}, size_t{1}, size_t{1001}})
          for (const bool in_place : {false, true})
            for (const int r : {root, n - 1})  // the second is not the schedule's
              test::EveryCall(n, rank, {kind, DataType::float32, ReduceOp::avg, count, r, in_place}).run(comm);
    });
  }
}

TEST_F(Schedules, AreChosenByPrice) {
  // Sending everything to everybody is dear for large buffers.
  setenv("TUTTI_SCHEDULES", file_of(Collective::all_reduce, "one_shot", "mine", 3).c_str(), 1);
  test::run_threads(3, {}, [&](int, tuttiComm_t comm) {
    const char* name = nullptr;
    ASSERT_EQ(tuttiCommAlgorithm(comm, "all_reduce", size_t{1} << 28, &name), tuttiSuccess);
    EXPECT_STRNE(name, "mine");
  });
}

TEST_F(Schedules, GoOnToCommunicatorsThatComeFromThisOne) {
  const std::string pair = file_of(Collective::all_reduce, "tree", "mine", 2);
  setenv("TUTTI_SCHEDULES", pair.c_str(), 1);
  test::run_threads(4, {.algorithm = "mine"}, [&](int rank, tuttiComm_t comm) {
    const char* name = nullptr;
    ASSERT_EQ(tuttiCommAlgorithm(comm, "all_reduce", 8, &name), tuttiSuccess);
    EXPECT_STRNE(name, "mine");  // it is for two ranks
    if (rank == 0) std::filesystem::remove(pair);
    tuttiComm_t half = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, rank % 2, rank, &half, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    ASSERT_EQ(tuttiCommAlgorithm(half, "all_reduce", 8, &name), tuttiSuccess);
    EXPECT_STREQ(name, "mine");
    test::EveryCall(2, rank / 2, {Collective::all_reduce, DataType::int32, ReduceOp::sum, 100, 0, false}).run(half);
    EXPECT_EQ(tuttiCommDestroy(half), tuttiSuccess);
  });
}

TEST_F(Schedules, AreRefusedAtJoinWithTheirFault) {
  const std::string wrong = written("wrong.json", R"({"tutti_schedule": 1, "name": "wrong", "collective": "broadcast",
      "ranks": 2, "shape": {"input": 1, "output": 1, "scratch": 0, "message": 1},
      "steps": [[{"verb": "copy", "a": "in[0]", "dst": "out[0]"}], []]})");
  setenv("TUTTI_SCHEDULES", wrong.c_str(), 1);
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiInvalidArgument);
  const std::string sentence = tuttiGetLastError(nullptr);
  EXPECT_TRUE(sentence.starts_with("rank 0 (") && sentence.ends_with("could not join: " + wrong +
              ": rank 1, after its last step, 0, chunk 0: output chunk 0 holds nothing")) << sentence;
}

TEST_F(Schedules, MustBeTheSameOnAllRanks) {
  const std::string tree = file_of(Collective::all_reduce, "tree", "mine", 3);
  const std::string ring = file_of(Collective::all_reduce, "ring", "mine", 3);  // overwrites: the same file's name
  const std::string copy = written("copy.json", [&] {
    std::ifstream file(ring);
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }());
  EXPECT_EQ(tree, ring);
  // Other names of files do not matter.
  EXPECT_EQ(sentences_of({ring, copy, ring}), (std::vector<std::string>{"", "", ""}));
  const std::vector<std::string> lacking = sentences_of({ring, "", ring});
  for (const std::string& sentence : lacking) {
    EXPECT_NE(sentence.find("ranks load different schedules (TUTTI_SCHEDULES): 1 differs from rank 0"),
              std::string::npos)
        << sentence;
    EXPECT_NE(sentence.find("rank 1 has none"), std::string::npos) << sentence;
  }
}

TEST_F(Schedules, MissingOnOneRankIsToldToAll) {
  const std::string ring = file_of(Collective::all_reduce, "ring", "mine", 3);
  const std::vector<std::string> sentences = sentences_of({ring, ring, ring + ".old"});
  for (const std::string& sentence : sentences)
    EXPECT_NE(sentence.find("mine-all_reduce3.json.old: cannot be read: No such file or directory"), std::string::npos)
        << sentence;
}

}  // namespace
}  // namespace tutti
