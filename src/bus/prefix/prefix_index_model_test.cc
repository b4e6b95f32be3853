// B59: a million random insert / split / evict / remove steps against a brute-force map that knows nothing of trees:
// one record per possible prefix, every question answered by looking at all of them.
//
// MOONPOOL_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bus/prefix/prefix_index.h"
#include "bus/prefix/test_chains.h"

namespace moonpool::bus {
namespace {

using testing::NextKey;

#ifdef MOONPOOL_SANITIZED
constexpr int kSteps = 60'000;
#else
constexpr int kSteps = 1'000'000;
#endif
constexpr int kStepsPerWorld = 5'000;
constexpr int kNone = -1;

uint64_t Seed() {
  if (const char* text = std::getenv("MOONPOOL_SEED")) return std::strtoull(text, nullptr, 10);
  return std::random_device{}();
}

// All prefixes that a run may meet, and for each whether it is stored.
class BruteForce {
 public:
  struct Prefix {
    int parent = kNone;
    size_t blocks = 0;
    Digest256 key;
    int object = kNone;
    uint64_t used = 0;
  };

  // A random tree of `size` prefixes, at most `depth` blocks long; `straightness` of them continue the one before.
  // Every tenth key repeats that of an unrelated prefix, which no hash would do.
  BruteForce(std::mt19937_64& random, size_t size, size_t depth, double straightness) {
    std::uniform_real_distribution<double> chance;
    for (size_t i = 0; i < size; ++i) {
      Prefix prefix;
      int parent = static_cast<int>(i) - 1;
      if (chance(random) > straightness) parent = static_cast<int>(random() % (i + 1)) - 1;
      if (parent != kNone && At(parent).blocks >= depth) parent = kNone;
      prefix.parent = parent;
      prefix.blocks = parent == kNone ? 1 : At(parent).blocks + 1;
      prefix.key = NextKey(parent == kNone ? Digest256{} : At(parent).key, i);
      if (i > 0 && random() % 10 == 0) {
        const Digest256 borrowed = prefixes_[random() % i].key;
        const bool is_sibling = std::any_of(prefixes_.begin(), prefixes_.end(), [&](const Prefix& other) {
          return other.parent == parent && other.key == borrowed;
        });
        if (!is_sibling) prefix.key = borrowed;
      }
      prefixes_.push_back(prefix);
    }
  }

