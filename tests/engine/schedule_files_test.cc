// Files of schedules as TUTTI_SCHEDULES lists them: read, proven, refused with their names.
#include "engine/schedule_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"

namespace tutti {
namespace {

class ScheduleFiles : public testing::Test {
 protected:
  ScheduleFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-schedules-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ScheduleFiles() override { std::filesystem::remove_all(folder_); }

  // A file with the catalog's ring under another name.
  std::string ring(const std::string& file, const std::string& name, int n) {
    const Algorithm& row = *find_algorithm(Collective::all_reduce, "ring");
    Group group{0, n, 0, 1, {}};
    UserSchedule schedule{file, name, "", Collective::all_reduce, 0, row.shape(group), {}, {}};
    for (group.rank = 0; group.rank < n; ++group.rank) schedule.ranks.push_back(record(row, group));
    return written(file, to_json(schedule));
  }
  std::string written(const std::string& file, const std::string& text) {
    const std::string path = (folder_ / file).string();
    std::ofstream(path) << text;
    return path;
  }
  static std::string why(const std::string& files) {
    try {
      load_user_schedules(files);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ScheduleFiles, AreLoadedInTheirOrderAndProven) {
  const std::string a = ring("a.json", "mine", 3), b = ring("b.json", "mine", 4), c = ring("c.json", "yours", 4);
  EXPECT_TRUE(load_user_schedules("").empty());
  const std::vector<UserSchedule> loaded = load_user_schedules(a + "::" + b + ":" + c + ":");
  ASSERT_EQ(loaded.size(), 3u);
  EXPECT_EQ(loaded[0].n(), 3);
  EXPECT_EQ(loaded[2].full_name(), "all_reduce/yours");
  EXPECT_EQ(loaded[1].claim.rounds, 6);
}

TEST_F(ScheduleFiles, AreRefusedByName) {
  const std::string a = ring("a.json", "mine", 3), again = ring("again.json", "mine", 3);
  const std::string taken = ring("taken.json", "tree", 3), text = written("text.json", "{");
  EXPECT_EQ(why("/nowhere/x.json"), "/nowhere/x.json: cannot be read: No such file or directory");
  EXPECT_EQ(why(folder_.string()), folder_.string() + ": cannot be read: Is a directory");
  EXPECT_EQ(why(text), text + ": line 1 is not JSON");
  EXPECT_EQ(why(taken), taken + ": the catalog has an algorithm all_reduce/tree already");
  EXPECT_EQ(why(a + ":" + again), again + ": " + a + " has all_reduce/mine for 3 ranks already");
}

TEST_F(ScheduleFiles, AreRefusedWhereTheyAreWrong) {
  const std::string good = ring("good.json", "mine", 2);
  std::ifstream file(good);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  text.replace(text.find("\"to\": 1"), 7, "\"to\": 2");
  const std::string wrong = written("wrong.json", text);
  EXPECT_EQ(why(good + ":" + wrong), wrong + ": rank 0, step 1 (send in[0] to 2), chunk 0: rank 2 does not exist");
}

}  // namespace
}  // namespace tutti
