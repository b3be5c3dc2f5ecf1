// The request-body fuzz target, also used by the corpus test: the first byte chooses the route.
#pragma once

#include <string_view>

#include "server/api_error.h"
#include "server/requests.h"

namespace ingot::server::fuzz {

// Whether the body is a valid request. An ApiError is a refusal; any other exception is a bug.
inline bool read_request(std::string_view text) {
  if (text.empty()) return false;
  const std::string_view body = text.substr(1);
  try {
    switch (text.front()) {
      case 'c': parse_chat(body); break;
      case 'p': parse_completion(body); break;
      case 'r': parse_responses(body); break;
      case 'e': parse_embeddings(body); break;
      case 't': parse_tokenize(body); break;
      case 'd': parse_detokenize(body); break;
      case 'a': parse_adapter(body); break;
      default: return false;
    }
  } catch (const ApiError& error) {
    error_body(error);
    return false;
  }
  return true;
}

}  // namespace ingot::server::fuzz
