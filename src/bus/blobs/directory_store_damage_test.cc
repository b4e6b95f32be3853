// Damaged, vanished and replaced objects: found before a server sees them, set aside, never offered again
// (field reports B15, B26, B54, B63b).
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "base/fault.h"
#include "support/hooked_file_system.h"
#include "support/store_fixture.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::Conversation;
using testing::OpenDescriptors;
using testing::PayloadFor;
using testing::ReadFile;
using testing::WriteFile;

class DirectoryStoreDamage : public testing::StoreFixture {};

void FlipByte(const Path& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST_F(DirectoryStoreDamage, FindsOneFlippedByteAnywhere) {  // B15: 200 positions
  Open();
  const auto tokens = Conversation(1, 20);
  const uint64_t size_bytes = (4u << 20) + 777;  // two chunks
  for (int i = 0; i < 200; ++i) {
    const uint64_t at = i == 199 ? size_bytes - 1 : size_bytes / 199 * static_cast<uint64_t>(i);
    const ObjectId id = PublishLarge(tokens, size_bytes);
    const auto header = store_->ReadHeader(id).value();
    FlipByte(Layout().Payload(id), at);
    const auto receipt = store_->Fetch(header, Slots() / "out", Soon());
    ASSERT_FALSE(receipt) << at;
    ASSERT_EQ(receipt.error().code, ErrorCode::kCorrupt);
    ASSERT_FALSE(std::filesystem::exists(Slots() / "out"));
    ASSERT_EQ(BlocksOf(tokens), 0u) << "never offered again";
    ASSERT_EQ(store_->ReadHeader(id).error().code, ErrorCode::kNotFound);
    ASSERT_EQ(store_->Fetch(header, Slots() / "out", Soon()).error().code, ErrorCode::kNotFound);
    const std::string reason = ReadFile(Layout().QuarantineReason(id));
    ASSERT_NE(reason.find("chunk " + std::to_string(at / header.chunk_bytes) + " of 2"), std::string::npos) << reason;
    if (i % 20 == 0) {
      for (const auto& name : Names(Layout().Quarantine())) std::filesystem::remove(Layout().Quarantine() / name);
    }
  }
  EXPECT_EQ(store_->Stats()->corrupt_total, 200u);
  clock_.Advance(std::chrono::hours(1));
  store_->Tick();
  ExpectSane();
}

TEST_F(DirectoryStoreDamage, VerifyReportsAndSetsAside) {
  Open();
  const ObjectId sound = Publish(Conversation(2, 20));
  const ObjectId bad = Publish(Conversation(3, 20));
  EXPECT_TRUE(store_->Verify(sound));
  FlipByte(Layout().Payload(bad), 77);
  EXPECT_EQ(store_->Verify(bad).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(store_->Verify(bad).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->Stats()->quarantined, 1u);
  EXPECT_EQ(store_->Stats()->objects, 1u);
  Open();
  EXPECT_EQ(BlocksOf(Conversation(3, 20)), 0u);
  ExpectSane();
}

TEST_F(DirectoryStoreDamage, DamagedHeaderIsSetAside) {
  Open();
  const auto tokens = Conversation(4, 20);
  const size_t size = files_.Info(Layout().Head(Publish(tokens)))->size_bytes;
  const std::vector<std::function<void(const Path&)>> damages = {
      [](const Path& head) { FlipByte(head, 30); },
      [&](const Path& head) { truncate(head.c_str(), static_cast<off_t>(size / 2)); },
      [](const Path& head) { truncate(head.c_str(), 0); },
      [](const Path& head) { std::filesystem::remove(head), std::filesystem::create_directory(head); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    const ObjectId id = store_->BatchExists(ChainKeys(tokens)).value()[4]->object;
    damages[i](Layout().Head(id));
    EXPECT_EQ(store_->ReadHeader(id).error().code, ErrorCode::kCorrupt) << i;
    EXPECT_EQ(store_->ReadHeader(id).error().code, ErrorCode::kNotFound) << i;
    EXPECT_EQ(BlocksOf(tokens), 0u) << i;
    Publish(tokens);
    EXPECT_EQ(BlocksOf(tokens), 5u) << i;
  }
}

TEST_F(DirectoryStoreDamage, StartSkipsWhatIsDamaged) {  // B54
  Open();
  std::vector<ObjectId> ids;
  for (uint64_t i = 0; i < 6; ++i) ids.push_back(Publish(Conversation(10 + i, 20)));
  store_.reset();
  FlipByte(Layout().Head(ids[0]), 40);
  truncate(Layout().Payload(ids[1]).c_str(), 100);
  std::filesystem::remove(Layout().Payload(ids[2]));
  std::filesystem::remove(Layout().Head(ids[3]));
  std::filesystem::rename(Layout().Head(ids[4]), Layout().Head(ids[4].substr(0, 32) + (ids[4][32] == '0' ? "1" : "0")));
  Open();
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(BlocksOf(Conversation(10 + i, 20)), i == 5 ? 5u : 0u) << i;
  ExpectSane();
  EXPECT_EQ(FetchBytes(ids[5]), PayloadFor(Conversation(15, 20)));
  clock_.Advance(std::chrono::hours(1));
  store_->Tick();
  EXPECT_EQ(store_->Stats()->aliases, 5u);
}

TEST_F(DirectoryStoreDamage, GoneBetweenLookupAndFetchIsACleanMiss) {  // B26
  const std::vector<std::pair<const char*, std::function<void(const Path&)>>> ways = {
      {"deleted", [](const Path& path) { std::filesystem::remove(path); }},
      {"renamed", [](const Path& path) { std::filesystem::rename(path, path.string() + ".away"); }},
      {"mode 000", [](const Path& path) { chmod(path.c_str(), 0); }},
      {"a directory", [](const Path& path) { std::filesystem::remove(path), std::filesystem::create_directory(path); }},
      {"a link",
       [this](const Path& path) {
         WriteFile(dir_ / "elsewhere", "somebody's secret");
         std::filesystem::remove(path), std::filesystem::create_symlink(dir_ / "elsewhere", path);
       }},
      {"shorter", [](const Path& path) { truncate(path.c_str(), 3); }},
      {"longer", [](const Path& path) { std::ofstream(path, std::ios::app) << "x"; }},
  };
  for (const auto& [name, spoil] : ways) {
    for (const bool spoil_head : {false, true}) {
      SCOPED_TRACE(std::string(name) + (spoil_head ? " header" : " payload"));
      store_.reset();
      std::filesystem::remove_all(Root());
      Open();
      const auto tokens = Conversation(20, 20);
      const ObjectId id = Publish(tokens);
      const auto header = store_->ReadHeader(id).value();
      ASSERT_EQ(BlocksOf(tokens), 5u);
      spoil(spoil_head ? Layout().Head(id) : Layout().Payload(id));
      const size_t descriptors = OpenDescriptors();
      const auto receipt = store_->Fetch(header, Slots() / "out", Soon());
      EXPECT_EQ(OpenDescriptors(), descriptors);
      if (!receipt) {
        EXPECT_TRUE(receipt.error().code == ErrorCode::kNotFound || receipt.error().code == ErrorCode::kCorrupt)
            << receipt.error().ToString();
        EXPECT_FALSE(std::filesystem::exists(Slots() / "out"));
        EXPECT_EQ(BlocksOf(tokens), 0u) << "one miss, not a thousand (B54)";
      } else {
        // root reads whatever the mode, and a header that was read before may change afterwards.
        EXPECT_TRUE(geteuid() == 0 || spoil_head);
        EXPECT_EQ(ReadFile(Slots() / "out"), PayloadFor(tokens));
        std::filesystem::remove(Slots() / "out");
      }
      (void)store_->Remove(id);
      (void)store_->Remove(id);
      EXPECT_TRUE(TryPublish(Conversation(21, 20)));
    }
  }
}

TEST_F(DirectoryStoreDamage, ShrinkingFileIsAnErrorAndNoSignal) {  // B63b: nothing is mapped
  Open();
  const ObjectId id = PublishLarge(Conversation(22, 20), 9u << 20);
  const auto header = store_->ReadHeader(id).value();
  truncate(Layout().Payload(id).c_str(), static_cast<off_t>(header.payload_bytes / 2));
  EXPECT_EQ(store_->Fetch(header, Slots() / "out", Soon()).error().code, ErrorCode::kCorrupt);
}

TEST_F(DirectoryStoreDamage, QuarantineFreesItsAliasesForOthers) {
  Open();
  auto first = Conversation(23, 32);
  auto second = first;
  for (size_t i = 12; i < second.size(); ++i) second[i] += 1;
  const ObjectId a = Publish(first);
  const ObjectId b = Publish(second);
  store_->Quarantine(a, "a reader saw nonsense");
  EXPECT_EQ(BlocksOf(first), 3u);
  EXPECT_EQ(store_->BatchExists(ChainKeys(first)).value()[2]->object, b);
  EXPECT_NE(ReadFile(Layout().QuarantineReason(a)).find("a reader saw nonsense"), std::string::npos);
  store_->Quarantine(a, "again");
  EXPECT_EQ(store_->Stats()->quarantined, 1u);
  store_->Tick();
  ExpectSane();
}

TEST_F(DirectoryStoreDamage, CondemnedIsNotOfferedEvenIfItCannotBeMoved) {
  Open();
  const auto tokens = Conversation(24, 20);
  const ObjectId id = Publish(tokens);
  const auto header = store_->ReadHeader(id).value();
  FlipByte(Layout().Payload(id), 5);
  fault::FailAt("fs.rename");
  EXPECT_EQ(store_->Fetch(header, Slots() / "out", Soon()).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(BlocksOf(tokens), 0u);
  EXPECT_EQ(store_->Fetch(header, Slots() / "out", Soon()).error().code, ErrorCode::kNotFound);
  fault::Disarm();
  EXPECT_EQ(store_->Stats()->quarantined, 0u);
  store_->Tick();
  EXPECT_EQ(store_->Stats()->quarantined, 1u);
  ExpectSane();
}

TEST_F(DirectoryStoreDamage, FileThatChangesWhileItIsPublishedIsRefused) {  // B22: the writer is still at work
  const auto tokens = Conversation(25, 400);
  bool writing = false;
  bool overwriting = false;
  testing::HookedFileSystem hooked(files_, [&](std::string_view call, const Path& path) {
    if (writing && call == "read" && path.extension() == ".kv") {
      writing = false;
      std::ofstream(path, std::ios::app) << "more";
    }
    if (overwriting && call == "read" && path.extension() == ".kv") {
      overwriting = false;
      FlipByte(path, 0);
      // Time stamps are coarse, and a writer takes its time.
      ASSERT_TRUE(files_.SetModified(path, files_.Info(path)->modified_ns + 10'000'000));
    }
  });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  auto request = RequestFor(tokens);
  writing = true;
  const auto receipt = store_->Publish(std::move(request), nullptr);
  ASSERT_FALSE(receipt);
  EXPECT_EQ(receipt.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(receipt.error().message.find("changed while it was read"), std::string::npos);
  EXPECT_EQ(BlocksOf(tokens), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(Slots()));
  ExpectSane();
  // Written to without growing.
  request = RequestFor(tokens);
  overwriting = true;
  EXPECT_EQ(store_->Publish(std::move(request), nullptr).error().code, ErrorCode::kCorrupt);
  ASSERT_FALSE(overwriting);
  EXPECT_EQ(BlocksOf(tokens), 0u);
  EXPECT_TRUE(TryPublish(tokens));
  store_.reset();  // before the file system it uses
}

TEST_F(DirectoryStoreDamage, GoneBetweenOpenAndReadIsACleanMiss) {  // B26
  const auto tokens = Conversation(26, 20);
  std::function<void(std::string_view, const Path&)> hook = [](std::string_view, const Path&) {};
  testing::HookedFileSystem hooked(files_, [&](std::string_view call, const Path& path) { hook(call, path); });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  // Cut in the middle of the read, through the other name of the same bytes.
  ObjectId id = PublishLarge(tokens, 9u << 20);
  auto header = store_->ReadHeader(id).value();
  int reads = 0;
  hook = [&](std::string_view call, const Path& path) {
    if (call == "read" && path == Slots() / "out" && ++reads == 5) truncate(Layout().Payload(id).c_str(), 1000);
  };
  EXPECT_EQ(store_->Fetch(header, Slots() / "out", Soon()).error().code, ErrorCode::kCorrupt);
  hook = [](std::string_view, const Path&) {};
  EXPECT_EQ(BlocksOf(tokens), 0u);
  // Removed by somebody after it was linked: the reader has its own name, so it gets the bytes.
  id = Publish(tokens);
  header = store_->ReadHeader(id).value();
  hook = [&](std::string_view call, const Path& path) {
    if (call == "open" && path == Slots() / "out") std::filesystem::remove(Layout().Payload(id));
  };
  EXPECT_TRUE(store_->Fetch(header, Slots() / "out", Soon()));
  EXPECT_EQ(ReadFile(Slots() / "out"), PayloadFor(tokens));
  hook = [](std::string_view, const Path&) {};
  EXPECT_EQ(store_->Fetch(header, Slots() / "out2", Soon()).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(BlocksOf(tokens), 0u);
  store_.reset();
}

}  // namespace
}  // namespace moonpool::bus
