// The JSON of schedules that a user writes: every field's name and type is checked, and a wrong one is named.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "schedule/print.h"
#include "schedule/user_schedule.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr int64_t format_version = 1;

// The verbs as they are written, each with the fields that it needs.
struct VerbFields {
  std::string_view name;
  std::string_view peer;  // "to", "from" or none
  bool a, b, dst;
};
constexpr std::array<VerbFields, 6> verbs = {{
    {"send", "to", true, false, false},
    {"recv", "from", false, false, true},
    {"recv_reduce", "from", true, false, true},
    {"reduce", "", true, true, true},
    {"copy", "", true, false, true},
    {"finish", "", false, false, true},
}};
constexpr const VerbFields& fields_of(Verb verb) { return verbs[size_t(verb)]; }

// One JSON object and where it stands, for sentences.
class Object {
 public:
  Object(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) refuse(fmt::format("is {}, not an object", kind(json)));
  }

  [[noreturn]] void refuse(const std::string& what) const { throw Error(Code::invalid_argument, place_ + ": " + what); }
  bool has(std::string_view field) const { return json_.contains(field); }
  const Json& at(std::string_view field) const {
    const auto found = json_.find(field);
    if (found == json_.end()) refuse(fmt::format("'{}' is missing", field));
    return *found;
  }
  std::string text(std::string_view field) const {
    const Json& value = at(field);
    if (!value.is_string()) refuse(fmt::format("'{}' is {}, not a text", field, kind(value)));
    return value.get<std::string>();
  }
  int64_t number(std::string_view field, int64_t least, int64_t most) const {
    const Json& value = at(field);
    if (!value.is_number_integer()) refuse(fmt::format("'{}' is {}, not a whole number", field, kind(value)));
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(most);
    if (huge || value.get<int64_t>() < least || value.get<int64_t>() > most)
      refuse(fmt::format("'{}' is {}, outside of {} to {}", field, value.dump(), least, most));
    return value.get<int64_t>();
  }
  bool flag(std::string_view field) const {
    const Json& value = at(field);
    if (!value.is_boolean()) refuse(fmt::format("'{}' is {}, not true or false", field, kind(value)));
    return value.get<bool>();
  }
  const Json& list(std::string_view field) const {
    const Json& value = at(field);
    if (!value.is_array()) refuse(fmt::format("'{}' is {}, not a list", field, kind(value)));
    return value;
  }
  // "in[2]", "out[0..3]", "scratch[1]".
  Slice slice(std::string_view field) const {
    const std::string value = text(field);
    const std::optional<Slice> slice = parse(value);
    if (!slice) refuse(fmt::format("'{}' is \"{}\", not a slice such as in[0], out[2..5] or scratch[1]", field, value));
    return *slice;
  }
  void allow_only(std::initializer_list<std::string_view> fields) const {
    for (const auto& [key, value] : json_.items())
      if (std::find(fields.begin(), fields.end(), key) == fields.end())
        refuse(fmt::format("'{}' is no field here", key));
  }

  static std::string kind(const Json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return value.is_string() ? "the text " + text : value.is_number() ? "the number " + text : text;
  }

 private:
  static std::optional<Slice> parse(std::string_view text) {
    Slice slice;
    const size_t open = text.find('[');
    if (open == std::string_view::npos || !text.ends_with(']')) return std::nullopt;
    const std::string_view buffer = text.substr(0, open);
    if (buffer == "in") slice.buffer = Buffer::input;
    else if (buffer == "out") slice.buffer = Buffer::output;
    else if (buffer == "scratch") slice.buffer = Buffer::scratch;
    else return std::nullopt;
    const char* at = text.data() + open + 1;
    const char* const end = text.data() + text.size() - 1;
    uint32_t first = 0, last = 0;
    const auto head = std::from_chars(at, end, first);
    if (head.ec != std::errc()) return std::nullopt;
    last = first;
    at = head.ptr;
    if (end - at > 2 && at[0] == '.' && at[1] == '.') {
      const auto tail = std::from_chars(at + 2, end, last);
      if (tail.ec != std::errc()) return std::nullopt;
      at = tail.ptr;
    }
    if (at != end || last < first || last >= 1u << 31) return std::nullopt;
    slice.first = first;
    slice.count = last - first + 1;
    return slice;
  }

  const Json& json_;
  std::string place_;
};

Step parse_step(const Object& object, int64_t n) {
  const std::string name = object.text("verb");
  const auto row = std::find_if(verbs.begin(), verbs.end(), [&](const VerbFields& v) { return v.name == name; });
  if (row == verbs.end())
    object.refuse(fmt::format("the verb \"{}\" is none of send, recv, recv_reduce, reduce, copy and finish", name));
  Step step;
  step.verb = Verb(row - verbs.begin());
  const bool ordered = step.verb == Verb::recv_reduce;
  object.allow_only({"verb", row->peer.empty() ? "verb" : row->peer, row->a ? "a" : "verb", row->b ? "b" : "verb",
                     row->dst ? "dst" : "verb", ordered ? "incoming_first" : "verb"});
  // A rank that does not exist is the checker's to refuse, who says which chunk it concerns.
  if (!row->peer.empty()) step.peer = uint32_t(object.number(row->peer, 0, std::max<int64_t>(n, 1) + (1 << 20)));
  if (row->a) step.a = object.slice("a");
  if (row->b) step.b = object.slice("b");
  if (row->dst) step.dst = object.slice("dst");
  if (ordered && object.has("incoming_first")) step.incoming_first = object.flag("incoming_first");
  return step;
}

