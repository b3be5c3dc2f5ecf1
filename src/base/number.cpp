#include "base/number.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace ingot {
namespace {

// Parses the whole of `text`. YAML and shell users may write a leading '+', which from_chars does not accept.
template <class T>
std::optional<T> parse(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(text.starts_with("+-") ? 0 : 1);
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> parse_double(std::string_view text) {
  // from_chars accepts "inf" and "nan", which YAML spells differently.
  if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;
  const std::optional<double> value = parse<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> parse_int(std::string_view text) {
  if (const std::optional<int64_t> value = parse<int64_t>(text)) return value;
  const std::optional<double> real = parse_double(text);
  if (!real || *real != std::floor(*real) || std::abs(*real) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(*real);
}

}  // namespace ingot
