#include "grammar/regex_tree.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "grammar/grammar.h"
#include "text/unicode.h"

namespace ingot::grammar {

namespace {

using Kind = RegexNode::Kind;
using Range = CharacterSet::Range;

constexpr int max_nesting = 200;
constexpr int64_t max_regex_count = 1'000'000'000;

CharacterSet digits() { return CharacterSet({{'0', '9'}}); }
CharacterSet words() { return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// WhiteSpace and LineTerminator of ECMA-262.
CharacterSet spaces() {
  return CharacterSet({{0x09, 0x0D},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}
CharacterSet line_ends() { return CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

CharacterSet of_class(uint8_t bit) {
  std::vector<Range> ranges;
  for (uint32_t c = 0; c <= max_code_point; ++c) {
    if ((text::char_class(c) & bit) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == c) {
      ranges.back().last = c;
    } else {
      ranges.push_back({c, c});
    }
  }
  return CharacterSet(std::move(ranges));
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {
    if (pattern.size() > max_pattern_bytes) {
      throw_error(ErrorKind::resource, "the pattern has {} bytes; at most {} are allowed", pattern.size(),
                  max_pattern_bytes);
    }
    for (size_t at = 0; at < pattern.size();) {
      const text::Utf8Char next = text::decode_utf8(pattern, at);
      if (next.code_point == text::invalid_byte) malformed("it is not UTF-8");
      characters_.push_back(next.code_point);
      at += next.size;
    }
  }

  RegexNode parse() {
    RegexNode node = choice();
    if (!done()) malformed("an unmatched )");
    return node;
  }

 private:
  bool done() const { return at_ == characters_.size(); }
  uint32_t peek(size_t ahead = 0) const { return at_ + ahead < characters_.size() ? characters_[at_ + ahead] : 0; }
  bool take(uint32_t c) {
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view ascii) {
    for (size_t i = 0; i < ascii.size(); ++i) {
      if (at_ + i >= characters_.size() || characters_[at_ + i] != static_cast<uint8_t>(ascii[i])) return false;
    }
    at_ += ascii.size();
    return true;
  }
  [[noreturn]] void malformed(std::string_view why) const {
    throw_error(ErrorKind::usage, "the pattern '{}' is malformed: {}", pattern_, why);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    throw_error(ErrorKind::unsupported, "the pattern '{}' has {}, which is not supported", pattern_, what);
  }

  static RegexNode parent(Kind kind, std::vector<RegexNode> parts) {
    RegexNode node;
    node.kind = kind;
    node.plain = std::all_of(parts.begin(), parts.end(), [](const RegexNode& part) { return part.plain; });
    node.parts = std::move(parts);
    return node;
  }

  RegexNode choice() {
    if (++nesting_ > max_nesting) throw_error(ErrorKind::resource, "the pattern is nested deeper than {}", max_nesting);
    std::vector<RegexNode> parts;
    do {
      std::vector<RegexNode> sequence;
      while (!done() && peek() != '|' && peek() != ')') sequence.push_back(quantified());
      parts.push_back(parent(Kind::sequence, std::move(sequence)));
    } while (take('|'));
    --nesting_;
    return parts.size() == 1 ? std::move(parts[0]) : parent(Kind::choice, std::move(parts));
  }

  RegexNode quantified() {
    RegexNode node = atom();
    int64_t min = 0, max = unlimited;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (!counts(min, max)) {
      return node;
    }
    take('?');  // lazy: matches the same texts
    if (node.kind == Kind::start || node.kind == Kind::end || node.kind == Kind::look_ahead) {
      malformed("a quantifier after an assertion");
    }
    if (!node.plain) unsupported("^, $ or a look-ahead inside a repetition");
    if (!done() && (peek() == '*' || peek() == '+' || peek() == '?')) malformed("a quantifier after a quantifier");
    RegexNode result;
    result.kind = Kind::repeat;
    result.parts.push_back(std::move(node));
    result.min = min;
    result.max = max;
    return result;
  }

  std::optional<int64_t> number() {
    if (done() || peek() < '0' || peek() > '9') return std::nullopt;
    int64_t value = 0;
    for (; !done() && peek() >= '0' && peek() <= '9'; ++at_) {
      value = std::min<int64_t>(max_regex_count + 1, value * 10 + static_cast<int64_t>(peek() - '0'));
    }
    if (value > max_regex_count)
      throw_error(ErrorKind::resource, "a count above {} in the pattern '{}'", max_regex_count, pattern_);
    return value;
  }

  // Parses {n}, {n,} or {n,m}; anything else is not a quantifier.
  bool counts(int64_t& min, int64_t& max) {
    const size_t before = at_;
    if (take('{')) {
      if (const auto first = number()) {
        min = max = *first;
        if (take(',')) max = number().value_or(unlimited);
        if (take('}')) {
          if (max != unlimited && max < min) malformed("a quantifier whose numbers are out of order");
          return true;
        }
      }
    }
    at_ = before;
    return false;
  }

  static RegexNode of_set(CharacterSet set) {
    RegexNode node;
    node.kind = Kind::set;
    node.set = std::move(set);
    return node;
  }
  static RegexNode of_character(uint32_t c) { return of_set(CharacterSet({{c, c}})); }
  static RegexNode assertion(Kind kind) {
    RegexNode node;
    node.kind = kind;
    node.plain = false;
    return node;
  }

  RegexNode atom() {
    const uint32_t c = characters_[at_++];
    switch (c) {
      case '(': return group();
      case '[': return of_set(character_class());
      case '.': return of_set(line_ends().complement());
      case '^': return assertion(Kind::start);
      case '$': return assertion(Kind::end);
      case '*':
      case '+':
      case '?': malformed("a quantifier with nothing to repeat");
      case '\\': return escape();
      default: return of_character(c);
    }
  }

  RegexNode group() {
    RegexNode node;
    bool is_look_ahead = false, negative = false;
    if (take("?:")) {
    } else if (take("?=")) {
      is_look_ahead = true;
    } else if (take("?!")) {
      is_look_ahead = negative = true;
    } else if (take("?<=") || take("?<!")) {
      unsupported("a look-behind");
    } else if (take("?<")) {
      while (!done() && peek() != '>') ++at_;
      if (!take('>')) malformed("an unterminated group name");
    } else if (!done() && peek() == '?') {
      unsupported("a group (?...) of an unknown kind");
    }
    node = choice();
    if (!take(')')) malformed("an unmatched (");
    if (!is_look_ahead) return node;
    RegexNode look = assertion(Kind::look_ahead);
    look.negative = negative;
    look.parts.push_back(std::move(node));
    return look;
  }

  RegexNode escape() {
    if (done()) malformed("a \\ at its end");
    if (peek() == 'b' || peek() == 'B') unsupported("a word boundary");
    if (peek() >= '1' && peek() <= '9') unsupported("a back-reference");
    if (peek() == 'k') unsupported("a back-reference");
    return of_set(escaped_set());
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = peek() < 0x80 ? hex_digit(static_cast<char>(peek())) : -1;
      if (digit < 0) malformed("an escape without its hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  uint32_t unicode_escape() {
    uint32_t value = 0;
    if (take('{')) {
      int digits = 0;
      for (; !done() && peek() != '}'; ++digits) {
        value = value * 16 + hex(1);
        if (value > max_code_point) malformed("a code point above U+10FFFF");
      }
      if (digits == 0 || !take('}')) malformed("an escape without its hexadecimal digits");
    } else {
      value = hex(4);
      if (value >= 0xD800 && value < 0xDC00 && take("\\u")) {
        const uint32_t low = hex(4);
        if (low < 0xDC00 || low > 0xDFFF) malformed("half of a surrogate pair");
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (value >= first_surrogate && value <= last_surrogate)
      unsupported("half of a surrogate pair, which cannot occur in JSON text");
    return value;
  }

  CharacterSet property(bool negative) {
    if (!take('{')) malformed("\\p without {");
    std::string name;
    while (!done() && peek() != '}') name += static_cast<char>(characters_[at_++]);
    if (!take('}')) malformed("\\p{ without }");
    static const CharacterSet letters = of_class(text::char_letter), numbers = of_class(text::char_number);
    if (name == "L" || name == "Letter") return negative ? letters.complement() : letters;
    if (name == "N" || name == "Number") return negative ? numbers.complement() : numbers;
    unsupported("\\p{" + name + "}");
  }

  // The set of an escape after its \, inside or outside of classes.
  CharacterSet escaped_set() {
    if (done()) malformed("a \\ at its end");
    const uint32_t c = characters_[at_++];
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return words();
      case 'W': return words().complement();
      case 's': return spaces();
      case 'S': return spaces().complement();
      case 'p': return property(false);
      case 'P': return property(true);
      default: {
        const uint32_t one = escaped_character(c);
        return CharacterSet({{one, one}});
      }
    }
  }

  uint32_t escaped_character(uint32_t c) {
    switch (c) {
      case 't': return '\t';
      case 'n': return '\n';
      case 'v': return '\v';
      case 'f': return '\f';
      case 'r': return '\r';
      case '0':
        if (peek() >= '0' && peek() <= '9') unsupported("an octal escape");
        return 0;
      case 'c':
        if ((peek() | 0x20) < 'a' || (peek() | 0x20) > 'z') malformed("\\c without its letter");
        return characters_[at_++] & 0x1F;
      case 'x': return hex(2);
      case 'u': return unicode_escape();
      default: break;
    }
    const bool is_word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c >= 0x80;
    if (is_word) {
      std::string name = "the escape \\";
      text::append_utf8(name, c);
      unsupported(name);
    }
    return c;
  }

  CharacterSet character_class() {
    const bool negative = take('^');
    std::vector<Range> ranges;
    while (!take(']')) {
      if (done()) malformed("an unmatched [");
      const CharacterSet first = class_member();
      const std::optional<uint32_t> low = single(first);
      if (low && !done() && peek() == '-' && at_ + 1 < characters_.size() && peek(1) != ']') {
        ++at_;
        const std::optional<uint32_t> high = single(class_member());
        if (!high) malformed("a range that ends in a class");
        if (*high < *low) malformed("a range out of order");
        ranges.push_back({*low, *high});
      } else {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      }
    }
    const CharacterSet set(std::move(ranges));
    return negative ? set.complement() : set;
  }

  CharacterSet class_member() {
    const uint32_t c = characters_[at_++];
    if (c != '\\') return CharacterSet({{c, c}});
    if (take('b')) return CharacterSet({{'\b', '\b'}});
    return escaped_set();
  }

  static std::optional<uint32_t> single(const CharacterSet& set) {
    if (set.ranges().size() != 1 || set.ranges()[0].first != set.ranges()[0].last) return std::nullopt;
    return set.ranges()[0].first;
  }

  std::string_view pattern_;
  std::vector<uint32_t> characters_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern) { return RegexParser(pattern).parse(); }

}  // namespace ingot::grammar
