#include "bus/keys/canonical_encoding.h"

#include "base/check.h"

namespace moonpool::bus {

void AppendUint32(std::string& bytes, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((value >> shift) & 0xff));
}

void AppendUint64(std::string& bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>((value >> shift) & 0xff));
}

void AppendDigest(std::string& bytes, const Digest256& digest) {
  bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
}

CanonicalEncoding::CanonicalEncoding(Kind kind) {
  AppendUint32(bytes_, kFormatVersion);
  bytes_.push_back(static_cast<char>(kind));
}

void CanonicalEncoding::Bytes(uint8_t tag, std::string_view bytes) {
  MP_CHECK(tag > last_tag_);
  last_tag_ = tag;
  bytes_.push_back(static_cast<char>(tag));
  AppendUint64(bytes_, bytes.size());
  bytes_.append(bytes);
}

void CanonicalEncoding::Digest(uint8_t tag, const Digest256& digest) {
  Bytes(tag, std::string_view(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()));
}

void CanonicalEncoding::Uint32(uint8_t tag, uint32_t value) {
  std::string bytes;
  AppendUint32(bytes, value);
  Bytes(tag, bytes);
}

}  // namespace moonpool::bus
