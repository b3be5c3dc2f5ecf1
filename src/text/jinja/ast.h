// The abstract syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    literal,      // value
    name,         // text
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value, ...
    attribute,    // children[0] . text
    item,         // children[0] [ children[1] ]
    slice,        // children[0] [ children[1] : children[2] : children[3] ], null where left out
    call,         // children[0] ( children[1...], *more, named, **more_named )
    filter,       // children[0] | text ( arguments as in call )
    test,         // children[0] is text ( arguments as in call ); negated for "is not"
    unary,        // text children[0]: not, -, +
    binary,       // children[0] text children[1]: arithmetic
    logical_and,  // children[0] and children[1]
    logical_or,
    compare,      // children[0] operators[0] children[1] operators[1] children[2] ...
    concat,       // children[0] ~ children[1] ~ ...
    conditional,  // children[1] if children[0] else children[2] (null where left out)
  };
  Kind kind;
  int line;
  int depth = 1;  // height of this subtree, bounded by the parser
  std::string text;
  Value value;
  bool negated = false;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more, more_named;
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // (name, default or null)
  Body body;
};

struct Stmt {
  enum class Kind {
    text,        // text
    print,       // expr
    condition,   // branches, else_body
    loop,        // for targets in expr if filter: body, else_body
    assign,      // targets = expr, or text.attribute = expr
    capture,     // targets[0] = rendered body, passed through expr if there is one (in it the name "" is the body);
                 // printed if there are no targets
    macro,       // macro
    generation,  // body
    loop_break,
    loop_continue,
  };
  Kind kind;
  int line;
  std::string text;
  std::string attribute;
  ExprPtr expr;
  ExprPtr filter;
  std::vector<std::string> targets;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body;
  Body else_body;
  std::unique_ptr<Macro> macro;
};

}  // namespace ingot::text::jinja
