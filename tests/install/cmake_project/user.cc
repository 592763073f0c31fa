// A C++ program against the installed library: three ranks in one process, driven by one thread in a group.
#include <cstdio>

#include <tutti/tutti.hpp>

int main() {
  std::vector<tutti::Communicator> ranks = tutti::Communicator::local(3);
  std::vector<float> values[3] = {{1, 2}, {3, 4}, {5, 6}};
  tutti::Group group;
  for (int r = 0; r < 3; ++r) ranks[size_t(r)].all_reduce(std::span(values[r]), tuttiSum);
  group.run();
  for (const std::vector<float>& v : values)
    if (v != std::vector<float>{9, 12}) return 1;
  std::puts("three ranks agree");
  return 0;
}
