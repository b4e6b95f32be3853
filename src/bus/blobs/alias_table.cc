#include "bus/blobs/alias_table.h"

#include <charconv>

#include "bus/blobs/object_header_codec.h"

namespace moonpool::bus {

std::string EncodeAlias(const ObjectRef& ref) { return ref.object + ":" + std::to_string(ref.blocks); }

std::optional<ObjectRef> DecodeAlias(std::string_view text) {
  const std::string_view id = text.substr(0, 33);
  if (!IsObjectId(id) || text.size() < 35 || text[33] != ':') return std::nullopt;
  ObjectRef ref{.object = ObjectId(id)};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 34, end, ref.blocks);
  if (error != std::errc() || stop != end || ref.blocks == 0 || ref.blocks > kTokensMax) return std::nullopt;
  return ref;
}

Result<std::optional<ObjectRef>> AliasTable::Read(const Digest256& key) {
  auto text = files_.ReadSymlink(layout_.Alias(key));
  if (text) return DecodeAlias(*text);
  const ErrorCode code = text.error().code;
  // Something else than a link has the name: an alias of nothing.
  if (code == ErrorCode::kNotFound || code == ErrorCode::kInvalidArgument) return std::nullopt;
  return Fail(std::move(text).error());
}

Result<void> AliasTable::PutIfAbsent(const Digest256& key, const ObjectRef& ref, const DirectoryLock::Hold&) {
  const Path path = layout_.Alias(key);
  auto written = files_.WriteSymlink(EncodeAlias(ref), path);
  if (!written && written.error().code == ErrorCode::kNotFound) {
    MP_RETURN_IF_ERROR(files_.MakeDirectories(path.parent_path()));
    written = files_.WriteSymlink(EncodeAlias(ref), path);
  }
  return written;
}

Result<void> AliasTable::Replace(const Digest256& key, const ObjectRef& ref, TempFiles& temp,
                                 const DirectoryLock::Hold&) {
  TempFile link = temp.Next("alias");
  MP_RETURN_IF_ERROR(files_.WriteSymlink(EncodeAlias(ref), link.path()));
  MP_RETURN_IF_ERROR(files_.Rename(link.path(), layout_.Alias(key)));
  link.Release();
  return {};
}

Result<void> AliasTable::Remove(const Digest256& key, const DirectoryLock::Hold&) {
  auto removed = files_.Remove(layout_.Alias(key));
  if (!removed && removed.error().code == ErrorCode::kNotFound) return {};
  return removed;
}

Result<std::vector<std::string>> AliasTable::Folders() {
  auto names = files_.List(layout_.Aliases());
  if (names) std::erase_if(*names, [](const std::string& name) { return name.size() != 2; });
  return names;
}

Result<std::vector<Digest256>> AliasTable::Keys(const std::string& folder) {
  auto names = files_.List(layout_.Aliases() / folder);
  std::vector<Digest256> keys;
  if (!names && names.error().code == ErrorCode::kNotFound) return keys;
  if (!names) return Fail(std::move(names).error());
  for (const std::string& name : *names) {
    if (const auto key = Digest256::FromHex(name); key && name.substr(0, 2) == folder) keys.push_back(*key);
  }
  return keys;
}

}  // namespace moonpool::bus
