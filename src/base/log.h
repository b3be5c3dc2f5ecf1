// Log lines, to standard error and to a file.
//
// `main` makes one Log and passes it down by reference; there is no global one. A default-constructed Log drops
// everything, for tests and for libraries that are called without one.
//   log.info("read {} tensors from {}", n, path);
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

namespace ingot {

enum class LogLevel { debug, info, warning, error };

class Log {
 public:
  // Drops everything.
  Log();
  // Lines of at least `level` go to standard error: without a prefix for info, else after "warning: ", "error: " or
  // "debug: ". On a terminal, a line first erases a progress bar that is drawn there.
  explicit Log(LogLevel level);
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;
  ~Log();

  // Appends lines of every level to a file from now on, with time (UTC) and level; each line is flushed.
  // Errors: unavailable when the file cannot be opened.
  void add_file(const std::filesystem::path& path);

  // May be called from any thread; lines are not interleaved.
  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(LogLevel::debug)) write(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(LogLevel::info)) write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(LogLevel::warning)) write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(LogLevel::error)) write(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool wants(LogLevel level) const;
  void write(LogLevel level, std::string_view line) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
