// Import of MSCCL's XML: the examples become proven schedules, what cannot become one is refused with its place.
#include "tools/schedule/msccl.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "schedule/check.h"
#include "tools/schedule/xml.h"

namespace tutti {
namespace {

std::string example(const std::string& name) {
  std::ifstream file(std::string(TUTTI_TEST_MSCCL) + "/" + name + ".xml");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

std::string why(const std::string& xml) {
  try {
    import_msccl(xml, "x.xml", "");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

std::string with(std::string text, std::string_view old_text, std::string_view new_text) {
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

struct Measured {
  const char* name;
  int n;
  int rounds;
  double bytes_sent;
};

TEST(Msccl, ExamplesBecomeProvenSchedules) {
  for (const Measured& expected : {Measured{"ring_all_reduce", 4, 6, 1.5},
                                   {"ring_all_reduce_two_channels", 3, 4, 4. / 3},
                                   {"recursive_doubling", 4, 2, 2},
                                   {"all_gather_both_ways", 4, 2, .75},
                                   {"all_pairs", 3, 2, 4. / 3},
                                   {"ring_reduce_scatter", 4, 3, .75},
                                   {"all_to_all_pairs", 3, 1, 2. / 3},
                                   {"chain_broadcast", 3, 2, 1}}) {
    UserSchedule schedule = import_msccl(example(expected.name), "x.xml", "");
    EXPECT_EQ(schedule.name, expected.name);
    EXPECT_EQ(schedule.n(), expected.n);
    prove(schedule);
    EXPECT_EQ(schedule.claim.rounds, expected.rounds) << expected.name;
    EXPECT_NEAR(schedule.claim.bytes_sent, expected.bytes_sent, 1e-9) << expected.name;
    EXPECT_EQ(parse_user_schedule(to_json(schedule), "x.json").ranks, schedule.ranks);
  }
}

TEST(Msccl, FusedStepsBecomeOnePassAgain) {
  const UserSchedule ring = import_msccl(example("ring_all_reduce"), "x.xml", "mine");
  EXPECT_EQ(ring.name, "mine");
  // s, rrs, rrs, rrcs, rcs, rcs, r.
  for (const Schedule& steps : ring.ranks) EXPECT_EQ(lower(steps, ring.shape, "", true).steps.size(), 7u);
}

TEST(Msccl, SeveralChannelsBetweenTwoRanksBecomeOneFifo) {
  const UserSchedule ring = import_msccl(example("ring_all_reduce_two_channels"), "x.xml", "");
  for (size_t r = 0; r < 3; ++r)
    EXPECT_EQ(std::count_if(ring.ranks[r].begin(), ring.ranks[r].end(),
                            [&](const Step& s) { return s.verb == Verb::send && s.peer == (r + 1) % 3; }),
              8);
  EXPECT_EQ(ring.claim.slots, 1);
}

// Two thread blocks a gpu, on two channels; `dependency` is what gpu 1 waits for before it takes the first one's.
std::string two_channels(std::string_view dependency) {
  return R"(<algo name="two" ngpus="2" coll="broadcast">
  <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>
    <tb id="1" send="1" recv="-1" chan="1">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>
    <tb id="2" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/></tb>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0">
    <tb id="0" send="-1" recv="0" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" )" +
         std::string(dependency) + R"( hasdep="1"/></tb>
    <tb id="1" send="-1" recv="0" chan="1">
      <step s="0" type="r" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>
  </gpu>
</algo>)";
}

TEST(Msccl, ChannelsAreMergedAsDependenciesAllow) {
  const UserSchedule free = import_msccl(two_channels(R"(depid="-1" deps="-1")"), "x.xml", "");
  EXPECT_EQ(free.ranks[1][0].dst, out(0));
  // The receiver takes the second channel first: so does the sender.
  const UserSchedule turned = import_msccl(two_channels(R"(depid="1" deps="0")"), "x.xml", "");
  EXPECT_EQ(turned.ranks[1][0].dst, out(1));
  // The sender insists on the other order.
  std::string contrary = two_channels(R"(depid="1" deps="0")");
  contrary = with(contrary, R"(srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1")",
                  R"(srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="0" deps="0")");
  EXPECT_EQ(why(contrary).substr(0, 101),
            "x.xml: the messages of several channels between two gpus cannot be received in the order in which the");
}

TEST(Msccl, RefusesWhatIsNoAlgorithm) {
  const std::string ring = example("ring_all_reduce");
  EXPECT_EQ(why("<algo"), "x.xml: line 1: a name is expected");
  EXPECT_EQ(why("<graph/>"), "x.xml: line 1: <graph> stands where <algo> is expected");
  EXPECT_EQ(why(with(ring, "ngpus=\"4\"", "ngpus=\"5\"")), "x.xml: line 2: ngpus=\"5\", but there are 4");
  EXPECT_EQ(why(with(ring, "coll=\"allreduce\"", "coll=\"custom\"")),
            "x.xml: line 2: coll=\"custom\" is none of allreduce, allgather, reduce_scatter, alltoall, broadcast");
  EXPECT_EQ(why(with(ring, "type=\"rrs\"", "type=\"rr\"")),
            "x.xml: line 6: type=\"rr\" is none of s, r, rcs, rrs, rrc, rrcs, cpy, re, nop");
  EXPECT_EQ(why(with(ring, "cnt=\"1\"", "cnt=\"one\"")), "x.xml: line 5: cnt=\"one\" is no whole number");
  EXPECT_EQ(why(with(ring, "srcoff=\"0\"", "srcoff=\"4\"")),
            "x.xml: line 5: srcoff=\"4\", cnt=\"1\": buffer i has 4 chunks");
  EXPECT_EQ(why(with(ring, " srcbuf=\"i\"", "")), "x.xml: line 5: <step> has no 'srcbuf'");
  EXPECT_EQ(why(with(ring, "srcbuf=\"i\"", "srcbuf=\"x\"")), "x.xml: line 5: srcbuf=\"x\" is none of i, o, s");
  EXPECT_EQ(why(with(ring, "send=\"1\"", "send=\"-1\"")), "x.xml: line 5: sends, but its tb has no send");
  EXPECT_EQ(why(with(ring, "send=\"1\"", "send=\"0\"")), "x.xml: line 4: gpu 0 talks to itself");
  EXPECT_EQ(why(with(ring, "step s=\"1\"", "step s=\"3\"")), "x.xml: line 6: s=\"3\", but it is step 1 of its tb");
  EXPECT_EQ(why(with(ring, "gpu id=\"1\"", "gpu id=\"2\"")),
            "x.xml: line 14: gpu id=\"2\", but it is gpu 1 of the file");
}

TEST(Msccl, RefusesWhatCannotRun) {
  const std::string ring = example("ring_all_reduce"), doubling = example("recursive_doubling");
  EXPECT_EQ(why(with(doubling, "depid=\"0\" deps=\"1\"", "depid=\"0\" deps=\"7\"")),
            "x.xml: gpu 0, tb 1, step 0: waits for gpu 0, tb 0, step 7, which does not exist");
  EXPECT_EQ(why(with(doubling, "hasdep=\"1\"", "hasdep=\"0\"")),
            "x.xml: gpu 0, tb 1, step 0: waits for gpu 0, tb 0, step 1, whose hasdep is 0");
  EXPECT_EQ(why(with(ring, "send=\"1\" recv=\"3\"", "send=\"2\" recv=\"3\"")),
            "x.xml: gpu 0 sends 0 messages to gpu 1 on channel 0, which receives 6");
  EXPECT_EQ(why(with(doubling, "dstoff=\"0\" cnt=\"2\"", "dstoff=\"0\" cnt=\"1\"")),
            "x.xml: gpu 0, tb 0, step 0 sends 1 chunks where gpu 1, tb 0, step 1 receives 2");
  // Both gpus receive before they send.
  EXPECT_EQ(why(R"(<algo name="circle" ngpus="2" coll="allreduce">
  <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
    <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
  <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
    <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
</algo>)")
                .substr(0, 64),
            "x.xml: steps wait for each other for ever: gpu 0, tb 0, step 0 w");
}

TEST(Msccl, RefusesWrongResults) {
  const std::string ring = example("ring_all_reduce");
  EXPECT_EQ(why(with(ring, "type=\"rrs\" srcbuf=\"i\" srcoff=\"3\"", "type=\"rrs\" srcbuf=\"i\" srcoff=\"2\"")),
            "x.xml: gpu 0, tb 0, step 1: adds chunk 3 to chunk 2");
  EXPECT_EQ(
      why(with(example("all_pairs"), "type=\"re\" srcbuf=\"s\" srcoff=\"0\"", "type=\"re\" srcbuf=\"s\" srcoff=\"5\"")),
      "x.xml: gpu 0, tb 2, step 0: reads chunk 5 of s, which holds nothing yet");
  const std::string lacking = why(with(ring, "type=\"rrcs\"", "type=\"rcs\""));
  EXPECT_EQ(lacking.substr(0, 26), "x.xml, translated: rank 2,") << lacking;
  EXPECT_EQ(why(with(example("all_to_all_pairs"), "srcoff=\"2\"", "srcoff=\"1\"")).substr(0, 62),
            "x.xml: all_to_all divides the block of a rank into 2 chunks an");
}

// Any change of any byte is taken, or refused in a sentence.
TEST(Msccl, TornFilesAreRefusedInASentence) {
  const uint64_t seed = 99;
  std::mt19937_64 random(seed);
  int refused = 0;
  for (const char* name : {"all_pairs", "recursive_doubling", "all_gather_both_ways", "all_to_all_pairs"}) {
    const std::string whole = example(name);
    for (int i = 0; i < 500; ++i) {
      std::string torn = whole;
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
        const size_t at = random() % torn.size();
        switch (random() % 4) {
          case 0: torn[at] = char(random() % 256); break;
          case 1: torn.erase(at, 1 + random() % 20); break;
          case 2: torn.insert(at, torn.substr(random() % torn.size(), random() % 40)); break;
          default: torn[at] = "0123456789\"<>/-"[random() % 15]; break;
        }
      }
      const std::string sentence = why(torn);
      EXPECT_TRUE(sentence.empty() || sentence.starts_with("x.xml")) << "seed " << seed << ": " << sentence;
      refused += !sentence.empty();
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Xml, IsReadWithCommentsEntitiesAndNesting) {
  const XmlElement root =
      parse_xml("<?xml version='1.0'?>\n<!-- <no> -->\n<a x=\"1 &lt; 2\" y='\"'>\n <b/><c></c></a>\n", "f");
  EXPECT_EQ(root.name, "a");
  EXPECT_EQ(*root.attribute("x"), "1 < 2");
  EXPECT_EQ(*root.attribute("y"), "\"");
  EXPECT_EQ(root.attribute("z"), nullptr);
  ASSERT_EQ(root.children.size(), 2u);
  EXPECT_EQ(root.children[1].name, "c");
  EXPECT_EQ(root.children[1].line, 4);
}

TEST(Xml, RefusalsNameTheLine) {
  const auto refusal = [](const std::string& text) {
    try {
      parse_xml(text, "f");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(""), "f: line 1: '<' is expected");
  EXPECT_EQ(refusal("<a>\n<b>\n</a>"), "f: line 3: </a> ends <b> of line 2");
  EXPECT_EQ(refusal("<a>\n"), "f: line 2: <a> of line 1 does not end");
  EXPECT_EQ(refusal("<a/><b/>"), "f: line 1: something follows the last element");
  EXPECT_EQ(refusal("<a x=1/>"), "f: line 1: a value in quotes is expected");
  EXPECT_EQ(refusal("<a x='1' x='2'/>"), "f: line 1: 'x' is given twice");
  EXPECT_EQ(refusal("<a x='1/>"), "f: line 1: a value does not end");
  EXPECT_EQ(refusal("<!-- <a/>"), "f: line 1: a comment does not end");
  EXPECT_EQ(refusal("<a>text</a>"), "f: line 1: '<' is expected");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_EQ(refusal(deep), "f: line 1: elements are nested more than 32 deep");
}

}  // namespace
}  // namespace tutti
