// The swarm on fake servers: prompts, agents with and without a bus, rounds, references.
#include <gtest/gtest.h>

#include <memory>

#include "app/swarm/embedded_files.h"
#include "app/swarm/reference_texts.h"
#include "app/swarm/swarm_round.h"
#include "support/fake_clock.h"
#include "support/fake_engine.h"

namespace moonpool::app {
namespace {

using bus::CommitWait;
using bus::Decision;
using testing::FakeClock;
using testing::FakeEngine;
using testing::FakeServer;

// A bus that keeps whole prompts: the first one leads, later ones get it put into their slot.
class KeepingDoor final : public BusDoor {
 public:
  explicit KeepingDoor(std::map<std::string, std::shared_ptr<FakeServer>> servers) : servers_(std::move(servers)) {}

  Result<bus::PrepareReply> Prepare(const bus::PromptRequest& request, const Deadline&) override {
    namespaces.push_back(request.name_space);
    bus::PrepareReply reply{.slot = 0, .ticket = "t" + std::to_string(namespaces.size())};
    if (bypass) return bus::PrepareReply{.decision = Decision::kBypass, .reason = "not_probed"};
    if (kept_.empty()) {
      reply.decision = Decision::kLead;
      pending_ = request.tokens;
      return reply;
    }
    reply.decision = Decision::kRestore;
    reply.restored_tokens = promise;
    servers_.at(request.engine)->Overwrite(0, kept_);
    return reply;
  }
  Result<bus::CommitReply> Commit(const bus::CommitRequest& request, const Deadline&) override {
    commits.push_back(request);
    if (request.wait == CommitWait::kSaved) kept_ = pending_;
    return bus::CommitReply{.status = bus::CommitStatus::kAccepted};
  }
  Result<void> Release(const std::string&, const Deadline&) override { return {}; }

  uint64_t promise = 0;
  bool bypass = false;
  std::vector<std::string> namespaces;
  std::vector<bus::CommitRequest> commits;

 private:
  std::map<std::string, std::shared_ptr<FakeServer>> servers_;
  std::vector<TokenId> pending_;
  std::vector<TokenId> kept_;
};

class SwarmTest : public ::testing::Test {
 protected:
  SwarmTest() {
    prompts_.context.resize(500);
    for (size_t i = 0; i < prompts_.context.size(); ++i) prompts_.context[i] = static_cast<TokenId>(i % 97 + 300);
    prompts_.tails = {{1, 2, 3}, {4, 5}, {6, 7, 8, 9}, {10}};
    door_.promise = 256;
  }
  SwarmRunner Runner() { return SwarmRunner({{engine_a_, "a"}, {engine_b_, "b"}}, prompts_, 4, clock_); }

