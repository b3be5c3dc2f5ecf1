// Fetching files: HTTP(S) through libcurl, s3:// (endpoint and credentials: s3_config.h), file:// and plain paths by
// copying.
//
// The same environment variables as for curl apply: http_proxy, https_proxy, all_proxy, no_proxy, and for certificates
// CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ingot {

struct FetchOptions {
  std::string sha256;                // expected digest in hex; empty: not checked
  std::vector<std::string> headers;  // "Authorization: Bearer ..."; not sent to another host after a redirect
  int max_attempts = 5;              // consecutive attempts without new bytes before giving up
  double first_wait_s = 0.5;         // doubled after each such attempt up to 30 s, minus a random part of at most half;
                                     // a longer Retry-After of the server is used instead, up to 60 s
  double connect_timeout_s = 20;
  double stall_timeout_s = 30;  // an attempt ends when no byte arrives for this long
  // Called now and then with the bytes done and the total (0: unknown). Returns false to stop the fetch.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Fetches `uri` into the file `out`, complete or not at all. The partial file of an interrupted HTTP transfer
// (OUT.partial, with its origin in OUT.partial.origin) is continued by the next call when the server still has the same
// version. Errors: not_found (404, 410, no such local file), corrupt (wrong digest; the bytes are removed), resource
// (full disk), unavailable (anything else: network, refused, stopped by `progress`); those of read_s3_config.
void fetch(const std::string& uri, const std::filesystem::path& out, const FetchOptions& options = {});

// The same into memory, at most `limit` bytes (resource when longer), without resuming.
std::string fetch_text(const std::string& uri, uint64_t limit, const FetchOptions& options = {});

}  // namespace ingot
