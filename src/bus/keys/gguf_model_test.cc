#include "bus/keys/gguf_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/fault.h"
#include "support/gguf_writer.h"
#include "support/temp_dir.h"
#include "support/thread_cost.h"

namespace moonpool::bus {
namespace {

using testing::GgufWriter;

class GgufModelTest : public ::testing::Test {
 protected:
  Path Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }
  Result<GgufModel> Read(const GgufWriter& writer) { return ReadGgufModel(files_, Write("model.gguf", writer.File())); }

  testing::TempDir dir_;
  PosixFileSystem files_;
};

TEST_F(GgufModelTest, TellsWhatTheFileSays) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = GgufWriter::Model();
    writer.version = version;
    const auto model = Read(writer);
    ASSERT_TRUE(model) << model.error().ToString();
    EXPECT_EQ(model->architecture, "llama");
    EXPECT_EQ(model->name, "tiny");
    EXPECT_EQ(model->file_type, 1u);
    EXPECT_EQ(model->vocabulary, 4u);
    EXPECT_EQ(model->blocks, 2u);
    EXPECT_EQ(model->context_train, 2048u);
    EXPECT_TRUE(model->Plain());
    EXPECT_FALSE(model->rope_depends_on_context);
    EXPECT_FALSE(model->media_capable);
    EXPECT_EQ(model->shards, std::vector<Path>{dir_ / "model.gguf"});
    // 2 layers, 2 KV heads, 64 / 4 elements, K and V of 2 bytes, and the cell.
    EXPECT_EQ(model->KvBytesPerToken("f16", "f16"), 2u * 2 * 16 * 2 * 2 + 12);
  }
}

TEST_F(GgufModelTest, KvBytesFollowGeometryAndTypes) {
  // SmolLM2-135M: 23040 bytes of f16 KV and 12240 of q8_0 per token, as measured on saved files.
  GgufWriter writer;
  writer.Str("general.architecture", "llama").U32("llama.block_count", 30).U32("llama.embedding_length", 576);
  writer.U32("llama.attention.head_count", 9).U32("llama.attention.head_count_kv", 3);
  const GgufModel smol = Read(writer).value();
  EXPECT_EQ(smol.KvBytesPerToken("f16", "f16"), 23040u + 12);
  EXPECT_EQ(smol.KvBytesPerToken("q8_0", "q8_0"), 12240u + 12);
  EXPECT_FALSE(smol.KvBytesPerToken("f16", "unheard of"));
  EXPECT_FALSE(smol.KvBytesPerToken("q4_K", "f16")) << "192 elements are no whole block of 256";

  // MLA: one compressed row per layer, no V.
  GgufWriter latent;
  latent.Str("general.architecture", "deepseek2").U32("deepseek2.block_count", 4);
  latent.U32("deepseek2.attention.head_count", 16).U32("deepseek2.attention.head_count_kv", 1);
  latent.U32("deepseek2.attention.kv_lora_rank", 512).U32("deepseek2.attention.key_length", 576);
  latent.U32("deepseek2.attention.value_length", 512).U32("deepseek2.attention.key_length_mla", 192);
  EXPECT_EQ(Read(latent)->KvBytesPerToken("f16", "f16"), 4u * 1152 + 12);

  // Hybrid: every second layer keeps rows; or heads given per layer with zeros for the others.
  GgufWriter interval = GgufWriter::Model("qwen3next");
  interval.U32("qwen3next.full_attention_interval", 2);
  EXPECT_EQ(Read(interval)->kv_heads, (std::vector<uint32_t>{0, 2}));
  GgufWriter heads;
  heads.Str("general.architecture", "jamba").U32("jamba.block_count", 3).U32("jamba.embedding_length", 64);
  heads.U32("jamba.attention.head_count", 4)
      .Array<uint32_t>("jamba.attention.head_count_kv", GgufWriter::kU32, {0, 2, 0});
  EXPECT_EQ(Read(heads)->kv_heads, (std::vector<uint32_t>{0, 2, 0}));
  EXPECT_EQ(Read(heads)->KvBytesPerToken("f16", "f16"), 2u * 16 * 2 * 2 + 12);
}

struct ClassCase {
  const char* architecture;
  const char* key;  // a further key, or nullptr
  uint32_t value;
  bool attention;
  bool recurrent;
  uint32_t window;
};

