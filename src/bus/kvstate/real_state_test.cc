// Files that real servers wrote (tests/golden/kvstate/README.md).
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "bus/kvstate/sequence_state.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

using ::moonpool::testing::TempDir;

using Bytes = std::vector<std::byte>;

Bytes Golden(const std::string& name) {
  PosixFileSystem files;
  const auto text = ReadWholeFile(files, Path(MOONPOOL_SOURCE_DIR "/tests/golden/kvstate") / name, 1 << 20);
  EXPECT_TRUE(text.has_value()) << name;
  Bytes bytes(text->size());
  std::memcpy(bytes.data(), text->data(), text->size());
  return bytes;
}

struct RealFile {
  const char* name;
  MemoryClass memory;
  size_t tokens;
  const char* layout;
  uint32_t checkpoints = 0;
  bool without_v = false;
};

const RealFile kFiles[] = {
    {"smollm2-np1-f16.bin", MemoryClass::kPlain, 2,
     "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=(k=1:384,v=1:384)*30]"},
    {"smollm2-np2-slot1-f16.bin", MemoryClass::kPlain, 2,
     "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=(k=1:384,v=1:384)*30]"},
    {"smollm2-np1-q8_0.bin", MemoryClass::kPlain, 2,
     "state=4 memory=plain attention[cell=12 vt=0 rot=64/64 layers=(k=8:204,v=8:204)*30]"},
    {"smollm2-np1-f16-fa-off.bin", MemoryClass::kPlain, 2,
     "state=4 memory=plain attention[cell=12 vt=1 rot=0/0 streams=1 layers=(k=1:384,v=1:384/192)*30]"},
    {"smollm2-np1-empty.bin", MemoryClass::kPlain, 0, "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=]"},
    {"smollm2-np2-empty.bin", MemoryClass::kPlain, 0, "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=]"},
    {"gemma3-np1-f16.bin", MemoryClass::kSlidingWindow, 2,
     "state=4 memory=sliding-window attention[cell=12 vt=0 rot=0/0 streams=1 layers=(k=1:512,v=1:512)*3] "
     "attention[cell=12 vt=0 rot=0/0 streams=1 layers=(k=1:512,v=1:512)*15]"},
    {"gemma3-np2-slot1-f16.bin", MemoryClass::kSlidingWindow, 1,
     "state=4 memory=sliding-window attention[cell=12 vt=0 rot=0/0 streams=2 layers=(k=1:512,v=1:512)*3] "
     "attention[cell=12 vt=0 rot=0/0 streams=2 layers=(k=1:512,v=1:512)*15]"},
    {"mamba-np1.bin", MemoryClass::kRecurrent, 21,
     "state=4 memory=recurrent recurrent[of=4 layers=(r=0:1536,s=0:4096)*4]", 1},
    {"mamba-np2.bin", MemoryClass::kRecurrent, 21,
     "state=4 memory=recurrent recurrent[of=4 layers=(r=0:1536,s=0:4096)*4]", 1},
    {"jamba-np1-f16.bin", MemoryClass::kHybrid, 21,
     "state=4 memory=hybrid attention[cell=12 vt=0 rot=0/0 streams=1 layers=(k=1:64,v=1:64)*1] "
     "recurrent[of=4 layers=(r=0:1536,s=0:4096)*3]",
     1},
    {"qwen2vl-np1-f16.bin", MemoryClass::kPlain, 6,
     "state=4 memory=plain attention[cell=24 vt=0 rot=0/0 layers=(k=1:64,v=1:64)*2]"},
    {"qwen2vl-np2-slot1-f16.bin", MemoryClass::kPlain, 6,
     "state=4 memory=plain attention[cell=24 vt=0 rot=0/0 layers=(k=1:64,v=1:64)*2]"},
    {"mla-np1-f16.bin", MemoryClass::kPlain, 6,
     "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=(k=1:96)*2]", 0, true},
    {"mla-np2-slot1-f16.bin", MemoryClass::kPlain, 6,
     "state=4 memory=plain attention[cell=12 vt=0 rot=0/0 layers=(k=1:96)*2]", 0, true},
};

