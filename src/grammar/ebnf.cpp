// The GBNF dialect of EBNF.
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "grammar/automaton.h"
#include "grammar/characters.h"
#include "grammar/grammar.h"
#include "text/unicode.h"

namespace ingot::grammar {

namespace {

constexpr int max_ebnf_nesting = 200;
constexpr size_t max_text = 1 << 20;
constexpr int64_t max_ebnf_count = 1'000'000'000;
constexpr int64_t max_inlined_size = 1000;  // of one repeat's body, with rules replaced by theirs
constexpr int64_t inlined_share = 8;        // of the terms that a grammar leaves, one in so many is for such bodies

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : text_(text) {
    if (text.size() > max_text)
      throw_error(ErrorKind::resource, "the grammar has {} bytes; at most {} are allowed", text.size(), max_text);
    if (!text::is_valid_utf8(text)) throw_error(ErrorKind::usage, "the grammar is not UTF-8");
  }

  GrammarPtr parse() {
    for (skip(true); at_ < text_.size(); skip(true)) rule();
    for (const auto& [name, number] : numbers_) {
      if (!defined_[static_cast<size_t>(number)]) {
        throw_error(ErrorKind::usage, "the grammar uses the rule {} but does not define it", name);
      }
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) {
      throw_hint(ErrorKind::usage, "name the rule of the whole output root", "the grammar has no rule root");
    }
    most_used_ = terms().used() + (StateLimits{}.terms - terms().used()) / inlined_share;
    for (const TermId rule : rules_) terms().define(rule, with_counted_units(terms().body(rule)));
    make_units();
    const TermId start = automaton_.finish(rules_[static_cast<size_t>(root->second)], names_);
    if (start == TermPool::nothing) throw_error(ErrorKind::usage, "the grammar matches no text");
    return std::make_shared<const Grammar>(std::move(automaton_), start);
  }

 private:
  TermPool& terms() { return automaton_.terms; }

