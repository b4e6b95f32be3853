#include "bus/core/prefix_finder.h"

#include <algorithm>
#include <set>

#include "base/fault.h"
#include "base/log.h"

namespace moonpool::bus {
namespace {

// Whether the object really is what its alias says: this model, this namespace, these tokens.
bool Matches(const ObjectHeader& header, const EngineProfile& profile, const TicketPrompt& prompt, size_t blocks) {
  const size_t tokens = blocks * header.block_tokens;
  return header.fingerprint == profile.fingerprint_id && header.name_space == prompt.name_space &&
         header.block_tokens == profile.fingerprint.declared.block_tokens && header.first_token == 0 &&
         header.keys.size() >= blocks && header.keys[blocks - 1] == prompt.keys[blocks - 1] &&
         header.tokens.size() >= tokens && prompt.tokens.size() >= tokens &&
         std::equal(header.tokens.begin(), header.tokens.begin() + static_cast<std::ptrdiff_t>(tokens),
                    prompt.tokens.begin());
}

// Memory that cannot be rolled back is only good for a prompt that goes on where the object ends.
bool IsContinuation(const ObjectHeader& header, const TicketPrompt& prompt) {
  return prompt.tokens.size() > header.tokens.size() &&
         std::equal(header.tokens.begin(), header.tokens.end(), prompt.tokens.begin());
}

}  // namespace

Result<std::vector<std::optional<ObjectRef>>> PrefixFinder::Ask(const std::vector<BlockKey>& keys) {
  MP_FAULT("core.lookup");
  return store_.BatchExists(keys);
}

Result<size_t> PrefixFinder::StoredBlocks(const std::vector<BlockKey>& keys) {
  if (keys.empty()) return size_t{0};
  MP_ASSIGN_OR_RETURN(const auto found, Ask(keys));
  size_t blocks = found.size();
  while (blocks > 0 && !found[blocks - 1]) --blocks;
  return blocks;
}

Result<StoredPrefix> PrefixFinder::Find(const EngineProfile& profile, const TicketPrompt& prompt) {
  StoredPrefix answer;
  answer.reason = "no_prefix";
  if (prompt.keys.empty()) {
    answer.reason = "short_prompt";
    return answer;
  }
  const PrefixIndex::Match suggested = index_.Longest(prompt.keys, clock_.Now());
  answer.hotness = suggested.hotness;
  MP_ASSIGN_OR_RETURN(const auto found, Ask(prompt.keys));

  const bool plain = profile.memory == MemoryClass::kPlain;
  std::set<ObjectId> refused;  // each object's header is read once
  for (size_t blocks = found.size(); blocks > 0; --blocks) {
    const std::optional<ObjectRef>& ref = found[blocks - 1];
    if (!ref || refused.contains(ref->object)) continue;
    answer.blocks = std::max(answer.blocks, blocks);
    auto header = store_.ReadHeader(ref->object);
    if (!header || !Matches(*header, profile, prompt, blocks)) {
      log::Warn("object_refused object={} reason=\"{}\"", ref->object,
                header ? "its header is not what its alias says" : header.error().message);
      answer.reason = header ? "identity" : "header_unreadable";
      refused.insert(ref->object);
      continue;
    }
    if (!plain && !IsContinuation(*header, prompt)) {
      answer.reason = "not_exact_continuation";
      refused.insert(ref->object);
      continue;
    }
    const uint64_t matched = blocks * header->block_tokens;
    answer.restorable_tokens = std::min<uint64_t>(matched, prompt.tokens.size() - 1);
    answer.reason = "hit";
    answer.object = std::move(*header);
    break;
  }
  const size_t usable = answer.object ? answer.restorable_tokens / profile.fingerprint.declared.block_tokens : 0;
  if (suggested.blocks > answer.blocks) index_.Erase(prompt.keys, answer.blocks);
  if (answer.object && suggested.blocks < usable) {
    index_.Insert(std::span(answer.object->keys), answer.object->id, clock_.Now());
  }
  return answer;
}

void PrefixFinder::Rebuild() {
  const auto objects = store_.List();
  if (!objects) {
    log::Warn("index_not_rebuilt error=\"{}\"", objects.error().message);
    return;
  }
  size_t indexed = 0;
  for (const ObjectSummary& summary : *objects) {
    if (summary.problem) continue;
    const auto header = store_.ReadHeader(summary.id);
    if (!header) continue;
    index_.Insert(header->keys, header->id, clock_.Now());
    ++indexed;
  }
  log::Info("index_rebuilt objects={} of={}", indexed, objects->size());
}

}  // namespace moonpool::bus
