#include "grammar/schema_uri.h"

#include <algorithm>

namespace ingot::grammar {

namespace {

struct Parts {
  std::string scheme, authority, path, query, fragment;  // with their ':', "//", '?' and '#'
};

Parts parts_of(std::string_view uri) {
  Parts parts;
  const auto cut = [&](size_t end) {
    end = std::min(end, uri.size());
    const std::string_view piece = uri.substr(0, end);
    uri.remove_prefix(end);
    return std::string(piece);
  };
  const size_t colon = uri.find(':');
  if (colon != std::string_view::npos && colon > 0 && uri.find_first_of("/?#") > colon) parts.scheme = cut(colon + 1);
  if (uri.starts_with("//")) parts.authority = cut(uri.find_first_of("/?#", 2));
  parts.path = cut(uri.find_first_of("?#"));
  if (uri.starts_with('?')) parts.query = cut(uri.find('#'));
  parts.fragment = std::string(uri);
  return parts;
}

std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path == "/." || path.starts_with("/./")) {
      path = path.size() == 2 ? "/" : path.substr(2);
    } else if (path == "/.." || path.starts_with("/../")) {
      path = path.size() == 3 ? "/" : path.substr(3);
      out.resize(std::min(out.rfind('/'), out.size()));
      if (out.find('/') == std::string::npos) out.clear();
    } else if (path.starts_with("./")) {
      path.remove_prefix(2);
    } else if (path.starts_with("../")) {
      path.remove_prefix(3);
    } else {
      const size_t end = std::min(path.find('/', 1), path.size());
      out += path.substr(0, end);
      path.remove_prefix(end);
    }
  }
  return out;
}

}  // namespace

std::string resolved_uri(std::string_view base, std::string_view reference) {
  const Parts to = parts_of(reference);
  if (!to.scheme.empty()) return std::string(reference);
  const Parts from = parts_of(base);
  if (!to.authority.empty()) return from.scheme + std::string(reference);
  if (to.path.empty()) {
    return from.scheme + from.authority + from.path + (to.query.empty() ? from.query : to.query) + to.fragment;
  }
  std::string path = to.path;
  if (!path.starts_with('/')) {
    const size_t slash = from.path.rfind('/');
    const bool is_bare = from.path.empty() && !from.authority.empty();
    path = (is_bare ? "/" : slash == std::string::npos ? "" : from.path.substr(0, slash + 1)) + path;
  }
  return from.scheme + from.authority + without_dots(path) + to.query + to.fragment;
}

std::string pointer_token(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

std::string as_pointer_token(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace ingot::grammar
