// Cross-origin requests from browsers (CORS protocol of the Fetch standard).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace ingot::server {

// Checks that an origin is written as browsers send it: SCHEME://HOST or SCHEME://HOST:PORT in lower case, or "*" for
// all. Errors: usage.
void check_origin(const std::string& origin);

struct CorsHeaders {
  std::vector<std::pair<std::string, std::string>> headers;  // of the answer
  bool preflight = false;  // the request is a preflight request: the answer is these headers alone
};

// The CORS headers of the answer. None if no origins are allowed; only Vary for a request from another origin.
// Credentials that a browser keeps are never allowed: a page must have the API key itself. `methods`: of the route.
CorsHeaders cors_headers(const std::vector<std::string>& allowed, const RequestHead& head, std::string_view methods);

}  // namespace ingot::server
