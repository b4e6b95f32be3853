#include "bus/keys/model_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fault.h"
#include "bus/keys/block_key.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

constexpr size_t kModelBytes = 3'000'000;  // three reads

class ModelDigestTest : public ::testing::Test {
 protected:
  ModelDigestTest() { SettleFiles(); }

  // The clock far behind every change time: what was hashed may be remembered.
  void SettleFiles() { clock_.SetWallMs(SystemClock().WallNowMs() + 3'600'000); }

  Path Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }

  // The digest, and whether the file was read for it.
  Result<Digest256> Of(ModelDigests& digests, const std::vector<Path>& shards) {
    read_ = false;
    return digests.Of(shards, [this](uint64_t, uint64_t) { read_ = true; });
  }

  testing::TempDir dir_;
  PosixFileSystem files_;
  testing::FakeClock clock_;
  SeededRng rng_{7};
  Path memory_ = dir_ / "state/digests";
  bool read_ = false;
};

TEST_F(ModelDigestTest, IsTheDigestOfTheFileAndIsRemembered) {
  const std::string bytes(kModelBytes, 'm');
  const Path model = Write("model", bytes);
  ModelDigests digests(files_, clock_, rng_, memory_);
  std::vector<std::pair<uint64_t, uint64_t>> steps;
  EXPECT_EQ(digests.Of({model}, [&](uint64_t done, uint64_t total) { steps.emplace_back(done, total); }),
            Sha256Of(bytes));
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.back(), std::pair(uint64_t{kModelBytes}, uint64_t{kModelBytes}));

  EXPECT_EQ(Of(digests, {model}), Sha256Of(bytes));
  EXPECT_FALSE(read_);
  ModelDigests after_restart(files_, clock_, rng_, memory_);
  EXPECT_EQ(Of(after_restart, {model}), Sha256Of(bytes));
  EXPECT_FALSE(read_) << "the state root remembers";
}

