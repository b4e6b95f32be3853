#include "bus/blobs/object_header_codec.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "base/checksum.h"
#include "bus/blobs/directory_layout.h"

namespace moonpool::bus {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

constexpr std::string_view kMagic = "MPKVHEAD";
constexpr size_t kPreambleBytes = 8 + 4 + 8;  // magic, version, length of the whole

class Encoder {
 public:
  template <class T>
  void Number(T value) {
    static_assert(std::is_integral_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  void Raw(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

// Reads never pass the end: after the first short read everything is empty and ok() is false.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T Number() {
    T value{};
    const std::string_view raw = Take(sizeof value);
    if (ok_) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::string Text() {
    const uint32_t length = Number<uint32_t>();
    if (length > kHeaderTextBytesMax) ok_ = false;
    return std::string(Take(length));
  }
  Digest256 Digest() {
    Digest256 digest;
    const std::string_view raw = Take(digest.bytes.size());
    if (ok_) std::memcpy(digest.bytes.data(), raw.data(), raw.size());
    return digest;
  }
  // An array whose count is believed only as far as there are bytes for it.
  template <class T>
  std::vector<T> Array() {
    static_assert(std::is_trivially_copyable_v<T>);
    const uint64_t count = Number<uint64_t>();
    if (count > left_.size() / sizeof(T)) ok_ = false;
    std::vector<T> values;
    if (!ok_) return values;
    values.resize(count);
    const std::string_view raw = Take(count * sizeof(T));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view Take(uint64_t count) {
    if (!ok_ || count > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  bool ok_ = true;
};

tl::unexpected<Error> Corrupt(std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("the object header {}", what));
}

}  // namespace

Result<void> CheckObjectHeader(const ObjectHeader& header) {
  const auto refuse = [](std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); };
  if (!IsObjectId(header.id)) return refuse("the object's id is malformed");
  if (header.parent && !IsObjectId(*header.parent)) return refuse("the parent's id is malformed");
  if (header.block_tokens == 0) return refuse("the block size is 0");
  if (header.tokens.size() > kTokensMax) {
    return refuse(fmt::format("{} tokens, more than the {} allowed", header.tokens.size(), kTokensMax));
  }
  if (header.keys.empty()) return refuse("not one whole block of tokens, so no key");
  if (header.keys.size() != header.tokens.size() / header.block_tokens) {
    return refuse(fmt::format("{} keys for {} tokens in blocks of {}", header.keys.size(), header.tokens.size(),
                              header.block_tokens));
  }
  if (header.payload_bytes == 0) return refuse("the payload is empty");
  if (header.chunk_bytes < kChunkBytesMin || header.chunk_bytes > kChunkBytesMax) {
    return refuse(fmt::format("checksum grain of {} bytes", header.chunk_bytes));
  }
  if (header.chunk_checksums.size() != (header.payload_bytes - 1) / header.chunk_bytes + 1) {
    return refuse(fmt::format("{} checksums for {} bytes in chunks of {}", header.chunk_checksums.size(),
                              header.payload_bytes, header.chunk_bytes));
  }
  if (header.canary && header.canary->number < 0) return refuse("the canary's number is negative");
  for (const std::string* text : {&header.fingerprint_text, &header.model_name, &header.name_space, &header.layout}) {
    if (text->size() > kHeaderTextBytesMax) return refuse(fmt::format("a text of {} bytes", text->size()));
  }
  const uint64_t size_bytes = header.tokens.size() * sizeof(TokenId) + header.keys.size() * sizeof(Digest256) +
                              header.chunk_checksums.size() * sizeof(uint64_t) + 4 * kHeaderTextBytesMax + 4096;
  if (size_bytes > kHeaderBytesMax) return refuse("a header above its size limit; use larger blocks");
  return {};
}

std::string EncodeObjectHeader(const ObjectHeader& header) {
  Encoder out;
  out.bytes().append(kMagic);
  out.Number(kObjectHeaderVersion);
  out.Number(uint64_t{0});  // the length, known at the end
  out.Text(header.id);
  out.Raw(header.fingerprint.bytes);
  out.Text(header.fingerprint_text);
  out.Text(header.model_name);
  out.Text(header.name_space);
  out.Number(header.block_tokens);
  out.Number(header.first_token);
  out.Text(header.parent.value_or(""));
  out.Text(header.layout);
  out.Number(static_cast<uint8_t>(header.canary.has_value()));
  out.Raw((header.canary ? header.canary->identity : Digest256{}).bytes);
  out.Number(static_cast<uint32_t>(header.canary ? header.canary->number : 0));
  out.Number(header.created_wall_ms);
  out.Number(header.payload_bytes);
  out.Number(header.chunk_bytes);
  out.Number(uint64_t{header.chunk_checksums.size()});
  out.Raw(std::as_bytes(std::span(header.chunk_checksums)));
  out.Number(uint64_t{header.keys.size()});
  out.Raw(std::as_bytes(std::span(header.keys)));
  out.Number(uint64_t{header.tokens.size()});
  out.Raw(std::as_bytes(std::span(header.tokens)));
  std::string& bytes = out.bytes();
  const uint64_t length = bytes.size() + sizeof(uint64_t);
  std::memcpy(bytes.data() + 12, &length, sizeof length);
  out.Number(Xxh3(std::as_bytes(std::span(bytes))));
  return std::move(bytes);
}

Result<ObjectHeader> DecodeObjectHeader(std::string_view bytes) {
  if (bytes.size() < kPreambleBytes + sizeof(uint64_t)) return Corrupt("is cut short");
  if (bytes.substr(0, kMagic.size()) != kMagic) return Corrupt("does not begin with its magic");
  Decoder preamble(bytes.substr(kMagic.size()));
  const auto version = preamble.Number<uint32_t>();
  if (version != kObjectHeaderVersion) {
    return Fail(ErrorCode::kUnsupported, fmt::format("the object header has format version {}, this build knows {}",
                                                     version, kObjectHeaderVersion));
  }
  if (preamble.Number<uint64_t>() != bytes.size()) return Corrupt("has another length than it says");
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  uint64_t stored_sum = 0;
  std::memcpy(&stored_sum, bytes.data() + body.size(), sizeof stored_sum);
  const uint64_t sum = Xxh3(std::as_bytes(std::span(body)));
  if (sum != stored_sum) {
    return Corrupt(fmt::format("has the checksum {:016x}, {:016x} was expected", sum, stored_sum));
  }

  Decoder in(body.substr(kPreambleBytes));
  ObjectHeader header;
  header.id = in.Text();
  header.fingerprint = in.Digest();
  header.fingerprint_text = in.Text();
  header.model_name = in.Text();
  header.name_space = in.Text();
  header.block_tokens = in.Number<uint32_t>();
  header.first_token = in.Number<uint64_t>();
  if (std::string parent = in.Text(); !parent.empty()) header.parent = std::move(parent);
  header.layout = in.Text();
  const auto has_canary = in.Number<uint8_t>();
  const CanaryRef canary{.identity = in.Digest(), .number = static_cast<int>(in.Number<uint32_t>())};
  if (has_canary > 1) return Corrupt("has a flag that is neither 0 nor 1");
  if (has_canary == 1) header.canary = canary;
  header.created_wall_ms = in.Number<int64_t>();
  header.payload_bytes = in.Number<uint64_t>();
  header.chunk_bytes = in.Number<uint64_t>();
  header.chunk_checksums = in.Array<uint64_t>();
  header.keys = in.Array<Digest256>();
  header.tokens = in.Array<TokenId>();
  if (!in.ok()) return Corrupt("ends inside a field");
  if (!in.at_end()) return Corrupt("goes on after its last field");
  if (auto checked = CheckObjectHeader(header); !checked) {
    return Corrupt("contradicts itself: " + checked.error().message);
  }
  return header;
}

}  // namespace moonpool::bus