TEST(RealState, IsUnderstood) {
  for (const RealFile& file : kFiles) {
    const Bytes bytes = Golden(file.name);
    const auto state =
        ParseSequenceState(MemorySource(bytes), file.memory, {.vocabulary = 262144, .without_v = file.without_v});
    ASSERT_TRUE(state.has_value()) << file.name << ": " << state.error().ToString();
    EXPECT_EQ(state->tokens.size(), file.tokens) << file.name;
    EXPECT_TRUE(state->packed_tokens) << file.name;
    EXPECT_EQ(state->LayoutDescriptor(), file.layout) << file.name;
    EXPECT_EQ(state->checkpoints, file.checkpoints) << file.name;
  }
}

// B24, on real bytes: every truncation but the one that drops exactly the checkpoint tail.
TEST(RealState, IsRefusedWhenCut) {
  for (const RealFile& file : kFiles) {
    const Bytes bytes = Golden(file.name);
    const auto state = ParseSequenceState(MemorySource(bytes), file.memory, {.without_v = file.without_v});
    ASSERT_TRUE(state.has_value()) << file.name;
    for (size_t size = 0; size < bytes.size(); ++size) {
      if (size == state->body_end) continue;
      const auto cut =
          ParseSequenceState(MemorySource(std::span(bytes).first(size)), file.memory, {.without_v = file.without_v});
      ASSERT_FALSE(cut.has_value()) << file.name << " cut to " << size;
    }
  }
}

// Rewriting makes the very bytes that the other server wrote.
TEST(RealState, RewrittenEqualsTheOtherServersFile) {
  TempDir directory;
  PosixFileSystem files;
  struct Case {
    const char* from;
    RewriteTarget target;
    const char* equals;
    bool without_v = false;
  };
  int number = 0;
  for (const Case& c :
       {Case{"smollm2-np1-f16.bin", {.streams = 2, .stream = 1, .sequence_id = 1}, "smollm2-np2-slot1-f16.bin"},
        Case{"smollm2-np2-slot1-f16.bin", {}, "smollm2-np1-f16.bin"},
        Case{"smollm2-np1-q8_0.bin", {}, "smollm2-np1-q8_0.bin"},
        Case{"smollm2-np1-f16.bin", {.streams = 2, .tokens = 0}, "smollm2-np2-empty.bin"},
        Case{"smollm2-np1-q8_0.bin", {.tokens = 0}, "smollm2-np1-empty.bin"},
        Case{"qwen2vl-np1-f16.bin", {.streams = 2, .stream = 1, .sequence_id = 1}, "qwen2vl-np2-slot1-f16.bin"},
        Case{"mla-np2-slot1-f16.bin", {}, "mla-np1-f16.bin", true}}) {
    const Bytes from = Golden(c.from);
    const auto state = ParseSequenceState(MemorySource(from), MemoryClass::kPlain, {.without_v = c.without_v});
    ASSERT_TRUE(state.has_value());
    const auto file = files.Create(directory / std::to_string(++number));
    ASSERT_TRUE(RewriteSequenceState(MemorySource(from), *state, c.target, **file).has_value());
    Bytes written((*file)->Info()->size_bytes);
    ASSERT_TRUE((*file)->ReadExactly(0, written).has_value());
    EXPECT_TRUE(written == Golden(c.equals)) << c.from << " to " << c.equals;
  }
}

// f16 and q8_0 of one prompt differ in layout; f16 with another -np does not, and its rows are the same.
TEST(RealState, IsComparedAcrossServers) {
  const Bytes np1 = Golden("smollm2-np1-f16.bin");
  const Bytes np2 = Golden("smollm2-np2-slot1-f16.bin");
  const Bytes quantized = Golden("smollm2-np1-q8_0.bin");
  const auto parse = [](const Bytes& bytes) { return *ParseSequenceState(MemorySource(bytes), MemoryClass::kPlain); };
  const auto distance = CompareStates(MemorySource(np1), parse(np1), MemorySource(np2), parse(np2));
  ASSERT_TRUE(distance.has_value()) << distance.error().ToString();
  EXPECT_EQ(distance->worst_layer, 0);
  EXPECT_FALSE(CompareStates(MemorySource(np1), parse(np1), MemorySource(quantized), parse(quantized)).has_value());
}

}  // namespace
}  // namespace moonpool::bus
