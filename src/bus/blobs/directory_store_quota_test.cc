// The byte quota, and who goes when room is needed (field reports B25, B28, B41; class C5).
#include <sys/stat.h>

#include <thread>

#include "support/hooked_file_system.h"
#include "support/store_fixture.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::Conversation;
using testing::HeaderFor;
using testing::PayloadFor;
using testing::ReadFile;
using testing::WriteFile;

class DirectoryStoreQuota : public testing::StoreFixture {
 protected:
  // Objects of these tests have payloads of one size, so a quota can be said in objects.
  static constexpr uint64_t kPayloadBytes = 20'000;
  static uint64_t Cost() { return CostOf(kPayloadBytes) + 4096; }
  Result<PublishReceipt> PublishSized(uint64_t seed, double hotness = 0) {
    clock_.Advance(std::chrono::seconds(1));
    auto header = HeaderFor(Conversation(seed, 20));
    return store_->Publish({.header = header, .source = Save(std::string(kPayloadBytes, 'p')), .hotness = hotness},
                           nullptr);
  }
  bool Stands(uint64_t seed) { return BlocksOf(Conversation(seed, 20)) == 5; }
  uint64_t FileBytes() const {
    uint64_t bytes = 0;
    for (const Path& folder : {Layout().Objects(), Layout().Quarantine(), Layout().Canaries(), Layout().Temp()}) {
      for (const auto& name : Names(folder)) {
        const Path path = folder / name;
        if (std::filesystem::is_symlink(path) || path.extension() == ".owner") continue;
        bytes += CostOf(std::filesystem::file_size(path));
      }
    }
    return bytes;
  }
};

TEST_F(DirectoryStoreQuota, EvictsTheLeastRecentlyUsed) {
  quota_bytes_ = 3 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 3; ++seed) ASSERT_TRUE(PublishSized(seed));
  clock_.Advance(std::chrono::seconds(1));
  store_->Touch(store_->BatchExists(ChainKeys(Conversation(1, 20))).value()[0]->object, 0);
  const auto receipt = PublishSized(4).value();
  EXPECT_EQ(receipt.evicted.size(), 1u);
  EXPECT_TRUE(Stands(1));
  EXPECT_FALSE(Stands(2));
  EXPECT_TRUE(Stands(3));
  EXPECT_TRUE(Stands(4));
  EXPECT_EQ(store_->Stats()->evictions_total, 1u);
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, HotPrefixesStayLonger) {
  quota_bytes_ = 3 * Cost();
  Open();
  ASSERT_TRUE(PublishSized(1, 6));  // worth an hour
  ASSERT_TRUE(PublishSized(2, std::nan("")));
  ASSERT_TRUE(PublishSized(3, -1e300));
  ASSERT_TRUE(PublishSized(4));
  EXPECT_TRUE(Stands(1));
  EXPECT_FALSE(Stands(2));
  clock_.Advance(std::chrono::hours(2));
  ASSERT_TRUE(PublishSized(5));
  ASSERT_TRUE(PublishSized(6));
  EXPECT_TRUE(Stands(4) || Stands(5));
  clock_.Advance(std::chrono::hours(2));
  ASSERT_TRUE(PublishSized(7));
  EXPECT_FALSE(Stands(1)) << "hotness does not outweigh any age";
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, RemembersTheOrderAcrossARestart) {
  quota_bytes_ = 3 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 3; ++seed) ASSERT_TRUE(PublishSized(seed));
  store_->Touch(store_->BatchExists(ChainKeys(Conversation(1, 20))).value()[0]->object, 0);
  Open();
  ASSERT_TRUE(PublishSized(4));
  EXPECT_TRUE(Stands(1));
  EXPECT_FALSE(Stands(2));
}

TEST_F(DirectoryStoreQuota, KeepsTheOrderWhenTheWallClockJumps) {  // B41
  const int64_t day_ms = int64_t{24} * 3600 * 1000;
  const int64_t start_ms = clock_.WallNowMs();
  for (const int64_t jump_ms : {int64_t{3'600'000}, int64_t{-3'600'000}, -30 * day_ms, -start_ms, int64_t{0}}) {
    for (const bool reopen : {false, true}) {
      SCOPED_TRACE(std::to_string(jump_ms) + (reopen ? " reopened" : ""));
      store_.reset();
      std::filesystem::remove_all(Root());
      clock_.SetWallMs(start_ms);
      quota_bytes_ = 3 * Cost();
      Open();
      ASSERT_TRUE(PublishSized(1));
      ASSERT_TRUE(PublishSized(2));
      clock_.SetWallMs(start_ms + jump_ms);
      if (reopen) Open();
      ASSERT_TRUE(PublishSized(3));
      const auto list = store_->List().value();
      for (const auto& summary : list) EXPECT_LE(summary.last_used_wall_ms, clock_.WallNowMs());
      ASSERT_TRUE(PublishSized(4));
      EXPECT_FALSE(Stands(1));
      clock_.SetWallMs(start_ms);
      if (reopen) Open();
      ASSERT_TRUE(PublishSized(5));
      EXPECT_FALSE(Stands(2));
      EXPECT_TRUE(Stands(3) && Stands(4) && Stands(5));
    }
  }
}

