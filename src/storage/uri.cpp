#include "storage/uri.h"

#include "base/error.h"
#include "base/strings.h"
#include "storage/s3_signature.h"

namespace ingot {
namespace {

Uri s3_uri(Uri uri, std::string_view rest) {
  uri.scheme = UriScheme::s3;
  uri.bucket = rest.substr(0, rest.find('/'));
  uri.key = rest.size() > uri.bucket.size() ? rest.substr(uri.bucket.size() + 1) : "";
  const size_t at = uri.bucket.rfind('@');
  if (at != std::string::npos) {
    throw_hint(ErrorKind::usage, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead",
               "s3://{}/...: an address must not contain credentials", uri.bucket.substr(at + 1));
  }
  if (uri.bucket.empty()) throw_error(ErrorKind::usage, "{}: has no bucket name", uri.text);
  uri.file_name = uri.key.substr(uri.key.rfind('/') + 1);
  uri.shown = fmt::format("s3://{}/{}", uri.bucket, uri.key);
  return uri;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
    i += 2;
  }
  return out;
}

std::string shown(std::string_view path) {
  return path.find("://") == std::string_view::npos ? std::string(path) : parse_uri(path).shown;
}

bool is_remote(std::string_view text) {
  if (text.find("://") == std::string_view::npos) return false;
  const UriScheme scheme = parse_uri(text).scheme;
  return scheme != UriScheme::file;
}

std::string_view without_query(std::string_view text) {
  const bool http = is_remote(text) && parse_uri(text).scheme != UriScheme::s3;
  return http ? text.substr(0, text.find_first_of("?#")) : text;
}

std::string uri_below(std::string_view folder, std::string_view relative) {
  const bool http = is_remote(folder) && parse_uri(folder).scheme != UriScheme::s3;
  std::string_view path = without_query(folder);
  const std::string_view query = folder.substr(path.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  return fmt::format("{}/{}{}", path, http ? percent_encoded(relative, true) : std::string(relative), query);
}

Uri parse_uri(std::string_view text) {
  const bool has_control =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (text.empty() || has_control) {
    throw_error(ErrorKind::usage, "{} is not a path or URI", json_escape(text));
  }
  Uri uri;
  uri.text = text;
  const size_t mark = text.find("://");
  if (mark == std::string_view::npos) {
    uri.path = uri.text;
    uri.shown = uri.text;
    uri.file_name = uri.path.filename().string();
    return uri;
  }
  std::string scheme(text.substr(0, mark));
  for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::string_view rest = text.substr(mark + 3);
  if (scheme == "s3") return s3_uri(std::move(uri), rest);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const std::string_view after_authority = rest.substr(authority.size());
  const std::string_view path = after_authority.substr(0, after_authority.find_first_of("?#"));
  const std::string_view host = authority.substr(authority.rfind('@') + 1);  // npos + 1 is 0: no user
  uri.file_name = percent_decoded(path.substr(path.rfind('/') + 1));
  uri.shown = fmt::format("{}://{}{}", scheme, host, path);
  if (scheme == "file") {
    if (!host.empty() && host != "localhost") {
      throw_error(ErrorKind::usage, "{}: file:// names the machine '{}'; only local files can be read", uri.shown,
                  host);
    }
    uri.path = percent_decoded(after_authority);
    uri.file_name = uri.path.filename().string();
    return uri;
  }
  if (scheme == "http") {
    uri.scheme = UriScheme::http;
  } else if (scheme == "https") {
    uri.scheme = UriScheme::https;
  } else {
    throw_hint(ErrorKind::usage, "use a path, file://, http://, https:// or s3://", "{}: the scheme '{}' is not known",
               uri.shown, scheme);
  }
  if (host.empty()) throw_error(ErrorKind::usage, "{}: has no host name", uri.shown);
  return uri;
}

}  // namespace ingot
