// What RestoreArbiter promises, one fact per test; properties over random histories are in
// restore_arbiter_property_test.cc.
#include "bus/arbiter/restore_arbiter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace moonpool::bus {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A request of 1,001 tokens, 1,000 of them stored in 10 MB. At 1,000 tokens/s: recomputing takes 1,001 ms and the
// break-even bandwidth is 10 MB/s.
ArbiterQuestion Question(const std::string& model = "m", const std::string& store = "s") {
  return {.model = model,
          .store = store,
          .restored_tokens = 1000,
          .prompt_tokens = 1001,
          .payload_bytes = 10'000'000,
          .server_wait_ms = 0};
}

// An arbiter that has seen `samples` restores that took `restore_ms` for Question's payload, and as many prefills at
// 1,000 tokens/s.
struct Experienced {
  explicit Experienced(double restore_ms, int samples = 1, ArbiterConfig config = {}) : arbiter(config) {
    for (int i = 0; i < samples; ++i) {
      arbiter.ObserveRestore("m", "s", 10'000'000, restore_ms);
      arbiter.ObservePrefill("m", 1000, 1000);
    }
  }
  RestoreArbiter arbiter;
};

TEST(RestoreArbiter, RestoresWithoutSamples) {
  RestoreArbiter arbiter{{}};
  const auto verdict = arbiter.Decide(Question());
  EXPECT_EQ(verdict.choice, Choice::kRestore);
  EXPECT_EQ(verdict.reason, "no_samples");
  EXPECT_FALSE(verdict.explored);
  EXPECT_EQ(verdict.recompute_ms, 0);
}

