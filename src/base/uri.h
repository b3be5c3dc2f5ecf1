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
};

// Anything without "scheme://" is a local path. Errors: usage for an unknown scheme, a missing host, file:// with
// another machine's name, control characters.
Uri parse_uri(std::string_view text);

}  // namespace ingot
