// The expression parser, base class of the statement parser (parser.cpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/library.h"

namespace ingot::text::jinja {

constexpr size_t max_source = size_t{1} << 20;  // bytes
constexpr int max_nesting = 150;                // nesting of brackets and blocks
constexpr int max_tree_depth = 250;             // height of the tree of one expression

class ExpressionParser {
 protected:
  using Token = TokenText::Kind;

  ExpressionParser(std::string_view source, std::string_view name) : name_(name) {
    if (source.size() > max_source) {
      throw_error(ErrorKind::resource, "{}: the template is longer than {} bytes", name, max_source);
    }
    tokens_ = lex(source, name);
  }

  // ---- tokens

  const TokenText& peek(size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  TokenText take() {
    const TokenText token = peek();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool is_op(std::string_view op) const { return peek().kind == Token::op && peek().text == op; }
  bool is_name(std::string_view name) const { return peek().kind == Token::name && peek().text == name; }
  bool take_op(std::string_view op) {
    if (!is_op(op)) return false;
    take();
    return true;
  }
  bool take_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  void expect_op(std::string_view op) {
    if (!take_op(op)) fail(fmt::format("expected \"{}\", found {}", op, found()));
  }
  std::string expect_any_name() {
    if (peek().kind != Token::name) fail(fmt::format("expected a name, found {}", found()));
    return take().text;
  }
  void expect_block_end() {
    if (peek().kind != Token::block_end) fail(fmt::format("expected the end of the tag, found {}", found()));
    take();
  }
  std::string found() const {
    switch (peek().kind) {
      case Token::end: return "the end of the template";
      case Token::block_end:
      case Token::print_end: return "the end of the tag";
      case Token::data:
      case Token::block_begin:
      case Token::print_begin: return "text";
      default: return "\"" + peek().text + "\"";
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(ErrorKind::corrupt, "{}:{}: {}", name_, peek().line, what);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_hint(ErrorKind::unsupported, "Ingot renders the part of Jinja2 that chat templates use",
               "{}:{}: {} is not supported", name_, peek().line, what);
  }

  struct Nesting {
    explicit Nesting(ExpressionParser& owner) : owner_(owner) {
      if (++owner_.nesting_ > max_nesting) owner_.fail("too deeply nested");
    }
    ~Nesting() { --owner_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ExpressionParser& owner_;
  };

  // ---- expressions

  ExprPtr make(Expr::Kind kind, int line, std::string text = {}) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    expr->text = std::move(text);
    return expr;
  }
  void adopt(Expr& parent, ExprPtr child) {
    if (child) {
      parent.depth = std::max(parent.depth, child->depth + 1);
      if (parent.depth > max_tree_depth) fail("an expression is too long");
    }
    parent.children.push_back(std::move(child));
  }
  ExprPtr join(Expr::Kind kind, std::string text, ExprPtr left, ExprPtr right) {
    ExprPtr expr = make(kind, left->line, std::move(text));
    adopt(*expr, std::move(left));
    adopt(*expr, std::move(right));
    return expr;
  }

  // An expression, or a tuple without parentheses.
  ExprPtr parse_tuple(bool with_condition = true) {
    const int line = peek().line;
    ExprPtr first = with_condition ? parse_expression() : parse_or();
    if (!is_op(",")) return first;
    ExprPtr tuple = make(Expr::Kind::tuple, line);
    adopt(*tuple, std::move(first));
    while (take_op(",")) {
      if (ends_tuple()) break;
      adopt(*tuple, with_condition ? parse_expression() : parse_or());
    }
    return tuple;
  }
  bool ends_tuple() const {
    return peek().kind == Token::block_end || peek().kind == Token::print_end || is_op(")") || is_name("if");
  }

  ExprPtr parse_expression() {
    const Nesting nesting(*this);
    ExprPtr value = parse_or();
    int conditions = 0;
    while (take_name("if")) {
      ExprPtr expr = make(Expr::Kind::conditional, value->line);
      adopt(*expr, parse_or());
      adopt(*expr, std::move(value));
      adopt(*expr, take_name("else") ? parse_expression() : nullptr);
      value = std::move(expr);
      if (++conditions > max_nesting) fail("too deeply nested");
    }
    return value;
  }

  ExprPtr parse_or() {
    ExprPtr left = parse_and();
    while (take_name("or")) left = join(Expr::Kind::logical_or, "or", std::move(left), parse_and());
    return left;
  }
  ExprPtr parse_and() {
    ExprPtr left = parse_not();
    while (take_name("and")) left = join(Expr::Kind::logical_and, "and", std::move(left), parse_not());
    return left;
  }
  ExprPtr parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nesting nesting(*this);
    const int line = take().line;
    ExprPtr expr = make(Expr::Kind::unary, line, "not");
    adopt(*expr, parse_not());
    return expr;
  }

  ExprPtr parse_compare() {
    ExprPtr expr = parse_sum();
    for (bool first = true;; first = false) {
      std::string op;
      if (peek().kind == Token::op &&
          (is_op("==") || is_op("!=") || is_op("<") || is_op("<=") || is_op(">") || is_op(">="))) {
        op = take().text;
      } else if (take_name("in")) {
        op = "in";
      } else if (is_name("not") && peek(1).kind == Token::name && peek(1).text == "in") {
        take();
        take();
        op = "not in";
      } else {
        return expr;
      }
      if (first) {
        ExprPtr comparison = make(Expr::Kind::compare, expr->line);
        adopt(*comparison, std::move(expr));
        expr = std::move(comparison);
      }
      expr->operators.push_back(std::move(op));
      adopt(*expr, parse_sum());
    }
  }

  ExprPtr parse_sum() {
    ExprPtr left = parse_concat();
    while (is_op("+") || is_op("-")) {
      std::string op = take().text;
      left = join(Expr::Kind::binary, std::move(op), std::move(left), parse_concat());
    }
    return left;
  }
  ExprPtr parse_concat() {
    ExprPtr first = parse_product();
    if (!is_op("~")) return first;
    ExprPtr expr = make(Expr::Kind::concat, first->line);
    adopt(*expr, std::move(first));
    while (take_op("~")) adopt(*expr, parse_product());
    return expr;
  }
  ExprPtr parse_product() {
    ExprPtr left = parse_power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      std::string op = take().text;
      left = join(Expr::Kind::binary, std::move(op), std::move(left), parse_power());
    }
    return left;
  }
  ExprPtr parse_power() {
    ExprPtr left = parse_unary(true);
    while (take_op("**")) left = join(Expr::Kind::binary, "**", std::move(left), parse_unary(true));
    return left;
  }
  ExprPtr parse_unary(bool with_filters) {
    const Nesting nesting(*this);
    ExprPtr expr;
    if (is_op("-") || is_op("+")) {
      const TokenText op = take();
      expr = make(Expr::Kind::unary, op.line, op.text);
      adopt(*expr, parse_unary(false));
    } else {
      expr = parse_primary();
    }
    expr = parse_postfix(std::move(expr));
    return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
  }

  ExprPtr parse_primary() {
    const TokenText token = peek();
    switch (token.kind) {
      case Token::name: {
        take();
        ExprPtr expr = make(Expr::Kind::literal, token.line);
        if (token.text == "true" || token.text == "True") {
          expr->value = true;
        } else if (token.text == "false" || token.text == "False") {
          expr->value = false;
        } else if (token.text == "none" || token.text == "None") {
          expr->value = None{};
        } else {
          if (macros_ > 0 && (token.text == "varargs" || token.text == "kwargs" || token.text == "caller")) {
            refuse("the name " + token.text + " in a macro");
          }
          expr->kind = Expr::Kind::name;
          expr->text = token.text;
        }
        return expr;
      }
      case Token::string: {
        ExprPtr expr = make(Expr::Kind::literal, token.line);
        std::string text;
        while (peek().kind == Token::string) text += take().text;
        expr->value = author_text(std::move(text));
        return expr;
      }
      case Token::integer:
      case Token::real: return parse_number();
      default: break;
    }
    if (take_op("(")) return parse_parentheses(token.line);
    if (take_op("[")) {
      ExprPtr list = make(Expr::Kind::list, token.line);
      while (!is_op("]")) {
        if (!list->children.empty()) expect_op(",");
        if (is_op("]")) break;
        adopt(*list, parse_expression());
      }
      take();
      return list;
    }
    if (take_op("{")) {
      ExprPtr dict = make(Expr::Kind::dict, token.line);
      while (!is_op("}")) {
        if (!dict->children.empty()) expect_op(",");
        if (is_op("}")) break;
        adopt(*dict, parse_expression());
        expect_op(":");
        adopt(*dict, parse_expression());
      }
      take();
      return dict;
    }
    fail(fmt::format("expected a value, found {}", found()));
  }

  ExprPtr parse_parentheses(int line) {
    if (take_op(")")) return make(Expr::Kind::tuple, line);
    ExprPtr inner = parse_tuple();
    expect_op(")");
    return inner;
  }

  ExprPtr parse_number() {
    const TokenText token = take();
    ExprPtr expr = make(Expr::Kind::literal, token.line);
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    std::from_chars_result result{end, std::errc()};
    if (token.kind == Token::real) {
      double value = 0;
      result = std::from_chars(begin, end, value);
      expr->value = value;
    } else {
      int base = 10;
      if (token.text.size() > 2 && token.text[0] == '0' && token.text[1] > '9') {
        base = token.text[1] == 'x' ? 16 : token.text[1] == 'o' ? 8 : 2;
        begin += 2;
      }
      int64_t value = 0;
      result = std::from_chars(begin, end, value, base);
      expr->value = value;
    }
    if (result.ec != std::errc() || result.ptr != end)
      fail(fmt::format("the number {} is wrong or too large", token.text));
    return expr;
  }

  ExprPtr parse_postfix(ExprPtr expr) {
    while (true) {
      const int line = peek().line;
      if (take_op(".")) {
        if (peek().kind == Token::integer) {
          ExprPtr index = parse_number();
          expr = join(Expr::Kind::item, "", std::move(expr), std::move(index));
        } else {
          ExprPtr attribute = make(Expr::Kind::attribute, line, expect_any_name());
          adopt(*attribute, std::move(expr));
          expr = std::move(attribute);
        }
      } else if (take_op("[")) {
        expr = parse_subscript(std::move(expr));
      } else if (is_op("(")) {
        ExprPtr call = make(Expr::Kind::call, line);
        adopt(*call, std::move(expr));
        parse_arguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }

  ExprPtr parse_subscript(ExprPtr object) {
    const int line = peek().line;
    ExprPtr first = is_op(":") ? nullptr : parse_expression();
    if (take_op("]")) return join(Expr::Kind::item, "", std::move(object), std::move(first));
    ExprPtr slice = make(Expr::Kind::slice, line);
    adopt(*slice, std::move(object));
    adopt(*slice, std::move(first));
    for (int part = 0; part < 2; ++part) {
      const bool present = take_op(":") && !is_op(":") && !is_op("]");
      adopt(*slice, present ? parse_expression() : nullptr);
    }
    expect_op("]");
    return slice;
  }

  // "(" positional arguments and *args, then name=value arguments, then **kwargs ")"
  void parse_arguments(Expr& call) {
    expect_op("(");
    bool first = true;
    while (!is_op(")")) {
      if (!first) expect_op(",");
      first = false;
      if (is_op(")")) break;
      if (is_op("*") || is_op("**")) {
        ExprPtr& more = is_op("*") ? call.more : call.more_named;
        if (more || call.more_named) fail(fmt::format("unexpected second {}", found()));
        take();
        more = parse_expression();
        call.depth = std::max(call.depth, more->depth + 1);
        continue;
      }
      if (call.more_named) fail("an argument follows **");
      if (peek().kind == Token::name && peek(1).kind == Token::op && peek(1).text == "=") {
        std::string name = take().text;
        take();
        ExprPtr value = parse_expression();
        call.depth = std::max(call.depth, value->depth + 1);
        call.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!call.named.empty() || call.more) fail("a value follows a named argument or *");
        adopt(call, parse_expression());
      }
    }
    take();
  }

  // Parses the filters, tests and calls after a value. `inside_filter`: the "|" of the first filter is omitted.
  ExprPtr parse_filters(ExprPtr expr, bool inside_filter = false) {
    for (;; inside_filter = false) {
      const int line = peek().line;
      if (inside_filter || take_op("|")) {
        ExprPtr filter = make(Expr::Kind::filter, line, expect_any_name());
        if (!is_filter(filter->text) && !lenient_) refuse("the filter " + filter->text);
        adopt(*filter, std::move(expr));
        if (is_op("(")) parse_arguments(*filter);
        expr = std::move(filter);
      } else if (take_name("is")) {
        expr = parse_test(std::move(expr), line);
      } else if (is_op("(")) {
        ExprPtr call = make(Expr::Kind::call, line);
        adopt(*call, std::move(expr));
        parse_arguments(*call);
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }

  ExprPtr parse_test(ExprPtr value, int line) {
    const bool negated = take_name("not");
    ExprPtr test = make(Expr::Kind::test, line, expect_any_name());
    if (!is_test(test->text) && !lenient_) refuse("the test " + test->text);
    test->negated = negated;
    adopt(*test, std::move(value));
    if (is_op("(")) {
      parse_arguments(*test);
      return test;
    }
    if (is_name("is")) fail("a test follows a test: put the first in parentheses");
    const bool starts_value = peek().kind == Token::string || peek().kind == Token::integer ||
                              peek().kind == Token::real || is_op("[") || is_op("{") ||
                              (peek().kind == Token::name && !is_name("else") && !is_name("or") && !is_name("and"));
    if (starts_value) {
      ExprPtr argument = parse_primary();
      adopt(*test, parse_postfix(std::move(argument)));
    }
    return test;
  }

  std::string_view name_;
  std::vector<TokenText> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  int macros_ = 0;  // number of macros around the current token
  // Set directly inside an if block: there, unknown filters and tests are refused only when they are evaluated, as in
  // Jinja2.
  bool lenient_ = false;
};

}  // namespace ingot::text::jinja
