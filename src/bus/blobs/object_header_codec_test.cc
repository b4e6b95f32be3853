#include "bus/blobs/object_header_codec.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <cstring>

#include "base/checksum.h"
#include "support/kv_objects.h"

namespace moonpool::bus {
namespace {

ObjectHeader Example() {
  ObjectHeader header = testing::HeaderFor(testing::Conversation(7, 11));
  header.id = "0123456789abcdef-fedcba9876543210";
  header.canary = CanaryRef{Sha256Of(std::string_view("identity")), 3};
  header.created_wall_ms = 1'700'000'000'123;
  header.payload_bytes = 5'000'000;
  header.chunk_bytes = 4u << 20;
  header.chunk_checksums = {11, 22};
  return header;
}

void ExpectEqual(const ObjectHeader& a, const ObjectHeader& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.fingerprint_text, b.fingerprint_text);
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(a.name_space, b.name_space);
  EXPECT_EQ(a.block_tokens, b.block_tokens);
  EXPECT_EQ(a.first_token, b.first_token);
  EXPECT_EQ(a.parent, b.parent);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.canary, b.canary);
  EXPECT_EQ(a.payload_bytes, b.payload_bytes);
  EXPECT_EQ(a.chunk_bytes, b.chunk_bytes);
  EXPECT_EQ(a.chunk_checksums, b.chunk_checksums);
  EXPECT_EQ(a.created_wall_ms, b.created_wall_ms);
}

// Sets the checksum right again, so that what is tested is behind it.
void Reseal(std::string& bytes) {
  const uint64_t sum = Xxh3(std::as_bytes(std::span(bytes)).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, sizeof sum);
}

TEST(ObjectHeaderCodec, KeepsEveryField) {
  ObjectHeader header = Example();
  ExpectEqual(DecodeObjectHeader(EncodeObjectHeader(header)).value(), header);
  header.parent = "00000000000000aa-00000000000000bb";
  header.first_token = 8;
  header.canary.reset();
  header.name_space = std::string("with\0zero", 9);
  ExpectEqual(DecodeObjectHeader(EncodeObjectHeader(header)).value(), header);
}

TEST(ObjectHeaderCodec, HasTheBytesOfItsFormatVersion) {
  // The format is on other people's disks: if this digest changes, kObjectHeaderVersion must too.
  EXPECT_EQ(Sha256Of(std::string_view(EncodeObjectHeader(Example()))).ToHex(),
            "92f82ff68c44b108506293ef1db7918b89a84e5fea1f59cd766caa8d6672eaaa");
}

TEST(ObjectHeaderCodec, DecodesWhatItEncoded) {
  // RapidCheck prints its seed on failure; RC_PARAMS="seed=N" repeats it.
  EXPECT_TRUE(rc::check("decode(encode(x)) = x", [] {
    ObjectHeader header = Example();
    header.block_tokens = *rc::gen::inRange<uint32_t>(1, 9);
    const auto blocks = *rc::gen::inRange<uint32_t>(1, 20);
    const auto tail = *rc::gen::inRange<uint32_t>(0, header.block_tokens);
    header.tokens = testing::Conversation(*rc::gen::arbitrary<uint64_t>(), blocks * header.block_tokens + tail);
    header.keys.assign(blocks, Sha256Of(std::string_view("k")));
    header.fingerprint_text = *rc::gen::arbitrary<std::string>();
    header.model_name = *rc::gen::arbitrary<std::string>();
    header.name_space = *rc::gen::arbitrary<std::string>();
    header.created_wall_ms = *rc::gen::arbitrary<int64_t>();
    header.chunk_checksums = *rc::gen::nonEmpty<std::vector<uint64_t>>();
    header.payload_bytes = (header.chunk_checksums.size() - 1) * header.chunk_bytes + 1;
    ExpectEqual(DecodeObjectHeader(EncodeObjectHeader(header)).value(), header);
  }));
}

TEST(ObjectHeaderCodec, RefusesEveryTruncationAndEveryFlippedByte) {  // B22, B15
  const std::string bytes = EncodeObjectHeader(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(DecodeObjectHeader(std::string_view(bytes).substr(0, size))) << size;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    ASSERT_FALSE(DecodeObjectHeader(flipped)) << at;
  }
  EXPECT_EQ(DecodeObjectHeader(bytes + "x").error().code, ErrorCode::kCorrupt);
}

TEST(ObjectHeaderCodec, NamesAVersionItDoesNotKnow) {  // B28b
  std::string bytes = EncodeObjectHeader(Example());
  bytes[8] = 9;
  Reseal(bytes);
  const auto decoded = DecodeObjectHeader(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(decoded.error().message.find("version 9"), std::string::npos) << decoded.error().message;
}

TEST(ObjectHeaderCodec, BelievesNoCountBeyondItsBytes) {  // C6
  const std::string bytes = EncodeObjectHeader(Example());
  // Whatever eight bytes become, with a right checksum: a value or an error, no allocation for what is not there.
  for (size_t at = 20; at + 16 <= bytes.size(); ++at) {
    for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 61, uint64_t{1} << 32}) {
      std::string hostile = bytes;
      std::memcpy(hostile.data() + at, &value, sizeof value);
      Reseal(hostile);
      const auto decoded = DecodeObjectHeader(hostile);
      if (decoded) {
        EXPECT_TRUE(CheckObjectHeader(*decoded)) << at;
      }
    }
  }
}

TEST(CheckObjectHeader, RefusesWhatContradictsItself) {
  const auto refused = [](auto change) {
    ObjectHeader header = Example();
    change(header);
    const auto checked = CheckObjectHeader(header);
    return !checked && checked.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](ObjectHeader&) {}));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.block_tokens = 0; }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.keys.pop_back(); }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.keys.clear(), h.tokens.clear(); }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.id = "../../../../../../../../etc/passwd"; }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.parent = "x"; }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.payload_bytes = 0; }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.chunk_bytes = 0; }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.chunk_checksums.push_back(1); }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.name_space.assign(kHeaderTextBytesMax + 1, 'x'); }));
  EXPECT_TRUE(refused([](ObjectHeader& h) { h.canary->number = -1; }));
}

}  // namespace
}  // namespace moonpool::bus
