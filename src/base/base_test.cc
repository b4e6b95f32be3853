#include <gtest/gtest.h>

#include <thread>

#include "base/checksum.h"
#include "base/executor.h"
#include "base/fault.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "support/fake_clock.h"
#include "support/manual_executor.h"

namespace moonpool {
namespace {

TEST(Hex, RoundTripsAndRefusesOtherText) {
  const auto bytes = HexDecode("00ff10ab");
  ASSERT_TRUE(bytes);
  EXPECT_EQ(HexEncode(*bytes), "00ff10ab");
  for (const char* bad : {"0", "0G", "AB", "0x"}) EXPECT_FALSE(HexDecode(bad)) << bad;
}

TEST(Sha256, EqualsThePublishedVectors) {
  // FIPS 180-2, appendix B.1, and the empty message.
  EXPECT_EQ(Sha256Of("abc").ToHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of("").ToHex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.Update("a");
  hash.Update("bc");
  EXPECT_EQ(hash.Finish(), Sha256Of("abc"));
  EXPECT_EQ(hash.Finish(), Sha256Of("")) << "Finish starts anew";
}

TEST(Digest256, ReadsOnlyWholeLowerCaseHex) {
  const Digest256 digest = Sha256Of("x");
  EXPECT_EQ(Digest256::FromHex(digest.ToHex()), digest);
  EXPECT_FALSE(Digest256::FromHex(digest.ToHex().substr(2)));
}

TEST(Xxh3, StreamEqualsOneShot) {
  const std::string text(1000, 'q');
  Xxh3Stream stream;
  stream.Update(std::as_bytes(std::span(text)).first(333));
  stream.Update(std::as_bytes(std::span(text)).subspan(333));
  EXPECT_EQ(stream.Finish(), Xxh3(std::as_bytes(std::span(text))));
}

TEST(Rng, SeededRepeatsAndSystemDoesNot) {
  SeededRng a(7), b(7);
  EXPECT_EQ(a.HexId(16), b.HexId(16));
  SystemRng system;
  const std::string id = system.HexId(16);
  EXPECT_EQ(id.size(), 32u);
  EXPECT_NE(id, system.HexId(16));
}

Result<int> Guarded() {
  MP_FAULT("base_test.first");
  MP_FAULT("base_test.second");
  return 7;
}

TEST(Fault, FailsTheNthPointReachedAndThenNoMore) {
  fault::Disarm();
  for (uint64_t n = 1; n <= 2; ++n) {
    fault::FailNth(n, ErrorCode::kNoSpace);
    const auto result = Guarded();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kNoSpace);
    EXPECT_EQ(fault::Fired(), n == 1 ? "base_test.first" : "base_test.second");
    EXPECT_TRUE(Guarded()) << "a countdown fires once";
  }
  fault::FailNth(3);
  EXPECT_TRUE(Guarded());
  EXPECT_FALSE(fault::Fired());
  EXPECT_EQ(fault::Passed(), (std::vector<std::string>{"base_test.first", "base_test.second"}));
  fault::Disarm();
}

TEST(Fault, RefusesASpecificationItDoesNotKnow) {
  for (const char* bad : {"", "name", "name:", ":exit", "name:sleep"}) EXPECT_FALSE(fault::Apply(bad)) << bad;
}

TEST(ThreadPool, RunsWhatWasQueuedBeforeShutdownAndRefusesTheRest) {
  std::atomic<int> ran = 0;
  ThreadPool pool(2, 100);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.Post([&] { ++ran; }));
  pool.Shutdown();
  EXPECT_EQ(ran, 50);
  EXPECT_FALSE(pool.Post([&] { ++ran; }));
}

TEST(ThreadPool, RefusesWorkBeyondItsBound) {
  Mutex mutex;
  CondVar condition;
  bool started = false, release = false;
  ThreadPool pool(1, 1);
  ASSERT_TRUE(pool.Post([&] {
    MutexLock lock(mutex);
    started = true;
    condition.NotifyAll();
    while (!release) condition.Wait(mutex);
  }));
  {
    MutexLock lock(mutex);
    while (!started) condition.Wait(mutex);
  }
  EXPECT_TRUE(pool.Post([] {}));
  EXPECT_FALSE(pool.Post([] {}));
  MutexLock lock(mutex);
  release = true;
  condition.NotifyAll();
}

TEST(FakeClock, EndsWaitsWhenAdvanced) {
  testing::FakeClock clock;
  Mutex mutex;
  CondVar condition;
  const Deadline deadline(clock, std::chrono::seconds(60));
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (!deadline.Passed()) clock.WaitUntil(condition, mutex, deadline.At());
  });
  clock.AwaitWaiters(1);
  clock.Advance(std::chrono::seconds(61));
  waiter.join();
  EXPECT_EQ(deadline.Left(), Duration::zero());
}

}  // namespace
}  // namespace moonpool