TEST_F(GgufModelTest, ClassifiesTheMemoryOfItsLayers) {
  const ClassCase cases[] = {
      {"llama", nullptr, 0, true, false, 0},
      {"qwen3", nullptr, 0, true, false, 0},
      {"llama", "attention.sliding_window", 4096, true, false, 0},  // named by the file, not used by the engine
      {"phi3", "attention.sliding_window", 2047, true, false, 0},
      {"gemma2", nullptr, 0, true, false, 4096},  // built in
      {"gemma2", "attention.sliding_window", 2048, true, false, 2048},
      {"gemma3", "attention.sliding_window", 512, true, false, 512},
      {"gpt-oss", "attention.sliding_window", 128, true, false, 128},
      {"gpt-oss", nullptr, 0, true, false, 128},
      {"llama4", nullptr, 0, true, false, 8192},
      {"llama4", "attention.sliding_window", 0, true, false, 0},
      {"cohere2", "attention.sliding_window", 4096, true, false, 4096},
      {"mamba", "ssm.state_size", 16, false, true, 0},
      {"rwkv7", "wkv.head_size", 64, false, true, 0},
      {"jamba", "ssm.state_size", 16, true, true, 0},
      {"lfm2", "shortconv.l_cache", 3, true, true, 0},
      {"qwen35", "full_attention_interval", 4, true, true, 0},
      // Architectures of tomorrow are judged by their keys.
      {"unheard-of", nullptr, 0, true, false, 0},
      {"unheard-of", "attention.sliding_window", 1024, true, false, 1024},
      {"unheard-of", "ssm.conv_kernel", 4, true, true, 0},
      {"unheard-of", "attention.sliding_window", 0, true, false, 0},
  };
  for (const ClassCase& test : cases) {
    GgufWriter writer = GgufWriter::Model(test.architecture);
    if (test.key != nullptr) writer.U32(std::string(test.architecture) + "." + test.key, test.value);
    SCOPED_TRACE(std::string(test.architecture) + " " + (test.key != nullptr ? test.key : ""));
    const auto model = Read(writer);
    ASSERT_TRUE(model) << model.error().ToString();
    EXPECT_EQ(model->attention, test.attention);
    EXPECT_EQ(model->recurrent, test.recurrent);
    EXPECT_EQ(model->sliding_window, test.window);
    EXPECT_EQ(model->Plain(), test.attention && !test.recurrent && test.window == 0);
  }
  GgufWriter sparse = GgufWriter::Model("glm-dsa");
  sparse.U32("glm-dsa.attention.indexer.head_count", 32);
  EXPECT_TRUE(Read(sparse)->sparse);
  EXPECT_FALSE(Read(sparse)->Plain());
}

TEST_F(GgufModelTest, AStateSpaceModelOfAnUnknownArchitectureHasNoAttention) {
  GgufWriter writer;
  writer.Str("general.architecture", "unheard-of")
      .U32("unheard-of.block_count", 2)
      .U32("unheard-of.ssm.state_size", 16);
  writer.U32("unheard-of.attention.head_count", 0);
  const GgufModel model = Read(writer).value();
  EXPECT_TRUE(model.recurrent);
  EXPECT_FALSE(model.attention);
  EXPECT_FALSE(model.KvBytesPerToken("f16", "f16"));
}

TEST_F(GgufModelTest, KnowsWhereRopeDependsOnTheContext) {
  GgufWriter longrope = GgufWriter::Model("phi3");
  longrope.Str("phi3.rope.scaling.type", "longrope");
  EXPECT_TRUE(Read(longrope)->rope_depends_on_context);
  GgufWriter factors = GgufWriter::Model("phi3");  // converters may write the tensors only
  factors.Tensor("rope_factors_long.weight", {8}, 0, std::string(32, 'f'));
  EXPECT_TRUE(Read(factors)->rope_depends_on_context);
  GgufWriter yarn = GgufWriter::Model();
  yarn.Str("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.factor", 4.0f);
  EXPECT_FALSE(Read(yarn)->rope_depends_on_context) << "its factors are in the file";
}