  FakeClock clock_;
  Deadline deadline_{clock_, std::chrono::seconds(1)};
  std::shared_ptr<FakeServer> server_a_ = std::make_shared<FakeServer>(FakeServer::Options{});
  std::shared_ptr<FakeServer> server_b_ = std::make_shared<FakeServer>(FakeServer::Options{});
  FakeEngine engine_a_{server_a_};
  FakeEngine engine_b_{server_b_};
  KeepingDoor door_{{{"a", server_a_}, {"b", server_b_}}};
  SwarmPrompts prompts_;
  int steps_ = 0;
  SwarmRunner::Progress step_ = [this] { ++steps_; };
};

TEST_F(SwarmTest, BoundIsTheContextAllTailsAndOnePerAgent) {
  EXPECT_EQ(prompts_.EvaluationBound(), 500u + (3 + 2 + 4 + 1) + 4);
  EXPECT_EQ(prompts_.First(1).EvaluationBound(), 500u + 3 + 1);
  EXPECT_EQ(prompts_.LongestTail(), 4u);
  EXPECT_EQ(prompts_.Whole(1).size(), 502u);
  EXPECT_EQ(prompts_.Whole(1).back(), 5);
}

TEST_F(SwarmTest, PromptsComeFromTheRepositorysTextAndSharePreciselyTheContext) {
  const auto prompts = MakeSwarmPrompts(engine_a_, 2000, kAgentsMax, deadline_);
  ASSERT_TRUE(prompts.has_value()) << prompts.error().message;
  EXPECT_EQ(prompts->context.size(), 2000u);
  EXPECT_EQ(prompts->context.front(), 1);  // the fake's BOS
  for (size_t i = 0; i < kAgentsMax; ++i) {
    EXPECT_EQ(std::ranges::count(prompts->tails[i], 1), 0) << "no BOS inside a prompt";
    for (size_t j = 0; j < i; ++j) EXPECT_NE(prompts->tails[i], prompts->tails[j]);
  }
}

TEST_F(SwarmTest, PromptsLongerThanTheTextAreRefused) {
  const auto prompts = MakeSwarmPrompts(engine_a_, uint64_t{1} << 20, 2, deadline_);
  ASSERT_FALSE(prompts.has_value());
  EXPECT_EQ(prompts.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(MakeSwarmPrompts(engine_a_, 10, 0, deadline_).has_value());
  EXPECT_FALSE(MakeSwarmPrompts(engine_a_, 10, kAgentsMax + 1, deadline_).has_value());
}

TEST_F(SwarmTest, AgentsAlternateOverTheServers) {
  SwarmRunner runner = Runner();
  EXPECT_EQ(runner.ServerOf(0), 0u);
  EXPECT_EQ(runner.ServerOf(1), 1u);
  EXPECT_EQ(runner.ServerOf(2), 0u);
  EXPECT_EQ(runner.task(1).engine_name, "b");
}

TEST_F(SwarmTest, WithoutSharingEveryTokenIsEvaluatedByEveryAgent) {
  SwarmRunner runner = Runner();
  const auto round = runner.RunWithoutSharing(step_, deadline_);
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->EvaluatedTokens(), 4u * 500 + 10);
  EXPECT_EQ(round->Hits(), 0u);
  EXPECT_EQ(steps_, 4);
}

TEST_F(SwarmTest, OwnSlotsHelpFromTheSecondAgentOfEachServerOn) {
  ASSERT_TRUE(engine_a_.Complete({.prompt = prompts_.Whole(0), .predict_max = 1}, deadline_).has_value());
  SwarmRunner runner = Runner();
  const auto round = runner.RunWithOwnSlots(step_, deadline_);
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->EvaluatedTokens(), 2u * 500 + 10) << "what was there before the round must not count";
  EXPECT_EQ(round->Hits(), 2u);
}

TEST_F(SwarmTest, WithABusTheBoundIsMetAndAllButTheFirstHit) {
  SwarmRunner runner = Runner();
  const auto round = runner.RunWithBus(door_, "fresh", step_, deadline_);
  ASSERT_TRUE(round.has_value());
  EXPECT_LE(round->EvaluatedTokens(), prompts_.EvaluationBound());
  // The leader's request with n_predict 0 counts like every other.
  EXPECT_EQ(round->agents[0].evaluated_tokens, 500u + 3 + 1);
  EXPECT_EQ(round->Hits(), 3u);
  EXPECT_EQ(door_.namespaces, (std::vector<std::string>(4, "fresh")));
}

TEST_F(SwarmTest, ALeaderCommitsItsPrefillBeforeItAnswers) {
  SwarmRunner runner = Runner();
  const auto run = AnswerWithBus(runner.task(0), door_, "x", clock_, deadline_);
  ASSERT_TRUE(run.has_value());
  ASSERT_EQ(door_.commits.size(), 2u);
  EXPECT_EQ(door_.commits[0].wait, CommitWait::kSaved);
  EXPECT_TRUE(door_.commits[0].keep);
  EXPECT_EQ(door_.commits[0].timings->prompt_n, 503u);
  EXPECT_EQ(door_.commits[1].wait, CommitWait::kNone);
  EXPECT_FALSE(door_.commits[1].keep);
  EXPECT_EQ(door_.commits[1].timings->cache_n, 502u);
  EXPECT_EQ(run->reference_split, 503u) << "decision 13a: a leader that prefilled, its whole prompt";
  EXPECT_EQ(run->tokens.size(), 4u);
}

TEST_F(SwarmTest, ABypassedAgentAnswersAndCommitsNothing) {
  door_.bypass = true;
  SwarmRunner runner = Runner();
  const auto run = AnswerWithBus(runner.task(0), door_, "x", clock_, deadline_);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->decision, "BYPASS");
  EXPECT_EQ(run->reason, "not_probed");
  EXPECT_FALSE(run->Hit());
  EXPECT_TRUE(door_.commits.empty());
}

