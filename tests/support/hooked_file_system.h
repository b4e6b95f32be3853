// HookedFileSystem: a FileSystem that tells a test of every call just before it is passed on, so that the test can
// change the world at that very moment, or end the process there. As thread-safe as its hook.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file_system.h"

namespace moonpool::testing {

class HookedFileSystem final : public FileSystem {
 public:
  // The call's name ("rename", "read", ...) and the path that it concerns (the target, if there are two).
  using Hook = std::function<void(std::string_view call, const Path& path)>;

  HookedFileSystem(FileSystem& inner, Hook hook) : inner_(inner), hook_(std::move(hook)) {}

  Result<std::unique_ptr<File>> Open(const Path& path) override { return Wrap("open", path, &FileSystem::Open); }
  Result<std::unique_ptr<File>> Create(const Path& path) override { return Wrap("create", path, &FileSystem::Create); }
  Result<std::unique_ptr<File>> OpenOrCreate(const Path& path) override {
    return Wrap("open_or_create", path, &FileSystem::OpenOrCreate);
  }
  Result<FileInfo> Info(const Path& path) override { return Told("info", path).Info(path); }
  Result<std::vector<std::string>> List(const Path& path) override { return Told("list", path).List(path); }
  Result<uint64_t> FreeBytes(const Path& path) override { return Told("free_bytes", path).FreeBytes(path); }
  Result<void> MakeDirectories(const Path& path) override { return Told("mkdir", path).MakeDirectories(path); }
  Result<void> Rename(const Path& from, const Path& to) override { return Told("rename", to).Rename(from, to); }
  Result<void> Link(const Path& from, const Path& to) override { return Told("link", to).Link(from, to); }
  Result<void> Remove(const Path& path) override { return Told("remove", path).Remove(path); }
  Result<void> WriteSymlink(const std::string& text, const Path& path) override {
    return Told("symlink", path).WriteSymlink(text, path);
  }
  Result<std::string> ReadSymlink(const Path& path) override { return Told("readlink", path).ReadSymlink(path); }
  Result<TransferKind> CloneOrCopy(const Path& from, const Path& to) override {
    return Told("copy", to).CloneOrCopy(from, to);
  }
  Result<void> SetPermissions(const Path& path, uint32_t permissions) override {
    return Told("chmod", path).SetPermissions(path, permissions);
  }
  Result<void> SetModified(const Path& path, int64_t modified_ns) override {
    return Told("utimens", path).SetModified(path, modified_ns);
  }
  Result<void> SyncDirectory(const Path& path) override { return Told("sync_directory", path).SyncDirectory(path); }

 private:
  class HookedFile final : public File {
   public:
    HookedFile(const HookedFileSystem& owner, std::unique_ptr<File> inner, Path path)
        : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}
    Result<size_t> Read(uint64_t offset_bytes, std::span<std::byte> into) const override {
      owner_.hook_("read", path_);
      return inner_->Read(offset_bytes, into);
    }
    Result<void> Append(std::span<const std::byte> bytes) override { return Told("write").Append(bytes); }
    Result<void> WriteAt(uint64_t offset_bytes, std::span<const std::byte> bytes) override {
      return Told("write").WriteAt(offset_bytes, bytes);
    }
    Result<void> Reserve(uint64_t size_bytes) override { return Told("reserve").Reserve(size_bytes); }
    Result<void> Sync() override { return Told("sync").Sync(); }
    Result<void> Close() override { return Told("close").Close(); }
    Result<FileInfo> Info() const override { return inner_->Info(); }
    Result<void> Lock(LockKind kind) override { return Told("lock").Lock(kind); }
    Result<void> TryLock(LockKind kind) override { return Told("lock").TryLock(kind); }
    void Unlock() override { Told("unlock").Unlock(); }

   private:
    File& Told(std::string_view call) {
      owner_.hook_(call, path_);
      return *inner_;
    }
    const HookedFileSystem& owner_;  // outlives its files
    const std::unique_ptr<File> inner_;
    const Path path_;
  };

  FileSystem& Told(std::string_view call, const Path& path) const {
    hook_(call, path);
    return inner_;
  }
  Result<std::unique_ptr<File>> Wrap(std::string_view call, const Path& path,
                                     Result<std::unique_ptr<File>> (FileSystem::*open)(const Path&)) {
    auto file = (Told(call, path).*open)(path);
    if (!file) return file;
    return std::make_unique<HookedFile>(*this, std::move(*file), path);
  }

  FileSystem& inner_;
  const Hook hook_;
};

}  // namespace moonpool::testing