TEST(RestoreArbiter, RestoresWhileEitherRateIsUnknown) {
  RestoreArbiter only_path{{}};
  only_path.ObserveRestore("m", "s", 10'000'000, 100'000);
  EXPECT_EQ(only_path.Decide(Question()).reason, "no_samples");
  RestoreArbiter only_prefill{{}};
  only_prefill.ObservePrefill("m", 1000, 1000);
  EXPECT_EQ(only_prefill.Decide(Question()).reason, "no_samples");
}

TEST(RestoreArbiter, ShowsTheNumbersItDecidedOn) {
  Experienced fast(500);
  const auto verdict = fast.arbiter.Decide(Question());
  EXPECT_EQ(verdict.choice, Choice::kRestore);
  EXPECT_EQ(verdict.reason, "cheaper");
  EXPECT_DOUBLE_EQ(verdict.restore_bytes_per_second, 20e6);
  EXPECT_DOUBLE_EQ(verdict.prefill_tokens_per_second, 1000);
  EXPECT_DOUBLE_EQ(verdict.break_even_bytes_per_second, 10e6);
  EXPECT_DOUBLE_EQ(verdict.recompute_ms, 1001);
  EXPECT_DOUBLE_EQ(verdict.restore_ms, 500 + 1);  // the tail is one token
}

TEST(RestoreArbiter, DeclinesALosingPathFromTheSecondRequestOn) {
  RestoreArbiter arbiter{{}};
  EXPECT_EQ(arbiter.Decide(Question()).choice, Choice::kRestore);
  arbiter.ObserveRestore("m", "s", 10'000'000, 1500);
  arbiter.ObservePrefill("m", 1001, 1001);
  const auto verdict = arbiter.Decide(Question());
  EXPECT_EQ(verdict.choice, Choice::kRecompute);
  EXPECT_EQ(verdict.reason, "slower");
}

TEST(RestoreArbiter, CountsTheTailThatIsStillToEvaluate) {
  // 600 ms of fetch against 1,000 saved tokens win; against 500 saved tokens they lose.
  Experienced arbiter(600);
  auto question = Question();
  EXPECT_EQ(arbiter.arbiter.Peek(question).choice, Choice::kRestore);
  question.restored_tokens = 500;
  EXPECT_EQ(arbiter.arbiter.Peek(question).choice, Choice::kRecompute);
  EXPECT_DOUBLE_EQ(arbiter.arbiter.Peek(question).restore_ms, 600 + 501);
}

// Decision 8: a prompt that is stored entirely still leaves one token to evaluate.
TEST(RestoreArbiter, AlwaysLeavesATokenToEvaluate) {
  Experienced arbiter(500);
  auto question = Question();
  question.restored_tokens = 5000;
  EXPECT_DOUBLE_EQ(arbiter.arbiter.Peek(question).restore_ms, 500 + 1);
  question.restored_tokens = question.prompt_tokens = 1;
  EXPECT_EQ(arbiter.arbiter.Peek(question).reason, "nothing_to_restore");
}

TEST(RestoreArbiter, CountsTheWaitForTheServer) {
  Experienced arbiter(500);
  auto question = Question();
  question.server_wait_ms = 400;
  EXPECT_EQ(arbiter.arbiter.Peek(question).choice, Choice::kRestore);
  question.server_wait_ms = 600;
  EXPECT_EQ(arbiter.arbiter.Peek(question).reason, "slower");
  for (const double no_estimate : {kNaN, -5.0}) {
    question.server_wait_ms = no_estimate;
    EXPECT_DOUBLE_EQ(arbiter.arbiter.Peek(question).restore_ms, 501);
  }
}

// A busy server says nothing about the path: no probe, no credit for one, and no sample needed to decline.
TEST(RestoreArbiter, ABusyServerIsNoReasonToProbe) {
  RestoreArbiter arbiter{{}};
  arbiter.ObservePrefill("m", 1000, 1000);
  auto busy = Question();
  for (const double wait_ms : {1500.0, kInfinity}) {
    busy.server_wait_ms = wait_ms;
    for (int i = 0; i < 100; ++i) EXPECT_EQ(arbiter.Decide(busy).reason, "server_busy");
  }
  arbiter.ObserveRestore("m", "s", 10'000'000, 1500);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(arbiter.Decide(Question()).reason, "slower");
  EXPECT_EQ(arbiter.Decide(Question()).reason, "explore");
}

TEST(RestoreArbiter, MarginAsksForMoreThanBreakingEven) {
  Experienced arbiter(600, 1, {.margin = 2.0});
  EXPECT_EQ(arbiter.arbiter.Peek(Question()).choice, Choice::kRecompute);
}

// B60: bytes or tokens zero or unknown: recompute, with and without samples.
TEST(RestoreArbiter, RecomputesWhenTokensOrBytesAreUnknown) {
  Experienced experienced(1);
  RestoreArbiter fresh{{}};
  for (RestoreArbiter* arbiter : {&experienced.arbiter, &fresh}) {
    auto no_bytes = Question();
    no_bytes.payload_bytes = 0;
    EXPECT_EQ(arbiter->Decide(no_bytes).choice, Choice::kRecompute);
    EXPECT_EQ(arbiter->Decide(no_bytes).reason, "unknown_size");
    auto no_tokens = Question();
    no_tokens.restored_tokens = 0;
    EXPECT_EQ(arbiter->Decide(no_tokens).choice, Choice::kRecompute);
    EXPECT_EQ(arbiter->Decide(no_tokens).reason, "nothing_to_restore");
    auto no_prompt = Question();
    no_prompt.prompt_tokens = 0;
    EXPECT_EQ(arbiter->Decide(no_prompt).choice, Choice::kRecompute);
  }
}

// B60: after 100 good samples, one of zero time, negative, NaN, infinite or 1000 times off: the next decision and
// all its numbers are the same, even within 1 % of break-even.
TEST(RestoreArbiter, OneBadSampleChangesNothing) {
  for (const double restore_ms : {990.0, 1010.0}) {
    for (const double bad_ms : {0.0, -0.0, -1.0, kNaN, kInfinity, -kInfinity, 1e-300, 1e300, restore_ms * 1000,
                                restore_ms / 1000, restore_ms * 13, restore_ms / 13}) {
      Experienced experienced(restore_ms, 100);
      const auto before = experienced.arbiter.Peek(Question());
      experienced.arbiter.ObserveRestore("m", "s", 10'000'000, bad_ms);
      experienced.arbiter.ObservePrefill("m", 1000, bad_ms);
      experienced.arbiter.ObserveRestore("m", "s", 0, 1000);
      experienced.arbiter.ObservePrefill("m", 0, 1000);
      const auto after = experienced.arbiter.Decide(Question());
      EXPECT_EQ(after.choice, before.choice) << bad_ms;
      EXPECT_EQ(after.restore_ms, before.restore_ms) << bad_ms;
      EXPECT_EQ(after.recompute_ms, before.recompute_ms) << bad_ms;
    }
  }
}

// B60: huge counts are refused like any absurd rate.
TEST(RestoreArbiter, AbsurdCountsAreNoSamples) {
  RestoreArbiter arbiter{{}};
  arbiter.ObserveRestore("m", "s", std::numeric_limits<uint64_t>::max(), 1);
  arbiter.ObservePrefill("m", std::numeric_limits<uint64_t>::max(), 1);
  EXPECT_EQ(arbiter.RestoreBytesPerSecond("m", "s"), 0);
  EXPECT_EQ(arbiter.PrefillTokensPerSecond("m"), 0);
}

// B60: a completion with prompt_n = 100 of 10,000 in one second teaches 100 tokens/s.
TEST(RestoreArbiter, LearnsFromEvaluatedTokensOnly) {
  RestoreArbiter arbiter{{}};
  arbiter.ObservePrefill("m", 100, 1000);
  EXPECT_DOUBLE_EQ(arbiter.PrefillTokensPerSecond("m"), 100);
}

// B60: a tiny first sample is no seed.
TEST(RestoreArbiter, ThreeTokensAreNoSampleOfThePrefillRate) {
  RestoreArbiter arbiter{{}};
  arbiter.ObservePrefill("m", 3, 300);
  EXPECT_EQ(arbiter.PrefillTokensPerSecond("m"), 0);
  arbiter.ObservePrefill("m", 1000, 1000);
  EXPECT_DOUBLE_EQ(arbiter.PrefillTokensPerSecond("m"), 1000);
  arbiter.ObservePrefill("m", 3, 300);
  EXPECT_DOUBLE_EQ(arbiter.PrefillTokensPerSecond("m"), 1000);
}

// A bus that starts on a full store sees nothing but hits, whose tails are small. A path that loses must be found
// out all the same: here with tails of 10 tokens after the 7th request.
TEST(RestoreArbiter, PoolsSmallTailsUntilTheySaySomething) {
  RestoreArbiter arbiter{{}};
  int restored = 0;
  while (arbiter.Decide(Question()).choice == Choice::kRestore) {
    ASSERT_LE(++restored, 7);
    arbiter.ObserveRestore("m", "s", 10'000'000, 60'000);
    arbiter.ObservePrefill("m", 10, 50);  // 200 tokens/s: small batches are slow
  }
  EXPECT_EQ(restored, 7);
  EXPECT_DOUBLE_EQ(arbiter.PrefillTokensPerSecond("m"), 200);
  // The declined request is evaluated whole, and its sample replaces the stand-in at once.
  arbiter.ObservePrefill("m", 1001, 1001);
  EXPECT_DOUBLE_EQ(arbiter.PrefillTokensPerSecond("m"), 1000);
}

// B60: two models, and two stores of one model, do not share rates.
TEST(RestoreArbiter, ModelsAndStoresDoNotShareRates) {
  Experienced slow(5000, 10);
  EXPECT_EQ(slow.arbiter.Decide(Question("m", "s")).choice, Choice::kRecompute);
  EXPECT_EQ(slow.arbiter.Decide(Question("other", "s")).reason, "no_samples");
  EXPECT_EQ(slow.arbiter.Decide(Question("m", "other")).reason, "no_samples");
  EXPECT_EQ(slow.arbiter.PrefillTokensPerSecond("other"), 0);
  EXPECT_EQ(slow.arbiter.RestoreBytesPerSecond("other", "s"), 0);
  EXPECT_EQ(slow.arbiter.RestoreBytesPerSecond("m", "other"), 0);
  // Names that look alike when joined are still two.
  slow.arbiter.ObserveRestore("a", "bc", 1000, 1);
  EXPECT_EQ(slow.arbiter.RestoreBytesPerSecond("ab", "c"), 0);
}

// Decision 10: every 16th declined request is probed, not one more.
TEST(RestoreArbiter, ProbesEverySixteenthDeclinedRequest) {
  Experienced slow(1500, 10);
  std::vector<int> probes;
  for (int request = 1; request <= 64; ++request) {
    const auto verdict = slow.arbiter.Decide(Question());
    if (!verdict.explored) continue;
    EXPECT_EQ(verdict.choice, Choice::kRestore);
    EXPECT_EQ(verdict.reason, "explore");
    probes.push_back(request);
    slow.arbiter.ObserveRestore("m", "s", 10'000'000, 1500);
  }
  EXPECT_EQ(probes, (std::vector<int>{16, 32, 48, 64}));
}

// A probe at 5 times the recompute time waits four times as long, so that the cost stays at 1/16.
TEST(RestoreArbiter, CostlyProbesComeLaterAndTheTotalIsBounded) {
  Experienced slow(5004, 10);
  std::vector<int> probes;
  double spent_ms = 0, declined_ms = 0;
  for (int request = 1; request <= 200; ++request) {
    const auto verdict = slow.arbiter.Decide(Question());
    declined_ms += verdict.recompute_ms;
    if (!verdict.explored) continue;
    probes.push_back(request);
    spent_ms += verdict.restore_ms - verdict.recompute_ms;
    slow.arbiter.ObserveRestore("m", "s", 10'000'000, 5004);
    EXPECT_LE(spent_ms, declined_ms / 16 * 1.001);
  }
  EXPECT_EQ(probes, (std::vector<int>{64, 128, 192}));
}

TEST(RestoreArbiter, NeverProbesWhenToldSo) {
  Experienced slow(1500, 10, {.explore_every = 0});
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(slow.arbiter.Decide(Question()).choice, Choice::kRecompute);
}

// Answers a request the way a bus would: a restore brings a sample of the path, an evaluation one of the prefill.
ArbiterVerdict Serve(RestoreArbiter& arbiter, double restore_ms) {
  const auto verdict = arbiter.Decide(Question());
  if (verdict.choice == Choice::kRestore) {
    arbiter.ObserveRestore("m", "s", 10'000'000, restore_ms);
  } else {
    arbiter.ObservePrefill("m", 1001, 1001);
  }
  return verdict;
}

// The seed's case: a tiny model on a slow path is declined, and comes back after the path got faster: by the stated
// numbers, and stays.
TEST(RestoreArbiter, ATinyModelOnASlowPathIsDeclinedAndRecovers) {
  RestoreArbiter arbiter{{}};
  arbiter.ObservePrefill("m", 1001, 1001);  // the leader's evaluation
  EXPECT_EQ(Serve(arbiter, 1900).reason, "no_samples");
  int probes = 0;
  for (int request = 2; request <= 200; ++request) {
    const auto verdict = Serve(arbiter, 1900);
    probes += verdict.explored;
    EXPECT_TRUE(verdict.explored || verdict.choice == Choice::kRecompute) << request;
  }
  EXPECT_EQ(probes, 12);
  while (!Serve(arbiter, 1900).explored) {
  }
  // From here the path is 20 times faster: fifteen more declined, three probes, then restored for good.
  for (int request = 1; request <= 15; ++request) EXPECT_EQ(Serve(arbiter, 95).reason, "slower") << request;
  for (int request = 16; request <= 18; ++request) EXPECT_EQ(Serve(arbiter, 95).reason, "explore") << request;
  for (int request = 19; request <= 100; ++request) EXPECT_EQ(Serve(arbiter, 95).reason, "cheaper") << request;
}

// One lucky probe costs one more probe, not a change of mind.
TEST(RestoreArbiter, OneLuckyProbeIsCheckedOnceAndForgotten) {
  Experienced slow(1900, 10);
  for (int request = 1; request <= 15; ++request) EXPECT_EQ(Serve(slow.arbiter, 1900).reason, "slower");
  EXPECT_EQ(Serve(slow.arbiter, 1).reason, "explore");
  EXPECT_EQ(Serve(slow.arbiter, 1900).reason, "explore");
  for (int request = 1; request <= 15; ++request) EXPECT_EQ(Serve(slow.arbiter, 1900).reason, "slower");
}

// A path that became slower is declined within kAgreeing samples.
TEST(RestoreArbiter, ALastingSlowdownIsBelievedAfterThreeSamples) {
  Experienced fast(100, 100);
  for (size_t sample = 1; sample <= RateEstimate::kAgreeing; ++sample) {
    EXPECT_EQ(Serve(fast.arbiter, 3000).reason, "cheaper") << sample;
  }
  EXPECT_EQ(Serve(fast.arbiter, 3000).reason, "slower");
}

TEST(RestoreArbiter, PeekAnswersLikeDecideAndCountsNothing) {
  Experienced slow(1500, 10);
  for (int request = 1; request <= 40; ++request) {
    for (int peek = 0; peek < 20; ++peek) slow.arbiter.Peek(Question());
    const auto peeked = slow.arbiter.Peek(Question());
    const auto decided = slow.arbiter.Decide(Question());
    EXPECT_EQ(peeked.choice, decided.choice) << request;
    EXPECT_EQ(peeked.reason, decided.reason) << request;
    EXPECT_EQ(peeked.explored, request % 16 == 0) << request;
  }
}

TEST(RestoreArbiter, PeekingAtUnknownNamesRemembersNothing) {
  RestoreArbiter arbiter{{}};
  EXPECT_EQ(arbiter.Peek(Question()).reason, "no_samples");
  EXPECT_EQ(arbiter.PairCount() + arbiter.ModelCount(), 0u);
}

// Class C13: names come from callers; what is remembered is bounded, and the least recently used goes first.
TEST(RestoreArbiter, RemembersABoundedNumberOfPairs) {
  RestoreArbiter arbiter({.pairs_max = 8});
  arbiter.ObserveRestore("kept", "s", 1'000'000, 100);
  arbiter.ObservePrefill("kept", 100, 100);
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "m" + std::to_string(i);
    arbiter.ObserveRestore(name, "s", 1'000'000, 100);
    arbiter.ObservePrefill(name, 100, 100);
    arbiter.Decide(Question(name));
    if (i % 3 == 0) arbiter.Decide(Question("kept"));
    ASSERT_LE(arbiter.PairCount(), 8u);
    ASSERT_LE(arbiter.ModelCount(), 8u);
  }
  EXPECT_GT(arbiter.RestoreBytesPerSecond("kept", "s"), 0);
  EXPECT_GT(arbiter.PrefillTokensPerSecond("kept"), 0);
  EXPECT_EQ(arbiter.RestoreBytesPerSecond("m0", "s"), 0);
}

// B60: state does not survive a restart: a new arbiter starts without samples.
TEST(RestoreArbiter, ARestartStartsWithoutSamples) {
  { Experienced slow(5000, 10); }
  RestoreArbiter restarted{{}};
  EXPECT_EQ(restarted.Decide(Question()).reason, "no_samples");
}

TEST(RestoreArbiter, ThreadsMayShareIt) {
  RestoreArbiter arbiter({.pairs_max = 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arbiter, t] {
      const std::string model = "m" + std::to_string(t);
      for (int i = 0; i < 2000; ++i) {
        arbiter.ObserveRestore(model, "s", 10'000'000, 100 + i % 50);
        arbiter.ObservePrefill(model, 1000, 1000);
        arbiter.Decide(Question(model));
        arbiter.Peek(Question("m0"));
        arbiter.PrefillTokensPerSecond("m1");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(arbiter.PairCount(), 3u);
}

}  // namespace
}  // namespace moonpool::bus
