// The routes, and what a request's path and method mean.
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

// What a route accepts and requires.
struct RouteInfo {
  Route route;
  const char* name;     // in metrics and logs
  const char* path;     // the whole path, or a prefix that ends in '*'
  const char* methods;  // "GET, POST"; GET implies HEAD
  bool open = false;    // needs no key
  bool large = false;   // accepts a large body
  bool quick = false;   // reads no files and does not wait
};

inline constexpr RouteInfo unknown_route{Route::unknown, "unknown", "", ""};

// The route of a path, still percent-encoded; unknown_route for all others.
const RouteInfo& route_of(std::string_view path);

// The methods as the header Allow lists them: with HEAD if there is GET.
std::string methods_of(const RouteInfo& info);

bool is_method_of(std::string_view method, const RouteInfo& info);

// Decodes percent-encoding. Nothing for invalid encoding, for control characters and for text that is not UTF-8.
std::optional<std::string> name_in_path(std::string_view text);

}  // namespace ingot::server
