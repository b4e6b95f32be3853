// Digest256 and Sha256: content identity. A mis-hit is worse than a miss, so identity is never a
// non-cryptographic hash (XXH3 in base/checksum.h is for damage only).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moonpool {

// A SHA-256 digest; a value, ordered and hashable.
struct Digest256 {
  std::array<std::byte, 32> bytes{};

  auto operator<=>(const Digest256&) const = default;
  std::string ToHex() const;
  static std::optional<Digest256> FromHex(std::string_view text);
};

// Incremental SHA-256 (OpenSSL). Not thread-safe; reusable after Finish.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  // The digest of everything since construction or the last Finish.
  Digest256 Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One-shot, for short inputs.
Digest256 Sha256Of(std::span<const std::byte> bytes);
inline Digest256 Sha256Of(std::string_view text) { return Sha256Of(std::as_bytes(std::span(text))); }

}  // namespace moonpool

template <>
struct std::hash<moonpool::Digest256> {
  size_t operator()(const moonpool::Digest256& digest) const noexcept {
    uint64_t head;
    std::memcpy(&head, digest.bytes.data(), sizeof head);
    return static_cast<size_t>(head);
  }
};
