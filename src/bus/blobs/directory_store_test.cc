#include "bus/blobs/directory_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

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

class DirectoryStoreTest : public testing::StoreFixture {};

TEST_F(DirectoryStoreTest, GivesBackWhatWasPublishedUnderEveryBoundary) {
  Open();
  const auto tokens = Conversation(1, 43);  // ten blocks and three tokens more
  auto request = RequestFor(tokens);
  const Path source = request.source;
  const auto receipt = store_->Publish(std::move(request), nullptr).value();
  EXPECT_EQ(receipt.aliases_new, 10u);
  EXPECT_EQ(receipt.transfer, TransferKind::kRename);
  EXPECT_EQ(receipt.payload_bytes, PayloadFor(tokens).size());
  EXPECT_FALSE(std::filesystem::exists(source)) << "the saved file was consumed";

  const auto keys = ChainKeys(tokens);
  const auto found = store_->BatchExists(keys).value();
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(found[i]);
    EXPECT_EQ(found[i]->object, receipt.object);
    EXPECT_EQ(found[i]->blocks, i + 1);
  }
  const ObjectHeader header = store_->ReadHeader(receipt.object).value();
  EXPECT_EQ(header.tokens, tokens);
  EXPECT_EQ(header.keys, keys);
  EXPECT_EQ(header.layout, "plain f16 streams=1");
  EXPECT_EQ(FetchBytes(receipt.object), PayloadFor(tokens));
  ExpectSane();
}

TEST_F(DirectoryStoreTest, FetchesByHardLinkSoThatNothingIsCopied) {
  Open();
  const ObjectId id = Publish(Conversation(1, 8));
  const auto header = store_->ReadHeader(id).value();
  const auto receipt = store_->Fetch(header, Slots() / "out", Soon()).value();
  EXPECT_EQ(receipt.transfer, TransferKind::kHardLink);
  EXPECT_EQ(files_.Info(Slots() / "out")->inode, files_.Info(Layout().Payload(id))->inode);
  // A destination that is taken stays as it is.
  WriteFile(Slots() / "taken", "mine");
  EXPECT_EQ(store_->Fetch(header, Slots() / "taken", Soon()).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(Slots() / "taken"), "mine");
}

TEST_F(DirectoryStoreTest, SurvivesReopening) {  // B54
  Open();
  const auto tokens = Conversation(2, 20);
  const ObjectId id = Publish(tokens);
  Open();
  EXPECT_EQ(BlocksOf(tokens), 5u);
  EXPECT_EQ(FetchBytes(id), PayloadFor(tokens));
  ExpectSane();
}

TEST_F(DirectoryStoreTest, RefusesAChainThatIsServedAndConsumesTheFile) {
  Open();
  const auto tokens = Conversation(3, 16);
  Publish(tokens);
  for (const size_t count : {16u, 18u, 8u}) {  // the same, with a longer tail, a prefix
    auto request = RequestFor(Conversation(3, count));
    const Path source = request.source;
    EXPECT_EQ(store_->Publish(std::move(request), nullptr).error().code, ErrorCode::kAlreadyExists) << count;
    EXPECT_FALSE(std::filesystem::exists(source));
  }
  EXPECT_EQ(store_->Stats()->objects, 1u);
  ExpectSane();
}

TEST_F(DirectoryStoreTest, ReplacesAnObjectByOneThatBeginsWithIt) {  // decision 7
  Open();
  const auto longer = Conversation(4, 24);
  const ObjectId old = Publish(Conversation(4, 9));  // ends inside a block, but its tokens are a prefix
  const auto receipt = TryPublish(longer).value();
  EXPECT_EQ(receipt.retired, std::vector<ObjectId>{old});
  EXPECT_EQ(store_->ReadHeader(old).error().code, ErrorCode::kNotFound);
  const auto found = store_->BatchExists(ChainKeys(longer)).value();
  for (const auto& ref : found) {
    ASSERT_TRUE(ref);
    EXPECT_EQ(ref->object, receipt.object);
  }
  EXPECT_EQ(store_->Stats()->objects, 1u);
  ExpectSane();
}

