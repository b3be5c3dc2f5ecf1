// Parses the keywords of one schema.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "grammar/schema.h"

namespace ingot::grammar {

class SchemaReader {
 public:
  // Callbacks that resolve the schemas that a schema refers to.
  struct Sources {
    std::function<SchemaId(const nlohmann::ordered_json&, std::string pointer)> child;  // a subschema of this one
    std::function<SchemaId(nlohmann::ordered_json, const std::string& pointer)> made;   // a synthesised schema
    // The target of $ref, $dynamicRef or $recursiveRef.
    std::function<SchemaId(const std::string& keyword, const std::string& uri, const Schema& from)> named;
    // Reports a keyword that the draft does not know, or a format that is not asserted.
    std::function<void(const std::string& pointer)> unknown;
    Draft draft = Draft::draft2020;
    bool strict = false;
  };

  // All three must outlive the reader.
  SchemaReader(const nlohmann::ordered_json& value, const std::string& pointer, const Sources& sources)
      : value_(value), pointer_(pointer), sources_(sources) {}

  // Errors: usage for a malformed keyword, unsupported for a keyword that is not supported (where `strict` is set: or
  // not known), with its pointer.
  Schema read();

 private:
  using Json = nlohmann::ordered_json;

  void keyword(const std::string& key, const Json& value);
  bool number_keyword(const std::string& key, const Json& value);
  bool string_keyword(const std::string& key, const Json& value);
  bool array_keyword(const std::string& key, const Json& value);
  bool object_keyword(const std::string& key, const Json& value);
  bool combination(const std::string& key, const Json& value);
  bool reference(const std::string& key, const Json& value);
  bool annotation(const std::string& key, const Json& value) const;
  void unknown(const std::string& where);
  void tuple(const Json& items);
  void dependents(const std::string& key, const Json& value);
  bool since(Draft draft) const { return sources_.draft >= draft; }
  bool until(Draft draft) const { return sources_.draft <= draft; }
  void types(const Json& value);
  void constants(const std::string& key, const Json& values);
  Constant constant(const std::string& key, const Json& value);
  void unevaluated();
  void schema_dialect(const Json& value) const;

  [[noreturn]] void malformed(const std::string& key, const char* wanted) const;
  std::string at(const std::string& key) const;
  int64_t count(const std::string& key, const Json& value) const;
  Decimal number(const std::string& key, const Json& value) const;
  std::string string(const std::string& key, const Json& value) const;
  std::vector<std::string> strings(const std::string& key, const Json& value) const;
  SchemaId child(const std::string& key, const Json& value);
  std::vector<SchemaId> children(const std::string& key, const Json& value);
  std::vector<std::pair<std::string, SchemaId>> named_children(const std::string& key, const Json& value);

  const Json& value_;
  const std::string& pointer_;
  const Sources& sources_;
  Schema schema_;
  bool excludes_minimum_ = false, excludes_maximum_ = false;  // draft-04: boolean exclusiveMinimum and exclusiveMaximum
};

}  // namespace ingot::grammar
