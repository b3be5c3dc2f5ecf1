#include "base/strings.h"

#include <fmt/core.h>

#include <limits>
#include <numeric>

namespace ingot {
namespace {

// Three significant digits of a value in [0, 1024).
std::string three_digits(double value) {
  if (value < 9.995) {
    std::string text = fmt::format("{:.2f}", value);
    while (text.ends_with('0')) text.pop_back();
    if (text.ends_with('.')) text.pop_back();
    return text;
  }
  if (value < 99.95) {
    std::string text = fmt::format("{:.1f}", value);
    return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
  }
  return fmt::format("{:.0f}", value);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode, table 3-7), or 0.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const auto in = [&](size_t i, int low, int high) { return byte(i) >= low && byte(i) <= high; };
  const auto tail = [&](size_t i) { return in(i, 0x80, 0xBF); };
  const int lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead == 0xE0) return in(1, 0xA0, 0xBF) && tail(2) ? 3 : 0;
  if (lead == 0xED) return in(1, 0x80, 0x9F) && tail(2) ? 3 : 0;
  if (lead >= 0xE1 && lead <= 0xEF) return tail(1) && tail(2) ? 3 : 0;
  if (lead == 0xF0) return in(1, 0x90, 0xBF) && tail(2) && tail(3) ? 4 : 0;
  if (lead >= 0xF1 && lead <= 0xF3) return tail(1) && tail(2) && tail(3) ? 4 : 0;
  if (lead == 0xF4) return in(1, 0x80, 0x8F) && tail(2) && tail(3) ? 4 : 0;
  return 0;
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return three_digits(value) + " " + units[unit];
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.995) return three_digits(seconds) + " s";
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  if (seconds > 1e15) return "?";
  const int64_t whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 0) return "-" + format_count(-count);
  static constexpr const char* units[] = {"", "k", "M", "B", "T"};
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < std::size(units)) {
    count /= 1000;
    ++unit;
  }
  return three_digits(count) + units[unit];
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  const auto lowered = [](std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), lower);
    return result;
  };
  const std::string wanted = lowered(name);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(wanted, lowered(candidate));
    const size_t max_distance = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    if (distance <= max_distance && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

size_t num_columns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, sequence_length(text));
    // U+0300 to U+036F, the combining diacritical marks: CC 80 to CD AF.
    const auto first = static_cast<unsigned char>(text[0]);
    const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
    const bool combining = first == 0xCC || (first == 0xCD && second <= 0xAF);
    if (!combining) ++columns;
    text.remove_prefix(length);
  }
  return columns;
}

std::string json_escape(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = sequence_length(text);
    if (length == 0) {
      out += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += text.substr(0, length);
        }
    }
    text.remove_prefix(length);
  }
  return out + '"';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (;;) {
    const size_t end = text.find(separator);
    pieces.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace ingot
