// AWS Signature Version 4 for S3: the headers that authenticate a request. Source: "Authenticating Requests (AWS
// Signature Version 4)" of the S3 API reference. libcurl can sign too, but its versions differ for queries that are not
// sorted or contain escapes; this code sends the same with all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

// Must never appear in a message or a log.
struct S3Credentials {
  std::string access_key, secret_key;
  std::string session_token;  // empty: none
};

// Encodes every byte except A-Z a-z 0-9 - . _ ~ as %XX; with `keep_slashes` '/' is also kept.
std::string percent_encoded(std::string_view text, bool keep_slashes = false);

using S3Query = std::vector<std::pair<std::string, std::string>>;  // names and values, not encoded
// Encoded and sorted as the signature requires, which is also how it is sent: "a=1&b=".
std::string s3_query_text(const S3Query& query);

struct S3Request {
  std::string method = "GET";
  std::string host;                                              // with its port, as in the Host header
  std::string path;                                              // percent-encoded
  std::string query;                                             // as s3_query_text returns it
  std::vector<std::pair<std::string, std::string>> amz_headers;  // lower-case "x-amz-..." names; also signed
  std::string payload_sha256;                                    // hex digest of the body
};

// The header lines of the request except Host: x-amz-date, x-amz-content-sha256, x-amz-security-token if there is a
// session token, those of `amz_headers`, and Authorization. `time`: seconds since 1970.
std::vector<std::string> s3_signed_headers(const S3Request& request, const S3Credentials& credentials,
                                           const std::string& region, int64_t time);

}  // namespace ingot
