// Reading the files of schedules that a user writes.
#include "engine/schedule_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "algorithms/catalog.h"
#include "base/error.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

bool serve_the_same(const UserSchedule& a, const UserSchedule& b) {
  return a.collective == b.collective && a.name == b.name && a.n() == b.n() && a.root == b.root;
}

}  // namespace

UserSchedule read_user_schedule(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (errno != 0) refuse(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return parse_user_schedule(text.str(), path);
}

std::vector<UserSchedule> load_user_schedules(std::string_view files) {
  std::vector<UserSchedule> loaded;
  for (size_t at = 0, end = 0; at < files.size(); at = end + 1) {
    end = std::min(files.find(':', at), files.size());
    if (end == at) continue;
    UserSchedule schedule = read_user_schedule(std::string(files.substr(at, end - at)));
    if (find_algorithm(schedule.collective, schedule.name) != nullptr)
      refuse(fmt::format("{}: the catalog has an algorithm {} already", schedule.source, schedule.full_name()));
    prove(schedule);
    for (const UserSchedule& other : loaded)
      if (serve_the_same(other, schedule))
        refuse(fmt::format("{}: {} has {} for {} ranks already", schedule.source, other.source, other.full_name(),
                           other.n()));
    loaded.push_back(std::move(schedule));
  }
  return loaded;
}

}  // namespace tutti
