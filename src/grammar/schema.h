// Parsed JSON Schemas with references resolved, each by the rules of its draft.
//
// Specification: JSON Schema Core and Validation, draft-04 to draft-07, 2019-09 and 2020-12 (Galiegue, Zyp; Wright,
// Andrews, Hutton, Dennis).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/number.h"

namespace ingot::grammar {

// The number of a schema in a SchemaSet.
using SchemaId = int32_t;

// In order of publication.
enum class Draft : uint8_t { draft4, draft6, draft7, draft2019, draft2020 };

// The draft that a `$schema` names: its metaschema's URI with http or https, with or without an empty fragment.
std::optional<Draft> draft_named(std::string_view uri);

enum class JsonType : uint8_t { null, boolean, number, string, array, object };
inline constexpr JsonType json_types[] = {JsonType::null,   JsonType::boolean, JsonType::number,
                                          JsonType::string, JsonType::array,   JsonType::object};

// A value of `enum` or `const`.
struct Constant {
  JsonType type = JsonType::null;
  bool boolean = false;
  Decimal number;
  std::string text;
  SchemaId structure = 0;  // of an array or object: a schema whose only instance is this value
};

// The keywords of one schema; unset ones impose no constraint.
struct Schema {
  std::string pointer;          // JSON pointer of the schema, for errors
  bool never = false;           // the schema `false`
  uint8_t types = 0x3F;         // bit t: JsonType t is allowed
  bool integers = false;        // numbers must have no fraction
  bool plain_integers = false;  // and no point or exponent in the text (draft-04)
  std::optional<std::vector<Constant>> constants;

  std::vector<Decimal> at_least, above, at_most, below, multiples;

  std::optional<int64_t> min_length, max_length;
  std::optional<std::string> pattern, format;

  std::vector<SchemaId> prefix;
  std::optional<SchemaId> items, contains;
  int64_t min_items = 0, max_items = unlimited;
  int64_t min_contains = 1, max_contains = unlimited;
  bool unique = false;

  std::vector<std::pair<std::string, SchemaId>> properties, patterns;
  std::optional<SchemaId> additional, names;
  std::vector<std::string> required;
  int64_t min_properties = 0, max_properties = unlimited;
  std::vector<std::pair<std::string, SchemaId>> dependents;  // (property, schema that applies if it is present)

  std::vector<SchemaId> all_of;  // including the schemas referenced by $ref
  std::vector<std::vector<SchemaId>> any_of, one_of;
  std::optional<SchemaId> negated, condition, consequence, alternative;
};

// All schemas of one document. Not thread-safe.
class SchemaSet {
 public:
  // Errors: usage for a text that is not JSON or nested deeper than 200 levels; resource for too long a text.
  SchemaSet(std::string_view text, const JsonOptions& options);
  ~SchemaSet();
  SchemaSet(const SchemaSet&) = delete;
  SchemaSet& operator=(const SchemaSet&) = delete;

  SchemaId root() const { return 0; }
  SchemaId never() const { return 1; }  // the schema `false`

  // Parsed on first access; the reference stays valid for the lifetime of the set. Errors: usage for a malformed
  // keyword, unsupported for a keyword that is not supported, with its pointer.
  const Schema& operator[](SchemaId id);

  // JSON pointers of the keywords that the draft does not know and of the formats that are not asserted, in the schemas
  // parsed so far.
  const std::vector<std::string>& unknown() const;

 private:
  // The context of a schema: its base URI, which identifies the resource that contains it, and its draft.
  struct Site {
    std::string base;
    Draft draft = Draft::draft2020;
  };
  struct Entry;
  struct Found;

  SchemaId add(const nlohmann::ordered_json& value, std::string pointer, const Site& site);
  SchemaId add_made(nlohmann::ordered_json value, const std::string& pointer);
  static Site site_of(const nlohmann::ordered_json& value, const Site& outer);
  void index(const nlohmann::ordered_json& value, const Site& outer);
  Found find(const std::string& reference, const std::string& keyword, const Schema& from, const Site& site);
  SchemaId reference(const std::string& keyword, const std::string& uri, const Schema& from, const Site& site);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::grammar
