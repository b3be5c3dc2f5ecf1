// Addresses of files and folders: a local path, file://, http://, https:// or s3://.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ingot {

enum class UriScheme { file, http, https, s3 };

struct Uri {
  UriScheme scheme = UriScheme::file;
  std::string text;            // as given
  std::filesystem::path path;  // of file only, percent-decoded
  std::string shown;           // for messages: without user, password, query and fragment, which may hold secrets
  std::string file_name;       // last part of the path; may be empty
  std::string bucket, key;     // of s3 only, verbatim: '%', '?' and '#' have no meaning in them
};

// Anything without "scheme://" is a local path. Errors: usage for an unknown scheme, a missing host, file:// with
// another machine's name, s3:// with a user or password, control characters.
Uri parse_uri(std::string_view text);
// A path or address as messages show it: without anything that may be secret.
std::string shown(std::string_view path);
// Whether `text` has one of the schemes http, https and s3.
bool is_remote(std::string_view text);
// An http(s) address without its query and fragment; any other address unchanged.
std::string_view without_query(std::string_view text);
// Decodes percent escapes: %41 becomes 'A'. A '%' without two hexadecimal digits after it stays.
std::string percent_decoded(std::string_view text);
// The path or address `relative` below `folder`, joined by '/'. For http(s), `relative` is percent-encoded, and a query
// of `folder` stays at the end.
std::string uri_below(std::string_view folder, std::string_view relative);

}  // namespace ingot
