// Every step of every operation fails once: nothing half-visible, everything earlier byte-identical, nothing left
// over, no descriptor leaked, the sums right, and the next try works (field reports B21, B25; class C4, C5).
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "base/fault.h"
#include "support/store_fixture.h"

namespace moonpool::bus {
namespace {

using testing::ChainKeys;
using testing::Conversation;
using testing::OpenDescriptors;
using testing::PayloadFor;
using testing::WriteFile;

class DirectoryStoreFaults : public testing::StoreFixture {
 protected:
  // `prepare` sets a case up, `act` runs with the n-th fault armed and answers whether it succeeded, `check` looks
  // at the result. Repeats with n = 1, 2, ... until no fault fires; answers how many fired.
  int ForEveryFault(ErrorCode code, const std::function<void()>& prepare, const std::function<bool()>& act,
                    const std::function<void(bool succeeded, const std::string& at)>& check) {
    int fired_count = 0;
    for (uint64_t n = 1; n < 2000; ++n) {
      prepare();
      const size_t descriptors = OpenDescriptors();
      fault::FailNth(n, code);
      const bool succeeded = act();
      const auto fired = fault::Fired();
      fault::Disarm();
      const std::string at = fired.value_or("nowhere") + " (point " + std::to_string(n) + ")";
      EXPECT_EQ(OpenDescriptors(), descriptors) << at;
      check(succeeded, at);
      if (HasFailure()) {
        ADD_FAILURE() << "the fault was at " << at;
        break;
      }
      if (!fired) break;
      ++fired_count;
    }
    return fired_count;
  }
  // After a fault the sums may be too high, never too low; a Tick makes them exact.
  void ExpectSoundThenExact() {
    EXPECT_LE(store_->CountBytes().value(), store_->Stats()->bytes);
    store_->Tick();
    ExpectSane();
    EXPECT_EQ(store_->Stats()->reserved_bytes, 0u);
    EXPECT_TRUE(std::filesystem::is_empty(Slots()));
  }
  void StartOver() {
    store_.reset();
    std::filesystem::remove_all(Root());
    Open();
  }
};

TEST_F(DirectoryStoreFaults, PublishChangesNothingOrEverything) {
  for (const ErrorCode code : {ErrorCode::kIo, ErrorCode::kNoSpace}) {
    const auto bystander = Conversation(1, 20);
    auto tokens = bystander;  // shares two blocks with the bystander, so that both kinds of alias are met
    for (size_t i = 9; i < tokens.size(); ++i) tokens[i] += 1;
    std::map<std::string, std::string> before;
    PublishRequest request;
    Result<PublishReceipt> receipt = Fail(ErrorCode::kInternal, "not run");
    const int fired = ForEveryFault(
        code,
        [&] {
          StartOver();
          Publish(bystander);
          before = ObjectBytes();
          request = RequestFor(tokens);
        },
        [&] {
          receipt = store_->Publish(request, nullptr);
          return receipt.has_value();
        },
        [&](bool succeeded, const std::string& at) {
          const auto now = ObjectBytes();
          for (const auto& [name, bytes] : before) {
            ASSERT_TRUE(now.contains(name)) << at;
            EXPECT_EQ(now.at(name), bytes) << at;
          }
          EXPECT_EQ(now.size(), before.size() + (succeeded ? 2 : 0)) << at;
          EXPECT_EQ(BlocksOf(tokens), succeeded ? 5u : 2u) << at;
          EXPECT_EQ(BlocksOf(bystander), 5u) << at;
          EXPECT_EQ(store_->Stats()->aliases, succeeded ? 8u : 5u) << at;
          if (succeeded) {
            EXPECT_EQ(FetchBytes(receipt->object), PayloadFor(tokens)) << at;
          } else {
            EXPECT_FALSE(receipt.error().message.empty());
          }
          ExpectSoundThenExact();
          if (!succeeded) {
            EXPECT_TRUE(TryPublish(tokens)) << "the next try works after " << at;
            EXPECT_EQ(BlocksOf(tokens), 5u);
          }
        });
    EXPECT_GE(fired, 25);
  }
}

TEST_F(DirectoryStoreFaults, PublishThatReplacesLosesNothing) {
  const auto shorter = Conversation(2, 12);
  const auto longer = Conversation(2, 20);
  PublishRequest request;
  const int fired = ForEveryFault(
      ErrorCode::kIo,
      [&] {
        StartOver();
        Publish(shorter);
        request = RequestFor(longer);
      },
      [&] { return store_->Publish(request, nullptr).has_value(); },
      [&](bool succeeded, const std::string& at) {
        EXPECT_EQ(BlocksOf(longer), succeeded ? 5u : 3u) << at;
        const auto found = store_->BatchExists(ChainKeys(longer)).value();
        for (const auto& ref : found) {
          if (!ref) continue;
          const auto header = store_->ReadHeader(ref->object);
          ASSERT_TRUE(header) << at;
          EXPECT_EQ(FetchBytes(ref->object), PayloadFor(header->tokens)) << at;
        }
        ExpectSoundThenExact();
        ASSERT_TRUE(TryPublish(Conversation(2, 28))) << at;
        clock_.Advance(std::chrono::hours(1));
        store_->Tick();
        EXPECT_EQ(store_->Stats()->objects, 1u) << "the next turn retires what was left, after " << at;
        ExpectSane();
      });
  EXPECT_GE(fired, 40);
}

TEST_F(DirectoryStoreFaults, FetchDeliversAllOrNothing) {  // B21
  const auto tokens = Conversation(3, 20);
  Open();
  const ObjectId id = PublishLarge(tokens, 9u << 20);  // three chunks
  const auto before = ObjectBytes();
  ObjectHeader header;
  const Path destination = Slots() / "out";
  const int fired = ForEveryFault(
      ErrorCode::kIo, [&] { header = store_->ReadHeader(id).value(); },
      [&] { return store_->Fetch(header, destination, Soon()).has_value(); },
      [&](bool succeeded, const std::string& at) {
        EXPECT_EQ(std::filesystem::exists(destination), succeeded) << at;
        std::filesystem::remove(destination);
        EXPECT_EQ(ObjectBytes(), before) << at;
        EXPECT_EQ(BlocksOf(tokens), 5u) << "a failing disk is no evidence against the object, at " << at;
        EXPECT_TRUE(store_->Fetch(header, destination, Soon())) << at;
        std::filesystem::remove(destination);
        // No lock is left: it can be removed in the next moment, see below.
        EXPECT_EQ(store_->Stats()->quarantined, 0u) << at;
      });
  EXPECT_GE(fired, 40);
  EXPECT_TRUE(store_->Remove(id));
}

TEST_F(DirectoryStoreFaults, RemoveNeverShowsHalfAnObject) {
  auto tokens = Conversation(4, 20);
  auto heir = tokens;
  for (size_t i = 9; i < heir.size(); ++i) heir[i] += 1;
  ObjectId id;
  const int fired = ForEveryFault(
      ErrorCode::kIo,
      [&] {
        StartOver();
        id = Publish(tokens);
        Publish(heir);
      },
      [&] { return store_->Remove(id).has_value(); },
      [&](bool succeeded, const std::string& at) {
        const bool stands = store_->ReadHeader(id).has_value();
        EXPECT_FALSE(succeeded && stands) << at;
        EXPECT_EQ(BlocksOf(tokens), stands ? 5u : 2u) << at;
        EXPECT_TRUE(!stands || FetchBytes(id) == PayloadFor(tokens)) << at;
        EXPECT_EQ(BlocksOf(heir), 5u) << at;
        ExpectSoundThenExact();
        EXPECT_EQ(store_->Remove(id).has_value(), stands) << at;
        EXPECT_EQ(store_->Stats()->objects, 1u) << at;
      });
  EXPECT_GE(fired, 10);
}

TEST_F(DirectoryStoreFaults, EvictionKeepsTheSumsAndTheRest) {
  const auto first = Conversation(5, 100);
  const auto second = Conversation(6, 100);
  const auto third = Conversation(7, 100);
  quota_bytes_ = 2 * (CostOf(PayloadFor(first).size()) + 8192) + 4096;
  std::unique_ptr<Reservation> reservation;
  const int fired = ForEveryFault(
      ErrorCode::kIo,
      [&] {
        reservation.reset();
        StartOver();
        Publish(first);
        Publish(second);
      },
      [&] {
        auto reserved = store_->Reserve(PayloadFor(third).size() + 8192);
        if (reserved) reservation = std::move(*reserved);
        return reserved.has_value();
      },
      [&](bool succeeded, const std::string& at) {
        EXPECT_EQ(BlocksOf(second), 25u) << at;
        EXPECT_TRUE(!succeeded || BlocksOf(first) == 0) << at;
        const auto stats = store_->Stats().value();
        EXPECT_LE(store_->CountBytes().value(), stats.bytes) << at;
        EXPECT_LE(store_->CountBytes().value() + stats.reserved_bytes, quota_bytes_) << at;
        auto request = RequestFor(third);
        ASSERT_TRUE(store_->Publish(std::move(request), std::move(reservation))) << at;
        EXPECT_EQ(BlocksOf(third), 25u) << at;
        ExpectSoundThenExact();
      });
  EXPECT_GE(fired, 15);
}

TEST_F(DirectoryStoreFaults, OpeningFailsCleanlyOrSucceeds) {
  Open();
  const auto tokens = Conversation(8, 20);
  const ObjectId id = Publish(tokens);
  const auto before = ObjectBytes();
  const int fired = ForEveryFault(
      ErrorCode::kIo, [&] { store_.reset(); },
      [&] {
        const auto opened = TryOpen();
        return opened.has_value();  // and closed again
      },
      [&](bool, const std::string& at) {
        EXPECT_EQ(ObjectBytes(), before) << at;
        EXPECT_EQ(TempFilesLeft(), 0u) << at;
      });
  EXPECT_GE(fired, 20);
  Open();
  EXPECT_EQ(FetchBytes(id), PayloadFor(tokens));
}

TEST_F(DirectoryStoreFaults, CanaryIsWholeOrAbsent) {
  const Digest256 identity = Sha256Of(std::string_view("identity"));
  const int fired = ForEveryFault(
      ErrorCode::kNoSpace, [&] { StartOver(); },
      [&] { return store_->PutCanary(identity, 0, std::string(9000, 'c')).has_value(); },
      [&](bool succeeded, const std::string& at) {
        EXPECT_EQ(store_->GetCanary(identity, 0).has_value(), succeeded) << at;
        ExpectSoundThenExact();
        EXPECT_EQ(store_->PutCanary(identity, 0, std::string(9000, 'c')).has_value(), !succeeded) << at;
      });
  EXPECT_GE(fired, 8);
}

TEST_F(DirectoryStoreFaults, HundredFailuresLeakNothing) {  // B25
  Open();
  const auto tokens = Conversation(9, 100);
  const auto kept = Conversation(10, 100);
  Publish(kept);
  const auto before = ObjectBytes();
  ASSERT_FALSE([&] {
    fault::FailAt("fs.write", ErrorCode::kNoSpace);
    const bool published = TryPublish(tokens).has_value();
    fault::Disarm();
    return published;
  }());
  const auto stats = store_->Stats().value();
  const size_t descriptors = OpenDescriptors();
  const std::vector<std::pair<const char*, ErrorCode>> kinds = {
      {"fs.write", ErrorCode::kNoSpace}, {"fs.write", ErrorCode::kIo},  {"fs.close", ErrorCode::kIo},
      {"fs.read", ErrorCode::kIo},       {"fs.rename", ErrorCode::kIo}, {"fs.symlink", ErrorCode::kNoSpace},
  };
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto& [point, code] = kinds[static_cast<size_t>(repeat) % kinds.size()];
    auto request = RequestFor(tokens);
    fault::FailAt(point, code);
    const auto receipt = store_->Publish(std::move(request), nullptr);
    fault::Disarm();
    ASSERT_FALSE(receipt) << point;
    EXPECT_EQ(receipt.error().code, code) << point;
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(ObjectBytes(), before);
  store_->Tick();
  EXPECT_EQ(store_->Stats()->bytes, stats.bytes);
  ExpectSane();
  EXPECT_TRUE(TryPublish(tokens));
}

TEST_F(DirectoryStoreFaults, FileSizeLimitIsANamedReason) {  // B25: RLIMIT_FSIZE
  testing::TempDir other;
  if (files_.Info(other.path())->device == files_.Info(dir_.path())->device) GTEST_SKIP() << "one file system";
  Open();
  const auto tokens = Conversation(11, 6000);  // more than the limit below
  const size_t descriptors = OpenDescriptors();
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  for (int repeat = 0; repeat < 100; ++repeat) {
    WriteFile(other / "save", PayloadFor(tokens));
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto receipt = store_->Publish({.header = testing::HeaderFor(tokens), .source = other / "save"}, nullptr);
    setrlimit(RLIMIT_FSIZE, &old);
    ASSERT_FALSE(receipt);
    ASSERT_EQ(receipt.error().code, ErrorCode::kNoSpace) << receipt.error().ToString();
    ASSERT_FALSE(std::filesystem::exists(other / "save"));
  }
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(BlocksOf(tokens), 0u);
  EXPECT_EQ(store_->Stats()->bytes, 0u);
  ExpectSane();
}

}  // namespace
}  // namespace moonpool::bus
