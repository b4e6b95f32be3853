// Replays the corpus of one fuzz target without a fuzzer, so that every build and every sanitizer sees it: each
// file whole, and each file cut short at every byte (at most kCutsMax places, evenly spread). A finding crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

int MOONPOOL_FUZZ_ENTRY(std::span<const uint8_t> input);

namespace moonpool {
namespace {

constexpr size_t kCutsMax = 2000;

std::vector<std::filesystem::path> CorpusFiles() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(MOONPOOL_FUZZ_CORPUS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void Replay() {
  const auto paths = CorpusFiles();
  ASSERT_FALSE(paths.empty()) << "nothing to replay in " << MOONPOOL_FUZZ_CORPUS;
  for (const auto& path : paths) {
    SCOPED_TRACE(path.string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_EQ(MOONPOOL_FUZZ_ENTRY(bytes), 0);
    const size_t step = bytes.size() / kCutsMax + 1;
    for (size_t length = 0; length < bytes.size(); length += step) {
      // A copy of exactly this length, so that the address sanitizer sees a read past its end.
      const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_EQ(MOONPOOL_FUZZ_ENTRY(cut), 0);
    }
  }
}

#if defined(MOONPOOL_FUZZ_CRASHES)
// The canary's corpus holds its mine. A harness that no longer calls the function fails here.
TEST(FuzzCanaryDeathTest, TheReplayNoticesACrash) { EXPECT_DEATH(Replay(), ""); }
#else
TEST(FuzzCorpus, EveryFileAndEveryBeginningOfItEndsInAValueOrAnError) { Replay(); }
#endif

}  // namespace
}  // namespace moonpool
