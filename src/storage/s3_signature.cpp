#include "storage/s3_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "base/file.h"

namespace ingot {

namespace {

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &size) == nullptr) {
    throw_error(ErrorKind::unavailable, "OpenSSL offers no HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string sha256_of(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text.data(), text.size()))); }

// "20130524T000000Z"
std::string utc(int64_t time) {
  const std::time_t seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 20> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string s3_query_text(const S3Query& query) {
  S3Query encoded;
  for (const auto& [name, value] : query) encoded.emplace_back(percent_encoded(name), percent_encoded(value));
  std::sort(encoded.begin(), encoded.end());  // after encoding, as the signature requires
  std::string text;
  for (const auto& [name, value] : encoded) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  }
  return text;
}

std::vector<std::string> s3_signed_headers(const S3Request& request, const S3Credentials& credentials,
                                           const std::string& region, int64_t time) {
  const std::string stamp = utc(time), day = stamp.substr(0, 8);
  auto headers = request.amz_headers;
  headers.emplace_back("x-amz-date", stamp);
  headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
  if (!credentials.session_token.empty()) headers.emplace_back("x-amz-security-token", credentials.session_token);
  std::vector<std::string> lines;
  for (const auto& [name, value] : headers) lines.push_back(fmt::format("{}: {}", name, value));

  headers.emplace_back("host", request.host);
  std::sort(headers.begin(), headers.end());
  std::string canonical_headers, names;
  for (const auto& [name, value] : headers) {
    canonical_headers += fmt::format("{}:{}\n", name, value);
    if (!names.empty()) names += ';';
    names += name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path, request.query,
                                            canonical_headers, names, request.payload_sha256);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, region);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, sha256_of(canonical));
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")}) key = hmac(key, part);
  lines.push_back(fmt::format("Authorization: AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                              credentials.access_key, scope, names, hex(hmac(key, to_sign))));
  return lines;
}

}  // namespace ingot
