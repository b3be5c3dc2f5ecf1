// Where a thing lies: a local path, file://, http://, https:// or s3://.
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
  std::string bucket, key;     // of s3 only, as they are: '%', '?' and '#' have no meaning in them
};

// Anything without "scheme://" is a local path. Errors: usage for an unknown scheme, a missing host, file:// with
// another machine's name, s3:// with a user or password, control characters.
Uri parse_uri(std::string_view text);
// What is shown of a path or address in messages: nothing that may be secret.
std::string shown(std::string_view path);
// Whether `text` has one of the schemes http, https and s3.
bool is_remote(std::string_view text);
// What comes before the query and the fragment of an http address; of anything else all of it.
std::string_view without_query(std::string_view text);
// With %41 as 'A'. A '%' without two hexadecimal digits behind it stays.
std::string percent_decoded(std::string_view text);
// What lies below a folder: its path with '/' and `relative` behind it, which is percent-encoded in the addresses that
// know this; a query stays at the end.
std::string uri_below(std::string_view folder, std::string_view relative);

}  // namespace ingot
