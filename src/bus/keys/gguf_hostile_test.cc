// Field reports B29 and B30: whatever the bytes of a GGUF file, the reader ends in a value or an error, within 100 ms
// and 16 MiB, and the next file is read as if nothing had been.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/rng.h"
#include "bus/keys/gguf_metadata.h"
#include "bus/keys/gguf_model.h"
#include "support/gguf_writer.h"
#include "support/memory_file.h"
#include "support/thread_cost.h"

namespace moonpool::bus {
namespace {

using testing::GgufWriter;

#if defined(MOONPOOL_SANITIZED)
constexpr double kSecondsMax = 2.0;  // sanitizers slow everything down; their finds are what counts there
constexpr long kGrowthBytesMax = std::numeric_limits<long>::max();
#else
constexpr double kSecondsMax = 0.1;
constexpr long kGrowthBytesMax = 16 << 20;
#endif

Result<GgufModel> Describe(const File& file) {
  MP_ASSIGN_OR_RETURN(const GgufMetadata metadata, GgufMetadata::Read(file, "hostile.gguf", {}));
  return DescribeGgufModel(metadata);
}

Result<GgufModel> Read(const std::string& bytes) {
  // Exactly as long as the file, on the heap: a read past its end is seen by the address sanitizer.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return Describe(testing::MemoryFile(std::as_bytes(std::span(copy))));
}

// Expects one of the codes that mean "this file, not us", in bounded time and memory.
void ExpectRefused(const std::string& bytes, const std::string& what) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  const testing::MemoryFile file(std::as_bytes(std::span(copy)));
  Result<GgufModel> model = Fail(ErrorCode::kInternal, "not read");
  const testing::Cost cost = testing::CostOf([&] { model = Describe(file); });
  ASSERT_FALSE(model) << what;
  EXPECT_TRUE(model.error().code == ErrorCode::kCorrupt || model.error().code == ErrorCode::kUnsupported)
      << what << ": " << model.error().ToString();
  EXPECT_LT(cost.seconds, kSecondsMax) << what;
  EXPECT_LT(cost.peak_growth_bytes, kGrowthBytesMax) << what;
  EXPECT_EQ(model.error().message.find('\0'), std::string::npos) << what;
}

class GgufHostile : public ::testing::Test {
 protected:
  ~GgufHostile() override { EXPECT_TRUE(Read(GgufWriter::Model().File())) << "the next file is read as ever"; }
};

const uint64_t kAbsurd[] = {
    1ull << 20,       1ull << 24,       1ull << 31,       (1ull << 31) - 1, 1ull << 32,
    (1ull << 32) - 1, 1ull << 61,       1ull << 62,       1ull << 63,       ~0ull,
    ~0ull - 7,        ~0ull - 8,        (~0ull >> 1),     (~0ull / 8) + 1,  (~0ull / 4) + 1,
    (~0ull / 2) + 1,  (~0ull / 14) + 1, (~0ull / 12) + 1,
};

TEST_F(GgufHostile, CountsBeyondReason) {
  for (const uint64_t count : kAbsurd) {
    const std::string what = "count " + std::to_string(count);
    GgufWriter keys = GgufWriter::Model();
    keys.lie_keys = {count};
    ExpectRefused(keys.File(), what + " of keys");
    GgufWriter tensors = GgufWriter::Model();
    tensors.lie_tensors = {count};
    ExpectRefused(tensors.File(), what + " of tensors");
    GgufWriter both;
    both.lie_keys = both.lie_tensors = {count};
    ExpectRefused(both.File(), what + " of both, nothing behind");

    const std::string raw = GgufWriter::Raw(count);
    GgufWriter text = GgufWriter::Model();
    text.RawKey("k", GgufWriter::kString, raw + "short");
    ExpectRefused(text.Header(), what + " of a text");
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.chat_template"}) {
      GgufWriter hashed;
      hashed.RawKey(key, GgufWriter::kString, raw + "short");
      ExpectRefused(hashed.Header(), what + " of a hashed text");
    }
    for (uint32_t type = GgufWriter::kU8; type <= GgufWriter::kF64; ++type) {
      if (type == GgufWriter::kArray) continue;
      for (const char* key : {"k", "tokenizer.ggml.unknown", "tokenizer.ggml.tokens", "tokenizer.ggml.scores"}) {
        GgufWriter array;
        array.RawKey(key, GgufWriter::kArray, GgufWriter::Raw(type) + raw + std::string(64, '\0'));
        ExpectRefused(array.Header(), what + " of an array of type " + std::to_string(type) + " in " + key);
      }
    }
    // A length inside a list of strings, first or later.
    for (const std::string& before : {std::string(), GgufWriter::Text("honest")}) {
      GgufWriter list;
      list.RawKey("tokenizer.ggml.tokens", GgufWriter::kArray,
                  GgufWriter::Raw<uint32_t>(GgufWriter::kString) + GgufWriter::Raw<uint64_t>(3) + before + raw +
                      std::string(100, 'x'));
      ExpectRefused(list.Header(), what + " of a token");
    }
    // Lengths of a key's and a tensor's name.
    std::string name = GgufWriter::Raw<uint32_t>(3) + GgufWriter::Raw<uint64_t>(0) + GgufWriter::Raw<uint64_t>(1);
    ExpectRefused("GGUF" + name + raw + std::string(100, 'k'), what + " of a key's name");
    name = GgufWriter::Raw<uint32_t>(3) + GgufWriter::Raw<uint64_t>(1) + GgufWriter::Raw<uint64_t>(0);
    ExpectRefused("GGUF" + name + raw + std::string(100, 't'), what + " of a tensor's name");

    if (count > 512) {
      GgufWriter dimension = GgufWriter::Model();
      dimension.RawTensor("t", {count}, 1, 512);
      ExpectRefused(dimension.File(), what + " as a dimension");
      GgufWriter wrapping = GgufWriter::Model();
      wrapping.RawTensor("t", {count, count, count, count}, 0, 512);
      ExpectRefused(wrapping.File(), what + " as four dimensions");
      GgufWriter offset = GgufWriter::Model();
      offset.RawTensor("t", {16}, 1, count / 32 * 32);
      ExpectRefused(offset.File(), what + " as an offset");
    }
  }
}

