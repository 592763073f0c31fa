// Reading IDX files through zlib, which reads plain files as well.
#include "idx.h"

#include <zlib.h>

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

namespace mlp {
namespace {

constexpr uint32_t images_magic = 0x803, labels_magic = 0x801;

// One open IDX file.
class IdxFile {
 public:
  IdxFile(const std::string& folder, const std::string& name) {
    path_ = folder + "/" + name;
    if (!std::filesystem::exists(path_)) path_ += ".gz";
    if (!std::filesystem::exists(path_))
      throw std::runtime_error(fmt::format("{}/{}: no such file, with or without .gz", folder, name));
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) fail("cannot be opened");
  }

  uint32_t number() {
    std::array<uint8_t, 4> b{};
    read(b);
    return uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | b[3];
  }
  void read(std::span<uint8_t> target) {
    size_t done = 0;
    while (done < target.size()) {
      const auto want = unsigned(std::min<size_t>(target.size() - done, 1u << 20));
      const int got = gzread(file_.get(), target.data() + done, want);
      if (got <= 0) fail(fmt::format("ends after {} of {} bytes", done, target.size()));
      done += size_t(got);
    }
  }
  void expect_magic(uint32_t wanted) {
    const uint32_t magic = number();
    if (magic != wanted) fail(fmt::format("begins with {:#010x}, not {:#010x}", magic, wanted));
  }
  void expect_end() {
    uint8_t more = 0;
    if (gzread(file_.get(), &more, 1) != 0) fail("goes on after its last item");
  }
  [[noreturn]] void fail(const std::string& why) const { throw std::runtime_error(path_ + ": " + why); }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

constexpr uint32_t items_max = 100'000'000, side_max = 4096;

}  // namespace

Dataset load_mnist(const std::string& folder, const std::string& part) {
  Dataset data;
  IdxFile images(folder, part + "-images-idx3-ubyte");
  images.expect_magic(images_magic);
  const uint32_t n = images.number(), rows = images.number(), columns = images.number();
  if (n > items_max || rows == 0 || rows > side_max || columns == 0 || columns > side_max)
    images.fail(fmt::format("says {} images of {} x {}", n, rows, columns));
  data.n = n;
  data.pixels_per_image = size_t(rows) * columns;
  data.pixels.resize(data.n * data.pixels_per_image);
  images.read(data.pixels);
  images.expect_end();

  IdxFile labels(folder, part + "-labels-idx1-ubyte");
  labels.expect_magic(labels_magic);
  if (const uint32_t labelled = labels.number(); labelled != n)
    labels.fail(fmt::format("has {} labels for {} images", labelled, n));
  data.labels.resize(data.n);
  labels.read(data.labels);
  labels.expect_end();
  for (size_t i = 0; i < data.n; ++i)
    if (data.labels[i] > 9) labels.fail(fmt::format("label {} is {}", i, data.labels[i]));
  return data;
}

}  // namespace mlp
