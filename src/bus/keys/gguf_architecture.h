// GgufArchitecture: what llama.cpp knows about an architecture and a GGUF file does not say: which models keep a
// recurrent state, which read their window from the file, which have one in any case and which ignore it.
// Architectures that are not listed are judged by the keys of their file alone. Values.
#pragma once

#include <cstdint>
#include <string_view>

namespace moonpool::bus {

enum class LayerMix {
  kAttention,  // attention layers only
  kRecurrent,  // state-space or linear-attention layers only
  kHybrid,     // both
};

enum class WindowRule {
  kFile,      // a window if the file names one above 0
  kBuiltIn,   // a window whatever the file says; the file may set its size, 0 switches it off
  kRequired,  // as kBuiltIn, but 0 does not switch it off
  kNone,      // the file may name one, the engine does not use it
};

struct GgufArchitecture {
  std::string_view name;
  LayerMix mix = LayerMix::kAttention;
  WindowRule window = WindowRule::kFile;
  uint32_t window_default = 0;
  bool listed = false;  // false: nothing is known beside the file
};

GgufArchitecture FindGgufArchitecture(std::string_view name);

}  // namespace moonpool::bus
