// CompletionStream: puts a Completion together from the server-sent events of a streamed /completion. One use, one
// thread. Input is untrusted and arrives in arbitrary pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bus/engine/inference_engine.h"

namespace moonpool::bus {

class CompletionStream {
 public:
  // `started` is when the request was sent; `clock` outlives the stream.
  CompletionStream(const Clock& clock, TimePoint started) : clock_(clock), started_(started) {}

  // False when nothing more is of interest: the last event came, or an error.
  bool Feed(std::string_view bytes);
  // After the stream's end. kInternal if it made no sense or its last event never came; the server's own error
  // if it sent one.
  Result<Completion> Finish();

 private:
  void TakeLine(std::string_view line);
  Result<void> TakeEvent(std::string_view data);
  Result<void> TakeLastEvent(const class JsonFields& fields);

  const Clock& clock_;
  const TimePoint started_;
  std::string unfinished_line_;
  Completion completion_;
  bool token_seen_ = false;
  bool complete_ = false;
  std::optional<Error> error_;
};

}  // namespace moonpool::bus
