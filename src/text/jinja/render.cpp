// Runs a parsed template.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja/ast.h"
#include "text/jinja/context.h"
#include "text/jinja/jinja.h"
#include "text/jinja/library.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace ingot::text::jinja {

using nlohmann::ordered_json;

struct Program {
  std::string name;
  Body body;
  bool has_generation = false;
};

namespace {

struct Scope {
  const Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;

  // Adds the number of names compared to `compared`.
  const Value* find(std::string_view name, size_t& compared) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      compared += scope->variables.size();
      for (const auto& [key, value] : scope->variables) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    for (auto& [key, old] : variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

enum class Flow { next, loop_break, loop_continue };

class Renderer {
 public:
  Renderer(Context& context, Scope& root) : context_(context), root_(root) {}

  Flow run(const Body& body, Scope& scope) {
    const Context::Depth depth(context_);
    for (const Stmt& stmt : body) {
      context_.line = stmt.line;
      context_.step();
      if (const Flow flow = run(stmt, scope); flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  Rendered take() {
    auto [text, content] = std::move(out_).take();
    return {std::move(text), std::move(content), std::move(generation_)};
  }

 private:
  // ---- statements

  Flow run(const Stmt& stmt, Scope& scope) {
    switch (stmt.kind) {
      case Stmt::Kind::text: context_.write(out_, stmt.text, Origin::author); return Flow::next;
      case Stmt::Kind::print: context_.write(out_, to_text(context_, evaluate(*stmt.expr, scope))); return Flow::next;
      case Stmt::Kind::condition:
        for (const auto& [condition, body] : stmt.branches) {
          if (truth(evaluate(*condition, scope))) return run(body, scope);
        }
        return run(stmt.else_body, scope);
      case Stmt::Kind::loop: return run_loop(stmt, scope);
      case Stmt::Kind::assign: run_assign(stmt, scope); return Flow::next;
      case Stmt::Kind::capture: run_capture(stmt, scope); return Flow::next;
      case Stmt::Kind::macro:
        scope.set(
            stmt.macro->name,
            context_.new_callable(
                {.kind = Callable::Kind::macro, .name = stmt.macro->name, .macro = stmt.macro.get(), .self = None{}}));
        return Flow::next;
      case Stmt::Kind::generation: {
        if (num_captures_ > 0)
          context_.fail(ErrorKind::unsupported, "a generation block inside of a macro or set block");
        Scope inner{.parent = &scope, .variables = {}};
        const size_t begin = out_.size();
        const Flow flow = run(stmt.body, inner);
        generation_.emplace_back(begin, out_.size());
        return flow;
      }
      case Stmt::Kind::loop_break: return Flow::loop_break;
      case Stmt::Kind::loop_continue: return Flow::loop_continue;
    }
    return Flow::next;
  }

  void assign_targets(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
    context_.step(scope.variables.size() / 16);
    if (targets.size() == 1) return scope.set(targets[0], value);
    const std::vector<Value> items = iterate(context_, value);
    if (items.size() != targets.size()) {
      context_.fail("cannot unpack {} values into {} names", items.size(), targets.size());
    }
    for (size_t i = 0; i < items.size(); ++i) scope.set(targets[i], items[i]);
  }

  void run_assign(const Stmt& stmt, Scope& scope) {
    const Value value = evaluate(*stmt.expr, scope);
    if (stmt.attribute.empty()) return assign_targets(stmt.targets, value, scope);
    const Value object = look_up(stmt.text, scope);
    if (!is<Dict*>(object) || std::get<Dict*>(object)->role != Dict::Role::name_space) {
      context_.fail("{} is not a namespace, its attributes cannot be set", stmt.text);
    }
    check_namespace_name(context_, stmt.attribute);
    context_.set(*std::get<Dict*>(object), stmt.attribute, value);
  }

  // Renders the body to a string instead of the output.
  TaintedString capture(const Body& body, Scope& scope) {
    TaintedString outer;
    std::swap(outer, out_);
    ++num_captures_;
    run(body, scope);
    --num_captures_;
    std::swap(outer, out_);
    return outer;
  }

  void run_capture(const Stmt& stmt, Scope& scope) {
    Scope inner{.parent = &scope, .variables = {}};
    Value value = capture(stmt.body, inner);
    if (stmt.expr) {
      inner.set("", value);
      value = evaluate(*stmt.expr, inner);
    }
    if (stmt.targets.empty()) {
      context_.write(out_, to_text(context_, value));
    } else {
      scope.set(stmt.targets[0], std::move(value));
    }
  }

  Flow run_loop(const Stmt& stmt, Scope& scope) {
    std::vector<Value> items = iterate(context_, evaluate(*stmt.expr, scope));
    if (stmt.filter) {
      std::vector<Value> selected;
      for (Value& item : items) {
        Scope inner{.parent = &scope, .variables = {}};
        assign_targets(stmt.targets, item, inner);
        if (truth(evaluate(*stmt.filter, inner))) selected.push_back(std::move(item));
      }
      items = std::move(selected);
    }
    if (items.empty()) {
      Scope inner{.parent = &scope, .variables = {}};
      return run(stmt.else_body, inner);
    }
    Dict* loop = context_.new_dict(Dict::Role::loop);
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      loop->set("index", i + 1);
      loop->set("index0", i);
      loop->set("revindex", count - i);
      loop->set("revindex0", count - i - 1);
      loop->set("first", i == 0);
      loop->set("last", i == count - 1);
      loop->set("length", count);
      loop->set("depth", int64_t{1});  // for recursive loops, which are not supported
      loop->set("depth0", int64_t{0});
      loop->set("previtem", i > 0 ? items[index - 1] : Value(Undefined{"there is no previous item"}));
      loop->set("nextitem", i + 1 < count ? items[index + 1] : Value(Undefined{"there is no next item"}));
      Scope inner{.parent = &scope, .variables = {}};
      inner.set("loop", loop);
      assign_targets(stmt.targets, items[index], inner);
      if (run(stmt.body, inner) == Flow::loop_break) break;
    }
    return Flow::next;
  }

  // ---- expressions

  Value evaluate(const Expr& expr, Scope& scope) {
    const Context::Depth depth(context_);
    context_.line = expr.line;
    context_.step();
    Value value = evaluate_kind(expr, scope);
    if (const auto* text = std::get_if<Text>(&value)) {
      context_.scan((*text)->memory());  // the consumer will read it
      if (!text->is_shared()) context_.charge((*text)->memory());
    }
    return value;
  }

  Value evaluate_kind(const Expr& expr, Scope& scope) {
    const auto child = [&](size_t i) { return evaluate(*expr.children[i], scope); };
    switch (expr.kind) {
      case Expr::Kind::literal: return expr.value;
      case Expr::Kind::name: return look_up(expr.text, scope);
      case Expr::Kind::list:
      case Expr::Kind::tuple: {
        std::vector<Value> items;
        for (const ExprPtr& item : expr.children) items.push_back(evaluate(*item, scope));
        return context_.new_list(std::move(items),
                                 expr.kind == Expr::Kind::tuple ? List::Kind::tuple : List::Kind::list);
      }
      case Expr::Kind::dict: return evaluate_dict(expr, scope);
      case Expr::Kind::attribute: return get_attribute(context_, child(0), expr.text);
      case Expr::Kind::item: {
        const Value object = child(0);
        return get_item(context_, object, child(1));
      }
      case Expr::Kind::slice: return evaluate_slice(expr, scope);
      case Expr::Kind::call: {
        const Value callee = child(0);
        return call(callee, arguments(expr, scope));
      }
      case Expr::Kind::filter: {
        const Value value = child(0);
        return apply_filter(context_, expr.text, value, arguments(expr, scope));
      }
      case Expr::Kind::test: {
        const Value value = child(0);
        return apply_test(context_, expr.text, value, arguments(expr, scope)) != expr.negated;
      }
      case Expr::Kind::unary: return evaluate_unary(expr.text, child(0));
      case Expr::Kind::binary: {
        const Value left = child(0);
        return binary(context_, expr.text, left, child(1));
      }
      case Expr::Kind::logical_and: {
        Value left = child(0);
        return truth(left) ? child(1) : std::move(left);
      }
      case Expr::Kind::logical_or: {
        Value left = child(0);
        return truth(left) ? std::move(left) : child(1);
      }
      case Expr::Kind::compare: return evaluate_compare(expr, scope);
      case Expr::Kind::concat: {
        TaintedString text;
        for (const ExprPtr& part : expr.children) text.append(to_text(context_, evaluate(*part, scope)));
        return text;
      }
      case Expr::Kind::conditional:
        if (truth(child(0))) return child(1);
        if (expr.children[2]) return child(2);
        return Undefined{"an inline if without else has no value here"};
    }
    return None{};
  }

  Value look_up(const std::string& name, const Scope& scope) {
    size_t compared = 0;
    const Value* value = scope.find(name, compared);
    context_.step(compared / 16);
    if (value != nullptr) return *value;
    if (name == "cycler" || name == "joiner" || name == "lipsum" || name == "self") {
      context_.fail(ErrorKind::unsupported, "the global {} is not supported", name);
    }
    if (is_global(name)) {
      return context_.new_callable({.kind = Callable::Kind::function, .name = name, .macro = nullptr, .self = None{}});
    }
    return Undefined{author_text(fmt::format("'{}' is undefined", name))};
  }

  Value evaluate_dict(const Expr& expr, Scope& scope) {
    Dict* dict = context_.new_dict();
    for (size_t i = 0; i < expr.children.size(); i += 2) {
      const Value key = evaluate(*expr.children[i], scope);
      context_.set_key(*dict, key, evaluate(*expr.children[i + 1], scope));
    }
    return dict;
  }

  Value evaluate_unary(const std::string& op, const Value& value) {
    if (op == "not") return !truth(value);
    if (const auto* number = std::get_if<double>(&value)) return op == "-" ? -*number : *number;
    return binary(context_, op, int64_t{0}, to_integer(context_, value, "the operand of a sign"));
  }

  Value evaluate_compare(const Expr& expr, Scope& scope) {
    Value left = evaluate(*expr.children[0], scope);
    for (size_t i = 0; i < expr.operators.size(); ++i) {
      Value right = evaluate(*expr.children[i + 1], scope);
      if (!compare(expr.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool compare(const std::string& op, const Value& left, const Value& right) {
    if (op == "==") return equal(context_, left, right);
    if (op == "!=") return !equal(context_, left, right);
    if (op == "in") return contains(context_, right, left);
    if (op == "not in") return !contains(context_, right, left);
    if (op == "<") return less(context_, left, right);
    if (op == ">") return less(context_, right, left);
    if (op == "<=") return less(context_, left, right) || equal(context_, left, right);
    return less(context_, right, left) || equal(context_, left, right);
  }

  Value evaluate_slice(const Expr& expr, Scope& scope) {
    const Value object = evaluate(*expr.children[0], scope);
    std::optional<int64_t> bounds[3];  // start, stop, step
    for (size_t i = 0; i < 3; ++i) {
      if (!expr.children[i + 1]) continue;
      const Value bound = evaluate(*expr.children[i + 1], scope);
      if (!is<None>(bound)) bounds[i] = to_integer(context_, bound, "a slice bound");
    }
    if (is<Undefined>(object)) context_.fail("{}", std::get<Undefined>(object).what->text());
    if (!is<Text>(object) && !is<List*>(object)) context_.fail("a {} cannot be sliced", type_name(object));
    const auto size = static_cast<int64_t>(length(context_, object));
    const int64_t step = bounds[2].value_or(1);
    if (step == 0) context_.fail("a slice step is 0");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto clamp_bound = [&](std::optional<int64_t> bound, int64_t fallback) {
      if (!bound) return fallback;
      return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
    };
    const int64_t start = clamp_bound(bounds[0], step > 0 ? low : high),
                  stop = clamp_bound(bounds[1], step > 0 ? high : low);
    if (const std::string* text = text_of(object); text != nullptr && step == 1) {
      return std::get<Text>(object)->part(byte_place(*text, start), byte_place(*text, std::max(start, stop)));
    }
    const std::vector<Value> items = iterate(context_, object);
    std::vector<Value> taken;
    // The addition of a large step may overflow.
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      taken.push_back(items[static_cast<size_t>(i)]);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    if (is<List*>(object)) return context_.new_list(std::move(taken), std::get<List*>(object)->kind);
    TaintedString text;
    for (const Value& character : taken) text.append(*std::get<Text>(character));
    return text;
  }

  static size_t byte_place(const std::string& text, int64_t characters) {
    size_t at = 0;
    for (; characters > 0 && at < text.size(); --characters) at += decode_utf8(text, at).size;
    return at;
  }

  Arguments arguments(const Expr& expr, Scope& scope) {
    Arguments values;
    for (size_t i = 1; i < expr.children.size(); ++i) values.positional.push_back(evaluate(*expr.children[i], scope));
    if (expr.more) {
      const std::vector<Value> more = iterate(context_, evaluate(*expr.more, scope));
      values.positional.insert(values.positional.end(), more.begin(), more.end());
    }
    for (const auto& [name, value] : expr.named) values.named.emplace_back(name, evaluate(*value, scope));
    if (expr.more_named) {
      const Value more = evaluate(*expr.more_named, scope);
      const auto* dict = std::get_if<Dict*>(&more);
      if (dict == nullptr) context_.fail("** takes a dict, not a {}", type_name(more));
      context_.step((*dict)->items.size());
      for (const auto& [name, value] : (*dict)->items) {
        values.named.emplace_back(to_string(context_, name, "an argument's name"), value);
      }
    }
    return values;
  }

  Value call(const Value& callee, const Arguments& values) {
    if (is<Undefined>(callee)) context_.fail("{}", std::get<Undefined>(callee).what->text());
    if (!is<const Callable*>(callee)) context_.fail("a {} cannot be called", type_name(callee));
    const Callable& callable = *std::get<const Callable*>(callee);
    switch (callable.kind) {
      case Callable::Kind::function: return call_global(context_, callable.name, values);
      case Callable::Kind::method: return call_method(context_, callable.self, callable.name, values);
      case Callable::Kind::macro: break;
    }
    return call_macro(*callable.macro, values);
  }

  Value call_macro(const Macro& macro, const Arguments& values) {
    if (values.positional.size() > macro.parameters.size()) {
      context_.fail("macro {} takes {} arguments, not {}", macro.name, macro.parameters.size(),
                    values.positional.size());
    }
    Scope scope{.parent = &root_, .variables = {}};
    context_.step(macro.parameters.size() * (1 + values.named.size()) / 16);
    for (const auto& [name, value] : values.named) {
      const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                     [&, &wanted = name](const auto& parameter) { return parameter.first == wanted; });
      if (!known) context_.fail("macro {} has no argument {}", macro.name, name);
      scope.set(name, value);
    }
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, fallback] = macro.parameters[i];
      const bool given = std::any_of(values.named.begin(), values.named.end(),
                                     [&, &wanted = name](const auto& pair) { return pair.first == wanted; });
      if (i < values.positional.size()) {
        if (given) context_.fail("macro {} gets the argument {} twice", macro.name, name);
        scope.set(name, values.positional[i]);
      } else if (!given) {
        scope.set(name, fallback ? evaluate(*fallback, scope)
                                 : Value(Undefined{author_text(fmt::format("parameter '{}' was not provided", name))}));
      }
    }
    return capture(macro.body, scope);
  }

  Context& context_;
  Scope& root_;
  TaintedString out_;
  int num_captures_ = 0;
  ByteRanges generation_;
};

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Marks roles that are words as the template author's text: templates write '<|' + role + '|>'.
void own_roles(const Value& messages) {
  const auto* list = std::get_if<List*>(&messages);
  if (list == nullptr) return;
  for (const Value& message : (*list)->items) {
    const auto* fields = std::get_if<Dict*>(&message);
    const Value* role = fields == nullptr ? nullptr : (*fields)->find("role");
    const std::string* word = role == nullptr ? nullptr : text_of(*role);
    if (word != nullptr && is_word(*word)) (*fields)->set("role", author_text(*word));
  }
}

bool contains_generation(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::generation) return true;
    if (contains_generation(stmt.body) || contains_generation(stmt.else_body)) return true;
    return std::any_of(stmt.branches.begin(), stmt.branches.end(),
                       [](const auto& branch) { return contains_generation(branch.second); });
  });
}

}  // namespace

Template::Template(std::string_view source, std::string_view name) {
  auto program = std::make_unique<Program>();
  program->name = name;
  program->body = parse(source, name);
  program->has_generation = contains_generation(program->body);
  program_ = std::move(program);
}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

bool Template::has_generation_blocks() const { return program_->has_generation; }

Rendered Template::render(const ordered_json& variables, const RenderOptions& options) const {
  return render(variables, ordered_json::object(), options);
}

Rendered Template::render(const ordered_json& variables, const ordered_json& author_variables,
                          const RenderOptions& options) const {
  Context context(program_->name, options);
  if (!variables.is_object() || !author_variables.is_object()) {
    throw_error(ErrorKind::internal, "template variables are not an object");
  }
  Scope given;
  for (const auto& [name, value] : variables.items()) {
    Value read = from_json(context, value, Origin::caller);
    if (name == "messages") own_roles(read);
    given.set(name, std::move(read));
  }
  for (const auto& [name, value] : author_variables.items()) given.set(name, from_json(context, value, Origin::author));
  Scope root{.parent = &given, .variables = {}};
  Renderer renderer(context, root);
  renderer.run(program_->body, root);
  return renderer.take();
}

}  // namespace ingot::text::jinja
