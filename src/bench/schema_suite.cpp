#include "bench/schema_suite.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "grammar/matcher.h"

namespace ingot::bench {

namespace {

using Json = nlohmann::ordered_json;

// Reads a file of the suite. Errors: corrupt for any other file.
Json read_groups(const std::filesystem::path& path) {
  Json groups = try_parse_json(read_file(path));
  const auto is_text = [](const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string();
  };
  const auto is_test = [&](const Json& test) {
    return is_text(test, "description") && test.contains("data") && test.contains("valid") &&
           test["valid"].is_boolean();
  };
  const auto is_group = [&](const Json& group) {
    return is_text(group, "description") && group.contains("schema") && group.contains("tests") &&
           group["tests"].is_array() && std::all_of(group["tests"].begin(), group["tests"].end(), is_test);
  };
  if (groups.is_array() && std::all_of(groups.begin(), groups.end(), is_group)) return groups;
  throw_hint(ErrorKind::corrupt, "give a folder of JSON-Schema-Test-Suite files, e.g. .../tests/draft2020-12",
             "{}: is not a JSON-Schema-Test-Suite file", path.string());
}

class SchemaSuite {
 public:
  SchemaSuite(const std::optional<std::string>& draft, const text::Tokenizer& tokenizer,
              const std::shared_ptr<const grammar::Vocabulary>& vocabulary)
      : draft_(draft), tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  void run_group(const std::string& file, const Json& group) {
    const std::string where = file + ": " + group.at("description").get<std::string>();
    Json with_draft = group.at("schema");
    if (draft_ && with_draft.is_object() && !with_draft.contains("$schema")) with_draft["$schema"] = *draft_;
    const std::string schema = with_draft.dump();
    ++report_.schemas;
    grammar::GrammarPtr compiled;
    const double before = thread_us();
    try {
      compiled = grammar::compile_json_schema(schema);
    } catch (const Error& error) {
      refuse(where, error);
      return;
    }
    report_.compile.us.push_back(thread_us() - before);
    ++report_.compiled;
    const auto tokens = std::make_shared<const grammar::TokenGrammar>(compiled, vocabulary_);
    for (const Json& test : group.at("tests")) {
      const bool is_valid = test.at("valid").get<bool>();
      bool is_accepted = false;
      try {
        is_accepted = accepted(tokens, test.at("data").dump());
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::resource) throw;
        ++report_.failed;
        continue;
      }
      const std::string what = where + ": " + test.at("description").get<std::string>();
      if (is_valid) {
        ++(is_accepted ? report_.valid_accepted : report_.valid_refused);
        if (!is_accepted) report_.strict.push_back(what);
      } else {
        ++(is_accepted ? report_.invalid_accepted : report_.invalid_refused);
        if (is_accepted) report_.mistakes.push_back(what);
      }
    }
  }

  SchemaSuiteReport report() && { return std::move(report_); }

 private:
  void refuse(const std::string& where, const Error& error) {
    if (error.kind() == ErrorKind::internal) throw error;
    ++report_.refused;
    ++report_.reasons[where + ": " + error.message()];
  }

  // Whether the masks allow all tokens of the text up to its end. A token that is not in the mask is also checked byte
  // by byte.
  bool accepted(const std::shared_ptr<const grammar::TokenGrammar>& tokens, const std::string& text) {
    grammar::Matcher matcher(tokens);
    std::vector<uint32_t> mask(vocabulary_->num_words());
    for (const int32_t id : tokenizer_.encode(text, {.add_special_tokens = false, .parse_special = false})) {
      const double before = thread_us();
      matcher.fill_mask(mask);
      report_.mask.us.push_back(thread_us() - before);
      const bool in_mask = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (in_mask != matcher.allows(id)) {
        throw_error(ErrorKind::internal, "the mask of token {} in {} disagrees with matching its bytes", id, text);
      }
      if (!in_mask) return false;
      matcher.accept(id);
    }
    return matcher.may_end();
  }

  const std::optional<std::string>& draft_;
  const text::Tokenizer& tokenizer_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  SchemaSuiteReport report_;
};

}  // namespace

SchemaSuiteReport run_schema_suite(const std::string& folder, const std::optional<std::string>& draft,
                                   const text::Tokenizer& tokenizer,
                                   const std::shared_ptr<const grammar::Vocabulary>& vocabulary) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : list_folder(folder)) {
    if (path.extension() == ".json") files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw_error(ErrorKind::not_found, "{} has no .json files", folder);
  SchemaSuite suite(draft, tokenizer, vocabulary);
  for (const auto& path : files) {
    const Json groups = read_groups(path);
    for (const Json& group : groups) suite.run_group(path.stem().string(), group);
  }
  return std::move(suite).report();
}

}  // namespace ingot::bench
