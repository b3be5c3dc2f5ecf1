#include "grammar/regex.h"

#include "base/error.h"
#include "grammar/regex_tree.h"

namespace ingot::grammar {

namespace {

using Kind = RegexNode::Kind;

// The language that follows a part of a pattern, up to the end of the text: `at_start` while the position is still the
// text's start, `inside` after it.
struct Rest {
  TermId at_start;
  TermId inside;
};

class Compiler {
 public:
  Compiler(TermPool& terms) : terms_(terms) {}

  // The texts that the node matches, followed by `rest`. `at_start`: the node begins at the text's start.
  TermId compile(const RegexNode& node, const Rest& rest, bool at_start) {
    const TermId here = at_start ? rest.at_start : rest.inside;
    if (node.plain) {
      const TermId term = closed(node);
      if (!at_start || rest.at_start == rest.inside || terms_[term].nullable == 0) {
        return terms_.sequence(term, rest.inside);
      }
      return terms_.choice(terms_.sequence(terms_.without(term, TermPool::empty), rest.inside), rest.at_start);
    }
    switch (node.kind) {
      case Kind::sequence: {
        Rest after_part = rest;
        for (size_t i = node.parts.size(); i-- > 0;) {
          after_part = {compile(node.parts[i], after_part, true), compile(node.parts[i], after_part, false)};
        }
        return at_start ? after_part.at_start : after_part.inside;
      }
      case Kind::choice: {
        std::vector<TermId> parts;
        for (const RegexNode& part : node.parts) parts.push_back(compile(part, rest, at_start));
        return terms_.choice(parts);
      }
      case Kind::start: return at_start ? rest.at_start : TermPool::nothing;
      case Kind::end: return terms_[here].nullable == 1 ? TermPool::empty : TermPool::nothing;
      case Kind::look_ahead: {
        const TermId ahead = compile(node.parts[0], {TermPool::anything, TermPool::anything}, at_start);
        return terms_.both(here, node.negative ? terms_.complement(ahead) : ahead);
      }
      default: throw_error(ErrorKind::internal, "a plain node of a pattern that is not plain");
    }
  }

 private:
  // A node without assertions.
  TermId closed(const RegexNode& node) {
    std::vector<TermId> parts;
    if (node.kind == Kind::set) return encoded(terms_, node.set);
    for (const RegexNode& part : node.parts) parts.push_back(closed(part));
    if (node.kind == Kind::choice) return terms_.choice(parts);
    if (node.kind == Kind::repeat) return terms_.repeat(parts[0], node.min, node.max);
    TermId term = TermPool::empty;
    for (size_t i = parts.size(); i-- > 0;) term = terms_.sequence(parts[i], term);
    return term;
  }

  TermPool& terms_;
};

}  // namespace

TermId pattern_language(TermPool& terms, std::string_view pattern) {
  const RegexNode tree = parse_regex(pattern);
  Compiler compiler(terms);
  const TermId any = encoded(terms, CharacterSet::all());
  const TermId all = terms.repeat(any, 0, unlimited);
  const TermId first = compiler.compile(tree, {all, all}, true);
  const TermId later = terms.sequence(terms.repeat(any, 1, unlimited), compiler.compile(tree, {all, all}, false));
  return terms.choice(first, later);
}

TermId whole_pattern_language(TermPool& terms, std::string_view pattern) {
  return Compiler(terms).compile(parse_regex(pattern), {TermPool::empty, TermPool::empty}, true);
}

}  // namespace ingot::grammar
