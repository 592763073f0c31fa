// Steps and passes as one reads them.
#include "schedule/print.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Print, WritesEachVerb) {
  const Schedule schedule = {{Verb::send, false, 3, in(0), {}, {}},
                             {Verb::recv, false, 2, {}, {}, scratch(1, 3)},
                             {Verb::recv_reduce, false, 1, in(2), {}, out(2)},
                             {Verb::recv_reduce, true, 1, in(2), {}, out(2)},
                             {Verb::reduce, false, 0, in(0), out(0), out(0)},
                             {Verb::copy, false, 0, in(0, 2), {}, out(0, 2)},
                             {Verb::finish, false, 0, {}, {}, out(4)}};
  EXPECT_EQ(to_text(schedule),
            "   1  send in[0] to 3\n"
            "   2  recv scratch[1..3] from 2\n"
            "   3  recv_reduce out[2] = in[2] + message of 1\n"
            "   4  recv_reduce out[2] = message of 1 + in[2]\n"
            "   5  reduce out[0] = in[0] + out[0]\n"
            "   6  copy out[0..1] = in[0..1]\n"
            "   7  finish out[4]\n");
}

TEST(Print, WritesAPassInTheOrderOfItsOperands) {
  const Plan plan{
      "", {1, 1, 0, 1}, 1, {{in(0), out(0), 0, 2, 2, 1, true}, {{}, out(0), 4, 1, 0, 0, false}}, {4, 5, 6, 7, 8}};
  EXPECT_EQ(to_text(plan), "   1  out[0] = finish(from 4 + in[0] + from 5), send to 6 7\n   2  out[0] = from 8\n");
}

}  // namespace
}  // namespace tutti
