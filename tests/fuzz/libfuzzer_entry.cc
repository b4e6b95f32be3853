// What libFuzzer calls; MOONPOOL_FUZZ_ENTRY is the target's plain function (tests/fuzz/CMakeLists.txt).
#include <cstddef>
#include <cstdint>
#include <span>

int MOONPOOL_FUZZ_ENTRY(std::span<const uint8_t> input);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return MOONPOOL_FUZZ_ENTRY(std::span(data, size));
}
