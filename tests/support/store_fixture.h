// StoreFixture: a DirectoryStore in a fresh directory, a slot directory beside it, and what tests ask about both.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bus/blobs/directory_store.h"
#include "support/fake_clock.h"
#include "support/kv_objects.h"
#include "support/temp_dir.h"

namespace moonpool::testing {

inline size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class StoreFixture : public ::testing::Test {
 protected:
  // In memory where there is some: these tests make and remove thousands of files.
  StoreFixture()
      : dir_(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path()) {
    std::filesystem::create_directory(Slots());
  }

  Path Root() const { return dir_ / "store"; }
  Path Slots() const { return dir_ / "slots"; }
  bus::DirectoryLayout Layout() const { return {Root()}; }
  bus::DirectoryStore::Options Options() const {
    bus::DirectoryStore::Options options;
    options.root = Root();
    options.quota_bytes = quota_bytes_;
    return options;
  }
  Result<std::unique_ptr<bus::DirectoryStore>> TryOpen() {
    return bus::DirectoryStore::Open(files_, clock_, rng_, Options());
  }
  bus::DirectoryStore& Open() {
    store_.reset();
    auto opened = TryOpen();
    if (!opened) ADD_FAILURE() << opened.error().ToString();
    store_ = std::move(*opened);
    return *store_;
  }

  // As a server would save it.
  Path Save(const std::string& bytes) {
    const Path path = Slots() / ("save" + std::to_string(++saves_));
    WriteFile(path, bytes);
    return path;
  }
  bus::PublishRequest RequestFor(const std::vector<TokenId>& tokens, const std::string& name_space = "test") {
    return {.header = HeaderFor(tokens, name_space), .source = Save(PayloadFor(tokens))};
  }
  Result<bus::PublishReceipt> TryPublish(const std::vector<TokenId>& tokens, const std::string& name_space = "test") {
    return store_->Publish(RequestFor(tokens, name_space), nullptr);
  }
  bus::ObjectId Publish(const std::vector<TokenId>& tokens) {
    clock_.Advance(std::chrono::seconds(1));
    auto receipt = TryPublish(tokens);
    if (!receipt) ADD_FAILURE() << receipt.error().ToString();
    return receipt ? receipt->object : "";
  }
  // A payload of several chunks under few tokens.
  bus::ObjectId PublishLarge(const std::vector<TokenId>& tokens, uint64_t size_bytes) {
    std::string bytes(size_bytes, 'L');
    for (size_t at = 0; at < bytes.size(); at += 1009) bytes[at] = static_cast<char>(at >> 4);
    auto receipt = store_->Publish({.header = HeaderFor(tokens), .source = Save(bytes)}, nullptr);
    if (!receipt) ADD_FAILURE() << receipt.error().ToString();
    return receipt ? receipt->object : "";
  }
  Deadline Soon() const { return Deadline(clock_, std::chrono::seconds(10)); }

  // How many leading blocks of `tokens` the store says it has.
  size_t BlocksOf(const std::vector<TokenId>& tokens, const std::string& name_space = "test") {
    const auto found = store_->BatchExists(ChainKeys(tokens, name_space)).value();
    size_t blocks = 0;
    while (blocks < found.size() && found[blocks]) ++blocks;
    return blocks;
  }
  // The bytes that a server would be given, or nothing.
  std::optional<std::string> FetchBytes(const bus::ObjectId& id) {
    const auto header = store_->ReadHeader(id);
    if (!header) return std::nullopt;
    const Path destination = Slots() / ("fetch" + std::to_string(++saves_));
    const auto receipt = store_->Fetch(*header, destination, Soon());
    if (!receipt) return std::nullopt;
    std::string bytes = ReadFile(destination);
    std::filesystem::remove(destination);
    return bytes;
  }
  static std::vector<std::string> Names(const Path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_directory() || entry.is_symlink()) names.push_back(entry.path().lexically_relative(folder));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  size_t TempFilesLeft() const { return Names(Layout().Temp()).size() - (store_ ? 1 : 0); }
  // Everything of an object that others may rely on, by name of file.
  std::map<std::string, std::string> ObjectBytes() const {
    std::map<std::string, std::string> bytes;
    for (const std::string& name : Names(Layout().Objects())) bytes[name] = ReadFile(Layout().Objects() / name);
    return bytes;
  }
  // The directory's own consistency; call between operations.
  void ExpectSane(bool usage_exact = true) {
    EXPECT_EQ(TempFilesLeft(), 0u);
    const auto stats = store_->Stats().value();
    const uint64_t counted = store_->CountBytes().value();
    EXPECT_LE(counted, stats.bytes);
    if (usage_exact) {
      EXPECT_EQ(counted, stats.bytes);
    }
    EXPECT_LE(counted, quota_bytes_);
    const auto list = store_->List().value();
    for (const auto& summary : list) {
      EXPECT_FALSE(summary.problem) << summary.id << ": " << *summary.problem;
    }
  }

  TempDir dir_;
  PosixFileSystem files_;
  FakeClock clock_;
  SeededRng rng_{20261130};
  uint64_t quota_bytes_ = uint64_t{1} << 30;
  uint64_t saves_ = 0;
  std::unique_ptr<bus::DirectoryStore> store_;
};

}  // namespace moonpool::testing