TEST_F(DirectoryStoreTest, KeepsAnObjectWhoseTailDiffers) {
  Open();
  auto forked = Conversation(5, 10);
  forked[9] += 1;  // in the part after the last whole block
  const ObjectId old = Publish(forked);
  const auto receipt = TryPublish(Conversation(5, 24)).value();
  EXPECT_TRUE(receipt.retired.empty());
  EXPECT_EQ(FetchBytes(old), PayloadFor(forked));
  EXPECT_EQ(store_->BatchExists(ChainKeys(forked)).value()[1]->object, old) << "put-if-absent";
  ExpectSane();
}

TEST_F(DirectoryStoreTest, MovesAliasesToAnotherObjectWithTheSameBlocks) {  // decision 7
  Open();
  auto first = Conversation(6, 32);
  auto second = first;
  for (size_t i = 12; i < second.size(); ++i) second[i] += 1;  // shares three blocks
  const ObjectId a = Publish(first);
  const ObjectId b = Publish(second);
  EXPECT_EQ(store_->BatchExists(ChainKeys(second)).value()[2]->object, a);
  ASSERT_TRUE(store_->Remove(a));
  const auto found = store_->BatchExists(ChainKeys(first)).value();
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].has_value(), i < 3) << i;
    if (found[i]) {
      EXPECT_EQ(found[i]->object, b);
    }
  }
  EXPECT_EQ(BlocksOf(second), 8u);
  EXPECT_EQ(store_->Stats()->aliases, 8u) << "no alias is left behind";
  ASSERT_TRUE(store_->Remove(b));
  EXPECT_EQ(store_->Stats()->aliases, 0u);
  EXPECT_EQ(store_->Stats()->bytes, 0u);
  EXPECT_EQ(store_->Remove(b).error().code, ErrorCode::kNotFound) << "a second removal is a clean answer (B26)";
}

TEST_F(DirectoryStoreTest, FindsAnAliasThatMovesWhileItIsLookedAt) {  // B26
  auto first = Conversation(6, 32);
  auto second = first;
  for (size_t i = 12; i < second.size(); ++i) second[i] += 1;
  ObjectId a;
  std::unique_ptr<DirectoryStore> other;
  bool armed = false;
  testing::HookedFileSystem hooked(files_, [&](std::string_view call, const Path& path) {
    if (!armed || call != "info" || path != Layout().Head(a)) return;
    armed = false;
    EXPECT_TRUE(other->Remove(a));  // between reading the alias and looking at its object
  });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  other = TryOpen().value();
  a = Publish(first);
  const ObjectId b = Publish(second);
  armed = true;
  const auto found = store_->BatchExists(ChainKeys(first)).value();
  ASSERT_FALSE(armed);
  ASSERT_TRUE(found[0]);
  EXPECT_EQ(found[0]->object, b);
  EXPECT_FALSE(found[3]);
  store_.reset();
}

TEST_F(DirectoryStoreTest, ReplacesAnObjectThatIsBeingReadOnceTheReaderIsDone) {  // decision 7, B28e
  const auto shorter = Conversation(6, 8);
  const auto longer = Conversation(6, 24);
  std::unique_ptr<DirectoryStore> other;
  bool armed = false;
  testing::HookedFileSystem hooked(files_, [&](std::string_view call, const Path& path) {
    if (!armed || call != "read" || path != Slots() / "out") return;
    armed = false;
    const auto receipt = other->Publish(RequestFor(longer), nullptr).value();
    EXPECT_TRUE(receipt.retired.empty()) << "never under a reader";
  });
  store_ = DirectoryStore::Open(hooked, clock_, rng_, Options()).value();
  other = TryOpen().value();
  const ObjectId old = Publish(shorter);
  const auto header = store_->ReadHeader(old).value();
  armed = true;
  ASSERT_TRUE(store_->Fetch(header, Slots() / "out", Soon()));
  ASSERT_FALSE(armed);
  EXPECT_EQ(ReadFile(Slots() / "out"), PayloadFor(shorter));
  const auto found = store_->BatchExists(ChainKeys(longer)).value();
  for (const auto& ref : found) EXPECT_TRUE(ref && ref->object != old) << "the new one has taken over";
  EXPECT_EQ(store_->Stats()->objects, 2u);
  clock_.Advance(std::chrono::hours(1));
  store_->Tick();
  EXPECT_EQ(store_->Stats()->objects, 1u);
  other.reset();
  ExpectSane();
  store_.reset();
}

