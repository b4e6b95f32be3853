// Processes that die, and processes that share: after any end at any moment a visible object is whole, leftovers are
// swept, foreign files stay (field reports B22, B23, B25, B28a; class C5).
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "base/fault.h"
#include "bus/blobs/directory_store.h"
#include "crash/child_process.h"
#include "support/fake_clock.h"
#include "support/kv_objects.h"
#include "support/store_fixture.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::ChildProcess;
using testing::Conversation;
using testing::HeaderFor;
using testing::PayloadFor;
using testing::ReadFile;
using testing::WriteFile;

class StoreCrash : public testing::StoreFixture {
 protected:
  ChildProcess Start(const std::string& verb, uint64_t seed, uint64_t count, uint64_t exit_at = 0) const {
    std::vector<std::string> environment;
    if (exit_at > 0) environment.push_back("MOONPOOL_TEST_EXIT_AT=" + std::to_string(exit_at));
    return ChildProcess({MOONPOOL_STORE_WRITER, verb, Root(), Slots(), std::to_string(seed), std::to_string(count)},
                        environment);
  }
  void PlantForeignFiles() {
    WriteFile(Layout().Temp() / "download.part", "foreign");
    WriteFile(Layout().Temp() / "0123456789abcdef.x.kv", "foreign");
    WriteFile(Root() / "README", "foreign");
  }
  void ExpectForeignFilesUntouched() {
    for (const Path& path :
         {Layout().Temp() / "download.part", Layout().Temp() / "0123456789abcdef.x.kv", Root() / "README"}) {
      EXPECT_EQ(ReadFile(path), "foreign") << path;
      std::filesystem::remove(path);
    }
  }
  // Everything listed is whole and nothing else lies about.
  void ExpectWholeAndTidy() {
    const auto list = store_->List().value();
    std::set<Digest256> boundaries;
    for (const auto& summary : list) {
      ASSERT_FALSE(summary.problem) << *summary.problem;
      const auto header = store_->ReadHeader(summary.id);
      ASSERT_TRUE(header);
      EXPECT_EQ(FetchBytes(summary.id), PayloadFor(header->tokens));
      boundaries.insert(header->keys.begin(), header->keys.end());
      EXPECT_EQ(BlocksOf(header->tokens), header->keys.size()) << "the whole chain or nothing";
    }
    EXPECT_EQ(Names(Layout().Objects()).size(), 2 * list.size());
    clock_.Advance(std::chrono::hours(1));
    store_->Tick();
    EXPECT_EQ(store_->Stats()->aliases, boundaries.size());
    EXPECT_EQ(store_->Stats()->reserved_bytes, 0u);
    EXPECT_EQ(store_->Stats()->quarantined, 0u) << "a kill damages nothing";
    ExpectSane();
  }
};

TEST_F(StoreCrash, EndAtEveryCallLeavesAWholeStore) {  // B22, B28a
  Open();
  store_.reset();
  auto whole = Start("publish", 1, 2);
  const uint64_t calls = std::strtoull(whole.ReadLine().c_str(), nullptr, 10);
  ASSERT_EQ(whole.Wait(), 0);
  ASSERT_GT(calls, 100u);
  size_t absent = 0;
  size_t present = 0;
  for (uint64_t at = 1; at <= calls; ++at) {
    SCOPED_TRACE("ended at call " + std::to_string(at));
    std::filesystem::remove_all(Root());
    Open();
    const auto bystander = Conversation(99, 20);
    const ObjectId kept = Publish(bystander);
    store_.reset();
    PlantForeignFiles();
    auto child = Start("publish", 1, 2, at);
    const int status = child.Wait();
    // The calls vary a little with what stands there already.
    ASSERT_TRUE(status == fault::kExitStatus || (status == 0 && at > calls / 2)) << status;
    Open();
    (store_->Stats()->objects > 1 ? present : absent) += 1;
    EXPECT_EQ(FetchBytes(kept), PayloadFor(bystander));
    ExpectForeignFilesUntouched();
    ExpectWholeAndTidy();
    ASSERT_TRUE(TryPublish(Conversation(1, 48))) << "it goes on working";
    for (const auto& name : Names(Slots())) std::filesystem::remove(Slots() / name);  // the bus sweeps those
    if (HasFailure()) return;
  }
  EXPECT_GT(absent, 20u);
  EXPECT_GT(present, 20u);
}

TEST_F(StoreCrash, KillAtAnyMomentLeavesAWholeStore) {
  const uint64_t seed = std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  Open();
  PlantForeignFiles();
  quota_bytes_ = 400'000;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    store_.reset();
    {
      auto first = Start("churn", random(), 0);
      auto second = Start("churn", random(), 0);
      // Somewhere in the operation after so many others, which differs from run to run.
      for (uint64_t done = random() % 40; done > 0; --done) first.ReadLine();
      first.Kill();
      // Now and then the survivor goes on beside the dead one's leftovers.
      for (uint64_t done = round % 2 == 0 ? 60 : 0; done > 0; --done) second.ReadLine();
      ASSERT_TRUE(second.Running()) << "it found something wrong";
      second.Kill();
    }
    Open();
    const auto list = store_->List().value();
    for (const auto& summary : list) {
      ASSERT_FALSE(summary.problem) << *summary.problem;
      const auto header = store_->ReadHeader(summary.id).value();
      ASSERT_EQ(FetchBytes(summary.id), PayloadFor(header.tokens));
    }
    ASSERT_EQ(Names(Layout().Temp()).size(), 3u) << "two foreign files and our own lock";
    ASSERT_EQ(store_->CountBytes().value(), store_->Stats()->bytes);
    ASSERT_LE(store_->Stats()->bytes, 400'000u);
    for (const auto& name : Names(Slots())) std::filesystem::remove(Slots() / name);
  }
  ExpectForeignFilesUntouched();
  Open();
  ExpectWholeAndTidy();
}

