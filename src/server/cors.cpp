#include "server/cors.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::server {

namespace {

constexpr std::string_view lower_case = "abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view digits = "0123456789";
constexpr size_t max_requested = 4096;  // max bytes of a list of header names that is echoed

bool has_only(std::string_view text, std::initializer_list<std::string_view> sets) {
  return std::ranges::all_of(text, [&](char c) {
    return std::ranges::any_of(sets, [&](std::string_view set) { return set.find(c) != std::string_view::npos; });
  });
}

// Whether the text is a list of header names.
bool is_list_of_names(std::string_view text) {
  constexpr std::string_view upper_case = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return text.size() <= max_requested && has_only(text, {lower_case, upper_case, digits, "-_, "});
}

}  // namespace

void check_origin(const std::string& origin) {
  if (origin == "*") return;
  const size_t scheme = origin.find("://");
  bool right =
      scheme != std::string::npos && scheme > 0 && has_only(origin.substr(0, scheme), {lower_case, digits, "+-."});
  if (right) {
    std::string_view host = std::string_view(origin).substr(scheme + 3);
    const size_t bracket = host.find(']');
    const size_t port = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
    if (port != std::string_view::npos) {
      const std::string_view number = host.substr(port + 1);
      right = !number.empty() && number.size() <= 5 && has_only(number, {digits});
      host = host.substr(0, port);
    }
    const bool is_v6 = host.starts_with('[') && host.ends_with(']');
    right = right && !host.empty() &&
            (is_v6 ? host.size() > 2 && has_only(host.substr(1, host.size() - 2), {"abcdef", digits, ":."})
                   : has_only(host, {lower_case, digits, "-_."}));
  }
  if (right) return;
  throw_hint(ErrorKind::usage, "such as https://app.example or http://localhost:3000, in lower case and without a path",
             "--cors-origin '{}' is not an origin", origin);
}

CorsHeaders cors_headers(const std::vector<std::string>& allowed, const RequestHead& head, std::string_view methods) {
  CorsHeaders cors;
  if (allowed.empty()) return cors;
  const bool any = std::ranges::find(allowed, "*") != allowed.end();
  const std::string origin(head.header("origin"));
  if (!any) cors.headers.emplace_back("Vary", "Origin");
  if (origin.empty() || (!any && std::ranges::find(allowed, origin) == allowed.end())) return cors;
  cors.headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : origin);
  cors.preflight = head.method == "OPTIONS" && !head.header("access-control-request-method").empty();
  if (!cors.preflight) {
    cors.headers.emplace_back("Access-Control-Expose-Headers",
                              "X-Request-Id, Retry-After, X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, "
                              "X-RateLimit-Reset-Requests");
    return cors;
  }
  // Clients send headers of their own ("x-stainless-os"), and "*" would not include Authorization.
  std::string names = "Authorization, Content-Type";
  const std::string_view requested = head.header("access-control-request-headers");
  if (!requested.empty() && is_list_of_names(requested)) names = requested;
  cors.headers.emplace_back("Access-Control-Allow-Methods", methods);
  cors.headers.emplace_back("Access-Control-Allow-Headers", names);
  cors.headers.emplace_back("Access-Control-Max-Age", "600");
  return cors;
}

}  // namespace ingot::server