TEST_F(GgufModelTest, HashesFollowTheContentAndNotTheOrderOfKeys) {
  const auto with = [&](auto add) {
    GgufWriter writer;
    writer.Str("general.architecture", "llama").U32("llama.block_count", 1);
    add(writer);
    return Read(writer).value();
  };
  const auto tokens = [](GgufWriter& w, std::vector<std::string> list) {
    w.Array<std::string>("tokenizer.ggml.tokens", GgufWriter::kString, list);
  };
  const GgufModel base = with([&](auto& w) {
    tokens(w, {"a", "b"});
    w.Str("tokenizer.ggml.model", "gpt2").F32("llama.rope.freq_base", 1e4f).U32("llama.rope.dimension_count", 64);
  });
  const GgufModel reordered = with([&](auto& w) {
    w.U32("llama.rope.dimension_count", 64).Str("tokenizer.ggml.model", "gpt2").F32("llama.rope.freq_base", 1e4f);
    tokens(w, {"a", "b"});
    w.Str("tokenizer.chat_template", "{{ anything }}").Str("general.name", "renamed");
  });
  EXPECT_EQ(base.tokenizer_hash, reordered.tokenizer_hash);
  EXPECT_EQ(base.rope_hash, reordered.rope_hash);

  std::vector<Digest256> hashes = {base.tokenizer_hash};
  for (const std::vector<std::string>& list :
       std::vector<std::vector<std::string>>{{"ab"}, {"a", "B"}, {"b", "a"}, {"a", "b", ""}, {"", "ab"}, {}}) {
    hashes.push_back(with([&](auto& w) {
                       tokens(w, list);
                       w.Str("tokenizer.ggml.model", "gpt2");
                     }).tokenizer_hash);
  }
  hashes.push_back(with([&](auto& w) { tokens(w, {"a", "b"}); }).tokenizer_hash);
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());

  const GgufModel moved =
      with([&](auto& w) { w.F32("llama.rope.freq_base", 10001.0f).U32("llama.rope.dimension_count", 64); });
  EXPECT_NE(moved.rope_hash, base.rope_hash);
  EXPECT_EQ(with([](auto&) {}).rope_hash, Sha256Of("")) << "docs/formats/block-key.md";
}

// The hash of one small vocabulary, computed with Python's hashlib from the formula in docs/formats/block-key.md.
TEST_F(GgufModelTest, HashesEqualTheDocumentedFormula) {
  GgufWriter writer;
  writer.Str("general.architecture", "llama").U32("llama.block_count", 1).F32("llama.rope.freq_base", 10000.0f);
  writer.Array<std::string>("tokenizer.ggml.tokens", GgufWriter::kString, {"a", "bc"});
  writer.Str("tokenizer.ggml.model", "gpt2");
  const GgufModel model = Read(writer).value();
  EXPECT_EQ(model.tokenizer_hash.ToHex(), "9cf4aca1ccdda44c4cfac7d3fb0a39cd49926605665dcfbe42a7856743daa5bd");
  EXPECT_EQ(model.rope_hash.ToHex(), "013db1e0bc4430c98ded137d73795c20b7f328e851a7b4ece30dab2bcc02ab20");
}

