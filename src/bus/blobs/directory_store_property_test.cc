// Random histories against a model in memory: what is offered is whole, what was published stands until it is
// removed or evicted, every alias leads to an object that has its blocks, the sums are right.
#include <cstdlib>
#include <random>
#include <set>

#include "support/store_fixture.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::Conversation;
using testing::PayloadFor;

class DirectoryStoreHistory : public testing::StoreFixture {
 protected:
  // The store as one would write it with a map: objects by id, nothing else.
  std::map<ObjectId, std::vector<TokenId>> model_;

  bool ModelHas(const std::vector<TokenId>& tokens, size_t blocks) const {
    const size_t count = blocks * testing::kTestBlockTokens;
    return std::any_of(model_.begin(), model_.end(), [&](const auto& entry) {
      return entry.second.size() >= count && std::equal(tokens.begin(), tokens.begin() + count, entry.second.begin());
    });
  }
  void ExpectLikeModel(const std::vector<TokenId>& tokens) {
    const auto keys = ChainKeys(tokens);
    const auto found = store_->BatchExists(keys).value();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(found[i].has_value(), ModelHas(tokens, i + 1)) << "block " << i;
      if (!found[i]) continue;
      ASSERT_EQ(found[i]->blocks, i + 1);
      ASSERT_TRUE(model_.contains(found[i]->object));
      const auto& holder = model_.at(found[i]->object);
      const size_t count = (i + 1) * testing::kTestBlockTokens;
      ASSERT_GE(holder.size(), count);
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.begin() + count, holder.begin()));
    }
  }
};

TEST_F(DirectoryStoreHistory, EqualsTheModel) {
  const char* given = std::getenv("MOONPOOL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("MOONPOOL_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  // A small tree of conversations: four stems, forks at random places, random lengths.
  const auto any_tokens = [&] {
    auto tokens = Conversation(below(4), 1 + below(60));
    if (below(2) == 0) {
      const uint64_t fork = below(60);
      const TokenId branch = static_cast<TokenId>(1 + below(2));
      for (size_t i = fork; i < tokens.size(); ++i) tokens[i] += branch;
    }
    return tokens;
  };
  quota_bytes_ = 11 * 16'384;
  Open();
  auto second = TryOpen().value();  // half of everything goes through another bus
  int published = 0;
  int evicted = 0;
  for (int step = 0; step < 1500; ++step) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
    clock_.Advance(std::chrono::seconds(1));
    if (below(2) == 0) std::swap(store_, second);
    const auto tokens = any_tokens();
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: {
        const bool whole = ChainKeys(tokens).empty() || ModelHas(tokens, tokens.size() / testing::kTestBlockTokens);
        auto receipt = TryPublish(tokens);
        ASSERT_EQ(receipt.has_value(), !whole);
        if (!receipt) break;
        ++published;
        for (const ObjectId& id : receipt->evicted) evicted += static_cast<int>(model_.erase(id));
        for (const ObjectId& id : receipt->retired) {
          ASSERT_TRUE(model_.contains(id));
          const auto& old = model_.at(id);
          ASSERT_LE(old.size(), tokens.size());
          ASSERT_TRUE(std::equal(old.begin(), old.end(), tokens.begin()));
          model_.erase(id);
        }
        model_[receipt->object] = tokens;
        // No whole prefix of the new object is left.
        for (const auto& [id, old] : model_) {
          ASSERT_TRUE(id == receipt->object || old.size() > tokens.size() ||
                      !std::equal(old.begin(), old.end(), tokens.begin()));
        }
        break;
      }
      case 5: {
        if (model_.empty()) break;
        const auto chosen = std::next(model_.begin(), static_cast<long>(below(model_.size())));
        ASSERT_TRUE(store_->Remove(chosen->first));
        model_.erase(chosen);
        break;
      }
      case 6:
      case 7: {
        if (model_.empty()) break;
        const auto chosen = std::next(model_.begin(), static_cast<long>(below(model_.size())));
        ASSERT_EQ(FetchBytes(chosen->first), PayloadFor(chosen->second));
        store_->Touch(chosen->first, static_cast<double>(below(5)));
        break;
      }
      case 8: {
        if (model_.empty() || below(4) != 0) break;
        const auto chosen = std::next(model_.begin(), static_cast<long>(below(model_.size())));
        store_->Quarantine(chosen->first, "chosen by chance");
        model_.erase(chosen);
        break;
      }
      default:
        if (below(10) == 0) clock_.Advance(std::chrono::minutes(11));
        if (below(20) == 0) Open();
        store_->Tick();
    }
    ExpectLikeModel(tokens);
    ExpectLikeModel(any_tokens());
    if (step % 50 == 0) {
      ASSERT_EQ(store_->Stats()->objects, model_.size());
      ASSERT_LE(store_->CountBytes().value(), store_->Stats()->bytes);
      ASSERT_LE(store_->Stats()->bytes, quota_bytes_);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(published, 150);
  EXPECT_GT(evicted, 10);
  std::set<Digest256> boundaries;
  for (const auto& [id, tokens] : model_) {
    const auto keys = ChainKeys(tokens);
    boundaries.insert(keys.begin(), keys.end());
  }
  EXPECT_EQ(store_->Stats()->aliases, boundaries.size());
  second.reset();
  store_->Tick();
  ExpectSane();
}

}  // namespace
}  // namespace moonpool::bus
