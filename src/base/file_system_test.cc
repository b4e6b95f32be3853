#include "base/file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/fault.h"
#include "support/temp_dir.h"

namespace moonpool {
namespace {

using testing::TempDir;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(PosixFileSystem, WritesAndReadsBack) {
  TempDir dir;
  PosixFileSystem files;
  {
    auto file = files.Create(dir / "a").value();
    ASSERT_TRUE(file->Append(Bytes("hello ")));
    ASSERT_TRUE(file->Append(Bytes("world")));
    ASSERT_TRUE(file->Close());
  }
  EXPECT_EQ(ReadWholeFile(files, dir / "a", 100).value(), "hello world");
  EXPECT_EQ(ReadWholeFile(files, dir / "a", 5).error().code, ErrorCode::kQuota);
  EXPECT_EQ(files.Info(dir / "a")->permissions, 0600u);
  EXPECT_EQ(files.Create(dir / "a").error().code, ErrorCode::kAlreadyExists);
  std::byte tail[20];
  EXPECT_EQ(files.Open(dir / "a").value()->ReadExactly(6, tail).error().code, ErrorCode::kCorrupt);
}

TEST(PosixFileSystem, OpensNothingButRegularFiles) {
  TempDir dir;
  PosixFileSystem files;
  std::ofstream(dir / "target") << "x";
  ASSERT_EQ(symlink((dir / "target").c_str(), (dir / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "fifo", "."}) {
    EXPECT_EQ(files.Open(dir / name).error().code, ErrorCode::kUnsupported) << name;
  }
  EXPECT_EQ(files.Open(dir / "absent").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(files.OpenOrCreate(dir / "link"));
}

TEST(PosixFileSystem, MakesDirectoriesPrivateWhateverTheUmask) {
  TempDir dir;
  PosixFileSystem files;
  const mode_t old = umask(0);
  EXPECT_TRUE(files.MakeDirectories(dir / "x/y/z"));
  umask(old);
  EXPECT_EQ(files.Info(dir / "x/y")->permissions, 0700u);
  EXPECT_TRUE(files.MakeDirectories(dir / "x/y/z")) << "an existing directory is fine";
  std::ofstream(dir / "file") << "x";
  EXPECT_FALSE(files.MakeDirectories(dir / "file/z"));
}

TEST(PosixFileSystem, CopiesAndLinksAndRefusesTakenNames) {
  TempDir dir;
  PosixFileSystem files;
  std::ofstream(dir / "from") << std::string(3'000'000, 'k');
  EXPECT_TRUE(files.CloneOrCopy(dir / "from", dir / "copy"));
  EXPECT_EQ(ReadWholeFile(files, dir / "copy", 1 << 30).value(), std::string(3'000'000, 'k'));
  EXPECT_EQ(files.CloneOrCopy(dir / "from", dir / "copy").error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(files.Link(dir / "from", dir / "linked"));
  EXPECT_EQ(files.Info(dir / "from")->links, 2u);
  EXPECT_EQ(files.Link(dir / "from", dir / "linked").error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(files.WriteSymlink("record", dir / "symlink"));
  EXPECT_EQ(files.WriteSymlink("other", dir / "symlink").error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(files.ReadSymlink(dir / "symlink").value(), "record");
}

TEST(PosixFileSystem, LocksExcludeEachOther) {
  TempDir dir;
  PosixFileSystem files;
  auto first = files.OpenOrCreate(dir / "lock").value();
  auto second = files.OpenOrCreate(dir / "lock").value();
  ASSERT_TRUE(first->TryLock(File::LockKind::kExclusive));
  EXPECT_EQ(second->TryLock(File::LockKind::kShared).error().code, ErrorCode::kBusy);
  first->Unlock();
  EXPECT_TRUE(second->TryLock(File::LockKind::kShared));
  first.reset();
}

TEST(WriteWholeFile, LeavesTheOldContentWhenAnyStepFails) {
  TempDir dir;
  PosixFileSystem files;
  ASSERT_TRUE(WriteWholeFile(files, dir / "state", "old", "t"));
  int failures = 0;
  for (uint64_t n = 1;; ++n) {
    fault::FailNth(n, ErrorCode::kNoSpace);
    const auto result = WriteWholeFile(files, dir / "state", "new", "t");
    const bool fired = fault::Fired().has_value();
    fault::Disarm();
    if (!fired) break;
    ++failures;
    EXPECT_FALSE(result);
    EXPECT_EQ(ReadWholeFile(files, dir / "state", 100).value(), "old");
    EXPECT_EQ(files.List(dir.path())->size(), 1u) << "no temporary file is left";
  }
  EXPECT_GE(failures, 5);
  EXPECT_EQ(ReadWholeFile(files, dir / "state", 100).value(), "new");
}

}  // namespace
}  // namespace moonpool
