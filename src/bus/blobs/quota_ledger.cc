#include "bus/blobs/quota_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/checksum.h"
#include "base/log.h"

namespace moonpool::bus {
namespace {

// Both records have a fixed length, so that one write replaces the other whole.
std::string EncodeUsage(const Usage& usage) {
  const std::string line = fmt::format("moonpool-usage 1 {:020} {:020} ", usage.stored_bytes, usage.generation);
  return line + fmt::format("{:016x}\n", Xxh3(std::as_bytes(std::span(line))));
}

std::optional<uint64_t> ParseNumber(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Result<Usage> DecodeUsage(std::string_view text) {
  Usage usage;
  if (text.size() == EncodeUsage(usage).size()) {
    const auto stored = ParseNumber(text.substr(17, 20));
    const auto generation = ParseNumber(text.substr(38, 20));
    if (stored && generation) {
      usage = {.stored_bytes = *stored, .generation = *generation};
      if (EncodeUsage(usage) == text) return usage;
    }
  }
  return Fail(ErrorCode::kCorrupt, "the usage record is damaged");
}

std::string EncodeReserved(uint64_t bytes) { return fmt::format("reserved {:020}\n", bytes); }

std::string ReadUpTo(const File& file, size_t size_bytes, Result<size_t>& got) {
  std::string text(size_bytes, '\0');
  got = file.Read(0, std::as_writable_bytes(std::span(text)));
  text.resize(got.value_or(0));
  return text;
}

Result<uint64_t> ReadOwner(FileSystem& files, const Path& path) {
  auto file = files.Open(path);
  if (!file && file.error().code == ErrorCode::kNotFound) return uint64_t{0};
  if (!file) return Fail(std::move(file).error());
  Result<size_t> got{0};
  const std::string text = ReadUpTo(**file, EncodeReserved(0).size(), got);
  if (!got) return Fail(std::move(got).error());
  // A new owner's file is empty: nothing reserved yet.
  if (text.empty()) return uint64_t{0};
  const auto value = text.size() == 30 ? ParseNumber(std::string_view(text).substr(9, 20)) : std::nullopt;
  if (!value) log::Warn("owner_file_damaged path={}", path.string());
  return value.value_or(0);
}

}  // namespace

Result<Usage> ReadUsage(FileSystem& files, const DirectoryLayout& layout) {
  auto file = files.Open(layout.Usage());
  if (!file && file.error().code == ErrorCode::kNotFound) return Fail(ErrorCode::kCorrupt, "no usage record");
  if (!file) return Fail(std::move(file).error());
  Result<size_t> got{0};
  const std::string text = ReadUpTo(**file, 256, got);
  if (!got) return Fail(std::move(got).error());
  return DecodeUsage(text);
}

Result<uint64_t> ReadReserved(FileSystem& files, const DirectoryLayout& layout) {
  MP_ASSIGN_OR_RETURN(const auto names, files.List(layout.Temp()));
  uint64_t sum = 0;
  for (const std::string& name : names) {
    const auto parsed = ParseTempFileName(name);
    if (!parsed || !parsed->is_owner_file) continue;
    MP_ASSIGN_OR_RETURN(const uint64_t reserved, ReadOwner(files, layout.Temp() / name));
    sum += reserved;
  }
  return sum;
}

Result<std::unique_ptr<QuotaLedger>> QuotaLedger::Open(FileSystem& files, DirectoryLayout layout, TempFiles& temp,
                                                       const DirectoryLock::Hold&) {
  MP_ASSIGN_OR_RETURN(auto file, files.OpenOrCreate(layout.Usage()));
  return std::unique_ptr<QuotaLedger>(new QuotaLedger(files, std::move(layout), temp, std::move(file)));
}

Result<void> QuotaLedger::Load(const DirectoryLock::Hold&) {
  Result<size_t> got{0};
  const std::string text = ReadUpTo(*file_, 256, got);
  if (!got) return Fail(std::move(got).error());
  MP_ASSIGN_OR_RETURN(usage_, DecodeUsage(text));
  if (own_written_ != own_reserved_.load()) (void)WriteOwn(own_reserved_.load());
  return {};
}

Result<uint64_t> QuotaLedger::ReservedBytes(const DirectoryLock::Hold&) { return ReadReserved(files_, layout_); }

Result<void> QuotaLedger::Add(uint64_t bytes, const DirectoryLock::Hold&) {
  return Write({.stored_bytes = usage_.stored_bytes + bytes, .generation = usage_.generation + 1});
}

Result<void> QuotaLedger::Subtract(uint64_t bytes, const DirectoryLock::Hold&) {
  if (bytes > usage_.stored_bytes) Doubt();
  auto written = Write({.stored_bytes = usage_.stored_bytes - std::min(bytes, usage_.stored_bytes),
                        .generation = usage_.generation + 1});
  if (!written) Doubt();
  return written;
}

Result<void> QuotaLedger::Set(uint64_t bytes, const DirectoryLock::Hold&) {
  return Write({.stored_bytes = bytes, .generation = usage_.generation + 1});
}

Result<void> QuotaLedger::Reserve(uint64_t bytes, const DirectoryLock::Hold&) {
  MP_RETURN_IF_ERROR(WriteOwn(own_reserved_.load() + bytes));
  own_reserved_.fetch_add(bytes);
  return {};
}

void QuotaLedger::Unreserve(uint64_t bytes, const DirectoryLock::Hold&) {
  own_reserved_.fetch_sub(bytes);
  (void)WriteOwn(own_reserved_.load());
}

Result<void> QuotaLedger::Write(Usage usage) {
  const std::string text = EncodeUsage(usage);
  MP_RETURN_IF_ERROR(file_->WriteAt(0, std::as_bytes(std::span(text))));
  // Own changes are not news, but they must not hide the news of others.
  if (seen_generation_ == usage_.generation) seen_generation_ = usage.generation;
  usage_ = usage;
  return {};
}

Result<void> QuotaLedger::WriteOwn(uint64_t reserved_bytes) {
  const std::string text = EncodeReserved(reserved_bytes);
  MP_RETURN_IF_ERROR(temp_.owner_file().WriteAt(0, std::as_bytes(std::span(text))));
  own_written_ = reserved_bytes;
  return {};
}

}  // namespace moonpool::bus
