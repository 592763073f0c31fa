// A caller's own function: folded from the left, on aligned memory, for elements of any size.
#include "reduce/custom.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "cases.h"

namespace tutti {
namespace {

// Numbers of `bytes` bytes, of which only the first says anything: in * 31 + inout, which is neither commutative nor
// associative. The others take what stands right.
struct Width {
  size_t bytes;
  size_t calls = 0;
  bool aligned = true;
};

void mix(const void* in, void* inout, size_t count, void* context) {
  Width& width = *static_cast<Width*>(context);
  ++width.calls;
  width.aligned &= reinterpret_cast<uintptr_t>(in) % 64 == 0 && reinterpret_cast<uintptr_t>(inout) % 64 == 0;
  const auto* left = static_cast<const uint8_t*>(in);
  auto* right = static_cast<uint8_t*>(inout);
  for (size_t i = 0; i < count; ++i)
    right[i * width.bytes] = uint8_t(left[i * width.bytes] * 31 + right[i * width.bytes]);
}

TEST(Custom, FoldsFromTheLeftForEveryElementSizeAndPlacement) {
  std::mt19937_64 random(seed);
  for (const size_t bytes : {size_t{1}, size_t{3}, size_t{12}, size_t{64}, size_t{100}, size_t{4095}, opaque_bytes_max})
    for (int n_inputs = 1; n_inputs <= reduce_inputs_max; ++n_inputs)
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1001}}) {
        if (count * bytes > 100'000) continue;
        std::vector<std::vector<uint8_t>> data(size_t(n_inputs), std::vector<uint8_t>(count * bytes + 1));
        for (auto& input : data)
          for (uint8_t& byte : input) byte = uint8_t(random());
        std::vector<uint8_t> expected(data.back().begin() + 1, data.back().end());
        for (size_t i = 0; i < count; ++i) {
          uint8_t folded = data[0][1 + i * bytes];
          for (size_t k = 1; k < data.size(); ++k) folded = uint8_t(folded * 31 + data[k][1 + i * bytes]);
          expected[i * bytes] = folded;
        }
        std::vector<const void*> inputs;
        for (const auto& input : data) inputs.push_back(input.data() + 1);
        Width width{bytes};
        uint8_t* const output = data[random() % data.size()].data() + 1;  // in place
        reduce_custom({mix, &width, bytes}, output, inputs.data(), n_inputs, count);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), output)) << bytes << " bytes, " << n_inputs;
        EXPECT_TRUE(width.aligned);
        EXPECT_EQ(width.calls > 0, count > 0 && n_inputs > 1);
      }
}

}  // namespace
}  // namespace tutti
