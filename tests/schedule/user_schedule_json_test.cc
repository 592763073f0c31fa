// Schedules as JSON: what is written is read back, and every wrong field is named with its rank and step.
#include <gtest/gtest.h>

#include <random>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/user_schedule.h"

namespace tutti {
namespace {

// Two ranks exchange and add: the lower rank's input first.
constexpr std::string_view good = R"({
  "tutti_schedule": 1,
  "name": "pair",
  "collective": "all_reduce",
  "ranks": 2,
  "shape": {"input": 1, "output": 1, "scratch": 0, "message": 1},
  "steps": [
    [{"verb": "send", "to": 1, "a": "in[0]"},
     {"verb": "recv_reduce", "from": 1, "a": "in[0]", "dst": "out[0]"},
     {"verb": "finish", "dst": "out[0]"}],
    [{"verb": "send", "to": 0, "a": "in[0]"},
     {"verb": "recv_reduce", "from": 0, "a": "in[0]", "dst": "out[0]", "incoming_first": true},
     {"verb": "finish", "dst": "out[0]"}]
  ]
}
)";

// The good file with one text in the place of another.
std::string with(std::string_view old_text, std::string_view new_text, std::string_view json = good) {
  std::string text(json);
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

std::string why(const std::string& json) {
  try {
    parse_user_schedule(json, "pair.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

UserSchedule recorded(const Algorithm& algorithm, Group group) {
  UserSchedule schedule;
  schedule.name = algorithm.name;
  schedule.sentence = algorithm.sentence;
  schedule.collective = algorithm.collective;
  schedule.root = group.root;
  schedule.shape = algorithm.shape(group);
  for (group.rank = 0; group.rank < group.n; ++group.rank) schedule.ranks.push_back(record(algorithm, group));
  return schedule;
}

TEST(UserScheduleJson, IsReadAndWrittenAlike) {
  const UserSchedule pair = parse_user_schedule(good, "pair.json");
  EXPECT_EQ(pair.full_name(), "all_reduce/pair");
  EXPECT_EQ(pair.n(), 2);
  EXPECT_EQ(pair.shape, (Shape{1, 1, 0, 1}));
  EXPECT_EQ(pair.ranks[1][1], (Step{Verb::recv_reduce, true, 0, in(0), {}, out(0)}));
  EXPECT_EQ(to_json(pair), good);
}

TEST(UserScheduleJson, HoldsEveryAlgorithmOfTheCatalog) {
  for (const Algorithm& algorithm : catalog())
    for (const int n : {1, 2, 3, 5, 8, 13}) {
      Group group;
      group.n = n;
      group.root = meaning(algorithm.collective).rooted ? n / 2 : 0;
      group.pipeline = 3;
      const UserSchedule original = recorded(algorithm, group);
      const UserSchedule back = parse_user_schedule(to_json(original), "x.json");
      EXPECT_EQ(back.full_name(), original.full_name());
      EXPECT_EQ(back.sentence, original.sentence);
      EXPECT_EQ(back.root, original.root);
      EXPECT_EQ(back.shape, original.shape);
      EXPECT_EQ(back.ranks, original.ranks) << original.full_name() << " n " << n;
    }
}

TEST(UserScheduleJson, RefusesWhatIsNoJsonAndSaysTheLine) {
  EXPECT_EQ(why(with("\"ranks\": 2,", "\"ranks\": 2")), "pair.json: line 6 is not JSON");
  EXPECT_EQ(why(""), "pair.json: line 1 is not JSON");
  EXPECT_EQ(why("[]"), "pair.json: is a list, not an object");
}

TEST(UserScheduleJson, RefusesWrongFieldsOfTheFile) {
  EXPECT_EQ(why(with("\"name\": \"pair\",", "")), "pair.json: 'name' is missing");
  EXPECT_EQ(why(with("\"pair\"", "7")), "pair.json: 'name' is the number 7, not a text");
  EXPECT_EQ(why(with("\"pair\"", "\"My pair\"")),
            "pair.json: the name \"My pair\" is not 1 to 64 lower-case letters, digits, '_', '-' or '.'");
  EXPECT_EQ(why(with("\"tutti_schedule\": 1", "\"tutti_schedule\": 2")),
            "pair.json: 'tutti_schedule' is 2, outside of 1 to 1");
  EXPECT_EQ(why(with("all_reduce", "allreduce")).substr(0, 57),
            "pair.json: the collective \"allreduce\" is none of all_redu");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 0")), "pair.json: 'ranks' is 0, outside of 1 to 4096");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 18446744073709551615")),
            "pair.json: 'ranks' is 18446744073709551615, outside of 1 to 4096");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 2.0")), "pair.json: 'ranks' is the number 2.0, not a whole number");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 3")), "pair.json: 'steps' has 2 lists, but 'ranks' is 3");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 2, \"root\": 0")),
            "pair.json: 'root' is given, but all_reduce has none");
  EXPECT_EQ(why(with("all_reduce\",", "broadcast\", \"root\": 2,")), "pair.json: 'root' is 2, outside of 0 to 1");
  EXPECT_EQ(why(with("\"ranks\": 2", "\"ranks\": 2, \"rank\": 2")), "pair.json: 'rank' is no field here");
  EXPECT_EQ(why(with("\"scratch\": 0", "\"scratch\": -1")),
            "pair.json: 'shape': 'scratch' is -1, outside of 0 to 65536");
  EXPECT_EQ(why(with(", \"message\": 1", "")), "pair.json: 'shape': 'message' is missing");
  EXPECT_EQ(why(with("\"shape\": {", "\"shape\": [{")), "pair.json: line 7 is not JSON");
}

