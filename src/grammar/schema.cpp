#include "grammar/schema.h"

#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/uri.h"
#include "grammar/schema_reader.h"
#include "grammar/schema_uri.h"

namespace ingot::grammar {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t max_depth = 200;

// Values that may look like schemas but are none.
bool holds_data(std::string_view key) {
  return key == "const" || key == "enum" || key == "default" || key == "examples";
}

// Keys are as many as the text has; so are values.
Json document_of(std::string_view text) {
  constexpr size_t any_number = std::numeric_limits<size_t>::max();
  try {
    return parse_json(text, {.depth = max_depth, .keys = any_number, .values = any_number});
  } catch (const Error& error) {
    throw_error(ErrorKind::usage, "the schema {}", error.message());
  }
}

}  // namespace

struct SchemaSet::Place {
  const Json* value;
  std::string pointer;
  std::string base;
  std::unique_ptr<const Schema> schema;
};

struct SchemaSet::State {
  JsonOptions options;
  Json document;
  std::deque<Json> made;  // schemas that stand for constants and the like
  std::deque<Place> places;
  std::unordered_map<const Json*, SchemaId> known;
  std::unordered_map<std::string, std::pair<const Json*, std::string>>
      resources;  // URI: value and base; anchors as URI#name
};

SchemaSet::SchemaSet(std::string_view text, const JsonOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  if (text.size() > options.max_text) {
    throw_error(ErrorKind::resource, "a schema of {} bytes; at most {}", text.size(), options.max_text);
  }
  state_->document = document_of(text);
  std::string base;
  if (state_->document.is_object() && state_->document.contains("$id") && state_->document["$id"].is_string()) {
    base = state_->document["$id"].get<std::string>();
  }
  base.resize(std::min(base.find('#'), base.size()));
  state_->resources.try_emplace("", &state_->document, base);
  index(state_->document, "", 0);
  add(state_->document, "#", base);
  add_made(Json(false), "#");
}

SchemaSet::~SchemaSet() = default;

// Finds the resources ($id) and anchors of the document.
void SchemaSet::index(const Json& value, const std::string& outer, int depth) {
  if (value.is_array()) {
    for (const Json& item : value) index(item, outer, depth + 1);
  }
  if (!value.is_object()) return;
  std::string base = outer;
  const auto text = [&](const char* key) -> std::optional<std::string> {
    const auto at = value.find(key);
    if (at == value.end() || !at->is_string()) return std::nullopt;
    return at->get<std::string>();
  };
  if (const auto id = text("$id")) {
    base = resolved_uri(outer, *id);
    base.resize(std::min(base.find('#'), base.size()));
    state_->resources.try_emplace(base, &value, base);
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    if (const auto name = text(key)) state_->resources.try_emplace(base + "#" + *name, &value, base);
  }
  for (const auto& [key, child] : value.items()) {
    if (!holds_data(key)) index(child, base, depth + 1);
  }
}

SchemaId SchemaSet::add(const Json& value, std::string pointer, std::string base) {
  const auto [at, is_new] = state_->known.try_emplace(&value, static_cast<SchemaId>(state_->places.size()));
  if (is_new) state_->places.push_back({&value, std::move(pointer), std::move(base), nullptr});
  return at->second;
}

SchemaId SchemaSet::add_made(Json value, const std::string& pointer) {
  state_->made.push_back(std::move(value));
  return add(state_->made.back(), pointer, "");
}

// What a reference names.
SchemaId SchemaSet::find(const std::string& reference, const Schema& from, const std::string& base) {
  const std::string uri = resolved_uri(base, reference);
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string fragment = percent_decoded(std::string_view(uri).substr(std::min(hash + 1, uri.size())));
  const auto missing = [&]() {
    throw_hint(ErrorKind::unsupported, "put what it names into the schema, under $defs; nothing is fetched",
               "{}/$ref: the schema has no {}", from.pointer, reference);
  };
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = state_->resources.find(uri.substr(0, hash) + "#" + fragment);
    if (anchor == state_->resources.end()) missing();
    return add(*anchor->second.first, uri, anchor->second.second);
  }
  const auto resource = state_->resources.find(uri.substr(0, hash));
  if (resource == state_->resources.end()) missing();
  const Json* value = resource->second.first;
  std::string inner = resource->second.second;
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
    if (value->is_object() && value->contains("$id") && (*value)["$id"].is_string()) {
      inner = resolved_uri(inner, (*value)["$id"].get<std::string>());
    }
    at = end;
  }
  return add(*value, uri.substr(0, hash) + "#" + fragment, inner);
}

const Schema& SchemaSet::operator[](SchemaId id) {
  Place& place = state_->places[static_cast<size_t>(id)];
  if (place.schema) return *place.schema;
  std::string base = place.base;
  if (place.value->is_object() && place.value->contains("$id") && (*place.value)["$id"].is_string()) {
    base = resolved_uri(base, (*place.value)["$id"].get<std::string>());
    base.resize(std::min(base.find('#'), base.size()));
  }
  const std::string pointer = place.pointer;
  const SchemaReader::Sources sources = {
      .child = [&, base](const Json& value, std::string where) { return add(value, std::move(where), base); },
      .made = [&](Json value, const std::string& where) { return add_made(std::move(value), where); },
      .named = [&, base](const std::string& reference, const Schema& from) { return find(reference, from, base); },
      .ignore_unknown = state_->options.ignore_unknown};
  auto schema = std::make_unique<const Schema>(SchemaReader(*place.value, pointer, sources).read());
  Place& same = state_->places[static_cast<size_t>(id)];
  same.schema = std::move(schema);
  return *same.schema;
}

}  // namespace ingot::grammar
