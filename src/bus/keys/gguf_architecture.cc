#include "bus/keys/gguf_architecture.h"

#include <algorithm>

namespace moonpool::bus {
namespace {

constexpr GgufArchitecture Recurrent(std::string_view name) {
  return {name, LayerMix::kRecurrent, WindowRule::kNone, 0, true};
}
constexpr GgufArchitecture Hybrid(std::string_view name) {
  return {name, LayerMix::kHybrid, WindowRule::kFile, 0, true};
}
constexpr GgufArchitecture Window(std::string_view name, WindowRule rule, uint32_t window_default) {
  return {name, LayerMix::kAttention, rule, window_default, true};
}

// Seen in llama.cpp's model loaders in 2026. kRequired stands for loaders that choose the windowed cache before
// they look into the file.
constexpr GgufArchitecture kArchitectures[] = {
    Recurrent("mamba"),
    Recurrent("mamba2"),
    Recurrent("rwkv6"),
    Recurrent("rwkv6qwen2"),
    Recurrent("rwkv7"),
    Recurrent("arwkv7"),
    Hybrid("jamba"),
    Hybrid("falcon-h1"),
    Hybrid("plamo2"),
    Hybrid("granitehybrid"),
    Hybrid("lfm2"),
    Hybrid("lfm2moe"),
    Hybrid("nemotron_h"),
    Hybrid("nemotron_h_moe"),
    Hybrid("qwen3next"),
    Hybrid("qwen35"),
    Hybrid("qwen35moe"),
    Hybrid("kimi-linear"),
    Hybrid("deepseek4"),
    Window("gemma2", WindowRule::kRequired, 4096),
    Window("gemma3", WindowRule::kFile, 0),
    Window("gemma3n", WindowRule::kRequired, 512),
    Window("gemma4", WindowRule::kRequired, 512),
    Window("gemma-embedding", WindowRule::kRequired, 512),
    Window("gpt-oss", WindowRule::kRequired, 128),
    Window("llama4", WindowRule::kBuiltIn, 8192),
    Window("cohere2", WindowRule::kRequired, 4096),
    Window("exaone-moe", WindowRule::kRequired, 128),
    Window("gptneo", WindowRule::kRequired, 256),
    Window("llama", WindowRule::kNone, 0),
    Window("phi3", WindowRule::kNone, 0),
    Window("phimoe", WindowRule::kNone, 0),
    Window("qwen2", WindowRule::kNone, 0),
    Window("qwen2moe", WindowRule::kNone, 0),
    Window("qwen3", WindowRule::kNone, 0),
    Window("qwen3moe", WindowRule::kNone, 0),
    Window("starcoder2", WindowRule::kNone, 0),
};

}  // namespace

GgufArchitecture FindGgufArchitecture(std::string_view name) {
  const auto found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                  [name](const GgufArchitecture& known) { return known.name == name; });
  if (found != std::end(kArchitectures)) return *found;
  GgufArchitecture unknown;
  unknown.name = name;
  return unknown;
}

}  // namespace moonpool::bus
