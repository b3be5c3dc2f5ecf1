#include "base/error.h"

#include <system_error>

namespace ingot {

const char* name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return "usage";
    case ErrorKind::not_found: return "not_found";
    case ErrorKind::corrupt: return "corrupt";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::resource: return "resource";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return 2;
    case ErrorKind::not_found:
    case ErrorKind::corrupt:
    case ErrorKind::unsupported: return 3;
    case ErrorKind::resource: return 4;
    case ErrorKind::unavailable: return 5;
    case ErrorKind::internal: return 70;
  }
  return 70;
}

std::string text_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours == nullptr || ours->hint().empty() ? error.what() : ours->message() + "; " + ours->hint();
}

std::string errno_message(int code) { return std::generic_category().message(code); }

}  // namespace ingot