TEST(UserScheduleJson, RefusesWrongStepsAndNamesRankAndStep) {
  EXPECT_EQ(why(with("\"send\", \"to\": 0", "\"push\", \"to\": 0")),
            "pair.json: rank 1, step 1: the verb \"push\" is none of send, recv, recv_reduce, reduce, copy and finish");
  EXPECT_EQ(why(with("\"to\": 1, ", "")), "pair.json: rank 0, step 1: 'to' is missing");
  EXPECT_EQ(why(with("\"to\": 1", "\"to\": \"1\"")),
            "pair.json: rank 0, step 1: 'to' is the text \"1\", not a whole number");
  EXPECT_EQ(why(with("\"to\": 1", "\"to\": -1")), "pair.json: rank 0, step 1: 'to' is -1, outside of 0 to 1048578");
  EXPECT_EQ(why(with("\"from\": 0", "\"to\": 0")), "pair.json: rank 1, step 2: 'to' is no field here");
  EXPECT_EQ(why(with("true", "1")), "pair.json: rank 1, step 2: 'incoming_first' is the number 1, not true or false");
  EXPECT_EQ(why(with("{\"verb\": \"finish\", \"dst\": \"out[0]\"}", "\"finish\"")),
            "pair.json: rank 0, step 3: is the text \"finish\", not an object");
  EXPECT_EQ(why(with("{\"verb\": \"finish\", \"dst\": \"out[0]\"}", "{\"dst\": \"out[0]\"}")),
            "pair.json: rank 0, step 3: 'verb' is missing");
  for (const char* slice : {"in", "in[]", "in[0", "input[0]", "in[-1]", "in[1..0]", "in[0..]", "in[0.1]", "in[0] ",
                            "in[99999999999]", "in[2147483648]", ""})
    EXPECT_EQ(why(with("\"in[0]\"", "\"" + std::string(slice) + "\"")),
              "pair.json: rank 0, step 1: 'a' is \"" + std::string(slice) +
                  "\", not a slice such as in[0], out[2..5] or scratch[1]");
  EXPECT_EQ(why(with("\"steps\": [\n    [", "\"steps\": [\n    7, [")),
            "pair.json: 'steps' has 3 lists, but 'ranks' is 2");
  EXPECT_EQ(why(R"({"tutti_schedule": 1, "name": "x", "collective": "all_reduce", "ranks": 1,
                    "shape": {"input": 1, "output": 1, "scratch": 0, "message": 1}, "steps": [{}]})"),
            "pair.json: rank 0: its steps are an object, not a list");
}

// Any change of any byte is taken, or refused in a sentence.
TEST(UserScheduleJson, TornFilesAreRefusedInASentence) {
  const uint64_t seed = 77;
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string torn(good);
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % torn.size();
      switch (random() % 4) {
        case 0: torn[at] = char(random() % 256); break;
        case 1: torn.erase(at, 1 + random() % 20); break;
        case 2: torn.insert(at, torn.substr(random() % torn.size(), random() % 40)); break;
        default: torn[at] = "0123456789\"[]{}:,-"[random() % 18]; break;
      }
    }
    try {
      UserSchedule schedule = parse_user_schedule(torn, "x.json");
      prove(schedule);
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("x.json: ")) << "seed " << seed << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace tutti
