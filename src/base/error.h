// The one error type of Ingot.
//
// Thrown on the control path only (configuration, files, requests). The message names the object, the hint says what to
// do. `cli/main.cpp` maps the kind to an exit code and the server maps it to an HTTP status; no other code does either.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

namespace ingot {

enum class ErrorKind {
  usage,        // the command line or the recipe asks for something that makes no sense or cannot be done
  not_found,    // a file, model, tensor or name that should exist does not
  corrupt,      // a file violates its format
  unsupported,  // a file or model is well-formed, but of a kind that Ingot does not handle
  resource,     // memory, disk or a limit is exhausted
  unavailable,  // a device, library or service cannot be reached now
  internal,     // a bug in Ingot
};

// Lower-case name of the kind, e.g. "not_found".
const char* name(ErrorKind kind);

// Process exit code: usage 2; not_found, corrupt and unsupported 3; resource 4; unavailable 5; internal 70.
int exit_code(ErrorKind kind);

// The system's message for an errno. Thread-safe, unlike std::strerror.
std::string errno_message(int code);

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string hint = {})
      : kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string message_;
  std::string hint_;
};

// The message, followed by the hint if there is one.
std::string text_of(const std::exception& error);

// throw_error(ErrorKind::corrupt, "{}: header is {} bytes long", path, n);
template <class... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// As above, with a hint (a plain string) that tells the user what to do.
template <class... Args>
[[noreturn]] void throw_hint(ErrorKind kind, std::string hint, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...), std::move(hint));
}

}  // namespace ingot
