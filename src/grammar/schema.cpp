#include "grammar/schema.h"

#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "grammar/schema_reader.h"
#include "grammar/schema_uri.h"
#include "storage/uri.h"

namespace ingot::grammar {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t max_depth = 200;

// Keywords whose values are or contain schemas, with the first and last draft that defines them.
enum class Holds : uint8_t { schema, schemas, named_schemas };
struct Applicator {
  const char* keyword;
  Holds holds;
  Draft first = Draft::draft4, last = Draft::draft2020;
};
constexpr Applicator applicators[] = {
    {"properties", Holds::named_schemas},
    {"patternProperties", Holds::named_schemas},
    {"additionalProperties", Holds::schema},
    {"definitions", Holds::named_schemas},
    {"$defs", Holds::named_schemas, Draft::draft2019},
    {"dependencies", Holds::named_schemas},
    {"dependentSchemas", Holds::named_schemas, Draft::draft2019},
    {"propertyNames", Holds::schema, Draft::draft6},
    {"items", Holds::schema},
    {"items", Holds::schemas, Draft::draft4, Draft::draft2019},
    {"additionalItems", Holds::schema, Draft::draft4, Draft::draft2019},
    {"prefixItems", Holds::schemas, Draft::draft2020},
    {"contains", Holds::schema, Draft::draft6},
    {"allOf", Holds::schemas},
    {"anyOf", Holds::schemas},
    {"oneOf", Holds::schemas},
    {"not", Holds::schema},
    {"if", Holds::schema, Draft::draft7},
    {"then", Holds::schema, Draft::draft7},
    {"else", Holds::schema, Draft::draft7},
    {"unevaluatedItems", Holds::schema, Draft::draft2019},
    {"unevaluatedProperties", Holds::schema, Draft::draft2019},
    {"contentSchema", Holds::schema, Draft::draft2019},
};

// The numbers of keys and values are bounded only by the text's length.
Json document_of(std::string_view text) {
  constexpr size_t any_number = std::numeric_limits<size_t>::max();
  try {
    return parse_json(text, {.depth = max_depth, .keys = any_number, .values = any_number});
  } catch (const Error& error) {
    throw_error(ErrorKind::usage, "the schema {}", error.message());
  }
}

std::optional<std::string> text_at(const Json& value, const char* key) {
  if (!value.is_object()) return std::nullopt;
  const auto at = value.find(key);
  if (at == value.end() || !at->is_string()) return std::nullopt;
  return at->get<std::string>();
}

// The identifier of a schema; up to draft-07 a schema with $ref has none.
std::optional<std::string> id_of(const Json& value, Draft draft) {
  if (draft <= Draft::draft7 && value.is_object() && value.contains("$ref")) return std::nullopt;
  return text_at(value, draft == Draft::draft4 ? "id" : "$id");
}

std::string without_fragment(std::string uri) {
  uri.resize(std::min(uri.find('#'), uri.size()));
  return uri;
}

}  // namespace

std::optional<Draft> draft_named(std::string_view uri) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!uri.starts_with(scheme)) continue;
    uri.remove_prefix(scheme.size());
    break;
  }
  if (uri.ends_with('#')) uri.remove_suffix(1);
  if (uri == "json-schema.org/draft-04/schema") return Draft::draft4;
  if (uri == "json-schema.org/draft-06/schema") return Draft::draft6;
  if (uri == "json-schema.org/draft-07/schema") return Draft::draft7;
  if (uri == "json-schema.org/draft/2019-09/schema") return Draft::draft2019;
  if (uri == "json-schema.org/draft/2020-12/schema") return Draft::draft2020;
  return std::nullopt;
}

struct SchemaSet::Entry {
  const Json* value;
  std::string pointer;
  Site site;
  std::unique_ptr<const Schema> schema;
};

// The target of a reference.
struct SchemaSet::Found {
  const Json* value;
  std::string pointer;
  Site site;
  std::string dynamic;  // the name of the $dynamicAnchor, if the target is one
};

