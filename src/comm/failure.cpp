#include "comm/failure.h"

#include <fmt/format.h>

namespace ingot::comm {

void throw_failure(const Failure& failure) {
  throw Error(failure.error.kind(), fmt::format("rank {} failed: {}", failure.rank, failure.error.message()),
              failure.error.hint());
}

Error error_of_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& exception) {
    return {ErrorKind::internal, exception.what()};
  } catch (...) {
    return {ErrorKind::internal, "an exception of an unknown type"};
  }
}

}  // namespace ingot::comm
