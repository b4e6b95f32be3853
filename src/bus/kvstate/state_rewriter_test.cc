// Rewriting: equal, byte by byte, to the file that a server with the target's settings would have written.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/fault.h"
#include "bus/kvstate/sequence_state.h"
#include "support/state_builder.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

using ::moonpool::testing::BuildState;
using ::moonpool::testing::BuiltType;
using ::moonpool::testing::CountingTokens;
using ::moonpool::testing::StateOptions;
using ::moonpool::testing::TempDir;

using Bytes = std::vector<std::byte>;

class Rewriting {
 public:
  Result<void> Run(const Bytes& bytes, const RewriteTarget& target, MemoryClass memory = MemoryClass::kPlain,
                   bool without_v = false) {
    MP_ASSIGN_OR_RETURN(const SequenceState state,
                        ParseSequenceState(MemorySource(bytes), memory, {.without_v = without_v}));
    const Path path = directory_ / std::to_string(++files_);
    MP_ASSIGN_OR_RETURN(const auto file, file_system_.Create(path));
    const auto result = RewriteSequenceState(MemorySource(bytes), state, target, *file);
    MP_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
    written_.resize(info.size_bytes);
    MP_RETURN_IF_ERROR(file->ReadExactly(0, written_));
    MP_RETURN_IF_ERROR(file_system_.Remove(path));
    return result;
  }
  const Bytes& written() const { return written_; }

 private:
  TempDir directory_;
  PosixFileSystem file_system_;
  int files_ = 0;
  Bytes written_;
};

TEST(RewriteSequenceState, EqualsWhatAServerWithThoseSettingsWrites) {
  Rewriting rewriting;
  for (const uint32_t version : {2u, 3u, 4u}) {
    for (const BuiltType type : {BuiltType::kF16, BuiltType::kQ8_0, BuiltType::kF32}) {
      for (const bool packed : {true, false}) {
        StateOptions from;
        from.version = version;
        from.type = type;
        from.packed_tokens = packed;
        from.tokens = CountingTokens(11);
        from.streams = 2, from.stream = 1, from.sequence_id = 1;
        for (const uint32_t streams : {1u, 2u, 4u}) {
          for (const uint32_t tokens : {0u, 1u, 5u, 10u, 11u}) {
            StateOptions to = from;
            to.streams = streams, to.stream = streams - 1, to.sequence_id = static_cast<int32_t>(streams) - 1;
            to.tokens.resize(tokens);
            ASSERT_TRUE(rewriting
                            .Run(BuildState(from), {.streams = streams,
                                                    .stream = streams - 1,
                                                    .sequence_id = static_cast<int32_t>(streams) - 1,
                                                    .tokens = tokens})
                            .has_value());
            EXPECT_EQ(rewriting.written(), BuildState(to)) << version << ' ' << streams << ' ' << tokens;
          }
        }
      }
    }
  }
}

TEST(RewriteSequenceState, KeepsExtendedCellRecordsAndMissingV) {
  Rewriting rewriting;
  StateOptions o;
  o.tokens = CountingTokens(7);
  o.with_cell_ext = true;
  o.with_v = false;
  StateOptions cut = o;
  cut.tokens.resize(3);
  ASSERT_TRUE(rewriting.Run(BuildState(o), {.tokens = 3}, o.memory, true).has_value());
  EXPECT_EQ(rewriting.written(), BuildState(cut));
}

// A cache that wrapped around writes its last positions first; a cut must take rows by position, not by place.
TEST(RewriteSequenceState, PutsCellsInOrderOfPosition) {
  Rewriting rewriting;
  StateOptions wrapped;
  wrapped.tokens = CountingTokens(9);
  wrapped.rotate_cells = 4;
  StateOptions ordered = wrapped;
  ordered.rotate_cells = 0;
  ASSERT_TRUE(rewriting.Run(BuildState(wrapped), {}).has_value());
  EXPECT_EQ(rewriting.written(), BuildState(ordered));
  ordered.tokens.resize(7);
  ASSERT_TRUE(rewriting.Run(BuildState(wrapped), {.tokens = 7}).has_value());
  EXPECT_EQ(rewriting.written(), BuildState(ordered));
}

TEST(RewriteSequenceState, CopiesFilesLargerThanItsBuffer) {
  Rewriting rewriting;
  StateOptions o;
  o.tokens = CountingTokens(3000);
  o.kv_dimension = 512;
  StateOptions cut = o;
  cut.streams = 2, cut.stream = 1;
  cut.tokens.resize(2999);
  ASSERT_TRUE(rewriting.Run(BuildState(o), {.streams = 2, .stream = 1, .tokens = 2999}).has_value());
  ASSERT_GT(rewriting.written().size(), 8u << 20);
  EXPECT_TRUE(rewriting.written() == BuildState(cut));
}

