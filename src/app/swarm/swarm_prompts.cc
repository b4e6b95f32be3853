#include "app/swarm/swarm_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/swarm/embedded_files.h"
#include "base/check.h"

namespace moonpool::app {
namespace {

constexpr std::array<std::string_view, kAgentsMax> kInstructions = {
    "Summarize the text above in one sentence.",
    "List three terms that a newcomer has to learn first.",
    "Which part of this design would you test first, and why?",
    "Write a title for the text above.",
    "What happens when a server is restarted?",
    "Name one thing that the text does not explain.",
    "Explain to a beginner what a slot is.",
    "Who would want to use this, and for what?",
};

}  // namespace

std::vector<TokenId> SwarmPrompts::Whole(size_t agent) const {
  std::vector<TokenId> prompt = context;
  prompt.insert(prompt.end(), tails.at(agent).begin(), tails.at(agent).end());
  return prompt;
}

uint64_t SwarmPrompts::LongestTail() const {
  uint64_t longest = 0;
  for (const auto& tail : tails) longest = std::max<uint64_t>(longest, tail.size());
  return longest;
}

SwarmPrompts SwarmPrompts::First(size_t count) const {
  MP_CHECK(count <= tails.size());
  return {.context = context, .tails = {tails.begin(), tails.begin() + static_cast<std::ptrdiff_t>(count)}};
}

uint64_t SwarmPrompts::EvaluationBound() const {
  uint64_t bound = context.size() + agents();
  for (const auto& tail : tails) bound += tail.size();
  return bound;
}

Result<SwarmPrompts> MakeSwarmPrompts(bus::InferenceEngine& engine, uint64_t context_tokens, size_t agents,
                                      const Deadline& deadline) {
  if (agents < 1 || agents > kAgentsMax) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} agents: 1 to {} are possible", agents, kAgentsMax));
  }
  SwarmPrompts prompts;
  MP_ASSIGN_OR_RETURN(prompts.context, engine.Tokenize(RepositoryText(), deadline));
  if (context_tokens < 1 || context_tokens > prompts.context.size()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("a context of {} tokens: 1 to {} are possible, because the "
                                                         "repository's text has no more",
                                                         context_tokens, prompts.context.size()));
  }
  prompts.context.resize(context_tokens);
  // What the server puts around every text (a token that begins a sequence, say) belongs to the context alone.
  MP_ASSIGN_OR_RETURN(const std::vector<TokenId> around, engine.Tokenize("", deadline));
  for (size_t agent = 0; agent < agents; ++agent) {
    const std::string text = fmt::format("\n\nTask: {}\nAnswer:", kInstructions[agent]);
    MP_ASSIGN_OR_RETURN(std::vector<TokenId> tail, engine.Tokenize(text, deadline));
    if (tail.size() > around.size() && std::equal(around.begin(), around.end(), tail.begin())) {
      tail.erase(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(around.size()));
    }
    prompts.tails.push_back(std::move(tail));
  }
  return prompts;
}

}  // namespace moonpool::app
