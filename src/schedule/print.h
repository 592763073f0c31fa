// Steps, schedules and plans as text for people.
#pragma once

#include <string>

#include "schedule/plan.h"

namespace tutti {

// "out[3]", "in[0..3]", "" for an absent slice.
std::string to_text(const Slice& slice);

// "recv_reduce from 2: out[1] = in[1] + message".
std::string to_text(const Step& step);

// "out[1] = finish(in[1] + from 2 + from 3), send to 0 4".
std::string to_text(const Plan& plan, const Fold& fold);

// One line per step, numbered from 1.
std::string to_text(const Schedule& schedule);
std::string to_text(const Plan& plan);

}  // namespace tutti
