// The fuzz target that must crash: proof that the harness calls its function and notices what it does.
#include <cstdint>
#include <cstdlib>
#include <span>

int FuzzCanary(std::span<const uint8_t> input) {
  // Nested, so that the fuzzer can find one byte after the other.
  if (input.size() >= 3 && input[0] == 'p') {
    if (input[1] == 'i') {
      if (input[2] == 'p') std::abort();
    }
  }
  return 0;
}
