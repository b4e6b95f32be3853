// Field report B63 (a): who may listen on a unix socket path, and what a dead owner leaves behind.
#include "net/unix_socket_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/raw_socket.h"
#include "support/temp_dir.h"

namespace moonpool::net {
namespace {

using testing::RawSocket;
using testing::TempDir;

// Listens on `path` in a process of its own, until killed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) {
    int ready[2];
    MP_CHECK(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
      const bool listening = guard && guard->Listen(8);
      const char byte = listening ? 'y' : 'n';
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    MP_CHECK(::read(ready[0], &byte, 1) == 1);
    listening_ = byte == 'y';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~OtherProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  bool listening() const { return listening_; }

 private:
  pid_t pid_ = 0;
  bool listening_ = false;
};

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode;
}

TEST(UnixSocketGuard, ServesOnASocketThatOnlyItsOwnerCanReach) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  const mode_t before = ::umask(0);  // field report B62 (e)
  {
    Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
    ASSERT_TRUE(guard) << guard.error().message;
    // Before it is published it stands in a directory that is closed to others.
    const std::filesystem::path private_directory = std::filesystem::path(guard->BindPath()).parent_path();
    EXPECT_EQ(ModeOf(private_directory) & 07777, 0700u);
    Result<int> fd = guard->Listen(8);
    ASSERT_TRUE(fd) << fd.error().message;
    EXPECT_TRUE(S_ISSOCK(ModeOf(path)));
    EXPECT_EQ(ModeOf(path) & 07777, 0600u);
    EXPECT_EQ(ModeOf(path + ".lock") & 07777, 0600u);
    EXPECT_FALSE(std::filesystem::exists(private_directory));
    EXPECT_TRUE(RawSocket::ToPath(path).connected());
    ::close(*fd);
  }
  ::umask(before);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(UnixSocketGuard::Acquire(path)) << "a restart must be possible";
}

TEST(UnixSocketGuard, ASecondInstanceIsRefusedByNameAndTheFirstIsLeftAlone) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  OtherProcess first(path);
  ASSERT_TRUE(first.listening());
  {
    const Result<UnixSocketGuard> second = UnixSocketGuard::Acquire(path);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
    EXPECT_NE(second.error().message.find(path), std::string::npos);
    EXPECT_TRUE(RawSocket::ToPath(path).connected());
  }
  EXPECT_TRUE(RawSocket::ToPath(path).connected()) << "also after the second has gone";
}

TEST(UnixSocketGuard, ASocketLeftByAKilledProcessIsReplaced) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  OtherProcess first(path);
  first.Kill();
  ASSERT_TRUE(S_ISSOCK(ModeOf(path)));
  EXPECT_FALSE(RawSocket::ToPath(path).connected());
  Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
  ASSERT_TRUE(guard) << guard.error().message;
  Result<int> fd = guard->Listen(8);
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
  ::close(*fd);
}

TEST(UnixSocketGuard, AProgramThatListensWithoutOurLockIsLeftAlone) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  OtherProcess first(path);
  std::filesystem::remove(path + ".lock");
  const Result<UnixSocketGuard> second = UnixSocketGuard::Acquire(path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
}

TEST(UnixSocketGuard, AnythingThatIsNotASocketIsRefusedAndKept) {
  TempDir directory;
  const std::string file = directory / "file";
  std::ofstream(file) << "precious";
  const std::string folder = directory / "folder";
  std::filesystem::create_directory(folder);
  const std::string link = directory / "link";
  std::filesystem::create_symlink(directory / "elsewhere", link);
  for (const std::string& path : {file, folder, link}) {
    const Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
    ASSERT_FALSE(guard) << path;
    EXPECT_EQ(guard.error().code, ErrorCode::kAlreadyExists);
    EXPECT_NE(guard.error().message.find(path), std::string::npos);
  }
  std::string text;
  std::ifstream(file) >> text;
  EXPECT_EQ(text, "precious");
  EXPECT_TRUE(std::filesystem::is_directory(folder));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST(UnixSocketGuard, ALockFileThatIsASymlinkIsNotFollowed) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  std::filesystem::create_symlink(directory / "victim", path + ".lock");
  EXPECT_FALSE(UnixSocketGuard::Acquire(path));
  EXPECT_FALSE(std::filesystem::exists(directory / "victim"));
}

TEST(UnixSocketGuard, ThePathMayHave107BytesAndNotOneMore) {
  TempDir directory;
  const std::string prefix = directory.path().string() + "/";
  const std::string longest = prefix + std::string(UnixSocketGuard::kPathBytesMax - prefix.size(), 'a');
  Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(longest);
  ASSERT_TRUE(guard) << guard.error().message;
  Result<int> fd = guard->Listen(8);
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_TRUE(RawSocket::ToPath(longest).connected());
  ::close(*fd);

  const Result<UnixSocketGuard> over = UnixSocketGuard::Acquire(longest + "a");
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(over.error().message.find("107"), std::string::npos);
  EXPECT_EQ(UnixSocketGuard::Acquire("").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(UnixSocketGuard::Acquire(prefix + "none/bus.sock").error().code, ErrorCode::kNotFound);
}

TEST(UnixSocketGuard, ADirectoryNameTooLongForTheBindPathStillWorks) {
  TempDir directory;
  // The private name is longer than a one-letter socket name, so the bind goes through /proc.
  const std::string prefix = directory.path().string() + "/";
  const std::string folder = prefix + std::string(UnixSocketGuard::kPathBytesMax - 2 - prefix.size(), 'd');
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/s";
  Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
  ASSERT_TRUE(guard) << guard.error().message;
  Result<int> fd = guard->Listen(8);
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
  EXPECT_EQ(ModeOf(path) & 07777, 0600u);
  ::close(*fd);
}

// As gRPC does it: binds by itself, with whatever permissions, and unlinks the name it knows when it ends.
TEST(UnixSocketGuard, AServerThatBindsByItselfIsPublishedUnderTheRealName) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
  ASSERT_TRUE(guard);
  EXPECT_EQ(guard->Publish().error().code, ErrorCode::kNotFound) << "nothing is bound yet";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(guard->BindPath().size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, guard->BindPath().data(), guard->BindPath().size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(fd, 8), 0);
  ASSERT_EQ(::chmod(guard->BindPath().c_str(), 0777), 0);
  const std::string bound_as = guard->BindPath();
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(guard->Publish());
  EXPECT_EQ(ModeOf(path) & 07777, 0600u);
  ::unlink(bound_as.c_str());
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
  ::close(fd);
}

TEST(UnixSocketGuard, DoesNotRemoveASocketThatSomebodyElsePutInItsPlace) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  const std::string other = directory / "other.sock";
  Result<UnixSocketGuard> second = UnixSocketGuard::Acquire(other);
  ASSERT_TRUE(second);
  Result<int> second_fd = second->Listen(8);
  ASSERT_TRUE(second_fd);
  {
    Result<UnixSocketGuard> guard = UnixSocketGuard::Acquire(path);
    ASSERT_TRUE(guard);
    Result<int> fd = guard->Listen(8);
    ASSERT_TRUE(fd);
    ::close(*fd);
    std::filesystem::rename(other, path);
  }
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
  ::close(*second_fd);
}

}  // namespace
}  // namespace moonpool::net
