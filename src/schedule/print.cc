// Steps, schedules and plans as text.
#include "schedule/print.h"

#include <fmt/format.h>

namespace tutti {

std::string to_text(const Slice& slice) {
  if (slice.count == 0) return "";
  std::string text = slice.buffer == Buffer::input ? "in[" : slice.buffer == Buffer::output ? "out[" : "scratch[";
  text += std::to_string(slice.first);
  if (slice.count > 1) text += ".." + std::to_string(slice.first + slice.count - 1);
  return text + "]";
}

std::string to_text(const Step& step) {
  const std::string a = to_text(step.a), b = to_text(step.b), dst = to_text(step.dst);
  switch (step.verb) {
    case Verb::send: return fmt::format("send {} to {}", a, step.peer);
    case Verb::recv: return fmt::format("recv {} from {}", dst, step.peer);
    case Verb::recv_reduce:
      if (step.incoming_first) return fmt::format("recv_reduce {} = message of {} + {}", dst, step.peer, a);
      return fmt::format("recv_reduce {} = {} + message of {}", dst, a, step.peer);
    case Verb::reduce: return fmt::format("reduce {} = {} + {}", dst, a, b);
    case Verb::copy: return fmt::format("copy {} = {}", dst, a);
    case Verb::finish: return fmt::format("finish {}", dst);
  }
  return "no verb";
}

std::string to_text(const Plan& plan, const Fold& fold) {
  std::string sum;
  for (uint32_t place = 0, next = 0; place < fold.n_from + (fold.a.count > 0 ? 1u : 0u); ++place) {
    if (place > 0) sum += " + ";
    if (fold.a.count > 0 && place == fold.a_place)
      sum += to_text(fold.a);
    else
      sum += fmt::format("from {}", plan.from(fold)[next++]);
  }
  if (fold.b.count > 0) sum += " + " + to_text(fold.b);
  if (fold.finish) sum = "finish(" + sum + ")";
  std::string text = fold.dst.count > 0 ? to_text(fold.dst) + " = " + sum : sum;
  if (fold.n_to > 0) text += ", send to";
  for (uint32_t peer : plan.to(fold)) text += fmt::format(" {}", peer);
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (size_t i = 0; i < schedule.size(); ++i) text += fmt::format("{:4}  {}\n", i + 1, to_text(schedule[i]));
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.steps.size(); ++i) text += fmt::format("{:4}  {}\n", i + 1, to_text(plan, plan.steps[i]));
  return text;
}

}  // namespace tutti
