#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace ingot::text::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, std::string_view name) : ExpressionParser(source, name) {}

  Body run() {
    Body body = parse_body({});
    if (peek().kind != Token::end) fail("unexpected end of a block");
    return body;
  }

 private:
  // Parses up to a block tag whose name is in `ends`; that name is then the next token.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Body body;
    while (peek().kind != Token::end) {
      const int line = peek().line;
      if (peek().kind == Token::data) {
        body.push_back({.kind = Stmt::Kind::text, .line = line, .text = take().text});
      } else if (peek().kind == Token::print_begin) {
        take();
        Stmt stmt{.kind = Stmt::Kind::print, .line = line};
        stmt.expr = parse_tuple();
        if (peek().kind != Token::print_end) fail(fmt::format("expected \"}}}}\", found {}", found()));
        take();
        body.push_back(std::move(stmt));
      } else {
        take();  // block_begin
        if (peek().kind != Token::name) fail(fmt::format("expected a statement, found {}", found()));
        if (std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return body;
        body.push_back(parse_statement());
      }
    }
    if (ends.size() != 0) fail(fmt::format("{} is missing", *(ends.end() - 1)));
    return body;
  }

  Stmt parse_statement() {
    const int line = peek().line;
    const std::string keyword = take().text;
    if (keyword == "if") return parse_if(line);
    if (keyword == "for") return parse_for(line);
    if (keyword == "set") return parse_set(line);
    if (keyword == "macro") return parse_macro(line);
    if (keyword == "filter") return parse_filter_block(line);
    if (keyword == "generation") {
      expect_block_end();
      if (in_generation_) refuse("a generation block inside of another");
      in_generation_ = true;
      Stmt stmt{.kind = Stmt::Kind::generation, .line = line};
      stmt.body = parse_capture("endgeneration");
      in_generation_ = false;
      return stmt;
    }
    if (keyword == "break" || keyword == "continue") {
      if (loops_ == 0) fail(fmt::format("{} is outside of a loop", keyword));
      expect_block_end();
      return {.kind = keyword == "break" ? Stmt::Kind::loop_break : Stmt::Kind::loop_continue, .line = line};
    }
    if (keyword.starts_with("end") || keyword == "else" || keyword == "elif")
      fail(fmt::format("unexpected {}", keyword));
    refuse("the statement " + keyword);
  }

  // Parses a body and its end tag.
  Body parse_block_until(std::string_view end) {
    Body body = parse_body({end});
    take();
    expect_block_end();
    return body;
  }

  Stmt parse_if(int line) {
    Stmt stmt{.kind = Stmt::Kind::condition, .line = line};
    const bool outer_lenient = lenient_;
    lenient_ = true;
    while (true) {
      ExprPtr condition = parse_tuple();
      expect_block_end();
      Body body = parse_body({"elif", "else", "endif"});
      stmt.branches.emplace_back(std::move(condition), std::move(body));
      const std::string keyword = take().text;
      if (keyword == "elif") continue;
      expect_block_end();
      if (keyword == "else") stmt.else_body = parse_block_until("endif");
      lenient_ = outer_lenient;
      return stmt;
    }
  }

  std::vector<std::string> parse_targets() {
    const bool bracket = take_op("(");
    if (is_op("(")) refuse("a name list inside of another");
    std::vector<std::string> names = {expect_any_name()};
    while (take_op(",")) {
      if (is_op("(")) refuse("a name list inside of another");
      if (peek().kind != Token::name) break;
      names.push_back(expect_any_name());
    }
    if (bracket) expect_op(")");
    return names;
  }

  Stmt parse_for(int line) {
    Stmt stmt{.kind = Stmt::Kind::loop, .line = line};
    stmt.targets = parse_targets();
    if (!take_name("in")) fail(fmt::format("expected \"in\", found {}", found()));
    stmt.expr = parse_tuple(false);
    if (take_name("if")) stmt.filter = parse_expression();
    if (is_name("recursive")) refuse("a recursive loop");
    expect_block_end();
    const bool outer_lenient = lenient_;
    lenient_ = false;
    ++loops_;
    ++scopes_;
    stmt.body = parse_body({"else", "endfor"});
    --loops_;
    const std::string keyword = take().text;
    expect_block_end();
    if (keyword == "else") stmt.else_body = parse_block_until("endfor");
    --scopes_;
    lenient_ = outer_lenient;
    return stmt;
  }

  Stmt parse_filter_block(int line) {
    Stmt stmt{.kind = Stmt::Kind::capture, .line = line};
    stmt.expr = parse_filters(make(Expr::Kind::name, line, ""), true);
    expect_block_end();
    stmt.body = parse_capture("endfilter");
    return stmt;
  }

  // Parses a block that is rendered separately: break and continue inside it cannot leave an enclosing loop.
  Body parse_capture(std::string_view end) {
    const int outer_loops = loops_;
    const bool outer_lenient = lenient_;
    loops_ = 0;
    lenient_ = false;
    ++scopes_;
    Body body = parse_block_until(end);
    --scopes_;
    lenient_ = outer_lenient;
    loops_ = outer_loops;
    return body;
  }

  Stmt parse_set(int line) {
    Stmt stmt{.kind = Stmt::Kind::assign, .line = line};
    if (peek().kind == Token::name && peek(1).kind == Token::op && peek(1).text == ".") {
      stmt.text = take().text;
      take();
      stmt.attribute = expect_any_name();
    } else {
      stmt.targets = parse_targets();
    }
    if (take_op("=")) {
      stmt.expr = parse_tuple();
      expect_block_end();
      return stmt;
    }
    if (stmt.targets.size() != 1) fail(fmt::format("expected \"=\", found {}", found()));
    stmt.kind = Stmt::Kind::capture;
    if (is_op("|")) stmt.expr = parse_filters(make(Expr::Kind::name, line, ""));
    expect_block_end();
    stmt.body = parse_capture("endset");
    return stmt;
  }

  Stmt parse_macro(int line) {
    if (scopes_ > 0) refuse("a macro inside of a loop, a macro or another block with names of its own");
    Stmt stmt{.kind = Stmt::Kind::macro, .line = line};
    stmt.macro = std::make_unique<Macro>();
    stmt.macro->name = expect_any_name();
    expect_op("(");
    while (!is_op(")")) {
      if (!stmt.macro->parameters.empty()) expect_op(",");
      std::string parameter = expect_any_name();
      ExprPtr fallback = take_op("=") ? parse_expression() : nullptr;
      stmt.macro->parameters.emplace_back(std::move(parameter), std::move(fallback));
    }
    take();
    expect_block_end();
    ++macros_;
    stmt.macro->body = parse_capture("endmacro");
    --macros_;
    return stmt;
  }

  // Counts of the blocks around the current statement.
  int loops_ = 0;
  int scopes_ = 0;  // blocks with their own variable scope
  bool in_generation_ = false;
};

}  // namespace

Body parse(std::string_view source, std::string_view name) { return Parser(source, name).run(); }

}  // namespace ingot::text::jinja
