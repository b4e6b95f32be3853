// The numbers of the state file format, named once for the parser and the writer. See docs/formats/kv-state.md.
// Private to bus/kvstate.
#pragma once

#include <cstdint>

namespace moonpool::bus {

inline constexpr uint32_t kStateMagic = 0x67677371;  // "qsgg" as bytes
inline constexpr uint32_t kStateVersionFirst = 2;
inline constexpr uint32_t kStateVersionCellToken = 3;  // extended cell records also carry the token
inline constexpr uint32_t kStateVersionRotation = 4;   // attention bodies say how K and V are rotated
inline constexpr uint32_t kStateVersionLast = 4;
inline constexpr uint32_t kStateHeaderBytes = 12;

inline constexpr int32_t kPackedTokensMarker = -1;  // first word of the server's token section
inline constexpr uint32_t kPackedTokensVersion = 1;
inline constexpr uint32_t kPackedTokensOverhead = 4;  // words besides the tokens: marker, version, count, media count

inline constexpr uint32_t kCellMetaBytes = 12;  // position, number of sequences, sequence id

inline constexpr uint32_t kCheckpointTailMagic = 0x504b4353;  // "SCKP" as bytes
inline constexpr uint32_t kCheckpointTailVersion = 1;
inline constexpr uint32_t kCheckpointsMax = 1024;
inline constexpr uint32_t kCheckpointBlobMagic = 0xaf143cd8;

}  // namespace moonpool::bus
