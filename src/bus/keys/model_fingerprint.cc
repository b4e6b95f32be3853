#include "bus/keys/model_fingerprint.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "bus/keys/canonical_encoding.h"
#include "bus/keys/quoted_text.h"

namespace moonpool::bus {
namespace {

// Equal numbers get equal bytes: one zero, one not-a-number.
uint64_t ScaleBits(double scale) {
  if (scale == 0) scale = 0;
  if (std::isnan(scale)) scale = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<uint64_t>(scale);
}

std::string_view Short(const std::string& hex) { return std::string_view(hex).substr(0, 12); }

}  // namespace

std::string DeclaredIdentity::CanonicalEncoding() const {
  bus::CanonicalEncoding encoding(bus::CanonicalEncoding::Kind::kDeclaredIdentity);
  encoding.Digest(1, model_digest);
  encoding.Digest(2, tokenizer_hash);
  encoding.Digest(3, rope_hash);
  encoding.Bytes(4, kv_types);
  encoding.Bytes(5, layout);
  if (context_tokens) encoding.Uint32(6, *context_tokens);
  encoding.Uint32(7, block_tokens);
  std::string list;
  AppendUint64(list, adapters.size());
  for (const LoraIdentity& adapter : adapters) {
    AppendDigest(list, adapter.digest);
    AppendUint64(list, ScaleBits(adapter.scale));
  }
  encoding.Bytes(8, list);
  if (projector_digest) encoding.Digest(9, *projector_digest);
  encoding.Uint32(10, sliding_window);
  encoding.Bytes(11, operator_epoch);
  return std::move(encoding).Take();
}

Digest256 DeclaredIdentity::Id() const { return Sha256Of(CanonicalEncoding()); }

std::string ModelFingerprint::CanonicalEncoding() const {
  bus::CanonicalEncoding encoding(bus::CanonicalEncoding::Kind::kModelFingerprint);
  encoding.Bytes(1, declared.CanonicalEncoding());
  encoding.Digest(2, canary_family);
  return std::move(encoding).Take();
}

Digest256 ModelFingerprint::Id() const { return Sha256Of(CanonicalEncoding()); }

std::string ModelFingerprint::Describe() const {
  const std::string model = declared.model_digest.ToHex();
  const std::string layout = Sha256Of(declared.layout).ToHex();
  const std::string family = canary_family.ToHex();
  std::string line = fmt::format("model={} kv={} layout={} block={}", Short(model), declared.kv_types, Short(layout),
                                 declared.block_tokens);
  if (declared.context_tokens) line += fmt::format(" context={}", *declared.context_tokens);
  if (declared.sliding_window > 0) line += fmt::format(" window={}", declared.sliding_window);
  for (const LoraIdentity& adapter : declared.adapters) {
    const std::string digest = adapter.digest.ToHex();
    line += fmt::format(" lora={}@{}", Short(digest), adapter.scale);
  }
  if (declared.projector_digest) {
    const std::string projector = declared.projector_digest->ToHex();
    line += fmt::format(" projector={}", Short(projector));
  }
  if (!declared.operator_epoch.empty()) line += " epoch=" + QuotedText(declared.operator_epoch);
  return line + fmt::format(" family={}", Short(family));
}

}  // namespace moonpool::bus