TEST_F(DirectoryStoreQuota, RefusesWhatCannotFitWithoutEvictingAnything) {  // C10
  quota_bytes_ = 3 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 3; ++seed) ASSERT_TRUE(PublishSized(seed));
  const auto whole = store_->Reserve(quota_bytes_ + 1);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::kQuota);
  EXPECT_EQ(store_->Reserve(~uint64_t{0}).error().code, ErrorCode::kQuota);
  EXPECT_EQ(store_->Stats()->objects, 3u);
  const auto reservation = store_->Reserve(2 * Cost()).value();
  EXPECT_EQ(store_->Stats()->objects, 1u);
  EXPECT_EQ(store_->Reserve(2 * Cost()).error().code, ErrorCode::kQuota) << "what is reserved counts";
  EXPECT_EQ(store_->Stats()->objects, 1u);
}

TEST_F(DirectoryStoreQuota, RefusesWhenTheFileSystemIsShort) {
  Open();
  store_.reset();
  DirectoryStore::Options options = Options();
  options.quota_bytes = ~uint64_t{0} / 2;
  options.free_margin_bytes = files_.FreeBytes(Root()).value() + (uint64_t{1} << 40);
  store_ = DirectoryStore::Open(files_, clock_, rng_, options).value();
  ASSERT_TRUE(PublishSized(1)) << "a rename needs no room";
  const auto reserved = store_->Reserve(1000);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(Stands(1)) << "evicting it would not have helped";
  EXPECT_EQ(store_->Stats()->reserved_bytes, 0u);
}

TEST_F(DirectoryStoreQuota, ReservationsCountUntilTheyAreUsedOrDropped) {
  quota_bytes_ = 10 * Cost();
  Open();
  auto reservation = store_->Reserve(Cost()).value();
  EXPECT_EQ(store_->Stats()->reserved_bytes, Cost());
  {
    const auto dropped = store_->Reserve(3 * Cost()).value();
    EXPECT_EQ(store_->Stats()->reserved_bytes, 4 * Cost());
  }
  EXPECT_EQ(store_->Stats()->reserved_bytes, Cost());
  auto header = HeaderFor(Conversation(1, 20));
  ASSERT_TRUE(
      store_->Publish({.header = header, .source = Save(std::string(kPayloadBytes, 'p'))}, std::move(reservation)));
  EXPECT_EQ(store_->Stats()->reserved_bytes, 0u);
  EXPECT_EQ(store_->Stats()->bytes, Cost());
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, GrowingConversationStaysBelowTheQuotaAtEveryMoment) {  // B28c, decision 7
  const auto turns = Conversation(1, 40 * testing::kTestBlockTokens);
  // Barely two of the longest: the bytes of all turns together are twenty times one.
  quota_bytes_ = 2 * (CostOf(PayloadFor(turns).size() + 200) + 2 * 4096);
  uint64_t highest = 0;
  testing::HookedFileSystem hooked(files_, [&](std::string_view, const Path&) {
    if (std::filesystem::exists(Layout().Temp())) highest = std::max(highest, FileBytes());
  });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  for (uint32_t blocks = 1; blocks <= 40; ++blocks) {
    const std::vector<TokenId> tokens(turns.begin(), turns.begin() + blocks * testing::kTestBlockTokens);
    auto request = RequestFor(tokens);
    auto reservation = store_->Reserve(PayloadFor(tokens).size()).value();
    ASSERT_TRUE(store_->Publish(std::move(request), std::move(reservation)));
    EXPECT_EQ(BlocksOf(tokens), blocks);
    EXPECT_EQ(store_->Stats()->objects, 1u);
    EXPECT_LE(highest, quota_bytes_);
  }
  EXPECT_GT(highest, quota_bytes_ / 3) << "it was looked at";
  EXPECT_EQ(store_->Stats()->evictions_total, 0u) << "turns replace each other, they do not push anybody out";
  ExpectSane();
  store_.reset();
}

