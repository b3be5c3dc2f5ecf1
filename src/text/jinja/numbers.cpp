// Filters that make numbers: abs, float, int, round.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "text/jinja/filter_call.h"

namespace ingot::text::jinja {
namespace {

// The text without surrounding white space, a leading '+' and '_' between digits; invalid numbers stay invalid.
std::string number_text(const std::string& text) {
  const std::string_view body = strip(text, nullptr, true, true);
  std::string out;
  const auto digit = [&](size_t i) {
    return i < body.size() && ((body[i] >= '0' && body[i] <= '9') || (body[i] >= 'a' && body[i] <= 'z') ||
                               (body[i] >= 'A' && body[i] <= 'Z'));
  };
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    if (i == 0 && body[i] == '+' && digit(1)) continue;
    out += body[i];
  }
  return out;
}

std::optional<double> parse_float(const std::string& text) {
  const std::string body = number_text(text);
  double value = 0;
  const auto [stop, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (error == std::errc::result_out_of_range && stop == body.data() + body.size())
    return std::strtod(body.c_str(), nullptr);
  if (error != std::errc() || stop != body.data() + body.size()) return std::nullopt;
  return value;
}

// Refuses Undefined even with a default, which applies only to values that are not numbers.
void refuse_undefined(const FilterCall& call) {
  if (is<Undefined>(call.value)) call.context.fail("{}", std::get<Undefined>(call.value).what->text());
}

}  // namespace

Value to_int(const FilterCall& call) {
  const auto values = call.bind({"default", "base"});
  refuse_undefined(call);
  Value fallback = given(values[0]) ? values[0] : Value(int64_t{0});
  const int base =
      given(values[1]) ? static_cast<int>(std::clamp<int64_t>(to_integer(call.context, values[1], "base"), 2, 36)) : 10;
  double number = 0;
  if (const auto* text = text_of(call.value)) {
    const std::string body = number_text(*text);
    int64_t integer = 0;
    const char* begin = body.data();
    if (body.size() > 2 && body[0] == '0' &&
        ((base == 16 && (body[1] | 32) == 'x') || (base == 8 && (body[1] | 32) == 'o') ||
         (base == 2 && (body[1] | 32) == 'b'))) {
      begin += 2;
    }
    const auto [stop, error] = std::from_chars(begin, body.data() + body.size(), integer, base);
    if (error == std::errc() && stop == body.data() + body.size()) return integer;
    if (error == std::errc::result_out_of_range && stop == body.data() + body.size()) {
      call.context.fail(ErrorKind::resource, "an integer is too large");
    }
    const std::optional<double> parsed = parse_float(*text);
    if (!parsed) return fallback;
    number = *parsed;
  } else if (is<int64_t>(call.value) || is<bool>(call.value)) {
    return to_integer(call.context, call.value, "int");
  } else if (is<double>(call.value)) {
    number = std::get<double>(call.value);
  } else {
    return fallback;
  }
  if (!std::isfinite(number)) return fallback;
  if (!(std::abs(number) < 9e18)) call.context.fail(ErrorKind::resource, "an integer is too large");
  return static_cast<int64_t>(number);
}

Value to_float(const FilterCall& call) {
  const auto values = call.bind({"default"});
  refuse_undefined(call);
  if (is<double>(call.value)) return call.value;
  if (is<int64_t>(call.value) || is<bool>(call.value)) {
    return static_cast<double>(to_integer(call.context, call.value, "float"));
  }
  if (const auto* text = text_of(call.value)) {
    if (const std::optional<double> number = parse_float(*text)) return *number;
  }
  return given(values[0]) ? values[0] : Value(0.0);
}

Value round(const FilterCall& call) {
  const auto values = call.bind({"precision", "method"});
  if (given(values[1]) && to_text(call.context, values[1]).text() != "common") {
    call.context.fail(ErrorKind::unsupported, "round with the method {} is not supported",
                      to_text(call.context, values[1]).text());
  }
  const int64_t precision = given(values[0]) ? to_integer(call.context, values[0], "precision") : 0;
  if (precision < 0 || precision > 20)
    call.context.fail(ErrorKind::unsupported, "round to {} digits is not supported", precision);
  if (is<int64_t>(call.value) || is<bool>(call.value)) return to_integer(call.context, call.value, "round");
  if (!is<double>(call.value)) call.context.fail("a {} cannot be rounded", type_name(call.value));
  return *parse_float(fmt::format("{:.{}f}", std::get<double>(call.value), precision));
}

Value absolute(const FilterCall& call) {
  call.bind({});
  if (is<double>(call.value)) return std::abs(std::get<double>(call.value));
  const int64_t value = to_integer(call.context, call.value, "the value of abs");
  return value < 0 ? binary(call.context, "-", int64_t{0}, value) : Value(value);
}

}  // namespace ingot::text::jinja