TEST_F(DirectoryStoreTest, EveryVerbAgreesForEveryNamespace) {  // B09, B62a, B62d
  Open();
  const auto tokens = Conversation(7, 16);
  const std::vector<std::string> spaces = {"", "t1", "t1/t2"};
  std::vector<ObjectId> ids;
  for (const auto& space : spaces) {
    for (const auto& other : spaces) {
      const bool there = std::find(spaces.begin(), spaces.begin() + ids.size(), other) != spaces.begin() + ids.size();
      EXPECT_EQ(BlocksOf(tokens, other), there ? 4u : 0u) << space << " " << other;
    }
    ids.push_back(TryPublish(tokens, space).value().object);
    EXPECT_EQ(store_->ReadHeader(ids.back())->name_space, space);
  }
  EXPECT_EQ(store_->Stats()->aliases, 12u);
  ASSERT_TRUE(store_->Remove(ids[1]));
  EXPECT_EQ(BlocksOf(tokens, ""), 4u);
  EXPECT_EQ(BlocksOf(tokens, "t1"), 0u);
  EXPECT_EQ(BlocksOf(tokens, "t1/t2"), 4u);
}

TEST_F(DirectoryStoreTest, RefusesBadInputAndConsumesTheFile) {  // B24 (what the store can see), B32
  Open();
  const auto tokens = Conversation(8, 16);
  const auto code_of = [&](auto change, const std::string& bytes) {
    PublishRequest request{.header = HeaderFor(tokens), .source = Save(bytes)};
    change(request.header);
    const Path source = request.source;
    const auto receipt = store_->Publish(std::move(request), nullptr);
    EXPECT_FALSE(std::filesystem::exists(source));
    return receipt ? ErrorCode::kInternal : receipt.error().code;
  };
  EXPECT_EQ(code_of([](ObjectHeader&) {}, ""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([](ObjectHeader& h) { h.keys.clear(); }, "x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([](ObjectHeader& h) { h.keys.pop_back(); }, "x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([](ObjectHeader& h) { h.block_tokens = 0; }, "x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([](ObjectHeader& h) { h.first_token = 4; }, "x"), ErrorCode::kUnsupported);

  // A link in the slot directory is not followed, and what it points to is untouched.
  WriteFile(dir_ / "outside", "precious");
  std::filesystem::create_symlink(dir_ / "outside", Slots() / "link");
  EXPECT_EQ(store_->Publish({.header = HeaderFor(tokens), .source = Slots() / "link"}, nullptr).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(dir_ / "outside"), "precious");
  EXPECT_EQ(store_->Publish({.header = HeaderFor(tokens), .source = Slots() / "absent"}, nullptr).error().code,
            ErrorCode::kNotFound);

  for (const char* id : {"", ".", "..", "../x", "0123456789abcdef-fedcba987654321", "x\0y", "FORMAT"}) {
    EXPECT_EQ(store_->ReadHeader(id).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store_->Remove(id).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store_->Verify(id).error().code, ErrorCode::kNotFound);
    store_->Touch(id, 1);
    store_->Quarantine(id, "hostile");
  }
  EXPECT_EQ(store_->Stats()->bytes, 0u);
  ExpectSane();
}

TEST_F(DirectoryStoreTest, CopiesAFileThatHasASecondName) {  // decision 13b
  Open();
  const auto tokens = Conversation(9, 16);
  auto request = RequestFor(tokens);
  std::filesystem::create_hard_link(request.source, Slots() / "other-name");
  const auto receipt = store_->Publish(std::move(request), nullptr).value();
  EXPECT_NE(receipt.transfer, TransferKind::kRename);
  WriteFile(Slots() / "other-name", "the server saves again");
  EXPECT_EQ(FetchBytes(receipt.object), PayloadFor(tokens));
}

TEST_F(DirectoryStoreTest, WorksAcrossFileSystemsByCopying) {
  testing::TempDir other;
  if (files_.Info(other.path())->device == files_.Info(dir_.path())->device) GTEST_SKIP() << "one file system";
  Open();
  const auto tokens = Conversation(10, 400);
  WriteFile(other / "saved", PayloadFor(tokens));
  const auto receipt = store_->Publish({.header = HeaderFor(tokens), .source = other / "saved"}, nullptr).value();
  EXPECT_EQ(receipt.transfer, TransferKind::kKernelCopy);
  EXPECT_FALSE(std::filesystem::exists(other / "saved"));
  const auto header = store_->ReadHeader(receipt.object).value();
  EXPECT_EQ(store_->Fetch(header, other / "out", Soon())->transfer, TransferKind::kKernelCopy);
  EXPECT_EQ(ReadFile(other / "out"), PayloadFor(tokens));
  ExpectSane();
}

TEST_F(DirectoryStoreTest, EndsAFetchAtItsDeadline) {  // B20
  Open();
  const ObjectId id = Publish(Conversation(11, 8));
  const auto header = store_->ReadHeader(id).value();
  const Deadline past(clock_, Duration::zero());
  EXPECT_EQ(store_->Fetch(header, Slots() / "out", past).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(std::filesystem::exists(Slots() / "out"));
  EXPECT_TRUE(store_->Fetch(header, Slots() / "out", Soon()));
}

TEST_F(DirectoryStoreTest, KeepsDirectoriesAndFilesPrivate) {  // B62e
  const mode_t old = umask(0);
  Open();
  const auto tokens = Conversation(12, 8);
  auto request = RequestFor(tokens);
  ASSERT_EQ(chmod(request.source.c_str(), 0666), 0);
  const auto receipt = store_->Publish(std::move(request), nullptr).value();
  ASSERT_TRUE(store_->PutCanary(Sha256Of(std::string_view("i")), 0, "canary"));
  store_->Quarantine(receipt.object, "for the test");
  Publish(tokens);
  umask(old);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Root())) {
    if (entry.is_symlink()) continue;  // a link's mode means nothing
    EXPECT_EQ(files_.Info(entry.path())->permissions, entry.is_directory() ? 0700u : 0600u) << entry.path();
  }
}

TEST_F(DirectoryStoreTest, RefusesADirectoryThatOthersMayEnter) {  // B62e
  for (const mode_t mode : {0755, 0770, 0707}) {
    std::filesystem::create_directory(Root());
    chmod(Root().c_str(), mode);
    const auto opened = TryOpen();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kPermission);
    EXPECT_NE(opened.error().message.find("chmod"), std::string::npos) << opened.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(Root())) << "left as it was";
    std::filesystem::remove(Root());
  }
  // Also when it is one of the folders inside.
  Open();
  store_.reset();
  chmod(Layout().Objects().c_str(), 0755);
  EXPECT_EQ(TryOpen().error().code, ErrorCode::kPermission);
}

TEST_F(DirectoryStoreTest, RefusesALinkAndAnotherOwner) {  // B62e
  std::filesystem::create_directory(dir_ / "real");
  chmod((dir_ / "real").c_str(), 0700);
  std::filesystem::create_symlink(dir_ / "real", Root());
  for (const Path& root : {Root(), Root() / ""}) {
    DirectoryStore::Options options = Options();
    options.root = root;
    const auto opened = DirectoryStore::Open(files_, clock_, rng_, options);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kPermission);
    EXPECT_NE(opened.error().message.find("symbolic link"), std::string::npos) << opened.error().message;
  }
  std::filesystem::remove(Root());
  DirectoryStore::Options options = Options();
  if (geteuid() == 0) {
    std::filesystem::create_directory(Root());
    chmod(Root().c_str(), 0700);
    ASSERT_EQ(chown(Root().c_str(), 65534, 65534), 0);
  } else {
    options.root = "/";
  }
  const auto opened = DirectoryStore::Open(files_, clock_, rng_, options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kPermission);
  EXPECT_NE(opened.error().message.find("belongs to uid"), std::string::npos) << opened.error().message;
}

