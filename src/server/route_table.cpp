#include "server/route_table.h"

#include "base/strings.h"

namespace ingot::server {

namespace {

constexpr std::array routes = {
    RouteFacts{Route::page, "page", "/", "GET", true, false, true},
    RouteFacts{Route::health, "health", "/health", "GET", true, false, true},
    RouteFacts{Route::ready, "ready", "/ready", "GET", true, false, true},
    RouteFacts{Route::metrics, "metrics", "/metrics", "GET", false, false, true},
    RouteFacts{Route::models, "models", "/v1/models", "GET"},
    RouteFacts{Route::model, "models", "/v1/models/*", "GET, DELETE"},
    RouteFacts{Route::chat, "chat", "/v1/chat/completions", "POST", false, true},
    RouteFacts{Route::responses, "responses", "/v1/responses", "POST", false, true},
    RouteFacts{Route::completions, "completions", "/v1/completions", "POST", false, true},
    RouteFacts{Route::embeddings, "embeddings", "/v1/embeddings", "POST", false, true},
    RouteFacts{Route::tokenize, "tokenize", "/v1/tokenize", "POST", false, true},
    RouteFacts{Route::detokenize, "detokenize", "/v1/detokenize", "POST", false, true},
    RouteFacts{Route::adapters, "adapters", "/v1/adapters", "GET, POST"},
    RouteFacts{Route::adapter, "adapters", "/v1/adapters/*", "DELETE"},
};

}  // namespace

const RouteFacts& route_of(std::string_view path) {
  for (const RouteFacts& facts : routes) {
    const std::string_view pattern = facts.path;
    if (pattern.ends_with('*')) {
      const std::string_view prefix = pattern.substr(0, pattern.size() - 1);
      if (path.size() > prefix.size() && path.starts_with(prefix)) return facts;
    } else if (path == pattern) {
      return facts;
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

std::string methods_of(const RouteFacts& facts) {
  const std::string_view methods = facts.methods;
  return methods.starts_with("GET") ? "GET, HEAD" + std::string(methods.substr(3)) : std::string(methods);
}

bool is_method_of(std::string_view method, const RouteFacts& facts) {
  for (const std::string& allowed : split(methods_of(facts), ',')) {
    if (trim(allowed) == method) return true;
  }
  return false;
}

}  // namespace ingot::server
