// Result<T>: a T or an Error. Exceptions of libraries stop at the module that calls them.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "moonpool/error.h"

namespace moonpool {

template <class T>
using Result = tl::expected<T, Error>;

// `return Fail(ErrorCode::kNotFound, "no such slot: 7");`
[[nodiscard]] inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
[[nodiscard]] inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace moonpool

// Evaluates a Result<void> (or any Result whose value is not needed) and returns its error.
#define MP_RETURN_IF_ERROR(expression)                        \
  do {                                                        \
    if (auto mp_result_ = (expression); !mp_result_) {        \
      return ::moonpool::Fail(std::move(mp_result_).error()); \
    }                                                         \
  } while (false)

// MP_ASSIGN_OR_RETURN(auto file, fs.Open(path));
#define MP_CONCAT_INNER_(a, b) a##b
#define MP_CONCAT_(a, b) MP_CONCAT_INNER_(a, b)
#define MP_ASSIGN_OR_RETURN(target, expression) \
  MP_ASSIGN_OR_RETURN_INNER_(MP_CONCAT_(mp_result_, __LINE__), target, expression)
#define MP_ASSIGN_OR_RETURN_INNER_(result, target, expression)     \
  auto result = (expression);                                      \
  if (!result) return ::moonpool::Fail(std::move(result).error()); \
  target = std::move(*result)