TEST_F(GgufHostile, ProductsThatWrapToSmallNumbers) {
  // Element count times size is 0 or 8 modulo 2^64.
  for (const auto& [type, count] : {std::pair<uint32_t, uint64_t>{GgufWriter::kU64, 1ull << 61},
                                    {GgufWriter::kU64, (1ull << 61) + 1},
                                    {GgufWriter::kF32, 1ull << 62},
                                    {GgufWriter::kF32, (1ull << 62) + 2},
                                    {GgufWriter::kU16, 1ull << 63},
                                    {GgufWriter::kString, 1ull << 61}}) {
    GgufWriter array = GgufWriter::Model();
    array.RawKey("k", GgufWriter::kArray, GgufWriter::Raw(type) + GgufWriter::Raw(count) + std::string(8, '\0'));
    ExpectRefused(array.Header(), "array of " + std::to_string(count));
  }
  for (const std::vector<uint64_t>& dimensions :
       std::vector<std::vector<uint64_t>>{{1ull << 32, 1ull << 32},
                                          {1ull << 32, 1ull << 31, 2},
                                          {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
                                          {3, 0x5555555555555556ull},
                                          {1ull << 62, 4},
                                          {1ull << 61},
                                          {1ull << 60, 16}}) {
    for (const uint32_t type : {0u, 1u, 8u, 12u, 999u}) {
      GgufWriter tensor = GgufWriter::Model();
      tensor.RawTensor("t", dimensions, type, 512);
      // Of a type we do not know the size cannot be told; only the number of elements can.
      if (type == 999 && dimensions.size() == 1) continue;
      ExpectRefused(tensor.File(), "dimensions that wrap, type " + std::to_string(type));
    }
  }
  GgufWriter end = GgufWriter::Model();
  end.RawTensor("t", {32}, 0, ~0ull - 127 + 32);  // offset + size is 32
  ExpectRefused(end.File(), "an end that wraps");
}

TEST_F(GgufHostile, FilesCutAnywhere) {
  GgufWriter writer = GgufWriter::Model();
  writer.Array<std::string>("general.tags", GgufWriter::kString, {"one", "two"});
  writer.Array<uint32_t>("llama.rope.dimension_sections", GgufWriter::kU32, {1, 2, 3});
  const std::string file = writer.File();
  ASSERT_TRUE(Read(file));
  for (size_t length = 0; length < file.size(); ++length) {
    ExpectRefused(file.substr(0, length), "cut at " + std::to_string(length));
  }
}

TEST_F(GgufHostile, VersionsAndByteOrders) {
  for (const uint32_t version : {0u, 1u, 4u, 5u, 0x80000000u, 0x7fffffffu, 0xffffffffu, 0x01000000u}) {
    GgufWriter writer = GgufWriter::Model();
    writer.version = version;
    ExpectRefused(writer.File(), "version " + std::to_string(version));
    EXPECT_EQ(Read(writer.File()).error().code, ErrorCode::kUnsupported);
  }
  for (const uint32_t version : {0x02000000u, 0x03000000u}) {
    GgufWriter writer = GgufWriter::Model();
    writer.version = version;
    EXPECT_NE(Read(writer.File()).error().message.find("big-endian"), std::string::npos);
  }
  for (const char* magic : {"FUGG", "gguf", "GGML", "GGUf"}) {
    GgufWriter writer = GgufWriter::Model();
    writer.magic = magic;
    ExpectRefused(writer.File(), magic);
  }
}

TEST_F(GgufHostile, NestedArrays) {
  std::string value;
  for (int depth = 0; depth < 10'000; ++depth) {
    value += GgufWriter::Raw<uint32_t>(GgufWriter::kArray) + GgufWriter::Raw<uint64_t>(1);
  }
  for (const char* key : {"k", "tokenizer.ggml.tokens", "tokenizer.x", "general.architecture"}) {
    GgufWriter writer = GgufWriter::Model();
    if (key == std::string("tokenizer.ggml.tokens") || key == std::string("general.architecture")) writer = {};
    writer.RawKey(key, GgufWriter::kArray, value);
    ExpectRefused(writer.Header(), std::string("10,000 arrays deep in ") + key);
  }
}

TEST_F(GgufHostile, KeysThatNoFileMayHave) {
  GgufWriter empty = GgufWriter::Model();
  empty.U32("", 1);
  ExpectRefused(empty.File(), "an empty key");
  GgufWriter minimal;  // 37 bytes: a header and one empty key
  minimal.RawKey("", GgufWriter::kU8, "x");
  ExpectRefused(minimal.Header(), "nothing but an empty key");
  for (const char* key : {"general.architecture", "llama.block_count", "tokenizer.ggml.model", "general.unknown"}) {
    GgufWriter twice = GgufWriter::Model();
    twice.Str("general.unknown", "once").Str(key, "again");
    ExpectRefused(twice.File(), std::string("the key ") + key + " twice");
  }
  GgufWriter tensors = GgufWriter::Model();
  tensors.RawTensor("token_embd.weight", {16}, 1, 0);
  ExpectRefused(tensors.File(), "a tensor twice");
  GgufWriter nameless = GgufWriter::Model();
  nameless.RawTensor("", {16}, 1, 0);
  ExpectRefused(nameless.File(), "a tensor without a name");
  GgufWriter longest = GgufWriter::Model();
  longest.U32(std::string(65536, 'k'), 1);
  ExpectRefused(longest.File(), "a key of 64 KiB");
}

// Names go into messages: whatever they are, a message can be made of them and shows nothing but printable text.
TEST_F(GgufHostile, NamesThatAreNoText) {
  const auto printable = [](const std::string& name, const GgufWriter& writer) {
    const auto model = Read(writer.File());
    ASSERT_FALSE(model) << name;
    for (const char c : model.error().message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << name;
  };
  for (int byte = 0; byte < 256; ++byte) {
    for (const int next : {0x00, 0x29, 0x41, 0x80, 0xbf, 0xc6, 0xff}) {
      const std::string name = {static_cast<char>(byte), static_cast<char>(next), static_cast<char>(byte)};
      GgufWriter key = GgufWriter::Model();
      key.RawKey(name, 99, "xxxx");
      printable(name, key);
      GgufWriter tensor = GgufWriter::Model();
      tensor.RawTensor(name, {0}, 1, 0);
      printable(name, tensor);
    }
  }
  for (const std::string name : {"a b", "a\nb", "\xc6)", "a/b", "\"", "\x7f"}) {
    GgufWriter writer;
    writer.Str("general.architecture", name).U32(name + ".block_count", 1);
    printable(name, writer);
  }
}

TEST_F(GgufHostile, Alignments) {
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 30, 1u << 31, 0xffffffffu}) {
    GgufWriter writer = GgufWriter::Model();
    writer.U32("general.alignment", alignment);
    ExpectRefused(writer.File(), "alignment " + std::to_string(alignment));
  }
  for (const uint32_t type :
       {GgufWriter::kI32, GgufWriter::kF32, GgufWriter::kU64, GgufWriter::kU8, GgufWriter::kBool}) {
    GgufWriter writer = GgufWriter::Model();
    writer.RawKey("general.alignment", type,
                  std::string("\x20\0\0\0\0\0\0\0", type == GgufWriter::kU64                               ? 8
                                                    : type == GgufWriter::kU8 || type == GgufWriter::kBool ? 1
                                                                                                           : 4));
    ExpectRefused(writer.File(), "alignment of type " + std::to_string(type));
  }
  GgufWriter honest;
  honest.alignment = 64;
  honest.Str("general.architecture", "llama").U32("llama.block_count", 1).U32("general.alignment", 64);
  honest.Tensor("t", {16}, 1, std::string(32, 'd'));
  honest.Tensor("u", {16}, 1, std::string(32, 'd'));
  EXPECT_TRUE(Read(honest.File()));
  GgufWriter odd = GgufWriter::Model();
  odd.RawTensor("t", {16}, 1, 33);
  ExpectRefused(odd.File(), "a tensor off its alignment");
}