struct SchemaSet::State {
  JsonOptions options;
  Json document;
  std::deque<Json> made;  // synthesised schemas, e.g. for constants
  std::deque<Entry> entries;
  std::unordered_map<const Json*, SchemaId> known;
  std::unordered_map<const Json*, Site> sites;                              // of all values in schema positions
  std::unordered_map<std::string, std::pair<const Json*, Site>> resources;  // by URI; anchors as URI#name
  std::unordered_map<std::string, int> dynamic;        // number of resources with a $dynamicAnchor of this name
  std::unordered_map<std::string, std::string> names;  // names of the dynamic anchors, by URI#name
  int num_recursive = 0;                               // number of resources with $recursiveAnchor
  std::vector<std::string> unknown;
};

SchemaSet::SchemaSet(std::string_view text, const JsonOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  if (text.size() > options.max_text) {
    throw_error(ErrorKind::resource, "the schema has {} bytes; at most {} are allowed", text.size(), options.max_text);
  }
  state_->document = document_of(text);
  const Site root = site_of(state_->document, {});
  state_->resources.try_emplace("", &state_->document, root);
  index(state_->document, {});
  add(state_->document, "#", root);
  add_made(Json(false), "#");
}

SchemaSet::~SchemaSet() = default;

const std::vector<std::string>& SchemaSet::unknown() const { return state_->unknown; }

// The site of a schema, given the site of the schema around it.
SchemaSet::Site SchemaSet::site_of(const Json& value, const Site& outer) {
  Site site = outer;
  if (const auto name = text_at(value, "$schema")) site.draft = draft_named(*name).value_or(outer.draft);
  if (const auto id = id_of(value, site.draft)) site.base = without_fragment(resolved_uri(outer.base, *id));
  return site;
}

// Registers the resources and anchors of a schema and its subschemas.
void SchemaSet::index(const Json& value, const Site& outer) {
  if (!value.is_object()) return;
  const Site site = site_of(value, outer);
  state_->sites.try_emplace(&value, site);
  if (const auto id = id_of(value, site.draft)) {
    const std::string uri = resolved_uri(outer.base, *id);
    if (site.base != outer.base || !id->starts_with('#')) state_->resources.try_emplace(site.base, &value, site);
    // Up to draft-07 an $id with a fragment is an anchor.
    if (uri.size() > site.base.size() + 1) state_->resources.try_emplace(uri, &value, site);
  }
  if (site.draft >= Draft::draft2019) {
    for (const char* key : {"$anchor", "$dynamicAnchor"}) {
      const auto name = text_at(value, key);
      const bool is_dynamic = key[1] == 'd';
      if (!name || (is_dynamic && site.draft < Draft::draft2020)) continue;
      state_->resources.try_emplace(site.base + "#" + *name, &value, site);
      if (!is_dynamic) continue;
      if (state_->names.try_emplace(site.base + "#" + *name, *name).second) ++state_->dynamic[*name];
    }
    const auto anchor = value.find("$recursiveAnchor");
    const bool is_recursive = anchor != value.end() && anchor->is_boolean() && anchor->get<bool>();
    if (is_recursive && site.draft == Draft::draft2019) ++state_->num_recursive;
  }
  for (const Applicator& part : applicators) {
    const auto at = value.find(part.keyword);
    if (at == value.end() || site.draft < part.first || site.draft > part.last) continue;
    if (part.holds == Holds::schema) {
      index(*at, site);
    } else if (part.holds == Holds::schemas ? at->is_array() : at->is_object()) {
      for (const Json& child : *at) index(child, site);
    }
  }
}

SchemaId SchemaSet::add(const Json& value, std::string pointer, const Site& site) {
  const auto [at, is_new] = state_->known.try_emplace(&value, static_cast<SchemaId>(state_->entries.size()));
  if (is_new) state_->entries.push_back({&value, std::move(pointer), site, nullptr});
  return at->second;
}

SchemaId SchemaSet::add_made(Json value, const std::string& pointer) {
  state_->made.push_back(std::move(value));
  return add(state_->made.back(), pointer, {});
}