TEST_F(GgufModelTest, FindsAllShardsOfASplitModel) {
  const auto shard = [](uint16_t number, uint16_t count) {
    GgufWriter writer = number == 0 ? GgufWriter::Model() : GgufWriter();
    writer.U16("split.no", number).U16("split.count", count);
    writer.Tensor("blk." + std::to_string(number) + ".weight", {16}, 1, std::string(32, 'd'));
    return writer.File();
  };
  const Path first = Write("m-00001-of-00003.gguf", shard(0, 3));
  EXPECT_EQ(ReadGgufModel(files_, first).error().code, ErrorCode::kNotFound);
  const Path second = Write("m-00002-of-00003.gguf", shard(1, 3));
  const Path third = Write("m-00003-of-00003.gguf", shard(2, 3));
  const auto model = ReadGgufModel(files_, first);
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_EQ(model->shards, (std::vector<Path>{first, second, third}));

  Write("m-00003-of-00003.gguf", shard(1, 3));  // calls itself another number
  EXPECT_EQ(ReadGgufModel(files_, first).error().code, ErrorCode::kCorrupt);
  Write("m-00003-of-00003.gguf", shard(2, 4));  // or of another model
  EXPECT_EQ(ReadGgufModel(files_, first).error().code, ErrorCode::kCorrupt);
  Write("m-00003-of-00003.gguf", shard(2, 3).substr(0, 100));
  EXPECT_EQ(ReadGgufModel(files_, first).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(ReadGgufModel(files_, Write("renamed.gguf", shard(0, 3))).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(ReadGgufModel(files_, second)) << "metadata is in the first shard";
  EXPECT_EQ(ReadGgufModel(files_, Write("m-00001-of-65535.gguf", shard(0, 65535))).error().code, ErrorCode::kNotFound);
  GgufWriter later = GgufWriter::Model();
  later.U16("split.no", 1).U16("split.count", 3);
  EXPECT_EQ(ReadGgufModel(files_, Write("l-00002-of-00003.gguf", later.File())).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(GgufModelTest, FollowsTheLinksOfAModelCache) {
  std::filesystem::create_directories(dir_ / "blobs");
  std::filesystem::create_directories(dir_ / "snapshots/1");
  const Path blob = Write("blobs/sha256-0", GgufWriter::Model().File());
  std::filesystem::create_symlink("../../blobs/sha256-0", dir_ / "snapshots/1/model.gguf");
  const auto model = ReadGgufModel(files_, dir_ / "snapshots/1/model.gguf");
  ASSERT_TRUE(model) << model.error().ToString();
  ASSERT_EQ(model->shards.size(), 1u);
  EXPECT_TRUE(std::filesystem::equivalent(model->shards[0], blob));
  EXPECT_TRUE(files_.Open(model->shards[0])) << "the link itself could not be opened";

  std::filesystem::create_symlink("loop", dir_ / "loop");
  EXPECT_EQ(ReadGgufModel(files_, dir_ / "loop").error().code, ErrorCode::kUnsupported);
  std::filesystem::create_symlink("nowhere", dir_ / "dangling");
  EXPECT_EQ(ReadGgufModel(files_, dir_ / "dangling").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(ReadGgufModel(files_, dir_.path()));
}

std::string BigVocabulary(int tokens, int merges) {
  GgufWriter writer;
  writer.Str("general.architecture", "qwen2").U32("qwen2.block_count", 24);
  std::vector<std::string> names, pairs;
  for (int i = 0; i < tokens; ++i) names.push_back("token" + std::to_string(i));
  for (int i = 0; i < merges; ++i) pairs.push_back("merge" + std::to_string(i) + " with" + std::to_string(i));
  writer.Array("tokenizer.ggml.tokens", GgufWriter::kString, names);
  writer.Array("tokenizer.ggml.scores", GgufWriter::kF32, std::vector<float>(static_cast<size_t>(tokens), 0.0f));
  writer.Array("tokenizer.ggml.token_type", GgufWriter::kI32, std::vector<int32_t>(static_cast<size_t>(tokens), 1));
  writer.Array("tokenizer.ggml.merges", GgufWriter::kString, pairs);
  return writer.File();
}

// The control of field report B29: honest giants still work.
TEST_F(GgufModelTest, ReadsAHugeVocabularyQuicklyAndWithoutKeepingIt) {
  const Path path = Write("big.gguf", BigVocabulary(262'144, 514'906));
  Result<GgufModel> model = Fail(ErrorCode::kInternal, "not read");
  const testing::Cost cost = testing::CostOf([&] { model = ReadGgufModel(files_, path); });
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_EQ(model->vocabulary, 262'144u);
#if !defined(MOONPOOL_SANITIZED)
  EXPECT_LT(cost.seconds, 1.0);
  EXPECT_LT(cost.peak_growth_bytes, 16 << 20);
#endif
  RecordProperty("ms", std::to_string(cost.seconds * 1000));
}

TEST_F(GgufModelTest, NeverTouchesTensorData) {
  GgufWriter writer = GgufWriter::Model();
  writer.RawTensor("huge.weight", {1u << 20, 1u << 19}, 1, 1024);  // a tebibyte, all hole
  const Path path = Write("sparse.gguf", writer.File());
  std::filesystem::resize_file(path, 3ull << 40);
  Result<GgufModel> model = Fail(ErrorCode::kInternal, "not read");
  const testing::Cost cost = testing::CostOf([&] { model = ReadGgufModel(files_, path); });
  ASSERT_TRUE(model) << model.error().ToString();
  EXPECT_LT(cost.seconds, 0.1);
}

TEST_F(GgufModelTest, AnyFailingStepIsAnError) {
  const Path path = Write("model.gguf", GgufWriter::Model().File());
  int failed = 0;
  for (uint64_t n = 1;; ++n) {
    fault::FailNth(n, ErrorCode::kIo);
    const auto model = ReadGgufModel(files_, path);
    const bool fired = fault::Fired().has_value();
    fault::Disarm();
    if (!fired) break;
    ++failed;
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::kIo) << "a disk that fails is not a damaged file";
  }
  EXPECT_GE(failed, 2);
}

}  // namespace
}  // namespace moonpool::bus