TEST_F(SwarmTest, AHitNeedsAPromiseThatWasKept) {
  AgentRun run;
  run.decision = "RESTORE";
  run.cached_tokens = 300;
  EXPECT_FALSE(run.Hit()) << "promised nothing";
  run.promised_tokens = 256;
  EXPECT_TRUE(run.Hit());
  run.cached_tokens = 255;
  EXPECT_FALSE(run.Hit()) << "promise broken";
}

TEST_F(SwarmTest, TheIdealFindsTheContextInEverySlot) {
  SwarmRunner runner = Runner();
  const auto round = runner.RunIdeal(step_, deadline_);
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->EvaluatedTokens(), 10u);
  EXPECT_EQ(steps_, 5) << "the evaluation of the context is a step too";
}

TEST_F(SwarmTest, AnErrorOfAServerEndsTheRound) {
  server_b_->FailNext("complete", {ErrorCode::kUnavailable, "gone"});
  SwarmRunner runner = Runner();
  const auto round = runner.RunWithoutSharing(step_, deadline_);
  ASSERT_FALSE(round.has_value());
  EXPECT_EQ(round.error().message, "gone");
  EXPECT_EQ(steps_, 1);
}

TEST_F(SwarmTest, ReferencesAreComputedOnAnErasedSlotAndOnlyOnce) {
  SwarmRunner runner = Runner();
  ReferenceTexts references;
  AgentRun run = *AnswerWithBus(runner.task(0), door_, "x", clock_, deadline_);
  EXPECT_FALSE(references.Knows(0, runner.task(0), run));
  const int before = server_a_->Calls("complete");
  EXPECT_TRUE(*references.Equal(0, runner.task(0), run, deadline_));
  EXPECT_EQ(server_a_->Calls("complete"), before + 2);
  EXPECT_EQ(server_a_->Calls("erase"), 1);
  run.tokens.back() += 1;
  EXPECT_FALSE(*references.Equal(0, runner.task(0), run, deadline_)) << "one token differs";
  EXPECT_EQ(server_a_->Calls("complete"), before + 2);
}

TEST_F(SwarmTest, ASplitThatNoPromptHasGivesNoReference) {
  SwarmRunner runner = Runner();
  AgentRun run = *AnswerAlone(runner.task(0), clock_, deadline_);
  run.reference_split = 504;
  const auto equal = ReferenceTexts().Equal(0, runner.task(0), run, deadline_);
  ASSERT_FALSE(equal.has_value());
  EXPECT_EQ(equal.error().code, ErrorCode::kInternal);
}

TEST_F(SwarmTest, AColdRunIsItsOwnReference) {
  SwarmRunner runner = Runner();
  ReferenceTexts references;
  const AgentRun run = *AnswerAlone(runner.task(0), clock_, deadline_);
  references.Remember(0, runner.task(0), run);
  EXPECT_TRUE(references.Knows(0, runner.task(0), run));
  EXPECT_FALSE(references.Knows(1, runner.task(0), run)) << "another server is another reference";
}

TEST(EmbeddedFiles, CarryTheRepositorysText) {
  EXPECT_TRUE(RepositoryText().starts_with("# Architecture"));
  EXPECT_GT(RepositoryText().size(), 20'000u);
  EXPECT_NE(LlamaServerScript().find("--exit-on-stdin-close"), std::string_view::npos);
  EXPECT_FALSE(SourceCommit().empty());
}

}  // namespace
}  // namespace moonpool::app
