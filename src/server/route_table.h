// Which routes there are, and what a request's head says of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ingot::server {

enum class Route {
  page,
  health,
  ready,
  metrics,
  models,
  model,
  chat,
  responses,
  completions,
  embeddings,
  tokenize,
  detokenize,
  adapters,
  adapter,
  unknown
};

// Which methods a route takes, and who may ask.
struct RouteFacts {
  Route route;
  const char* name;     // in metrics and logs
  const char* path;     // all of it, or with a '*' at the end what it begins with
  const char* methods;  // "GET, POST"; HEAD comes with GET
  bool open = false;    // without a key
  bool large = false;   // takes a large body
  bool quick = false;   // reads no files and waits for nothing
};

inline constexpr RouteFacts unknown_route{Route::unknown, "unknown", "", ""};

// That of a path, still encoded; unknown_route for all others.
const RouteFacts& route_of(std::string_view path);

// Those that it takes, as the header Allow has them: HEAD where there is GET.
std::string methods_of(const RouteFacts& facts);

bool is_method_of(std::string_view method, const RouteFacts& facts);

// %2F and the like as bytes; nothing for what is no encoding, and for control characters.
std::optional<std::string> name_in_path(std::string_view text);

}  // namespace ingot::server
