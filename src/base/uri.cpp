#include "base/uri.h"

#include "base/error.h"
#include "base/strings.h"

namespace ingot {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

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

}  // namespace

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
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const std::string_view behind = rest.substr(authority.size());
  const std::string_view path = behind.substr(0, behind.find_first_of("?#"));
  const std::string_view host = authority.substr(authority.rfind('@') + 1);  // npos + 1 is 0: no user
  uri.file_name = percent_decoded(path.substr(path.rfind('/') + 1));
  uri.shown = fmt::format("{}://{}{}", scheme, host, path);
  if (scheme == "file") {
    if (!host.empty() && host != "localhost") {
      throw_error(ErrorKind::usage, "{}: file:// names the machine '{}'; only local files can be read", uri.shown,
                  host);
    }
    uri.path = percent_decoded(behind);
    uri.file_name = uri.path.filename().string();
    return uri;
  }
  if (scheme == "http") {
    uri.scheme = UriScheme::http;
  } else if (scheme == "https") {
    uri.scheme = UriScheme::https;
  } else if (scheme == "s3") {
    uri.scheme = UriScheme::s3;
  } else {
    throw_hint(ErrorKind::usage, "use a path, file://, http:// or https://", "{}: the scheme '{}' is not known",
               uri.shown, scheme);
  }
  if (host.empty()) throw_error(ErrorKind::usage, "{}: names no host", uri.shown);
  return uri;
}

}  // namespace ingot