TEST_F(DirectoryStoreQuota, UnknownFormatsCountAndGoFirst) {  // B28b
  quota_bytes_ = 103 * Cost();
  Open();
  ASSERT_TRUE(PublishSized(1));
  ASSERT_TRUE(PublishSized(2));
  store_.reset();
  std::filesystem::create_directories(Layout().Objects() / "ab");
  for (int i = 0; i < 50; ++i) {
    // A future version of the header, and files of no form at all.
    const std::string id = "ab00000000000000-00000000000000" + std::to_string(10 + i);
    std::string head = "MPKVHEAD";
    head += std::string("\x07\0\0\0", 4) + std::string(100, '\0');
    WriteFile(Layout().Head(id), head);
    WriteFile(Layout().Payload(id), std::string(kPayloadBytes, 'f'));
    WriteFile(Layout().Objects() / "ab" / ("stray" + std::to_string(i)), std::string(kPayloadBytes + 4096, 's'));
  }
  WriteFile(Layout().Temp() / "not-ours", "foreign");
  WriteFile(Root() / "note.txt", "foreign");
  Open();
  EXPECT_EQ(store_->Stats()->bytes, 102 * Cost() + 4096) << "they are charged";
  EXPECT_EQ(store_->List()->size(), 102u);
  for (uint64_t seed = 3; seed <= 102; ++seed) ASSERT_TRUE(PublishSized(seed)) << seed;
  for (uint64_t seed = 1; seed <= 102; ++seed) EXPECT_TRUE(Stands(seed)) << seed << ": leftovers go first";
  EXPECT_LE(store_->List()->size(), 103u);
  EXPECT_EQ(ReadFile(Layout().Temp() / "not-ours"), "foreign") << "but only where objects are";
  EXPECT_EQ(ReadFile(Root() / "note.txt"), "foreign");
  std::filesystem::remove(Layout().Temp() / "not-ours");
}

TEST_F(DirectoryStoreQuota, NeverEvictsUnderAReader) {  // B28e
  quota_bytes_ = 2 * Cost();
  ObjectId first;
  int refused = 0;
  std::unique_ptr<DirectoryStore> other;
  testing::HookedFileSystem hooked(files_, [&](std::string_view call, const Path& path) {
    if (call != "read" || path != Slots() / "out") return;
    // In the middle of the fetch, somebody else wants all the room and this very object gone.
    EXPECT_EQ(other->Remove(first).error().code, ErrorCode::kBusy);
    EXPECT_EQ(other->Reserve(2 * Cost()).error().code, ErrorCode::kQuota);
    EXPECT_TRUE(other->Reserve(Cost())) << "others may go";
    ++refused;
  });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  other = TryOpen().value();
  first = PublishSized(1)->object;
  ASSERT_TRUE(PublishSized(2));
  ASSERT_TRUE(store_->Fetch(store_->ReadHeader(first).value(), Slots() / "out", Soon()));
  EXPECT_GT(refused, 0);
  EXPECT_EQ(ReadFile(Slots() / "out"), std::string(kPayloadBytes, 'p'));
  EXPECT_TRUE(Stands(1));
  EXPECT_FALSE(Stands(2));
  EXPECT_TRUE(other->Remove(first)) << "once the reader is done";
  store_.reset();
}

TEST_F(DirectoryStoreQuota, SeesWhatAnotherBusUsedLately) {
  quota_bytes_ = 3 * Cost();
  Open();
  auto other = TryOpen().value();
  for (uint64_t seed = 1; seed <= 3; ++seed) ASSERT_TRUE(PublishSized(seed));
  clock_.Advance(std::chrono::seconds(1));
  other->Touch(store_->BatchExists(ChainKeys(Conversation(1, 20))).value()[0]->object, 0);
  ASSERT_TRUE(PublishSized(4));
  EXPECT_TRUE(Stands(1));
  EXPECT_FALSE(Stands(2));
}

