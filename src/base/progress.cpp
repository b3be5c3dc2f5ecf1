#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"

namespace ingot {
namespace {

// Progress is optional output: a standard error that is closed or full must not end the work.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<size_t>(done));
  }
}

// The first `columns` columns of UTF-8 text.
std::string_view cut(std::string_view text, size_t columns) {
  size_t end = text.size();
  while (end > 0 && num_columns(text.substr(0, end)) > columns) {
    do {
      --end;
    } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  }
  return text.substr(0, end);
}

std::string amount(int64_t value, const std::string& unit) {
  if (unit == "B") return format_bytes(static_cast<uint64_t>(std::max<int64_t>(value, 0)));
  return value < 100'000 ? fmt::format("{}", value) : format_count(static_cast<double>(value));
}

std::string per_second(double rate, const std::string& unit) {
  if (unit == "B") return format_bytes(static_cast<uint64_t>(rate)) + "/s";
  return format_count(rate) + (unit.empty() ? "" : " " + unit) + "/s";
}

}  // namespace

ProgressStyle progress_style(bool quiet) {
  if (quiet) return ProgressStyle::quiet;
  const char* term = environment("TERM");
  const bool can_move = term != nullptr && std::string_view(term) != "dumb" && *term != 0;
  return can_move && ::isatty(STDERR_FILENO) != 0 ? ProgressStyle::terminal : ProgressStyle::plain;
}

int terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = environment("COLUMNS");
  const int value = columns != nullptr ? std::atoi(columns) : 0;
  return value > 0 ? value : 80;
}

Progress::Progress(std::string title, int64_t total, ProgressOptions options)
    : title_(std::move(title)),
      total_(total),
      options_(std::move(options)),
      started_(options_.now()),
      shown_at_(started_),
      done_(options_.start) {
  if (total_ > 0) shown_tenth_ = done_ * 10 / total_;
}

Progress::~Progress() {
  if (drawn_ && !finished_) write_all(options_.fd, "\n");
}

// title  45% [#####.......] 450/1000 steps  12.3 steps/s  3m 05s left  suffix
std::string Progress::line(int columns) const {
  const double seconds = options_.now() - started_;
  const int64_t fresh = done_ - options_.start;
  const double rate = seconds > 0 && fresh > 0 ? static_cast<double>(fresh) / seconds : 0;
  std::string tail = amount(done_, options_.unit);
  if (total_ > 0) tail += "/" + amount(total_, options_.unit);
  if (!options_.unit.empty() && options_.unit != "B") tail += " " + options_.unit;
  if (rate > 0) tail += "  " + per_second(rate, options_.unit);
  if (finished_) {
    tail += "  " + format_duration(seconds);
  } else if (rate > 0 && total_ > done_) {
    tail += "  " + format_duration(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (!suffix_.empty()) tail += "  " + suffix_;
  if (total_ <= 0) return title_ + "  " + tail;

  const double share = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  std::string head = fmt::format("{} {:3}%", title_, static_cast<int>(share * 100));
  const size_t used = num_columns(head) + num_columns(tail) + 6;  // " [" and "] " and two columns at the edge
  if (options_.style == ProgressStyle::terminal && used + 10 <= static_cast<size_t>(columns)) {
    const size_t width = std::min<size_t>(30, static_cast<size_t>(columns) - used);
    const size_t full = static_cast<size_t>(share * static_cast<double>(width));
    head += " [" + std::string(full, '#') + std::string(width - full, '.') + "]";
  }
  return head + " " + tail;
}

void Progress::show() {
  shown_at_ = options_.now();
  if (total_ > 0) shown_tenth_ = done_ * 10 / total_;
  if (options_.style == ProgressStyle::plain) {
    write_all(options_.fd, line(0) + "\n");
    return;
  }
  const int columns = options_.columns > 0 ? options_.columns : terminal_columns(options_.fd);
  const std::string text = line(columns);
  // One column stays free: a full last column makes some terminals wrap.
  write_all(options_.fd, fmt::format("\r{}\x1b[K", cut(text, static_cast<size_t>(std::max(1, columns - 1)))));
  drawn_ = true;
}

void Progress::update(int64_t done, std::string_view suffix) {
  if (options_.style == ProgressStyle::quiet || finished_) return;
  done_ = done;
  suffix_ = suffix;
  const double waited = options_.now() - shown_at_;
  if (options_.style == ProgressStyle::terminal) {
    if (!drawn_ || waited >= 0.1) show();
    return;
  }
  const bool new_tenth = total_ > 0 && done_ * 10 / total_ > shown_tenth_;
  if (waited >= 5 || (new_tenth && waited >= 1)) show();
}

void Progress::finish() {
  if (options_.style == ProgressStyle::quiet || finished_) return;
  finished_ = true;
  show();
  if (options_.style == ProgressStyle::terminal) write_all(options_.fd, "\n");
}

}  // namespace ingot
