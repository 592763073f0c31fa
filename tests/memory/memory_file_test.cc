// Memory files: sealed, mapped where asked, seen by everyone who maps them.
#include "memory/memory_file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "sanitizer.h"

namespace tutti {
namespace {

TEST(MemoryFile, KeepsItsSizeForEver) {
  const size_t bytes = 3 * page_bytes();
  const Fd file = make_memory_file("test", bytes, "test");
  EXPECT_TRUE(is_memory_file(file.get(), bytes));
  EXPECT_FALSE(is_memory_file(file.get(), bytes + 1));
  EXPECT_NE(::ftruncate(file.get(), off_t(page_bytes())), 0);
  EXPECT_NE(::ftruncate(file.get(), off_t(2 * bytes)), 0);
  EXPECT_TRUE(is_memory_file(file.get(), bytes));
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const Fd in(pipes[0]), out(pipes[1]);
  EXPECT_FALSE(is_memory_file(in.get(), 0));
}

TEST(MemoryFile, MappingsOfOneFileShareItsBytes) {
  const size_t page = page_bytes();
  const Fd file = make_memory_file("test", 4 * page, "test");
  const Mapping all(file.get(), 0, 4 * page, "test");
  Mapping part(file.get(), page, 2 * page, "test");
  part.touch(0, part.bytes());
  all.at(page)[7] = std::byte{42};
  EXPECT_EQ(part.at(0)[7], std::byte{42});
  const Mapping moved = std::move(part);
  EXPECT_FALSE(part.valid());
  moved.at(page)[1] = std::byte{43};
  EXPECT_EQ(all.at(2 * page)[1], std::byte{43});
}

TEST(MemoryFile, AMappingBeginsWhereItIsAsked) {
  for (const size_t alignment : {page_bytes(), size_t{1} << 16, size_t{1} << 21, size_t{1} << 26})
    for (const size_t pages : {size_t{1}, size_t{3}, size_t{1} << 10}) {
      const size_t bytes = pages * page_bytes();
      const Fd file = make_memory_file("test", bytes, "test");
      const Mapping mapping(file.get(), 0, bytes, "test", "", alignment);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping.data()) % alignment, 0u);
      std::memset(mapping.data(), 1, bytes);  // all of it is there
    }
}

// In a child, whose limits are its own.
int exit_code_of(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code() == Code::system_error ? error.what() : "another code";
  }
  return "no error";
}

TEST(MemoryFile, TooFewDescriptorsAreSaidWithTheRemedy) {
  if (test::sanitized) GTEST_SKIP() << "UBSan opens a pipe to look at a vtable, and finds no descriptor";
  EXPECT_EQ(exit_code_of([] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const std::string said = refusal([] { make_memory_file("test", 4096, "who"); });
    return said.find("who") == 0 && said.find("ulimit -n") != std::string::npos ? 0 : 1;
  }), 0);
}

TEST(MemoryFile, TooSmallAFileLimitIsSaidWithTheRemedy) {
  EXPECT_EQ(exit_code_of([] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string said = refusal([] { make_memory_file("test", 8192, "who", "; do this"); });
    return said.find("8192 bytes; do this") != std::string::npos ? 0 : 1;
  }), 0);
}

TEST(MemoryFile, TooLittleAddressSpaceIsSaidWithTheRemedy) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer needs the address space";
  EXPECT_EQ(exit_code_of([] {
    const size_t bytes = size_t{1} << 40;
    const Fd file = make_memory_file("test", bytes, "who");
    const rlimit space{size_t{1} << 34, size_t{1} << 34};
    ::setrlimit(RLIMIT_AS, &space);
    for (const size_t alignment : {size_t{0}, size_t{1} << 21}) {
      const std::string said = refusal([&] { Mapping(file.get(), 0, bytes, "who", "; do that", alignment); });
      if (said.find("ulimit -v") == std::string::npos || said.find("; do that") == std::string::npos) return 1;
    }
    return 0;
  }), 0);
}

}  // namespace
}  // namespace tutti
