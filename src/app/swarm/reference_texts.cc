#include "app/swarm/reference_texts.h"

#include <fmt/format.h>

#include <algorithm>

namespace moonpool::app {
namespace {

Result<std::vector<TokenId>> Compute(const AgentTask& task, uint64_t split, const Deadline& deadline) {
  if (split > task.prompt.size()) {
    return Fail(ErrorCode::kInternal,
                fmt::format("the server says that it reused {} tokens of a prompt of {}", split, task.prompt.size()));
  }
  MP_RETURN_IF_ERROR(task.engine.EraseSlot(0, deadline));
  if (split > 0) {
    std::vector<TokenId> first = task.prompt;
    first.resize(split);
    MP_RETURN_IF_ERROR(task.engine.Complete({.prompt = std::move(first), .predict_max = 0, .slot = 0}, deadline));
  }
  MP_ASSIGN_OR_RETURN(
      bus::Completion completion,
      task.engine.Complete({.prompt = task.prompt, .predict_max = task.predict_max, .slot = 0}, deadline));
  const uint64_t expected = std::min<uint64_t>(split, task.prompt.size() - 1);
  if (completion.timings.prompt_tokens_cached != expected) {
    return Fail(ErrorCode::kInternal,
                fmt::format("the reference was to begin with {} tokens in the slot, the server reused {}", expected,
                            completion.timings.prompt_tokens_cached));
  }
  return std::move(completion.tokens);
}

}  // namespace

Result<bool> ReferenceTexts::Equal(size_t server, const AgentTask& task, const AgentRun& run,
                                   const Deadline& deadline) {
  const Key key = KeyOf(server, task, run);
  auto known = texts_.find(key);
  if (known == texts_.end()) {
    MP_ASSIGN_OR_RETURN(std::vector<TokenId> text, Compute(task, run.reference_split, deadline));
    known = texts_.emplace(key, std::move(text)).first;
  }
  return known->second == run.tokens;
}

void ReferenceTexts::Remember(size_t server, const AgentTask& task, const AgentRun& run) {
  texts_.emplace(KeyOf(server, task, run), run.tokens);
}

bool ReferenceTexts::Knows(size_t server, const AgentTask& task, const AgentRun& run) const {
  return texts_.contains(KeyOf(server, task, run));
}

}  // namespace moonpool::app
