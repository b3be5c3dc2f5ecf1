#include "server/route_table.h"

#include "base/strings.h"

namespace ingot::server {

namespace {

constexpr std::array routes = {
    RouteInfo{Route::page, "page", "/", "GET", true, false, true},
    RouteInfo{Route::health, "health", "/health", "GET", true, false, true},
    RouteInfo{Route::ready, "ready", "/ready", "GET", true, false, true},
    RouteInfo{Route::metrics, "metrics", "/metrics", "GET", false, false, true},
    RouteInfo{Route::models, "models", "/v1/models", "GET"},
    RouteInfo{Route::model, "models", "/v1/models/*", "GET, DELETE"},
    RouteInfo{Route::chat, "chat", "/v1/chat/completions", "POST", false, true},
    RouteInfo{Route::responses, "responses", "/v1/responses", "POST", false, true},
    RouteInfo{Route::completions, "completions", "/v1/completions", "POST", false, true},
    RouteInfo{Route::embeddings, "embeddings", "/v1/embeddings", "POST", false, true},
    RouteInfo{Route::tokenize, "tokenize", "/v1/tokenize", "POST", false, true},
    RouteInfo{Route::detokenize, "detokenize", "/v1/detokenize", "POST", false, true},
    RouteInfo{Route::adapters, "adapters", "/v1/adapters", "GET, POST"},
    RouteInfo{Route::adapter, "adapters", "/v1/adapters/*", "DELETE"},
};

}  // namespace

const RouteInfo& route_of(std::string_view path) {
  for (const RouteInfo& info : routes) {
    const std::string_view pattern = info.path;
    if (pattern.ends_with('*')) {
      const std::string_view prefix = pattern.substr(0, pattern.size() - 1);
      if (path.size() > prefix.size() && path.starts_with(prefix)) return info;
    } else if (path == pattern) {
      return info;
    }
  }
  return unknown_route;
}

std::optional<std::string> name_in_path(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0) return std::nullopt;
      c = static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    out += c;
  }
  if (!is_utf8(out)) return std::nullopt;
  return out;
}

std::string methods_of(const RouteInfo& info) {
  const std::string_view methods = info.methods;
  return methods.starts_with("GET") ? "GET, HEAD" + std::string(methods.substr(3)) : std::string(methods);
}

bool is_method_of(std::string_view method, const RouteInfo& info) {
  for (const std::string& allowed : split(methods_of(info), ',')) {
    if (trim(allowed) == method) return true;
  }
  return false;
}

}  // namespace ingot::server