TEST_F(StoreCrash, ReaderInAnotherProcessSeesWholeObjectsOnly) {  // B22
  Open();
  quota_bytes_ = 400'000;
  Open();
  auto reader = Start("read", 0, 6);
  ASSERT_EQ(reader.ReadLine(), "ready");
  for (uint64_t round = 0; round < 5; ++round) {
    auto writer = Start("churn", round, 150);
    EXPECT_EQ(writer.Wait(), 0);
  }
  reader.CloseInput();
  const uint64_t whole = std::strtoull(reader.ReadLine().c_str(), nullptr, 10);
  EXPECT_EQ(reader.Wait(), 0);
  EXPECT_GT(whole, 0u);
}

TEST_F(StoreCrash, FourWritersOfTheSameKeys) {  // B23
  Open();
  std::vector<std::unique_ptr<ChildProcess>> writers;
  for (int i = 0; i < 4; ++i) {
    writers.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{MOONPOOL_STORE_WRITER, "contend", Root(), Slots(), "1", "500"}));
  }
  for (auto& writer : writers) EXPECT_EQ(writer->Wait(), 0) << "every put is done or exists already";
  EXPECT_TRUE(std::filesystem::is_empty(Slots()));
  quota_bytes_ = 400'000;
  Open();
  EXPECT_GT(store_->Stats()->objects, 5u);
  ExpectWholeAndTidy();
}

TEST_F(StoreCrash, SurvivorSweepsWhatADeadBusLeft) {
  Open();
  store_.reset();
  auto whole = Start("publish", 1, 1);
  const uint64_t calls = std::strtoull(whole.ReadLine().c_str(), nullptr, 10);
  whole.Wait();
  std::filesystem::remove_all(Root());
  Open();  // this one lives through all that follows
  bool reserved_by_the_dead = false;
  for (uint64_t at = 1; at <= calls; at += 3) {
    SCOPED_TRACE("ended at call " + std::to_string(at));
    auto child = Start("publish", at, 1, at);
    child.Wait();
    reserved_by_the_dead = reserved_by_the_dead || store_->Stats()->reserved_bytes > 0;
    store_->Tick();
    EXPECT_EQ(store_->Stats()->reserved_bytes, 0u);
    ExpectSane();
    for (const auto& name : Names(Slots())) std::filesystem::remove(Slots() / name);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(reserved_by_the_dead);
  ExpectWholeAndTidy();
}

TEST_F(StoreCrash, FullTmpfsIsANamedReason) {  // B25: one MiB free, eight wanted
  // In a mount namespace of its own, in a child, so that nobody else sees the tiny file system.
  const Path mount_point = dir_ / "tiny";
  std::filesystem::create_directory(mount_point);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(77);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(77);
    if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=2m,mode=0700") != 0) _exit(77);
    const auto require = [](bool condition, int line) {
      if (!condition) std::fprintf(stderr, "store_crash_test.cc:%d failed\n", line), _exit(1);
    };
    DirectoryStore::Options options;
    options.root = mount_point / "store";
    options.quota_bytes = uint64_t{1} << 30;
    options.free_margin_bytes = 0;
    auto store = DirectoryStore::Open(files_, clock_, rng_, options).value();
    const auto kept = Conversation(1, 4000);  // 800 kB
    WriteFile(Slots() / "kept", PayloadFor(kept));
    const auto first = store->Publish({.header = HeaderFor(kept), .source = Slots() / "kept"}, nullptr);
    require(first.has_value(), __LINE__);
    require(store->Reserve(8u << 20).error().code == ErrorCode::kNoSpace, __LINE__);
    const uint64_t free_bytes = files_.FreeBytes(mount_point).value();
    const size_t descriptors = testing::OpenDescriptors();
    const std::string large(8u << 20, 'x');
    for (int repeat = 0; repeat < 100; ++repeat) {
      WriteFile(Slots() / "large", large);
      const auto receipt =
          store->Publish({.header = HeaderFor(Conversation(2, 40)), .source = Slots() / "large"}, nullptr);
      require(!receipt && receipt.error().code == ErrorCode::kNoSpace, __LINE__);
      require(!std::filesystem::exists(Slots() / "large"), __LINE__);
    }
    require(testing::OpenDescriptors() == descriptors, __LINE__);
    require(files_.FreeBytes(mount_point).value() == free_bytes, __LINE__);
    require(ReadFile(DirectoryLayout{options.root}.Payload(first->object)) == PayloadFor(kept), __LINE__);
    require(!store->BatchExists(ChainKeys(Conversation(2, 40))).value()[0], __LINE__);
    require(store->CountBytes().value() == store->Stats()->bytes, __LINE__);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not mount here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace moonpool::bus