TEST_F(GgufHostile, ValuesOfTheWrongType) {
  const auto refused = [](const std::string& what, const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer;
    add(writer);
    if (what.find("architecture") == std::string::npos) {
      writer.Str("general.architecture", "llama");
      if (what.find("block_count") == std::string::npos) writer.U32("llama.block_count", 2);
    }
    ExpectRefused(writer.File(), what);
  };
  using W = GgufWriter;
  refused("no architecture", [](W& w) { w.U32("llama.block_count", 2); });
  refused("architecture as a number", [](W& w) { w.U32("general.architecture", 1).U32("llama.block_count", 2); });
  refused("architecture as a list", [](W& w) { w.Array<std::string>("general.architecture", W::kString, {"llama"}); });
  refused("empty architecture", [](W& w) { w.Str("general.architecture", "").U32(".block_count", 2); });
  refused("architecture without end", [](W& w) { w.Str("general.architecture", std::string(60'000, 'a')); });
  refused("tokens as bytes", [](W& w) { w.Array<uint8_t>("tokenizer.ggml.tokens", W::kU8, {1, 2}); });
  refused("tokens as a scalar", [](W& w) { w.U32("tokenizer.ggml.tokens", 2); });
  refused("tokens as a text", [](W& w) { w.Str("tokenizer.ggml.tokens", "a"); });
  refused("merges as numbers", [](W& w) { w.Array<uint32_t>("tokenizer.ggml.merges", W::kU32, {1}); });
  refused("scores as doubles", [](W& w) { w.Array<double>("tokenizer.ggml.scores", W::kF64, {1}); });
  refused("token types as texts", [](W& w) { w.Array<std::string>("tokenizer.ggml.token_type", W::kString, {"a"}); });
  refused("fewer scores than tokens", [](W& w) {
    w.Array<std::string>("tokenizer.ggml.tokens", W::kString, {"a", "b"})
        .Array<float>("tokenizer.ggml.scores", W::kF32, {1});
  });
  refused("more token types than tokens", [](W& w) {
    w.Array<int32_t>("tokenizer.ggml.token_type", W::kI32, {1, 1, 1});
    w.Array<std::string>("tokenizer.ggml.tokens", W::kString, {"a", "b"});
  });
  for (const uint32_t layers : {0u, 4097u, 1u << 31, 0xffffffffu}) {
    refused("block_count " + std::to_string(layers), [&](W& w) { w.U32("llama.block_count", layers); });
  }
  refused("block_count as a text", [](W& w) { w.Str("llama.block_count", "2"); });
  refused("block_count negative", [](W& w) { w.RawKey("llama.block_count", W::kI32, W::Raw(-1)); });
  refused("block_count as a float", [](W& w) { w.F32("llama.block_count", 2.0f); });
  refused("block_count as a list", [](W& w) { w.Array<uint32_t>("llama.block_count", W::kU32, {2}); });
  refused("block_count of 2^63", [](W& w) { w.RawKey("llama.block_count", W::kU64, W::Raw<uint64_t>(1ull << 63)); });
  refused("no block_count", [](W&) {});
  refused("heads for other layers", [](W& w) {
    w.Array<uint32_t>("llama.attention.head_count_kv", W::kU32, {1, 2, 3});
  });
  refused("heads as texts", [](W& w) {
    w.Array<std::string>("llama.attention.head_count_kv", W::kString, {"1", "2"});
  });
  refused("no heads at all", [](W& w) { w.Array<uint32_t>("llama.attention.head_count", W::kU32, {}); });
  refused("heads for a million layers",
          [](W& w) { w.Array<uint32_t>("llama.attention.head_count", W::kU32, std::vector<uint32_t>(1'000'000, 1)); });
  refused("window as a text", [](W& w) { w.Str("llama.attention.sliding_window", "512"); });
  refused("rope scaling as a number", [](W& w) { w.U32("llama.rope.scaling.type", 1); });
  refused("rope value of 1 MB", [](W& w) { w.Str("llama.rope.scaling.type", std::string(1'000'000, 'r')); });
  refused("unknown type", [](W& w) { w.RawKey("k", 13, "xxxxxxxx"); });
  refused("unknown type 2^32 - 1", [](W& w) { w.RawKey("k", 0xffffffffu, "xxxxxxxx"); });
  refused("unknown element type", [](W& w) { w.RawKey("k", W::kArray, W::Raw<uint32_t>(77) + W::Raw<uint64_t>(0)); });
  // Zero heads divide nothing.
  GgufWriter headless;
  headless.Str("general.architecture", "llama").U32("llama.block_count", 2).U32("llama.embedding_length", 64);
  headless.U32("llama.attention.head_count", 0).U32("llama.attention.head_count_kv", 0);
  const auto model = Read(headless.File());
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->KvBytesPerToken("f16", "f16"));
}

TEST_F(GgufHostile, Tensors) {
  GgufWriter zero = GgufWriter::Model();
  zero.RawTensor("t", {16, 0}, 1, 512);
  ExpectRefused(zero.File(), "a dimension of 0");
  GgufWriter dimensions = GgufWriter::Model();
  dimensions.RawTensor("t", std::vector<uint64_t>(5, 1), 1, 512);
  ExpectRefused(dimensions.File(), "five dimensions");
  GgufWriter many;
  many.RawTensor("t", std::vector<uint64_t>(100'000, 1), 1, 0);
  ExpectRefused(many.File(), "100,000 dimensions");
  GgufWriter block = GgufWriter::Model();
  block.RawTensor("t", {33}, 8, 0);
  ExpectRefused(block.File(), "a row that is no whole number of blocks");
  GgufWriter beyond = GgufWriter::Model();
  beyond.RawTensor("t", {1024}, 1, 0);
  ExpectRefused(beyond.File(), "a tensor that ends beyond the file");
  GgufWriter scalar = GgufWriter::Model();
  scalar.RawTensor("t", {}, 0, 0);
  EXPECT_TRUE(Read(scalar.File())) << "no dimension is one element";
  GgufWriter unknown = GgufWriter::Model();
  unknown.RawTensor("t", {16}, 12345, 0);
  EXPECT_TRUE(Read(unknown.File())) << "a type of tomorrow is not our business";
}

// Files that are large for a reason that is none: many keys, much text, long lists, all well formed. The bounds
// hold by limits on what is kept, and by refusing early.
TEST_F(GgufHostile, WellFormedExcess) {
  GgufWriter keys = GgufWriter::Model();
  for (int i = 0; i < 20'000; ++i) keys.U32("k" + std::to_string(i), 1);
  ExpectRefused(keys.File(), "20,000 keys");
  GgufWriter values = GgufWriter::Model();
  for (int i = 0; i < 300; ++i) values.Str("k" + std::to_string(i), std::string(16'000, 'v'));
  ExpectRefused(values.File(), "4.8 MB of small values");
  GgufWriter names = GgufWriter::Model();
  for (int i = 0; i < 100; ++i) names.U32("tokenizer." + std::to_string(i) + std::string(60'000, 'n'), 1);
  ExpectRefused(names.File(), "6 MB of names");
  GgufWriter large = GgufWriter::Model();
  large.Str("general.description", std::string(4'000'000, 'd'));
  EXPECT_TRUE(Read(large.File())) << "one large value that nobody needs is passed over";
}

// A header that declares 300 MB, and a (sparse) file that has them: refused where the limit is met.
TEST_F(GgufHostile, MetadataBeyondItsLimitIsRefused) {
  class Hole final : public File {
   public:
    explicit Hole(std::string head) : head_(std::move(head)) {}
    Result<size_t> Read(uint64_t offset, std::span<std::byte> into) const override {
      for (size_t i = 0; i < into.size(); ++i) {
        into[i] = offset + i < head_.size() ? static_cast<std::byte>(head_[offset + i]) : std::byte{0};
      }
      return into.size();
    }
    Result<void> Append(std::span<const std::byte>) override { return {}; }
    Result<void> WriteAt(uint64_t, std::span<const std::byte>) override { return {}; }
    Result<void> Reserve(uint64_t) override { return {}; }
    Result<void> Sync() override { return {}; }
    Result<void> Close() override { return {}; }
    Result<FileInfo> Info() const override {
      FileInfo info;
      info.size_bytes = 1ull << 50;
      return info;
    }
    Result<void> Lock(LockKind) override { return {}; }
    Result<void> TryLock(LockKind) override { return {}; }
    void Unlock() override {}

   private:
    const std::string head_;
  };
  using W = GgufWriter;
  const std::pair<const char*, std::string> values[] = {
      {"one text", W::Raw(1ull << 40)},
      {"text of 2^49", W::Raw(1ull << 49)},
  };
  for (const auto& [what, value] : values) {
    for (const char* key : {"k", "tokenizer.ggml.model"}) {
      W writer;
      writer.RawKey(key, W::kString, value);
      const double begin = testing::ThreadSeconds();
      const auto metadata = GgufMetadata::Read(Hole(writer.Header()), "hole", {});
      EXPECT_LT(testing::ThreadSeconds() - begin, kSecondsMax) << what;
      ASSERT_FALSE(metadata) << what;
      EXPECT_EQ(metadata.error().code, ErrorCode::kUnsupported) << metadata.error().ToString();
    }
  }
  // 2^40 bytes or empty strings: their count alone is beyond the limit, so not one of them is read.
  for (const uint32_t type : {W::kU8, W::kString, W::kF64}) {
    W writer;
    writer.RawKey("tokenizer.ggml.unknown", W::kArray, W::Raw(type) + W::Raw(1ull << 40));
    const double begin = testing::ThreadSeconds();
    const auto metadata = GgufMetadata::Read(Hole(writer.Header()), "hole", {});
    EXPECT_LT(testing::ThreadSeconds() - begin, kSecondsMax) << type;
    EXPECT_EQ(metadata.error().code, ErrorCode::kUnsupported);
  }
  W tensors;
  tensors.lie_tensors = {200'000'000};
  EXPECT_EQ(GgufMetadata::Read(Hole(tensors.Header()), "hole", {}).error().code, ErrorCode::kUnsupported);
}

// The dearest lie: as much vocabulary as is allowed, and the file ends inside its last token.
TEST_F(GgufHostile, ALieBehindAllTheTextThatIsAllowed) {
  std::string tokens;
  uint64_t count = 0;
  for (; tokens.size() < GgufLimits{}.metadata_bytes_max - 1000; ++count) tokens += GgufWriter::Text("token");
  GgufWriter writer;
  writer.RawKey("tokenizer.ggml.tokens", GgufWriter::kArray,
                GgufWriter::Raw<uint32_t>(GgufWriter::kString) + GgufWriter::Raw<uint64_t>(count + 1) + tokens +
                    GgufWriter::Raw<uint64_t>(1 << 20));
  ExpectRefused(writer.Header(), "a lie behind all the tokens");
}

// Any bytes: a valid file with random damage. The seed is printed when it fails.
TEST_F(GgufHostile, RandomDamage) {
  const uint64_t seed = SystemRng().Next();
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRng rng(seed);
  const std::string good = GgufWriter::Model().File();
  int values = 0, errors = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = good;
    for (uint64_t flips = rng.Next() % 4 + 1; flips > 0; --flips) {
      const size_t at = rng.Next() % bytes.size();
      switch (rng.Next() % 3) {
        case 0: bytes[at] = static_cast<char>(rng.Next()); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << (rng.Next() % 8))); break;
        default: bytes.replace(at, 8, GgufWriter::Raw(kAbsurd[rng.Next() % std::size(kAbsurd)])); break;
      }
    }
    const double begin = testing::ThreadSeconds();
    Read(bytes) ? ++values : ++errors;
    ASSERT_LT(testing::ThreadSeconds() - begin, kSecondsMax) << "round " << i;
  }
  EXPECT_GT(errors, 100);
  EXPECT_EQ(values + errors, 5000);
}

}  // namespace
}  // namespace moonpool::bus