TEST_F(DirectoryStoreQuota, LearnsOfRoomThatWasMadeByHand) {
  quota_bytes_ = 3 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 3; ++seed) ASSERT_TRUE(PublishSized(seed));
  for (const auto& name : Names(Layout().Objects())) std::filesystem::remove(Layout().Objects() / name);
  for (uint64_t seed = 4; seed <= 6; ++seed) ASSERT_TRUE(PublishSized(seed));
  EXPECT_TRUE(Stands(4) && Stands(5) && Stands(6));
  store_->Tick();
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, ShrinksToALoweredQuota) {
  quota_bytes_ = 5 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 5; ++seed) ASSERT_TRUE(PublishSized(seed));
  quota_bytes_ = 2 * Cost();
  Open();
  EXPECT_EQ(store_->Stats()->objects, 2u);
  EXPECT_TRUE(Stands(4) && Stands(5));
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, CanariesStayWhileObjectsNeedThem) {  // decision 6
  const Digest256 identity = Sha256Of(std::string_view("identity"));
  quota_bytes_ = 4 * Cost();
  Open();
  ASSERT_TRUE(store_->PutCanary(identity, 0, std::string(kPayloadBytes, 'c')));  // costs less than an object
  ASSERT_TRUE(store_->PutCanary(identity, 1, std::string(kPayloadBytes, 'd')));
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    clock_.Advance(std::chrono::hours(1));
    auto header = HeaderFor(Conversation(seed, 20));
    header.canary = CanaryRef{identity, 1};
    ASSERT_TRUE(store_->Publish({.header = header, .source = Save(std::string(kPayloadBytes, 'p'))}, nullptr));
  }
  EXPECT_EQ(store_->GetCanary(identity, 0).error().code, ErrorCode::kNotFound) << "nobody needed it";
  EXPECT_EQ(store_->GetCanary(identity, 1).value(), std::string(kPayloadBytes, 'd'));
  ExpectSane();
  // One object that names no canary protects all of them.
  ASSERT_TRUE(store_->PutCanary(identity, 0, std::string(kPayloadBytes, 'c')));
  ASSERT_TRUE(PublishSized(100));
  for (uint64_t seed = 101; seed <= 110; ++seed) ASSERT_TRUE(PublishSized(seed));
  EXPECT_TRUE(store_->GetCanary(identity, 0));
  EXPECT_TRUE(store_->GetCanary(identity, 1));
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, QuarantineCountsAndGoesBeforeObjects) {
  quota_bytes_ = 4 * Cost();
  Open();
  for (uint64_t seed = 1; seed <= 4; ++seed) ASSERT_TRUE(PublishSized(seed));
  store_->Quarantine(store_->BatchExists(ChainKeys(Conversation(4, 20))).value()[0]->object, "damaged for the test");
  EXPECT_LE(store_->CountBytes().value(), quota_bytes_);
  store_->Tick();
  ExpectSane();
  ASSERT_TRUE(PublishSized(5));
  EXPECT_TRUE(Stands(1) && Stands(2) && Stands(3) && Stands(5));
  ExpectSane();
}

TEST_F(DirectoryStoreQuota, ManyThreadsShareOneStore) {  // C12; run under the thread sanitizer
  quota_bytes_ = 12 * Cost();
  Open();
  std::vector<std::thread> threads;
  std::atomic<int> published{0};
  std::atomic<int> fetched{0};
  for (uint64_t worker = 0; worker < 6; ++worker) {
    threads.emplace_back([&, worker] {
      SystemClock clock;
      for (uint64_t round = 0; round < 30; ++round) {
        const uint64_t seed = 1 + (worker * 7 + round * 3) % 20;
        const auto tokens = Conversation(seed, 20);
        const std::string name = std::to_string(worker) + "-" + std::to_string(round);
        WriteFile(Slots() / ("in" + name), PayloadFor(tokens));
        const auto receipt = store_->Publish({.header = HeaderFor(tokens), .source = Slots() / ("in" + name)}, nullptr);
        if (receipt) ++published;
        ASSERT_TRUE(receipt || receipt.error().code == ErrorCode::kAlreadyExists) << receipt.error().ToString();
        const auto found = store_->BatchExists(ChainKeys(tokens));
        ASSERT_TRUE(found);
        if (!found->back()) continue;
        const auto header = store_->ReadHeader(found->back()->object);
        if (!header) continue;
        const Path out = Slots() / ("out" + name);
        if (store_->Fetch(*header, out, Deadline(clock, std::chrono::seconds(60)))) {
          ++fetched;
          ASSERT_EQ(ReadFile(out), PayloadFor(tokens));
        }
        store_->Touch(header->id, 1);
        if (round % 10 == 9) store_->Tick();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(published, 10);
  EXPECT_GT(fetched, 10);
  store_->Tick();
  ExpectSane();
  EXPECT_EQ(store_->Stats()->corrupt_total, 0u);
}

}  // namespace
}  // namespace moonpool::bus