TEST_F(DirectoryStoreTest, RefusesAnotherFormatAndWhatIsNoStore) {
  Open();
  store_.reset();
  WriteFile(Layout().Format(), "moonpool-store 2\n");
  const auto newer = TryOpen();
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(newer.error().message.find("moonpool-store 2"), std::string::npos) << newer.error().message;
  WriteFile(Layout().Format(), "moonpool-store 1\n");
  EXPECT_TRUE(TryOpen());

  std::filesystem::remove_all(Root());
  std::filesystem::create_directory(Root());
  chmod(Root().c_str(), 0700);
  WriteFile(Root() / "holiday.jpg", "x");
  const auto foreign = TryOpen();
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(Names(Root()), std::vector<std::string>{"holiday.jpg"});
}

TEST_F(DirectoryStoreTest, ReadOnlyLooksAndChangesNothing) {
  DirectoryStore::Options options = Options();
  options.access = DirectoryStore::Access::kReadOnly;
  EXPECT_FALSE(DirectoryStore::Open(files_, clock_, rng_, options)) << "makes no store";
  EXPECT_FALSE(std::filesystem::exists(Root()));
  Open();
  const auto tokens = Conversation(13, 16);
  const ObjectId id = Publish(tokens);
  const auto before = Names(Root());
  const auto reader = DirectoryStore::Open(files_, clock_, rng_, options).value();  // beside the writer
  EXPECT_EQ(reader->List()->size(), 1u);
  EXPECT_EQ(reader->Stats()->bytes, store_->Stats()->bytes);
  EXPECT_EQ(reader->ReadHeader(id)->tokens, tokens);
  EXPECT_TRUE(reader->Verify(id));
  EXPECT_TRUE(reader->BatchExists(ChainKeys(tokens)).value()[3]);
  EXPECT_EQ(reader->Remove(id).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(reader->Reserve(1).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(reader->Publish(RequestFor(tokens), nullptr).error().code, ErrorCode::kFailedPrecondition);
  reader->Tick();
  reader->Quarantine(id, "seen by ctl");
  EXPECT_EQ(Names(Root()), before);
}

TEST_F(DirectoryStoreTest, ListsWhatIsThereWithItsProblems) {
  Open();
  const auto tokens = Conversation(14, 18);
  const ObjectId id = Publish(tokens);
  auto list = store_->List().value();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].id, id);
  EXPECT_EQ(list[0].model_name, "test-model");
  EXPECT_EQ(list[0].name_space, "test");
  EXPECT_EQ(list[0].tokens, 18u);
  EXPECT_EQ(list[0].aliases, 4u);
  EXPECT_EQ(list[0].last_key, ChainKeys(tokens).back());
  EXPECT_EQ(list[0].last_used_wall_ms, clock_.WallNowMs());
  EXPECT_FALSE(list[0].problem);

  WriteFile(Layout().Objects() / id.substr(0, 2) / "stray.bin", "x");
  truncate(Layout().Payload(id).c_str(), 5);
  list = store_->List().value();
  ASSERT_EQ(list.size(), 2u);
  for (const auto& summary : list) EXPECT_TRUE(summary.problem) << summary.id;
}