SchemaSet::Found SchemaSet::find(const std::string& reference, const std::string& keyword, const Schema& from,
                                 const Site& site) {
  const std::string uri = resolved_uri(site.base, reference);
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string fragment = percent_decoded(std::string_view(uri).substr(std::min(hash + 1, uri.size())));
  const auto missing = [&]() {
    throw_hint(ErrorKind::unsupported, "define it in the schema, under $defs; remote schemas are not fetched",
               "{}/{}: the schema does not contain {}", from.pointer, keyword, reference);
  };
  if (!fragment.empty() && fragment[0] != '/') {
    const std::string name = uri.substr(0, hash) + "#" + fragment;
    const auto anchor = state_->resources.find(name);
    if (anchor == state_->resources.end()) missing();
    const auto dynamic = state_->names.find(name);
    return {anchor->second.first, uri, anchor->second.second,
            dynamic == state_->names.end() ? std::string() : dynamic->second};
  }
  const auto resource = state_->resources.find(uri.substr(0, hash));
  if (resource == state_->resources.end()) missing();
  const Json* value = resource->second.first;
  Site inner = resource->second.second;
  for (size_t at = 0; at < fragment.size();) {
    const size_t end = std::min(fragment.find('/', at + 1), fragment.size());
    const std::string token = pointer_token(std::string_view(fragment).substr(at + 1, end - at - 1));
    if (value->is_object() && value->contains(token)) {
      value = &(*value)[token];
    } else if (value->is_array() && !token.empty() && token.size() < 9 &&
               token.find_first_not_of("0123456789") == std::string::npos && std::stoul(token) < value->size()) {
      value = &(*value)[std::stoul(token)];
    } else {
      missing();
    }
    // A value outside of schema positions has the site of the schema around it; the pointer's target has its own.
    const auto known = state_->sites.find(value);
    if (known != state_->sites.end()) {
      inner = known->second;
    } else if (end == fragment.size()) {
      inner = site_of(*value, inner);
    }
    at = end;
  }
  return {value, uri.substr(0, hash) + "#" + fragment, inner, {}};
}

// Dynamic references, whose target depends on the path of evaluation, are supported only if they have a single target.
SchemaId SchemaSet::reference(const std::string& keyword, const std::string& uri, const Schema& from,
                              const Site& site) {
  const Found found = find(uri, keyword, from, site);
  const bool is_dynamic = keyword == "$dynamicRef" && !found.dynamic.empty() && state_->dynamic[found.dynamic] > 1;
  bool is_recursive = false;
  if (keyword == "$recursiveRef" && found.value->is_object() && state_->num_recursive > 1) {
    const auto anchor = found.value->find("$recursiveAnchor");
    is_recursive = anchor != found.value->end() && anchor->is_boolean() && anchor->get<bool>();
  }
  if (is_dynamic || is_recursive) {
    throw_hint(ErrorKind::unsupported, "refer to the intended schema with $ref",
               "{}/{} can refer to several schemas, which is not supported", from.pointer, keyword);
  }
  return add(*found.value, found.pointer, found.site);
}

const Schema& SchemaSet::operator[](SchemaId id) {
  Entry& entry = state_->entries[static_cast<size_t>(id)];
  if (entry.schema) return *entry.schema;
  const Site site = entry.site;
  const std::string pointer = entry.pointer;
  const SchemaReader::Sources sources = {
      .child = [&](const Json& value, std::string where) { return add(value, std::move(where), site_of(value, site)); },
      .made = [&](Json value, const std::string& where) { return add_made(std::move(value), where); },
      .named = [&](const std::string& keyword, const std::string& uri,
                   const Schema& from) { return reference(keyword, uri, from, site); },
      .unknown = [&](const std::string& where) { state_->unknown.push_back(where); },
      .draft = site.draft,
      .strict = state_->options.strict};
  auto schema = std::make_unique<const Schema>(SchemaReader(*entry.value, pointer, sources).read());
  Entry& same = state_->entries[static_cast<size_t>(id)];
  same.schema = std::move(schema);
  return *same.schema;
}

}  // namespace ingot::grammar