Shape parse_shape(const Object& object, Collective collective) {
  object.allow_only({"input", "output", "scratch", "message"});
  const auto chunks = [&](std::string_view field, int64_t least) {
    return uint32_t(object.number(field, least, int64_t(user_schedule_chunks_max)));
  };
  return {chunks("input", 1), chunks("output", 1), chunks("scratch", 0), chunks("message", 1),
          meaning(collective).blocks};
}

Collective parse_collective(const Object& object) {
  const std::string name = object.text("collective");
  const auto found = collective_named(name);
  if (found && std::find(planned_collectives.begin(), planned_collectives.end(), *found) != planned_collectives.end())
    return *found;
  std::string known;
  for (const Collective c : planned_collectives)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", tutti::name(c));
  object.refuse(fmt::format("the collective \"{}\" is none of {}", name, known));
}

std::string parse_name(const Object& object) {
  const std::string name = object.text("name");
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  if (name.empty() || name.size() > user_schedule_name_max || !std::all_of(name.begin(), name.end(), is_allowed))
    object.refuse(fmt::format("the name {} is not 1 to {} lower-case letters, digits, '_', '-' or '.'",
                              Json(name).dump(-1, ' ', false, Json::error_handler_t::replace), user_schedule_name_max));
  return name;
}

Schedule parse_rank(const Json& steps, size_t rank, std::string_view source, int64_t n) {
  if (!steps.is_array())
    throw Error(Code::invalid_argument,
                fmt::format("{}: rank {}: its steps are {}, not a list", source, rank, Object::kind(steps)));
  Schedule schedule;
  schedule.reserve(steps.size());
  for (size_t i = 0; i < steps.size(); ++i)
    schedule.push_back(parse_step(Object(steps[i], fmt::format("{}: rank {}, step {}", source, rank, i + 1)), n));
  return schedule;
}

Json parse_json(std::string_view json, std::string_view source) {
  try {
    return Json::parse(json);
  } catch (const Json::parse_error& error) {
    const std::string_view before = json.substr(0, std::min(error.byte, json.size()));
    throw Error(Code::invalid_argument,
                fmt::format("{}: line {} is not JSON", source, 1 + std::count(before.begin(), before.end(), '\n')));
  }
}

std::string step_json(const Step& step) {
  const VerbFields& fields = fields_of(step.verb);
  std::string text = fmt::format("{{\"verb\": \"{}\"", fields.name);
  if (!fields.peer.empty()) text += fmt::format(", \"{}\": {}", fields.peer, step.peer);
  if (fields.a) text += fmt::format(", \"a\": \"{}\"", to_text(step.a));
  if (fields.b) text += fmt::format(", \"b\": \"{}\"", to_text(step.b));
  if (fields.dst) text += fmt::format(", \"dst\": \"{}\"", to_text(step.dst));
  if (step.incoming_first) text += ", \"incoming_first\": true";
  return text + "}";
}

}  // namespace

UserSchedule parse_user_schedule(std::string_view json, std::string_view source) {
  const Json parsed = parse_json(json, source);
  const Object object(parsed, std::string(source));
  object.allow_only({"tutti_schedule", "name", "sentence", "collective", "ranks", "root", "shape", "steps"});
  object.number("tutti_schedule", format_version, format_version);
  UserSchedule schedule;
  schedule.source = source;
  schedule.name = parse_name(object);
  if (object.has("sentence")) schedule.sentence = object.text("sentence");
  schedule.collective = parse_collective(object);
  const int64_t n = object.number("ranks", 1, int64_t(user_schedule_ranks_max));
  if (object.has("root")) {
    if (!meaning(schedule.collective).rooted)
      object.refuse(fmt::format("'root' is given, but {} has none", tutti::name(schedule.collective)));
    schedule.root = int(object.number("root", 0, n - 1));
  }
  schedule.shape = parse_shape(Object(object.at("shape"), fmt::format("{}: 'shape'", source)), schedule.collective);
  const Json& ranks = object.list("steps");
  if (int64_t(ranks.size()) != n)
    object.refuse(fmt::format("'steps' has {} lists, but 'ranks' is {}", ranks.size(), n));
  for (size_t r = 0; r < ranks.size(); ++r) schedule.ranks.push_back(parse_rank(ranks[r], r, source, n));
  return schedule;
}

std::string to_json(const UserSchedule& schedule) {
  const Shape& shape = schedule.shape;
  std::string text = fmt::format("{{\n  \"tutti_schedule\": {},\n  \"name\": \"{}\",\n", format_version, schedule.name);
  if (!schedule.sentence.empty())
    text += fmt::format("  \"sentence\": {},\n",
                        Json(schedule.sentence).dump(-1, ' ', false, Json::error_handler_t::replace));
  text += fmt::format("  \"collective\": \"{}\",\n  \"ranks\": {},\n", tutti::name(schedule.collective), schedule.n());
  if (meaning(schedule.collective).rooted) text += fmt::format("  \"root\": {},\n", schedule.root);
  text +=
      fmt::format("  \"shape\": {{\"input\": {}, \"output\": {}, \"scratch\": {}, \"message\": {}}},\n  \"steps\": [",
                  shape.input, shape.output, shape.scratch, shape.message);
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    text += r > 0 ? ",\n    [" : "\n    [";
    const Schedule& steps = schedule.ranks[r];
    for (size_t i = 0; i < steps.size(); ++i) text += (i > 0 ? ",\n     " : "") + step_json(steps[i]);
    text += "]";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace tutti
