#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include "base/error.h"

namespace ingot {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Formats the level as "warning: " and so on, nothing for info.
class Prefix final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    std::string_view word;
    if (message.level == spdlog::level::debug) word = "debug: ";
    if (message.level == spdlog::level::warn) word = "warning: ";
    if (message.level == spdlog::level::err) word = "error: ";
    out.append(word.data(), word.data() + word.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Prefix>(); }
};

}  // namespace

struct Log::State {
  spdlog::logger logger{"ingot"};
};

Log::Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;
Log::~Log() = default;

Log::Log(LogLevel level) : state_(std::make_unique<State>()) {
  auto console = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  // Carriage return and "erase to the end of the line", so that nothing of a progress bar stays visible.
  const char* clear = ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
  formatter->add_flag<Prefix>('*').set_pattern(fmt::format("{}%^%*%$%v", clear));
  console->set_formatter(std::move(formatter));
  console->set_level(spdlog_level(level));
  state_->logger.sinks().push_back(std::move(console));
  state_->logger.set_level(spdlog_level(level));
  state_->logger.flush_on(spdlog::level::debug);
}

void Log::add_file(const std::filesystem::path& path) {
  if (!state_) {
    state_ = std::make_unique<State>();
    state_->logger.flush_on(spdlog::level::debug);
  }
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    file->set_formatter(
        std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
    state_->logger.sinks().push_back(std::move(file));
    state_->logger.set_level(spdlog::level::debug);
  } catch (const spdlog::spdlog_ex&) {
    throw_hint(ErrorKind::unavailable, "check that the folder exists and may be written to",
               "{}: the log file cannot be opened", path.string());
  }
}

bool Log::wants(LogLevel level) const { return state_ && state_->logger.should_log(spdlog_level(level)); }

void Log::write(LogLevel level, std::string_view line) const {
  state_->logger.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace ingot