TEST(RewriteSequenceState, RefusesByName) {
  Rewriting rewriting;
  StateOptions o;
  o.tokens = CountingTokens(6);
  EXPECT_EQ(rewriting.Run(BuildState(o), {.tokens = 7}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rewriting.Run(BuildState(o), {.streams = 2, .stream = 2}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rewriting.Run(BuildState(o), {.streams = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rewriting.Run(BuildState(o), {.sequence_id = -1}).error().code, ErrorCode::kInvalidArgument);
  StateOptions media = o;
  media.media_words = 3;
  EXPECT_EQ(rewriting.Run(BuildState(media), {}).error().code, ErrorCode::kUnsupported);
  o.v_transposed = true;
  EXPECT_EQ(rewriting.Run(BuildState(o), {}).error().code, ErrorCode::kUnsupported);
  o.v_transposed = false;
  for (const MemoryClass memory : {MemoryClass::kSlidingWindow, MemoryClass::kRecurrent, MemoryClass::kHybrid}) {
    o.memory = memory;
    EXPECT_EQ(rewriting.Run(BuildState(o), {}, memory).error().code, ErrorCode::kUnsupported);
    EXPECT_TRUE(rewriting.written().empty());
  }
}

// B25 class: whatever fails on the way, the caller is told, and nothing is called done.
TEST(RewriteSequenceState, ReportsEveryFailureOfTheDisk) {
#if !defined(MOONPOOL_FAULTS)
  GTEST_SKIP() << "needs fault points";
#endif
  TempDir directory;
  PosixFileSystem file_system;
  StateOptions o;
  o.tokens = CountingTokens(300);
  {
    const auto file = file_system.Create(directory / "in");
    ASSERT_TRUE(file.has_value() && (*file)->Append(BuildState(o)).has_value());
  }
  const auto input = file_system.Open(directory / "in");
  const auto source = FileSource::Of(**input);
  const auto state = ParseSequenceState(*source, MemoryClass::kPlain);
  ASSERT_TRUE(state.has_value());
  int failures = 0;
  for (uint64_t n = 1;; ++n) {
    const auto output = file_system.Create(directory / ("out" + std::to_string(n)));
    fault::FailNth(n, ErrorCode::kNoSpace);
    const auto result = RewriteSequenceState(*source, *state, {.tokens = 200}, **output);
    const bool fired = fault::Fired().has_value();
    fault::Disarm();
    if (!fired) {
      EXPECT_TRUE(result.has_value());
      break;
    }
    ++failures;
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kNoSpace);
  }
  EXPECT_GE(failures, 4);  // reserving, reads and a write
}

// A file that shrinks after it was parsed ends as an error, not as a shorter copy.
TEST(RewriteSequenceState, NoticesASourceThatShrank) {
  Rewriting rewriting;
  StateOptions o;
  o.tokens = CountingTokens(20);
  const Bytes whole = BuildState(o);
  const auto state = ParseSequenceState(MemorySource(whole), MemoryClass::kPlain);
  TempDir directory;
  PosixFileSystem file_system;
  const auto output = file_system.Create(directory / "out");
  const Bytes shorter(whole.begin(), whole.end() - 1);
  const auto result = RewriteSequenceState(MemorySource(shorter), *state, {}, **output);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
}

StateOptions AnyState(MemoryClass memory) {
  StateOptions o;
  o.memory = memory;
  o.version = *rc::gen::inRange(2u, 5u);
  o.tokens = *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange(0, 100'000));
  o.packed_tokens = *rc::gen::arbitrary<bool>();
  o.streams = *rc::gen::inRange(1u, 9u);
  o.stream = *rc::gen::inRange(0u, o.streams);
  if (o.tokens.empty()) o.stream = 0;  // nothing in the file tells
  o.sequence_id = *rc::gen::inRange(0, 300);
  o.layers = *rc::gen::inRange(1u, 5u);
  o.kv_dimension = 32 * *rc::gen::inRange(1u, 4u);
  o.type = *rc::gen::element(BuiltType::kF32, BuiltType::kF16, BuiltType::kQ8_0);
  o.with_v = memory == MemoryClass::kSlidingWindow || *rc::gen::arbitrary<bool>();
  o.with_cell_ext = *rc::gen::arbitrary<bool>();
  o.v_transposed = o.type != BuiltType::kQ8_0 && *rc::gen::arbitrary<bool>();
  o.k_rotation = o.version >= 4 ? *rc::gen::element(0u, 64u, 128u) : 0;
  o.rotate_cells = *rc::gen::inRange(0u, 4u);
  o.window = *rc::gen::inRange(1u, 8u);
  o.swa_layers = *rc::gen::inRange(1u, 5u);
  o.recurrent_layers = *rc::gen::inRange(1u, 5u);
  if (memory != MemoryClass::kPlain)
    o.checkpoints = *rc::gen::inRange(0u, std::min(3u, static_cast<uint32_t>(o.tokens.size())) + 1);
  o.seed = *rc::gen::arbitrary<uint64_t>();
  return o;
}

// parse(write(x)) = x for the independent writer, every class. RapidCheck prints its seed.
RC_GTEST_PROP(SequenceStateProperty, ParseUndoesBuild, ()) {
  const auto memory = *rc::gen::element(MemoryClass::kPlain, MemoryClass::kSlidingWindow, MemoryClass::kRecurrent,
                                        MemoryClass::kHybrid);
  const StateOptions o = AnyState(memory);
  const auto state = ParseSequenceState(MemorySource(BuildState(o)), memory, {.without_v = !o.with_v});
  RC_ASSERT(state.has_value());
  RC_ASSERT(state->version == o.version);
  RC_ASSERT(state->tokens == o.tokens);
  RC_ASSERT(state->checkpoints == o.checkpoints);
  for (size_t i = 0; i < state->attention.size(); ++i) {
    const AttentionBody& body = state->attention[i];
    const uint32_t count = static_cast<uint32_t>(o.tokens.size());
    RC_ASSERT(body.streams == o.streams);
    RC_ASSERT(body.cells == (i == 0 ? count : std::min(count, o.window)));
    if (body.cells == 0) continue;
    RC_ASSERT(body.stream == o.stream);
    RC_ASSERT(body.sequence_id == o.sequence_id);
    RC_ASSERT(body.v_transposed == o.v_transposed);
    RC_ASSERT(body.k_rotation == o.k_rotation);
    RC_ASSERT(body.layers.size() == (i == 0 ? o.layers : o.swa_layers));
    RC_ASSERT(body.layers[0].v.has_value() == o.with_v);
    RC_ASSERT(body.cell_of.empty() == (o.rotate_cells % body.cells == 0));
  }
}

// parse(write(x)) = x for the rewriter: writing what was parsed, with the stream and sequence it had, gives back the
// same state and bytes; through any other target and back, too.
RC_GTEST_PROP(SequenceStateProperty, RewritingLosesNothing, ()) {
  StateOptions o = AnyState(MemoryClass::kPlain);
  o.v_transposed = false;
  o.rotate_cells = 0;
  if (o.tokens.empty()) o.sequence_id = 0;
  const Bytes original = BuildState(o);
  const auto state = ParseSequenceState(MemorySource(original), o.memory, {.without_v = !o.with_v});
  RC_ASSERT(state.has_value());
  const uint32_t streams = *rc::gen::inRange(1u, 9u);
  const uint32_t stream = *rc::gen::inRange(0u, streams);
  Rewriting rewriting;
  RC_ASSERT(rewriting.Run(original, {.streams = streams, .stream = stream, .sequence_id = 7}, o.memory, !o.with_v)
                .has_value());
  const Bytes elsewhere = rewriting.written();
  RC_ASSERT(
      rewriting
          .Run(elsewhere, {.streams = o.streams, .stream = o.stream, .sequence_id = o.sequence_id}, o.memory, !o.with_v)
          .has_value());
  RC_ASSERT(rewriting.written() == original);
  const auto again = ParseSequenceState(MemorySource(rewriting.written()), o.memory, {.without_v = !o.with_v});
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == *state);
}

// A cut is the file of the shorter prompt.
RC_GTEST_PROP(SequenceStateProperty, ACutIsTheShorterPromptsFile, ()) {
  StateOptions o = AnyState(MemoryClass::kPlain);
  o.v_transposed = false;
  o.rotate_cells = 0;
  const uint32_t tokens = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(o.tokens.size()) + 1);
  StateOptions cut = o;
  cut.tokens.resize(tokens);
  Rewriting rewriting;
  RC_ASSERT(rewriting
                .Run(BuildState(o),
                     {.streams = o.streams, .stream = o.stream, .sequence_id = o.sequence_id, .tokens = tokens},
                     o.memory, !o.with_v)
                .has_value());
  RC_ASSERT(rewriting.written() == BuildState(cut));
}

}  // namespace
}  // namespace moonpool::bus
