// Amazon's signature version 4 for S3: what is sent beside a request so that the server knows who asks.
// Source: "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference. libcurl can sign too, but its
// versions differ in what they do with queries that are not sorted or have escapes; here all of them send the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

// Never part of a message or a log.
struct S3Credentials {
  std::string access_key, secret_key;
  std::string session_token;  // empty: none
};

// Every byte but A-Z a-z 0-9 - . _ ~ as %XX; with `keep_slashes` '/' too stays.
std::string percent_encoded(std::string_view text, bool keep_slashes = false);

using S3Query = std::vector<std::pair<std::string, std::string>>;  // names and values, not encoded
// Encoded and sorted as the signature wants it, which is how it is sent: "a=1&b=".
std::string s3_query_text(const S3Query& query);

struct S3Request {
  std::string method = "GET";
  std::string host;                                              // with its port, as in the header Host
  std::string path;                                              // encoded
  std::string query;                                             // as s3_query_text gives it
  std::vector<std::pair<std::string, std::string>> amz_headers;  // lower-case "x-amz-..." names; signed as well
  std::string payload_sha256;                                    // of the body, in hex
};

// The header lines of the request but Host: x-amz-date, x-amz-content-sha256, those of `amz_headers`, and
// Authorization. `time`: seconds since 1970.
std::vector<std::string> s3_signed_headers(const S3Request& request, const S3Credentials& credentials,
                                           const std::string& region, int64_t time);

}  // namespace ingot
