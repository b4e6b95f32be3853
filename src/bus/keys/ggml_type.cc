#include "bus/keys/ggml_type.h"

#include <algorithm>
#include <limits>

namespace moonpool::bus {
namespace {

constexpr GgmlType kTypes[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},
    {10, "q2_K", 256, 84},    {11, "q3_K", 256, 110},   {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},
    {14, "q6_K", 256, 210},   {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
};

template <class Predicate>
std::optional<GgmlType> Find(Predicate matches) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), matches);
  if (found == std::end(kTypes)) return std::nullopt;
  return *found;
}

}  // namespace

std::optional<uint64_t> GgmlType::RowBytes(uint64_t elements) const {
  if (elements % block_elements != 0) return std::nullopt;
  const uint64_t blocks = elements / block_elements;
  if (blocks > std::numeric_limits<uint64_t>::max() / block_bytes) return std::nullopt;
  return blocks * block_bytes;
}

std::optional<GgmlType> FindGgmlType(uint32_t id) {
  return Find([id](const GgmlType& type) { return type.id == id; });
}

std::optional<GgmlType> FindGgmlType(std::string_view name) {
  return Find([name](const GgmlType& type) { return type.name == name; });
}

}  // namespace moonpool::bus