  [[noreturn]] void malformed(std::string_view why) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
    throw_error(ErrorKind::usage, "grammar line {}: {}", line + 1, why);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Skips spaces and comments, with `lines` also line ends.
  void skip(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n' && text_[at_ + 1] != '\r') ++at_;
      } else if (c != ' ' && c != '\t' && (!lines || (c != '\n' && c != '\r'))) {
        return;
      }
    }
  }

  TermId rule_of(std::string_view name) {
    const auto [at, is_new] = numbers_.try_emplace(std::string(name), static_cast<int>(rules_.size()));
    if (is_new) {
      rules_.push_back(terms().declare());
      names_.emplace_back(name);
      defined_.push_back(false);
    }
    return rules_[static_cast<size_t>(at->second)];
  }

  std::string_view name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) malformed("a rule's name is missing");
    return text_.substr(begin, at_ - begin);
  }

  void rule() {
    const std::string_view called = name();
    const TermId rule = rule_of(called);
    skip(false);
    if (text_.substr(at_, 3) != "::=") malformed("'::=' is missing after a rule's name");
    at_ += 3;
    skip(true);
    const size_t number = static_cast<size_t>(terms()[rule].min);
    if (defined_[number]) malformed("the rule " + std::string(called) + " is defined twice");
    const TermId body = choice(false);
    defined_[number] = true;
    terms().define(rule, body);
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') malformed("a line break is missing after the rule");
  }

  TermId choice(bool inside) {
    if (++nesting_ > max_ebnf_nesting)
      throw_error(ErrorKind::resource, "the grammar is nested deeper than {}", max_ebnf_nesting);
    std::vector<TermId> parts;
    for (;;) {
      parts.push_back(sequence(inside));
      if (!take('|')) break;
      skip(true);
    }
    --nesting_;
    return terms().choice(parts);
  }

  TermId sequence(bool inside) {
    std::vector<TermId> parts;
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && peek() != '\n' && peek() != '\r') {
      TermId part = atom();
      skip(inside);
      while (quantified(part)) skip(inside);
      parts.push_back(part);
    }
    TermId term = TermPool::empty;
    for (size_t i = parts.size(); i-- > 0;) term = terms().sequence(parts[i], term);
    return term;
  }

  TermId atom() {
    switch (peek()) {
      case '"': return literal();
      case '[': return character_class();
      case '.': ++at_; return encoded(terms(), CharacterSet::all());
      case '<':
      case '!': throw_error(ErrorKind::unsupported, "the grammar has a token <...>; only characters are supported");
      case '(': {
        ++at_;
        skip(true);
        const TermId term = choice(true);
        if (!take(')')) malformed("an unmatched (");
        return term;
      }
      default: break;
    }
    if (!is_name(peek())) malformed(std::string("'") + peek() + "' is not expected here");
    return rule_of(name());
  }

  bool quantified(TermId& term) {
    if (take('*')) {
      term = terms().repeat(term, 0, unlimited);
    } else if (take('+')) {
      term = terms().repeat(term, 1, unlimited);
    } else if (take('?')) {
      term = terms().optional(term);
    } else if (take('{')) {
      const auto [min, max] = counts();
      term = terms().repeat(term, min, max);
    } else {
      return false;
    }
    return true;
  }

  // Parses {m}, {m,} or {m,n} after the {.
  std::pair<int64_t, int64_t> counts() {
    const auto count = [&]() -> std::optional<int64_t> {
      skip(true);
      if (peek() < '0' || peek() > '9') return std::nullopt;
      int64_t value = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_)
        value = std::min<int64_t>(max_ebnf_count + 1, value * 10 + (peek() - '0'));
      if (value > max_ebnf_count) malformed("a count above 1,000,000,000");
      skip(true);
      return value;
    };
    const auto first = count();
    int64_t min = first.value_or(0), max = min;
    if (take(',')) {
      max = count().value_or(unlimited);
    } else if (!first) {
      malformed("a number is missing after {");
    }
    if (!take('}')) malformed("an unmatched {");
    if (max != unlimited && max < min) malformed("a {m,n} with n below m");
    return {min, max};
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(peek());
      if (digit < 0) malformed("an escape without its hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (value > max_code_point || (value >= 0xD800 && value < 0xE000)) malformed("an escape that is not a character");
    return value;
  }

  uint32_t character() {
    if (at_ >= text_.size()) malformed("a literal or a class is not closed");
    if (!take('\\')) {
      const text::Utf8Char next = text::decode_utf8(text_, at_);
      at_ += next.size;
      return next.code_point;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<uint8_t>(c);
      default: malformed("an escape that is not known");
    }
  }

  TermId literal() {
    ++at_;
    std::string text;
    while (peek() != '"' || at_ >= text_.size()) text::append_utf8(text, character());
    ++at_;
    return terms().literal(text);
  }

  TermId character_class() {
    ++at_;
    const bool negative = take('^');
    std::vector<CharacterSet::Range> ranges;
    while (!take(']')) {
      const uint32_t first = character();
      uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
        if (last < first) malformed("a range out of order");
      }
      ranges.push_back({first, last});
    }
    const CharacterSet set(std::move(ranges));
    return encoded(terms(), negative ? set.complement() : set);
  }

  // A counted repeat of small rules, such as char{3,20}, becomes a lexeme (unit), as make_units() does with every rule
  // whose body is regular. Mask computation walks a lexeme as a whole and ignores counts that no token can reach;
  // otherwise each count would be walked rule by rule. A repeat stays as it is if the new terms do not fit into room().
  TermId with_counted_units(TermId id) {
    const Term term = terms()[id];
    if (term.regular || !term.is_counted) return id;
    if (term.kind == TermKind::repeat && (term.min > 1 || term.max > 1)) {
      const std::optional<TermId> body = inlined(term.left, 0).term;
      if (body && room() > 0) return terms().unit(terms().repeat(*body, term.min, term.max));
    }
    const int64_t size = num_parts(id);
    if (size > room()) return id;
    reserved_ += size;
    const TermId result = terms().rebuilt(id, [&](TermId part) { return with_counted_units(part); });
    reserved_ -= size;
    return result;
  }

  // A term with rules replaced by their bodies; no term for a recursive rule, or if that makes too many terms.
  struct Inlined {
    std::optional<TermId> term;
    int64_t size = 0;  // parts of its sequences and choices, without those inside of regular terms
  };

  Inlined inlined(TermId id, int depth) {
    const Term term = terms()[id];
    if (term.regular) return {id, num_parts(id)};
    const auto [at, is_new] = inlined_.try_emplace(id);  // no term while it is being made: a rule that reaches itself
    if (!is_new || depth > max_ebnf_nesting) return at->second;
    if (term.kind == TermKind::rule) return at->second = inlined(terms().body(id), depth + 1);
    const auto fits = [&](int64_t size) { return size <= std::min(max_inlined_size, room()); };
    Inlined result;
    bool is_possible = fits(num_parts(id));
    if (!is_possible) return result;
    const TermId whole = terms().rebuilt(id, [&](TermId part) {
      if (!is_possible) return part;
      const Inlined body = inlined(part, depth + 1);
      result.size += body.size;
      is_possible = body.term && fits(result.size);
      return is_possible ? *body.term : part;
    });
    if (is_possible) result.term = whole;
    return at->second = result;
  }

  // The number of direct parts of a sequence or a choice: the maximum number of terms that are created when one part
  // changes, or when it is merged into another sequence or choice.
  int64_t num_parts(TermId id) {
    if (terms()[id].kind == TermKind::choice) return std::ssize(terms().children(id));
    int64_t size = 1;
    for (; terms()[id].kind == TermKind::sequence; id = terms()[id].right) ++size;
    return size;
  }

  // How many terms more may be made for lexemes, and around them, in the whole grammar.
  int64_t room() { return most_used_ - reserved_ - terms().used(); }

  // Rules that refer to no other rule become lexemes (units), which mask computation matches as a whole.
  void make_units() {
    for (const TermId rule : rules_) {
      const TermId body = terms().body(rule);
      if (terms()[body].regular) terms().define(rule, terms().unit(body));
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int nesting_ = 0;
  Automaton automaton_;
  std::map<std::string, int, std::less<>> numbers_;
  std::vector<TermId> rules_;
  std::vector<std::string> names_;
  std::vector<bool> defined_;
  std::map<TermId, Inlined> inlined_;  // bodies of counted repeats, and the rules in them
  int64_t most_used_ = 0;              // max terms of the pool while lexemes are made
  int64_t reserved_ = 0;               // of these, for what is being rebuilt around a lexeme
};

}  // namespace

GrammarPtr compile_ebnf(std::string_view text) { return EbnfParser(text).parse(); }

}  // namespace ingot::grammar
