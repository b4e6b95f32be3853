// The parts of a stage that need no model server: scratch folders, child processes, the search for files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "app/swarm/child_process.h"
#include "app/swarm/scratch_directory.h"
#include "app/swarm/server_files.h"
#include "support/temp_dir.h"

namespace moonpool::app {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

size_t Entries(const Path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(ScratchDirectory, IsPrivateAndGoesWithItsContent) {
  TempDir parent;
  SystemRng rng;
  {
    auto scratch = ScratchDirectory::Make(rng, {parent.path()});
    ASSERT_TRUE(scratch.has_value()) << scratch.error().message;
    struct stat info {};
    ASSERT_EQ(stat(scratch->path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    fs::create_directories(scratch->path() / "a" / "b");
    ScratchDirectory moved = std::move(*scratch);
    EXPECT_EQ(Entries(parent.path()), 1u);
  }
  EXPECT_EQ(Entries(parent.path()), 0u);
}

TEST(ScratchDirectory, FallsBackToTheNextPlace) {
  TempDir parent;
  SystemRng rng;
  auto scratch = ScratchDirectory::Make(rng, {parent / "missing", parent.path()});
  ASSERT_TRUE(scratch.has_value());
  EXPECT_EQ(scratch->path().parent_path(), parent.path());
  const auto nowhere = ScratchDirectory::Make(rng, {parent / "missing"});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_NE(nowhere.error().message.find("missing"), std::string::npos);
}

TEST(ScratchDirectory, RemovesWhatAKilledProcessLeftAndNothingElse) {
  TempDir parent;
  SystemRng rng;
  const auto living = ScratchDirectory::Make(rng, {parent.path()});
  fs::create_directories(parent / "moonpool-swarm-dead" / "store");
  std::ofstream(parent / "moonpool-swarm-dead" / "lock");
  fs::create_directories(parent / "moonpool-swarm-young");  // made a moment ago: its lock is not there yet
  fs::create_directories(parent / "somebody-else");
  std::ofstream(parent / "somebody-else" / "lock");
  const auto next = ScratchDirectory::Make(rng, {parent.path()});
  EXPECT_FALSE(fs::exists(parent / "moonpool-swarm-dead"));
  EXPECT_TRUE(fs::exists(parent / "moonpool-swarm-young"));
  EXPECT_TRUE(fs::exists(parent / "somebody-else"));
  EXPECT_TRUE(fs::exists(living->path()));
}

class ChildProcessTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<ChildProcess>> Start(std::vector<std::string> arguments) {
    return ChildProcess::Start({.name = "child", .arguments = std::move(arguments), .log = folder_ / "log"},
                               interrupts_, clock_);
  }
  Result<std::unique_ptr<ChildProcess>> Shell(const std::string& script) { return Start({"/bin/sh", "-c", script}); }
  Deadline Soon() { return Deadline(clock_, std::chrono::seconds(60)); }  // a hang limit

  SystemClock clock_;
  TempDir folder_;
  InterruptWatch interrupts_;
};

TEST_F(ChildProcessTest, SaysLinesAndEnds) {
  auto child = Shell("echo one; echo two; exec tail -f /dev/null");
  ASSERT_TRUE(child.has_value()) << child.error().message;
  EXPECT_EQ(*(*child)->ReadLine(Soon()), "one");
  EXPECT_EQ(*(*child)->ReadLine(Soon()), "two");
  EXPECT_TRUE((*child)->Running());
  (*child)->Stop(std::chrono::seconds(60));
  EXPECT_FALSE((*child)->Running());
  EXPECT_EQ(kill((*child)->pid(), 0), -1) << "reaped";
}

TEST_F(ChildProcessTest, IsKilledWhenItDoesNotListen) {
  auto child = Shell("trap '' TERM; echo ready; while :; do read line < /dev/zero; done");
  ASSERT_TRUE(child.has_value());
  ASSERT_EQ(*(*child)->ReadLine(Soon()), "ready");
  (*child)->Stop(std::chrono::milliseconds(20));
  EXPECT_FALSE((*child)->Running());
}

TEST_F(ChildProcessTest, ThatEndsEarlyShowsItsLog) {
  auto child = Shell("echo the reason is here >&2; exit 3");
  ASSERT_TRUE(child.has_value());
  const auto line = (*child)->ReadLine(Soon());
  ASSERT_FALSE(line.has_value());
  EXPECT_EQ(line.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(line.error().message.find("the reason is here"), std::string::npos);
}

TEST_F(ChildProcessTest, ThatCannotBeRunSaysSo) {
  auto child = Start({(folder_ / "no such program").string()});
  ASSERT_TRUE(child.has_value());
  const auto line = (*child)->ReadLine(Soon());
  ASSERT_FALSE(line.has_value());
  EXPECT_NE(line.error().message.find("cannot be run"), std::string::npos);
}

TEST_F(ChildProcessTest, KeepsADeadline) {
  auto child = Shell("exec tail -f /dev/null");
  ASSERT_TRUE(child.has_value());
  const auto line = (*child)->ReadLine(Deadline(clock_, std::chrono::milliseconds(5)));
  ASSERT_FALSE(line.has_value());
  EXPECT_EQ(line.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(ChildProcessTest, IsNotTouchedByOurSettingsNorByOurTerminal) {
  setenv("MOONPOOL_STATE", "ours", 1);
  auto child = Shell("echo \"[$MOONPOOL_STATE]\"; ps -o pgid= $$ 2>/dev/null || echo $$");
  unsetenv("MOONPOOL_STATE");
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(*(*child)->ReadLine(Soon()), "[]");
  EXPECT_EQ(getpgid((*child)->pid()), (*child)->pid());
}

// What Ctrl-C does. The process that is interrupted is a child of the test's, because it ends.
TEST(InterruptWatchDeathTest, StopsChildrenAndRemovesTheFolder) {
  GTEST_FLAG_SET(death_test_style, "fast");  // by fork: the folder must be the same in both
  TempDir parent;
  const Path log = parent / "log";
  const Path pids = parent / "pids";
  const Path folder = parent / "scratch";
  EXPECT_EXIT(
      {
        InterruptWatch interrupts;
        SystemClock clock;
        fs::create_directories(folder / "slots");
        interrupts.SetDirectory(folder);
        auto child = ChildProcess::Start(
            {.name = "child", .arguments = {"/bin/sh", "-c", "echo ready; exec tail -f /dev/null"}, .log = log},
            interrupts, clock);
        if ((*child)->ReadLine(Deadline(clock, std::chrono::seconds(60)))) {
          std::ofstream(pids) << (*child)->pid();
          kill(getpid(), SIGINT);
        }
        Mutex mutex;
        CondVar never;
        MutexLock lock(mutex);
        while (true) never.Wait(mutex);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "interrupted");
  EXPECT_FALSE(fs::exists(folder));
  pid_t child = 0;
  std::ifstream(pids) >> child;
  ASSERT_GT(child, 0);
  EXPECT_EQ(kill(child, 0), -1) << "the child lives on";
}

TEST(ServerFiles, ComeFromFlagsThenTheVariableThenTheCheckout) {
  TempDir root;
  for (const char* state : {"flag", "variable", "checkout/.state"}) {
    fs::create_directories(root / state / "venv" / "bin");
    fs::create_directories(root / state / "models");
    const Path python = root / state / "venv" / "bin" / "python";
    std::ofstream{python};
    fs::permissions(python, fs::perms::owner_all);
    std::ofstream(root / state / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  const Path start = root / "checkout" / "build" / "release";
  fs::create_directories(start);
  const auto state_of = [](const Result<ServerFiles>& files) {
    return files ? files->model.parent_path().parent_path() : Path(files.error().message);
  };
  const std::string variable = (root / "variable").string();
  const std::string flag = (root / "flag").string();
  EXPECT_EQ(state_of(FindServerFiles({.state = flag}, variable, {start})), root / "flag");
  EXPECT_EQ(state_of(FindServerFiles({}, variable, {start})), root / "variable");
  EXPECT_EQ(state_of(FindServerFiles({}, std::nullopt, {start})), root / "checkout" / ".state");
  EXPECT_EQ(FindServerFiles({.python = "/bin/sh"}, variable, {})->python, "/bin/sh");
}

TEST(ServerFiles, ThatAreMissingNameTheNextStep) {
  TempDir root;
  const auto files = FindServerFiles({.state = root.path().string()}, std::nullopt, {});
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code, ErrorCode::kNotFound);
  EXPECT_NE(files.error().message.find("make setup"), std::string::npos);
  const auto model = FindServerFiles({.state = root.path().string(), .python = "/bin/sh"}, std::nullopt, {});
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().message.find("SmolLM2"), std::string::npos);
  EXPECT_NE(model.error().message.find("make setup"), std::string::npos);
}

}  // namespace
}  // namespace moonpool::app
