// Errors: phrases, system errors, descriptors.
#include "base/error.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

#include "base/fd.h"

namespace tutti {
namespace {

TEST(Error, EveryCodeHasItsPhrase) {
  for (int code = 0; code <= int(Code::unsupported); ++code) EXPECT_STRNE(phrase(Code(code)), phrase(Code(-1)));
}

TEST(Error, ASystemErrorSaysCallAndReason) {
  EXPECT_STREQ(system_error("cannot open x", ENOENT).what(), "cannot open x: No such file or directory (errno 2)");
}

TEST(Fd, ClosesWhatItOwnsAndOnlyThat) {
  int raw = -1;
  {
    Fd a(::open("/dev/null", O_RDONLY));
    raw = a.get();
    Fd b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_EQ(b.get(), raw);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

}  // namespace
}  // namespace tutti
