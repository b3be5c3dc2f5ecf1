// ingot grammar check: whether texts match a schema or a grammar.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "grammar/matcher.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class GrammarCheck : public Command {
 public:
  const char* name() const override { return "check"; }
  const char* summary() const override { return "check whether texts match a JSON Schema or a grammar"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("json-schema", json_schema_, "a file with a JSON Schema");
    arguments.option("grammar", grammar_, "a file with a grammar (GBNF)");
    arguments.option("text", texts_, "a file whose whole content is one text; may be given several times");
    arguments.option("instances", instances_, "a file with one text per line (LF or CRLF)");
    arguments.flag("in-order", options_.in_order, "require properties in the order of the schema");
    arguments.flag("strict", options_.strict,
                   "refuse keywords that the schema's draft does not define, and formats that are not validated");
    arguments.example("ingot grammar check --json-schema city.json --instances answers.jsonl");
  }

  int run(const Output& output) override {
    if (json_schema_.has_value() == grammar_.has_value()) {
      throw_error(ErrorKind::usage, "give exactly one of --json-schema and --grammar");
    }
    std::vector<std::string> texts;
    for (const std::string& path : texts_) texts.push_back(read_file(path));
    if (instances_) add_lines(read_file(*instances_), texts);
    const std::string definition = read_file(json_schema_ ? *json_schema_ : *grammar_);
    if (json_schema_) require_json(*json_schema_, definition);
    Json result = {{"supported", true}, {"reason", nullptr}, {"results", Json::array()}};
    std::vector<std::string> unknown;
    grammar::GrammarPtr grammar;
    try {
      grammar = json_schema_ ? grammar::compile_json_schema(definition, options_, &unknown)
                             : grammar::compile_ebnf(definition);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      result["supported"] = false;
      result["reason"] = std::string(ingot::name(error.kind())) + ": " + error.message();
      output.print(fmt::format("not supported: {}\n", error.message()));
    }
    result["unknown"] = unknown;
    for (const std::string& keyword : unknown)
      output.print(fmt::format("unknown, ignored as annotation: {}\n", keyword));
    if (grammar) {
      const auto tokens = std::make_shared<const grammar::TokenGrammar>(grammar, grammar::byte_vocabulary());
      for (const std::string& text : texts) result["results"].push_back(accepted(tokens, text));
      for (const Json& one : result["results"]) output.print(one.is_null() ? "over a limit\n" : one.dump() + "\n");
    }
    output.print_json(json_line(result));
    return 0;
  }

 private:
  // A file that is no JSON is a broken input; a schema that is not supported is an answer.
  static void require_json(const std::string& path, const std::string& definition) {
    try {
      parse_json(definition);
    } catch (const Error& error) {
      throw_error(error.kind(), "{}: {}", path, error.message());
    }
  }

  static void add_lines(const std::string& content, std::vector<std::string>& texts) {
    for (size_t at = 0; at < content.size();) {
      const size_t end = std::min(content.find('\n', at), content.size());
      const size_t last = end > at && content[end - 1] == '\r' ? end - 1 : end;
      texts.push_back(content.substr(at, last - at));
      at = end + 1;
    }
  }

  // null: the match exceeds the state limit of one output.
  static Json accepted(const std::shared_ptr<const grammar::TokenGrammar>& tokens, const std::string& text) {
    try {
      grammar::Matcher matcher(tokens);
      return matcher.accept_bytes(text) && matcher.may_end();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource) throw;
      return nullptr;
    }
  }

  std::optional<std::string> json_schema_, grammar_, instances_;
  std::vector<std::string> texts_;
  grammar::JsonOptions options_;
};

class GrammarCommand : public Command {
 public:
  const char* name() const override { return "grammar"; }
  const char* summary() const override { return "JSON Schemas and grammars that constrain outputs"; }
  void declare(Arguments& arguments) override {
    arguments.example("ingot grammar check --json-schema city.json --text answer.json");
  }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> all;
    all.push_back(std::make_unique<GrammarCheck>());
    return all;
  }
};

}  // namespace

std::unique_ptr<Command> grammar_command() { return std::make_unique<GrammarCommand>(); }

}  // namespace ingot::cli
