// The bus's own numbers: after any history every gauge equals a recount of what it counts, and no total goes down
// (field report B57); settings at their edges (B04).
#include <gtest/gtest.h>

#include <random>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::FakeServer;
using testing::kWorldBlock;
using testing::Tokens;

std::vector<uint64_t> Totals(const BusCounts& counts) {
  std::vector<uint64_t> all = {counts.prefill_tokens_saved_total,
                               counts.prefill_tokens_resident_total,
                               counts.prefill_tokens_evaluated_total,
                               counts.promised_tokens_total,
                               counts.kept_tokens_total,
                               counts.restores_ineffective_total,
                               counts.restored_bytes_total,
                               counts.published_bytes_total};
  for (const PhaseHistogram& phase : counts.phases) all.push_back(phase.total);
  uint64_t labelled = 0;
  for (const auto& [label, count] : counts.decisions) labelled += count;
  for (const auto& [label, count] : counts.commits) labelled += count;
  for (const auto& [label, count] : counts.failures) labelled += count;
  all.push_back(labelled);
  return all;
}

TEST(BusNumbers, EqualARecountAfterEveryStep) {  // B57
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  BusWorld::Options options;
  options.quota_bytes = 250'000;  // evictions happen all the time
  BusWorld world(options);
  FakeServer::Options two;
  two.slots = 2;
  const std::map<std::string, std::shared_ptr<FakeServer>> servers = {{"a", world.AddServer("a")},
                                                                      {"b", world.AddServer("b", two)}};
  world.Settle();
  for (const uint64_t total : Totals(world.bus->Counts())) ASSERT_EQ(total, 0u) << "a fresh start";
  struct Held {
    std::string engine;
    PrepareReply prepared;
    std::vector<TokenId> prompt;
  };
  std::vector<Held> held;
  std::set<std::string> ended;
  std::vector<uint64_t> before(Totals(world.bus->Counts()));
  const int steps = testing::kSanitized ? 200 : 1500;
  for (int step = 0; step < steps; ++step) {
    const std::string engine = random() % 2 == 0 ? "a" : "b";
    const auto prompt = Tokens(1 + random() % 120, static_cast<int>(random() % 8));
    switch (random() % 10) {
      case 0:
      case 1:
      case 2: {
        auto prepared = world.Prepare(engine, prompt, random() % 2 == 0 ? "" : "t");
        if (!prepared.ticket.empty()) held.push_back({engine, std::move(prepared), prompt});
        break;
      }
      case 3:
      case 4:
        if (!held.empty()) {
          const Held last = held.back();
          held.pop_back();
          world.Commit(last.prepared, world.Complete(last.engine, last.prepared, last.prompt,
                                                     static_cast<uint32_t>(1 + random() % 20)));
          EXPECT_FALSE(world.bus->Release(last.prepared.ticket).released) << "it ended with the commit";
        }
        break;
      case 5:
        if (!held.empty()) {
          const std::string ticket = held.back().prepared.ticket;
          world.bus->Release(ticket);
          EXPECT_FALSE(world.bus->Release(ticket).released) << "a second time takes nothing away";
          held.pop_back();
        }
        break;
      case 6: {
        const auto objects = world.store->List().value();
        if (objects.empty() || random() % 4 != 0) break;
        const ObjectId id = objects[random() % objects.size()].id;
        (void)world.store->Remove(id);
        EXPECT_EQ(world.store->Remove(id).error().code, ErrorCode::kNotFound);
        break;
      }
      case 7: servers.at(engine)->Overwrite(0, prompt); break;
      case 8:
        if (random() % 20 == 0) servers.at(engine)->Restart();
        break;
      default: world.Tick(std::chrono::milliseconds(random() % 1000));
    }
    const StoreStats stats = world.store->Stats().value();
    if (step % 5 == 0) {  // a walk over the whole directory
      ASSERT_EQ(stats.bytes, world.store->CountBytes().value()) << step;
      ASSERT_EQ(stats.objects, world.store->List()->size()) << step;
    }
    ASSERT_EQ(stats.reserved_bytes, 0u) << step;
    ASSERT_LE(stats.bytes, stats.quota_bytes) << step;
    // Restarts and long idleness end tickets by themselves; nobody else does, and none comes out of nothing.
    uint32_t tickets = 0;
    for (const EngineStatus& status : world.bus->Engines()) {
      ASSERT_LE(status.tickets, status.name == "a" ? 1u : 2u) << step;
      ASSERT_LE(status.kept_total, status.promised_total) << step;
      tickets += status.tickets;
    }
    ASSERT_LE(tickets, held.size()) << step;
    const auto now = Totals(world.bus->Counts());
    for (size_t i = 0; i < now.size(); ++i) ASSERT_GE(now[i], before[i]) << "total " << i << " at step " << step;
    before = now;
    for (const PhaseHistogram& phase : world.bus->Counts().phases) {
      ASSERT_TRUE(std::isfinite(phase.sum_seconds) && phase.sum_seconds >= 0);
      ASSERT_EQ(std::accumulate(phase.counts.begin(), phase.counts.end(), uint64_t{0}), phase.total);
    }
  }
  EXPECT_GT(before[0], 0u) << "something was saved on the way";
  EXPECT_TRUE(testing::kSanitized || world.store->Stats()->evictions_total > 0) << "too few steps to fill the quota";
}

TEST(BlockSizes, AtTheEdgesAreCorrectNotFast) {  // B04
  for (const uint32_t block : {1u, 2u, 63u, 64u, 65u, 4096u}) {
    SCOPED_TRACE(block);
    BusWorld::Options options;
    options.config.block_tokens = block;
    BusWorld world(options);
    FakeServer::Options small;
    small.context_tokens = 512;  // less than the largest block
    world.AddServer("a", small);
    world.AddServer("b", small);
    world.Settle();
    const auto prompt = Tokens(64, 1);
    const auto first = world.Run("a", prompt, "", 1);
    const auto second = world.Run("b", prompt, "", 1);
    EXPECT_EQ(second.completion.tokens, first.completion.tokens);
    const uint64_t aligned = 64 / block * block;
    EXPECT_EQ(second.prepared.restored_tokens, std::min<uint64_t>(aligned, 63));
    if (aligned == 0) {
      EXPECT_EQ(first.committed.reason, "short_prompt");
      EXPECT_EQ(second.prepared.reason, "short_prompt");
    }
  }
}

// Servers that only differ in what no key can hold in common: context length where RoPE depends on it is in the key,
// and an operator may fold it in always.
TEST(ContextLengths, PartServersOnlyWhereTheyMust) {  // B04, as decision 6 amends it
  for (const bool fold : {false, true}) {
    BusWorld::Options options;
    options.config.fold_context = fold;
    BusWorld world(options);
    FakeServer::Options shorter, longer;
    shorter.context_tokens = 4096;
    longer.context_tokens = 8192;
    world.AddServer("a", shorter);
    world.AddServer("b", longer);
    world.Settle();
    EXPECT_EQ(world.FingerprintOf("a") == world.FingerprintOf("b"), !fold);
    world.Run("a", Tokens(64, 1));
    EXPECT_EQ(world.bus->Lookup(world.Ask("b", Tokens(64, 1))).value().stored_tokens, fold ? 0u : 64u);
  }
}

}  // namespace
}  // namespace moonpool::bus
