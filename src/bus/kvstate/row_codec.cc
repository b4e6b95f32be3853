#include "bus/kvstate/row_codec.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace moonpool::bus {
namespace {

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// IEEE half to float, by hand: gcc 12 has no portable half type. Exact for every input.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {  // zero or subnormal: the mantissa counts units of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float LoadHalf(const std::byte* from) { return HalfToFloat(Load<uint16_t>(from)); }

// The quantized formats keep element i of a block in the low nibble of byte i, element i + 16 in its high nibble.
constexpr int kBlock = 32;
int Nibble(const std::byte* packed, int element) {
  const int byte = std::to_integer<int>(packed[element % 16]);
  return element < 16 ? byte & 15 : byte >> 4;
}

void DecodeF32(const std::byte* in, float* out) { *out = Load<float>(in); }
void DecodeF16(const std::byte* in, float* out) { *out = LoadHalf(in); }
void DecodeBf16(const std::byte* in, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(in)) << 16);
}
void DecodeQ8_0(const std::byte* in, float* out) {  // scale, 32 signed bytes
  const float scale = LoadHalf(in);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(Load<int8_t>(in + 2 + i));
}
void DecodeQ4_0(const std::byte* in, float* out) {  // scale, nibbles around 8
  const float scale = LoadHalf(in);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(Nibble(in + 2, i) - 8);
}
void DecodeQ4_1(const std::byte* in, float* out) {  // scale, offset, nibbles
  const float scale = LoadHalf(in);
  const float offset = LoadHalf(in + 2);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(Nibble(in + 4, i)) + offset;
}
// The 5-bit formats keep the fifth bits of all 32 elements in one word before the nibbles.
int FiveBits(const std::byte* high_bits, const std::byte* packed, int element) {
  const uint32_t high = Load<uint32_t>(high_bits) >> element & 1;
  return Nibble(packed, element) | static_cast<int>(high << 4);
}
void DecodeQ5_0(const std::byte* in, float* out) {
  const float scale = LoadHalf(in);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(FiveBits(in + 2, in + 6, i) - 16);
}
void DecodeQ5_1(const std::byte* in, float* out) {
  const float scale = LoadHalf(in);
  const float offset = LoadHalf(in + 2);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(FiveBits(in + 4, in + 8, i)) + offset;
}
void DecodeIq4Nl(const std::byte* in, float* out) {  // scale, nibbles that index a fixed non-linear table
  static constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
  const float scale = LoadHalf(in);
  for (int i = 0; i < kBlock; ++i) out[i] = scale * kLevels[static_cast<size_t>(Nibble(in + 2, i))];
}

constexpr std::array<RowCodec, 9> kCodecs = {{
    {0, "f32", 1, 4, DecodeF32},
    {1, "f16", 1, 2, DecodeF16},
    {2, "q4_0", kBlock, 18, DecodeQ4_0},
    {3, "q4_1", kBlock, 20, DecodeQ4_1},
    {6, "q5_0", kBlock, 22, DecodeQ5_0},
    {7, "q5_1", kBlock, 24, DecodeQ5_1},
    {8, "q8_0", kBlock, 34, DecodeQ8_0},
    {20, "iq4_nl", kBlock, 18, DecodeIq4Nl},
    {30, "bf16", 1, 2, DecodeBf16},
}};

}  // namespace

void RowCodec::Decode(std::span<const std::byte> rows, std::span<float> into) const {
  MP_CHECK(rows.size() % block_bytes == 0 && into.size() == Elements(rows.size()));
  const size_t blocks = rows.size() / block_bytes;
  for (size_t i = 0; i < blocks; ++i) decode_block(rows.data() + i * block_bytes, into.data() + i * block_elements);
}

const RowCodec* FindRowCodec(uint32_t ggml_type) {
  for (const RowCodec& codec : kCodecs) {
    if (codec.ggml_type == ggml_type) return &codec;
  }
  return nullptr;
}

}  // namespace moonpool::bus
