#include "text/jinja/lexer.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja/value.h"
#include "text/unicode.h"

namespace ingot::text::jinja {
namespace {

using Kind = TokenText::Kind;

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : source_(normalize_newlines(source)), name_(name) {}

  std::vector<TokenText> run() {
    while (at_ < source_.size()) scan_data();
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(ErrorKind::corrupt, "{}:{}: {}", name_, line_, what);
  }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Moves to offset `to`, counting lines.
  void advance(size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  bool looking_at(size_t at, std::string_view text) const {
    return std::string_view(source_).substr(at).starts_with(text);
  }

  size_t skip_space(size_t at) const {
    while (at < source_.size()) {
      const Utf8Char c = decode_utf8(source_, at);
      if (!is_python_space(c.code_point)) break;
      at += c.size;
    }
    return at;
  }

  // Adds the text before the tag at `tag`; `sign` is the character after its two opening characters.
  void add_data(size_t tag, char sign, bool is_print) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && !is_print) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && strip(text.substr(begin), nullptr, true, false).empty()) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(Kind::data, std::string(text));
  }

  // Moves past the end `at` of a block or comment tag: skips white space for '-', otherwise one newline unless '+'.
  void end_tag(size_t at, char sign, bool trim_newline) {
    const size_t tag_end = at;
    if (sign == '-') {
      at = skip_space(at);
    } else if (trim_newline && sign != '+' && at < source_.size() && source_[at] == '\n') {
      ++at;
    }
    line_starting_ = at > tag_end && source_[at - 1] == '\n';
    advance(at);
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void scan_data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        if (at_ < source_.size()) add(Kind::data, source_.substr(at_));
        advance(source_.size());
        return;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char second = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(tag, sign, second == '{');
    advance(tag);
    if (second == '#') return scan_comment();
    if (second == '%' && scan_raw()) return;
    advance(tag + (sign == '\0' ? 2 : 3));
    add(second == '{' ? Kind::print_begin : Kind::block_begin, "");
    scan_tag(second == '{');
  }

  void scan_comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("a comment is not closed");
    const char sign = end > at_ + 2 ? sign_at(end - 1) : '\0';
    end_tag(end + 2, sign, true);
  }

  // The end of `{% WORD %}` that starts at `at` (the '{'), and its closing sign; 0 when there is another tag.
  size_t match_word_tag(size_t at, std::string_view word, char& closing_sign) const {
    at = skip_space(at + 2 + (sign_at(at + 2) == '\0' ? 0 : 1));
    if (!looking_at(at, word)) return 0;
    at = skip_space(at + word.size());
    closing_sign = sign_at(at);
    if (closing_sign != '\0') ++at;
    return looking_at(at, "%}") ? at + 2 : 0;
  }

  bool scan_raw() {
    char closing = '\0';
    const size_t body = match_word_tag(at_, "raw", closing);
    if (body == 0 || closing == '+') return false;
    end_tag(body, closing, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      const size_t end = match_word_tag(tag, "endraw", closing);
      if (end == 0) continue;
      add_data(tag, sign_at(tag + 2), false);
      advance(tag);
      end_tag(end, closing, true);
      return true;
    }
    fail("raw is not closed");
  }

  void scan_tag(bool is_print) {
    const std::string_view close = is_print ? "}}" : "%}";
    int open = 0;  // open brackets: inside of them "}}" closes two dicts
    while (true) {
      const size_t next = skip_space(at_);
      advance(next);
      if (at_ >= source_.size()) fail("a tag is not closed");
      if (open == 0) {
        // A print tag has no '+' form: {{ x +}} is a syntax error.
        const char sign = sign_at(at_);
        if (looking_at(at_, close)) {
          add(is_print ? Kind::print_end : Kind::block_end, "");
          return end_tag(at_ + 2, '\0', !is_print);
        }
        if (sign != '\0' && looking_at(at_ + 1, close) && !(is_print && sign == '+')) {
          add(is_print ? Kind::print_end : Kind::block_end, "");
          return end_tag(at_ + 3, sign, !is_print);
        }
      }
      const char c = source_[at_];
      if (is_name_start(c)) {
        size_t end = at_;
        while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
        add(Kind::name, source_.substr(at_, end - at_));
        advance(end);
      } else if (is_digit(c)) {
        scan_number();
      } else if (c == '\'' || c == '"') {
        scan_string(c);
      } else {
        scan_operator(open);
      }
    }
  }

  void scan_number() {
    size_t end = at_;
    const auto digits = [&](auto accepts) {
      while (end < source_.size() && (accepts(source_[end]) || source_[end] == '_')) ++end;
    };
    Kind kind = Kind::integer;
    const char base = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    if (source_[at_] == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      end += 2;
      digits([](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
    } else {
      digits(is_digit);
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        kind = Kind::real;
        ++end;
        digits(is_digit);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          kind = Kind::real;
          end = exponent;
          digits(is_digit);
        }
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(kind, std::move(text));
    advance(end);
  }

  // The value of `count` hex digits at `at`, or -1.
  int64_t hex(size_t at, size_t count) const {
    if (at + count > source_.size()) return -1;
    int64_t value = 0;
    for (size_t i = at; i < at + count; ++i) {
      const char c = source_[i];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }

  void scan_string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        text.push_back(source_[i]);
        continue;
      }
      const char c = source_[++i];
      constexpr std::string_view names = "ntrabfv\\'\"", values = "\n\t\r\a\b\f\v\\'\"";
      const size_t simple = names.find(c);
      const size_t num_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (simple != std::string_view::npos) {
        text.push_back(values[simple]);
      } else if (num_digits != 0) {
        const int64_t code_point = hex(i + 1, num_digits);
        if (code_point < 0 || code_point > 0x10FFFF) fail("a string has an escape that is incomplete or too large");
        append_utf8(text, static_cast<uint32_t>(code_point));
        i += num_digits;
      } else if (c != '\n') {  // an escaped newline is dropped; unknown escapes stay as they are
        text.push_back('\\');
        text.push_back(c);
      }
    }
    if (i >= source_.size()) fail("a string is not closed");
    add(Kind::string, std::move(text));
    advance(i + 1);
  }

  void scan_operator(int& open) {
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","}) {
      if (!looking_at(at_, op)) continue;
      if (op == "[" || op == "(" || op == "{") ++open;
      if (op == "]" || op == ")" || op == "}") {
        if (--open < 0) fail(fmt::format("unmatched \"{}\"", op));
      }
      add(Kind::op, std::string(op));
      advance(at_ + op.size());
      return;
    }
    fail(fmt::format("unexpected character \"{}\"", source_[at_]));
  }

  std::string source_;
  std::string_view name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // at_ is at the start of a line
  std::vector<TokenText> tokens_;
};

}  // namespace

std::vector<TokenText> lex(std::string_view source, std::string_view name) { return Lexer(source, name).run(); }

}  // namespace ingot::text::jinja
