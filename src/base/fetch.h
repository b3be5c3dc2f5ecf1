// Getting a file from where it lies: HTTP(S) through libcurl, s3:// (s3_config.h says where that is and who asks),
// file:// and plain paths by copying.
//
// The environment is heeded as curl does: http_proxy, https_proxy, all_proxy, no_proxy, and for certificates
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
  std::vector<std::string> headers;  // "Authorization: Bearer ..."; not sent on to another host
  int max_attempts = 5;              // attempts in a row that bring nothing new before giving up
  double first_wait_s = 0.5;         // doubled after each such attempt, at most 30, and shorter at random; the server's
                                     // Retry-After counts more
  double connect_timeout_s = 20;
  double stall_timeout_s = 30;  // an attempt ends when no byte has come for so long
  // Called now and then with bytes done and in all (0: not known). Return false to stop.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Brings `uri` to the file `out`, complete or not at all. What an interrupted HTTP transfer left (OUT.partial, with its
// origin in OUT.partial.origin) is continued by the next call when the server still has the same version of the file.
// Errors: not_found (404, 410, no such local file), corrupt (wrong digest; the bytes are removed), resource (full
// disk), unavailable (anything else: network, refused, stopped by `progress`); those of read_s3_config.
void fetch(const std::string& uri, const std::filesystem::path& out, const FetchOptions& options = {});

// The same into memory, at most `limit` bytes (resource beyond), without resuming.
std::string fetch_text(const std::string& uri, uint64_t limit, const FetchOptions& options = {});

}  // namespace ingot