TEST_F(ModelDigestTest, CoversAllShardsInOrder) {
  const Path a = Write("a", "aaa"), b = Write("b", "bbb"), joined = Write("joined", "aaabbb");
  ModelDigests digests(files_, clock_, rng_, memory_);
  const Digest256 ab = digests.Of({a, b}).value();
  EXPECT_NE(ab, digests.Of({b, a}).value());
  EXPECT_NE(ab, digests.Of({joined}).value());
  EXPECT_NE(ab, digests.Of({a}).value());
  Write("b", "bbB");
  EXPECT_NE(ab, digests.Of({a, b}).value());
  EXPECT_EQ(digests.Of({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(digests.Of({a, dir_ / "absent"}).error().code, ErrorCode::kNotFound);
}

// Field report B01: same name, metadata and size, one byte of the weights differs.
TEST_F(ModelDigestTest, OneChangedByteGivesOtherKeys) {
  std::string bytes(kModelBytes, 'w');
  const Path first = Write("first", bytes);
  bytes[kModelBytes - 1] ^= 1;
  const Path second = Write("second", bytes);
  ModelDigests digests(files_, clock_, rng_, memory_);
  const auto keys_of = [&](const Path& path) {
    ModelFingerprint fingerprint;
    fingerprint.declared.model_digest = digests.Of({path}).value();
    return BlockKeys(ChainRoot(fingerprint, ""), std::vector<TokenId>(1024, 1), 256);
  };
  const auto a = keys_of(first), b = keys_of(second);
  ASSERT_EQ(a.size(), 4u);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NE(a[i], b[i]);
  EXPECT_EQ(a, keys_of(first)) << "the control: the same file hits";
}

// Field report B02 (a): overwritten in place, same size, the old modification time put back.
TEST_F(ModelDigestTest, SeesThroughARestoredModificationTime) {
  const Path model = Write("model", "old bytes");
  ModelDigests digests(files_, clock_, rng_, memory_);
  ASSERT_EQ(digests.Of({model}), Sha256Of("old bytes"));
  const FileInfo before = files_.Info(model).value();
  // The kernel stamps changes by its tick: write until the change shows in the time stamp.
  FileInfo after = before;
  while (after.changed_ns == before.changed_ns) {
    std::fstream(model, std::ios::in | std::ios::out | std::ios::binary) << "new bytes";
    ASSERT_TRUE(files_.SetModified(model, before.modified_ns));
    after = files_.Info(model).value();
  }
  ASSERT_EQ(after.inode, before.inode);
  ASSERT_EQ(after.size_bytes, before.size_bytes);
  ASSERT_EQ(after.modified_ns, before.modified_ns);
  EXPECT_EQ(digests.Of({model}), Sha256Of("new bytes"));
}

// Class of B02 (a): a second change inside the same tick of the time stamp is invisible, so a fresh file is never
// remembered.
TEST_F(ModelDigestTest, DoesNotRememberAFileThatChangedJustNow) {
  const Path model = Write("model", "fresh");
  clock_.SetWallMs(SystemClock().WallNowMs());
  ModelDigests digests(files_, clock_, rng_, memory_);
  ASSERT_EQ(digests.Of({model}), Sha256Of("fresh"));
  EXPECT_EQ(Of(digests, {model}), Sha256Of("fresh"));
  EXPECT_TRUE(read_);
  SettleFiles();
  ASSERT_TRUE(Of(digests, {model}));
  ASSERT_TRUE(Of(digests, {model}));
  EXPECT_FALSE(read_);
}

// Field report B02 (c), and its class: replaced, written to, shortened, grown or removed between two reads.
TEST_F(ModelDigestTest, RefusesAFileThatChangesWhileItIsHashed) {
  const std::string old_bytes(kModelBytes, 'o');
  const std::string new_bytes(kModelBytes, 'n');
  const Path model = dir_ / "model";
  const std::vector<std::pair<std::string, std::function<void()>>> events = {
      {"rename over it", [&] { std::filesystem::rename(Write("other", new_bytes), model); }},
      {"write in place",
       [&] {
         const FileInfo before = files_.Info(model).value();
         while (files_.Info(model)->changed_ns == before.changed_ns) {
           std::fstream(model, std::ios::in | std::ios::out | std::ios::binary) << "n";
         }
       }},
      {"shorten", [&] { std::filesystem::resize_file(model, 100); }},
      {"grow", [&] { std::ofstream(model, std::ios::app) << "more"; }},
      {"remove", [&] { std::filesystem::remove(model); }},
  };
  for (const auto& [name, event] : events) {
    for (const uint64_t at : {uint64_t{1} << 20, uint64_t{kModelBytes}}) {  // after the first read, after the last
      SCOPED_TRACE(name + " after " + std::to_string(at));
      std::filesystem::remove(model);
      Write("model", old_bytes);
      SettleFiles();
      ModelDigests digests(files_, clock_, rng_, memory_);
      const auto digest = digests.Of({model}, [&](uint64_t done, uint64_t) {
        if (done == at) event();
      });
      ASSERT_FALSE(digest);
      if (name == "remove") {
        EXPECT_EQ(digest.error().code, ErrorCode::kNotFound);
        continue;
      }
      EXPECT_EQ(digest.error().code, ErrorCode::kFailedPrecondition);
      std::ifstream now(model, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(now), std::istreambuf_iterator<char>()};
      EXPECT_EQ(digests.Of({model}), Sha256Of(bytes)) << "the next attempt sees the new file";
    }
  }
}

TEST_F(ModelDigestTest, AnEarlierShardReplacedWhileALaterOneIsHashedIsNoMix) {
  const Path a = Write("a", std::string(10, 'a')), b = Write("b", std::string(10, 'b'));
  ModelDigests digests(files_, clock_, rng_, memory_);
  const auto digest = digests.Of({a, b}, [&](uint64_t done, uint64_t) {
    if (done == 20) std::filesystem::rename(Write("other", std::string(10, 'c')), a);
  });
  EXPECT_EQ(digest.error().code, ErrorCode::kFailedPrecondition);
}

TEST_F(ModelDigestTest, IgnoresAMemoryThatIsDamagedAnywhere) {
  const Path model = Write("model", "bytes");
  { ASSERT_TRUE(ModelDigests(files_, clock_, rng_, memory_).Of({model})); }
  const std::string good = ReadWholeFile(files_, memory_, 10000).value();
  const auto with_memory = [&](const std::string& text) {
    std::ofstream(memory_, std::ios::binary | std::ios::trunc) << text;
    ModelDigests digests(files_, clock_, rng_, memory_);
    return Of(digests, {model});
  };
  EXPECT_EQ(with_memory(good), Sha256Of("bytes"));
  EXPECT_FALSE(read_) << "the control: the undamaged memory is used";
  for (size_t i = 0; i < good.size(); ++i) {
    std::string flipped = good;
    flipped[i] ^= 1;
    EXPECT_EQ(with_memory(flipped), Sha256Of("bytes")) << "flipped at " << i;
    EXPECT_TRUE(read_) << "flipped at " << i;
    EXPECT_EQ(with_memory(good.substr(0, i)), Sha256Of("bytes")) << "cut at " << i;
    EXPECT_TRUE(read_) << "cut at " << i;
  }
  EXPECT_EQ(with_memory(std::string(5'000'000, 'x')), Sha256Of("bytes"));
  std::filesystem::remove(memory_);
  std::filesystem::create_directory(memory_);
  ModelDigests digests(files_, clock_, rng_, memory_);
  EXPECT_EQ(digests.Of({model}), Sha256Of("bytes")) << "a directory in the memory's place";
}

TEST_F(ModelDigestTest, TwoProcessesShareOneMemory) {
  const Path a = Write("a", "aaa"), b = Write("b", "bbb");
  ModelDigests first(files_, clock_, rng_, memory_), second(files_, clock_, rng_, memory_);
  ASSERT_TRUE(first.Of({a}));
  ASSERT_TRUE(second.Of({b}));
  ModelDigests third(files_, clock_, rng_, memory_);
  for (const Path& path : {a, b}) {
    ASSERT_TRUE(Of(third, {path}));
    EXPECT_FALSE(read_) << path;
  }
}

TEST_F(ModelDigestTest, AnyFailingStepEndsInTheRightDigestOrAnError) {
#if !defined(MOONPOOL_FAULTS)
  FAIL() << "build with MOONPOOL_FAULTS, as the presets do";
#endif
  const Path model = Write("model", std::string(kModelBytes, 'f'));
  int failed = 0;
  for (uint64_t n = 1;; ++n) {
    std::filesystem::remove_all(dir_ / "state");
    fault::FailNth(n);
    ModelDigests digests(files_, clock_, rng_, memory_);
    const auto digest = digests.Of({model});
    const bool fired = fault::Fired().has_value();
    fault::Disarm();
    if (!fired) break;
    if (digest) {
      EXPECT_EQ(digest, Sha256Of(std::string(kModelBytes, 'f'))) << "step " << n;
    } else {
      ++failed;
    }
    ModelDigests later(files_, clock_, rng_, memory_);
    EXPECT_EQ(later.Of({model}), Sha256Of(std::string(kModelBytes, 'f'))) << "after step " << n;
  }
  EXPECT_GE(failed, 3);
}

TEST_F(ModelDigestTest, ManyThreadsAgree) {
  const Path a = Write("a", std::string(kModelBytes, 'a')), b = Write("b", std::string(100, 'b'));
  ModelDigests digests(files_, clock_, rng_, memory_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(digests.Of({a}), Sha256Of(std::string(kModelBytes, 'a')));
        EXPECT_EQ(digests.Of({b}), Sha256Of(std::string(100, 'b')));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moonpool::bus