  size_t size() const { return prefixes_.size(); }
  std::vector<Digest256> ChainOf(int id) const {
    std::vector<Digest256> chain;
    for (; id != kNone; id = At(id).parent) chain.push_back(At(id).key);
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  void Insert(int id, int object, size_t entries_max) {
    ++now_;
    while (At(id).blocks > entries_max) id = At(id).parent;  // the first blocks of an overlong chain are kept
    for (; id != kNone; id = At(id).parent) {
      Record(id).object = object;
      Record(id).used = now_;
    }
    while (Entries() > entries_max) {
      Prefix* oldest = nullptr;
      for (Prefix& prefix : prefixes_) {
        if (prefix.object == kNone) continue;
        if (oldest == nullptr || prefix.used < oldest->used ||
            (prefix.used == oldest->used && prefix.blocks > oldest->blocks)) {
          oldest = &prefix;
        }
      }
      oldest->object = kNone;
      ++evicted;
    }
  }
  int Longest(int id) {
    while (id != kNone && At(id).object == kNone) id = At(id).parent;
    ++now_;
    // Unstored prefixes on the way are used as well, so that whoever stores below them later finds them no older.
    for (int above = id; above != kNone; above = At(above).parent) Record(above).used = now_;
    return id;
  }
  void Erase(int id, size_t blocks_kept) {
    for (; id != kNone && At(id).blocks > blocks_kept; id = At(id).parent) Record(id).object = kNone;
  }
  void RemoveObject(int object) {
    for (Prefix& prefix : prefixes_) {
      if (prefix.object == object) prefix.object = kNone;
    }
  }
  void Clear() {
    for (Prefix& prefix : prefixes_) prefix.object = kNone;
  }

  size_t Entries() const {
    return static_cast<size_t>(
        std::count_if(prefixes_.begin(), prefixes_.end(), [](const Prefix& prefix) { return prefix.object != kNone; }));
  }
  // Unstored prefixes with a stored one below.
  size_t Holes() const {
    const std::vector<bool> has_below = HasStoredBelow();
    size_t holes = 0;
    for (size_t i = 0; i < prefixes_.size(); ++i) holes += has_below[i] && prefixes_[i].object == kNone;
    return holes;
  }
  // Stored prefixes strictly below `id` with nothing stored below them.
  size_t FanOut(int id) const {
    const std::vector<bool> has_below = HasStoredBelow();
    size_t count = 0;
    for (size_t i = 0; i < prefixes_.size(); ++i) {
      if (prefixes_[i].object == kNone || has_below[i]) continue;
      int above = prefixes_[i].parent;
      while (above != kNone && above != id) above = At(above).parent;
      count += above == id;
    }
    return count;
  }
  const Prefix& At(int id) const { return prefixes_[static_cast<size_t>(id)]; }

  uint64_t evicted = 0;

 private:
  Prefix& Record(int id) { return prefixes_[static_cast<size_t>(id)]; }
  std::vector<bool> HasStoredBelow() const {
    std::vector<bool> below(prefixes_.size());
    for (size_t i = prefixes_.size(); i-- > 0;) {  // parents come before their children
      const int parent = prefixes_[i].parent;
      if (parent != kNone && (below[i] || prefixes_[i].object != kNone)) below[static_cast<size_t>(parent)] = true;
    }
    return below;
  }

  std::vector<Prefix> prefixes_;
  uint64_t now_ = 0;
};

// One world: a random universe of prefixes, an index and the map, the same steps on both.
void CompareInOneWorld(std::mt19937_64& random, int steps) {
  const size_t size = 20 + random() % 400;
  const size_t depth = 1 + random() % 60;
  const double straightness = static_cast<double>(random() % 100) / 100;
  const size_t entries_max = 1 + random() % 200;
  const int objects = 1 + static_cast<int>(random() % 40);
  SCOPED_TRACE("size " + std::to_string(size) + ", depth " + std::to_string(depth) + ", entries_max " +
               std::to_string(entries_max) + ", objects " + std::to_string(objects));
  BruteForce map(random, size, depth, straightness);
  PrefixIndex index({.entries_max = entries_max});
  TimePoint now{std::chrono::hours(1)};

  for (int step = 0; step < steps; ++step) {
    // Often several uses within one tick of the clock, sometimes a clock that steps back.
    now += Duration(static_cast<int64_t>(random() % 4) - 1);
    const int id = static_cast<int>(random() % map.size());
    const auto chain = map.ChainOf(id);
    const int object = static_cast<int>(random() % static_cast<uint64_t>(objects));
    const uint64_t what = random() % 100;
    if (what < 40) {
      index.Insert(chain, std::to_string(object), now);
      map.Insert(id, object, entries_max);
    } else if (what < 75) {
      const auto match = index.Longest(chain, now);
      const int expected = map.Longest(id);
      ASSERT_EQ(match.blocks, expected == kNone ? 0 : map.At(expected).blocks);
      ASSERT_EQ(match.object, expected == kNone ? "" : std::to_string(map.At(expected).object));
      if (step % 8 == 0 && expected != kNone) {
        ASSERT_EQ(match.hotness, static_cast<double>(map.FanOut(expected)));
      }
    } else if (what < 90) {
      const size_t kept = random() % (chain.size() + 1);
      index.Erase(chain, kept);
      map.Erase(id, kept);
    } else if (what < 99 || random() % 50 != 0) {
      index.RemoveObject(std::to_string(object));
      map.RemoveObject(object);
    } else {
      index.Clear();
      map.Clear();
    }
    const auto stats = index.GetStats();
    ASSERT_EQ(stats.entries, map.Entries()) << "after step " << step;
    ASSERT_EQ(stats.evicted_total, map.evicted) << "after step " << step;
    if (step % 64 == 0) {
      ASSERT_EQ(stats.holes, map.Holes()) << "after step " << step;
      ASSERT_EQ(index.CheckInvariants(), "") << "after step " << step;
    }
  }
  for (int id = 0; id < static_cast<int>(map.size()); ++id) {
    const int expected = map.Longest(id);
    ASSERT_EQ(index.Longest(map.ChainOf(id), now).blocks, expected == kNone ? 0 : map.At(expected).blocks);
  }
  for (int object = 0; object < objects; ++object) index.RemoveObject(std::to_string(object));
  const auto stats = index.GetStats();
  ASSERT_EQ(stats.entries + stats.holes + stats.nodes + stats.objects + stats.bytes, 0u);
}

TEST(PrefixIndexModel, AMillionRandomStepsEqualABruteForceMap) {
  const uint64_t seed = Seed();
  std::printf("MOONPOOL_SEED=%llu steps=%d\n", static_cast<unsigned long long>(seed), kSteps);
  std::mt19937_64 random(seed);
  for (int done = 0; done < kSteps; done += kStepsPerWorld) {
    SCOPED_TRACE("world " + std::to_string(done / kStepsPerWorld) + " of seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(CompareInOneWorld(random, std::min(kStepsPerWorld, kSteps - done)));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace moonpool::bus
