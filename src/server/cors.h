// Cross-origin requests of pages in browsers (the Fetch standard, CORS protocol).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace ingot::server {

// Refuses what is no origin as browsers send it: SCHEME://HOST or SCHEME://HOST:PORT in lower case, or "*" for all.
// Errors: usage.
void check_origin(const std::string& origin);

struct CorsHeaders {
  std::vector<std::pair<std::string, std::string>> headers;  // of the answer
  bool preflight = false;  // the browser asks whether it may ask: the answer is these headers alone
};

// What the answer to a request says. Nothing without allowed origins; for a request from none of them, only that
// answers differ by origin. Nothing ever allows credentials that a browser keeps: a page has to have the key itself.
// `methods`: of the route.
CorsHeaders cors_headers(const std::vector<std::string>& allowed, const RequestHead& head, std::string_view methods);

}  // namespace ingot::server