TEST_F(DirectoryStoreTest, KeepsCanariesByNumber) {  // decision 6
  Open();
  const Digest256 identity = Sha256Of(std::string_view("identity"));
  EXPECT_EQ(store_->GetCanary(identity, 0).error().code, ErrorCode::kNotFound);
  const std::string bytes(5000, '\x07');
  ASSERT_TRUE(store_->PutCanary(identity, 0, bytes));
  EXPECT_EQ(store_->PutCanary(identity, 0, "second").error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(store_->PutCanary(identity, 7, ""));
  EXPECT_EQ(store_->PutCanary(identity, -1, "x").error().code, ErrorCode::kInvalidArgument);
  Open();
  EXPECT_EQ(store_->GetCanary(identity, 0).value(), bytes);
  EXPECT_EQ(store_->GetCanary(identity, 7).value(), "");
  ExpectSane();
  // A damaged one is set aside, and its number can be taken again.
  std::string raw = ReadFile(Layout().Canary(identity, 0));
  raw[100] ^= 1;
  WriteFile(Layout().Canary(identity, 0), raw);
  EXPECT_EQ(store_->GetCanary(identity, 0).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(store_->GetCanary(identity, 0).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store_->PutCanary(identity, 0, bytes));
  ExpectSane();
}

TEST_F(DirectoryStoreTest, TwoStoresOfOneDirectorySeeEachOther) {  // B28d
  Open();
  auto second = TryOpen().value();  // in the same millisecond
  const auto tokens = Conversation(15, 16);
  const ObjectId id = Publish(tokens);
  EXPECT_TRUE(second->BatchExists(ChainKeys(tokens)).value()[3]);
  EXPECT_EQ(second->Publish(RequestFor(tokens), nullptr).error().code, ErrorCode::kAlreadyExists);
  // The second takes over what the first has published.
  const auto receipt = second->Publish(RequestFor(Conversation(15, 32)), nullptr).value();
  EXPECT_EQ(receipt.retired, std::vector<ObjectId>{id});
  // The first removes what only the second has published.
  ASSERT_TRUE(store_->Remove(receipt.object));
  EXPECT_EQ(second->Stats()->objects, 0u);
  EXPECT_EQ(second->Stats()->aliases, 0u);
  EXPECT_EQ(second->Stats()->bytes, 0u);
  const auto reservation = second->Reserve(1000).value();
  EXPECT_EQ(store_->Stats()->reserved_bytes, 1000u);
}

TEST_F(DirectoryStoreTest, TickMendsAliases) {
  Open();
  const auto tokens = Conversation(16, 16);
  const ObjectId id = Publish(tokens);
  const auto keys = ChainKeys(tokens);
  std::filesystem::remove(Layout().Alias(keys[1]));  // lost
  std::filesystem::create_directories(Layout().Aliases() / "ab");
  const std::string stray = "ab" + std::string(62, '0');  // leads nowhere
  std::filesystem::create_symlink("0123456789abcdef-fedcba9876543210:1", Layout().Aliases() / "ab" / stray);
  std::filesystem::create_symlink("nonsense", Layout().Aliases() / "ab" / ("ab" + std::string(62, '1')));
  store_->Tick();
  EXPECT_EQ(BlocksOf(tokens), 1u) << "not due yet";
  clock_.Advance(std::chrono::minutes(11));
  store_->Tick();
  EXPECT_EQ(BlocksOf(tokens), 4u);
  EXPECT_EQ(store_->Stats()->aliases, 4u) << "neither the stray one nor the unreadable one is left";
  EXPECT_EQ(store_->BatchExists(keys).value()[1]->object, id);
}

}  // namespace
}  // namespace moonpool::bus
