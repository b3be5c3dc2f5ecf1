#include "storage/s3_config.h"

#include <array>
#include <filesystem>
#include <map>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "storage/uri.h"

namespace ingot {

namespace {

namespace fs = std::filesystem;
using Settings = std::map<std::string, std::string>;
using Variable = std::function<std::optional<std::string>(const char*)>;

// The settings of a profile: its section is "[default]", "[profile NAME]" (config) or "[NAME]" (credentials). Nothing
// when there is no such section. Indented lines belong to the setting above them (s3 = ...) and are skipped.
std::optional<Settings> read_profile(const fs::path& path, const std::string& profile) {
  std::error_code ignored;
  if (path.empty() || !fs::is_regular_file(path, ignored)) return std::nullopt;
  std::optional<Settings> settings;
  bool inside = false;
  int number = 0;
  for (const std::string& line : split(read_file(path, 1 << 22), '\n')) {
    ++number;
    const std::string_view text = trim(line);
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    if (text[0] == '[') {
      std::string_view name = trim(text.substr(1, text.find(']') - 1));
      if (name.starts_with("profile ")) name = trim(name.substr(8));
      inside = name == profile;
      if (inside && !settings) settings.emplace();
      continue;
    }
    if (!inside || line[0] == ' ' || line[0] == '\t') continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) {  // the line is not shown: it may be a secret
      throw_error(ErrorKind::corrupt, "{} line {}: not a setting (key = value)", path.string(), number);
    }
    settings->insert_or_assign(std::string(trim(text.substr(0, equals))), std::string(trim(text.substr(equals + 1))));
  }
  return settings;
}

std::string value_of(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? std::string() : found->second;
}

std::string first_set(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string value = variable(name).value_or("");
    if (!value.empty()) return value;
  }
  return {};
}

std::optional<S3Credentials> pair(const std::string& access, const std::string& secret, const std::string& token,
                                  const std::string& where) {
  if (access.empty() && secret.empty()) return std::nullopt;
  if (access.empty() || secret.empty()) {
    throw_hint(ErrorKind::usage, "give both", "{} has {}, but no {}", where,
               access.empty() ? "a secret access key" : "an access key id",
               access.empty() ? "access key id" : "secret access key");
  }
  for (const std::string* text : {&access, &secret, &token}) {
    if (text->find_first_of("\r\n \t") != std::string::npos) {
      throw_error(ErrorKind::usage, "{}: a key contains a space or a line break", where);
    }
  }
  return S3Credentials{access, secret, token};
}

}  // namespace

S3Config read_s3_config(const Variable& variable) {
  S3Config config;
  const std::string home = first_set(variable, {"HOME"});
  const auto file = [&](const char* name, const char* usual) {
    const std::string given = first_set(variable, {name});
    if (!given.empty() || home.empty()) return fs::path(given);
    return fs::path(home) / ".aws" / usual;
  };
  const fs::path keys_file = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const fs::path config_file = file("AWS_CONFIG_FILE", "config");
  const std::string named = first_set(variable, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  const std::string profile = named.empty() ? "default" : named;
  const std::optional<Settings> keys = read_profile(keys_file, profile), others = read_profile(config_file, profile);
  if (!named.empty() && !keys && !others) {
    throw_hint(ErrorKind::usage, "add it, or unset AWS_PROFILE", "the profile '{}' is neither in {} nor in {}", named,
               keys_file.string(), config_file.string());
  }
  const Settings nothing;
  config.credentials =
      pair(first_set(variable, {"AWS_ACCESS_KEY_ID"}), first_set(variable, {"AWS_SECRET_ACCESS_KEY"}),
           first_set(variable, {"AWS_SESSION_TOKEN"}), "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)");
  for (const auto& [settings, path] : {std::pair(&keys, &keys_file), std::pair(&others, &config_file)}) {
    if (config.credentials || !*settings) continue;
    config.credentials =
        pair(value_of(**settings, "aws_access_key_id"), value_of(**settings, "aws_secret_access_key"),
             value_of(**settings, "aws_session_token"), fmt::format("profile '{}' of {}", profile, path->string()));
    static constexpr std::array elsewhere = {"role_arn", "credential_process", "sso_session", "sso_start_url",
                                             "web_identity_token_file"};
    for (const char* key : elsewhere) {
      if (config.credentials || (*settings)->count(key) == 0) continue;
      throw_hint(ErrorKind::unsupported,
                 "fetch them with the AWS CLI: eval \"$(aws configure export-credentials --format env)\"",
                 "{}: the profile '{}' takes its credentials from {}, which is not supported", path->string(), profile,
                 key);
    }
  }
  const Settings& rest = others ? *others : nothing;
  config.region = first_set(variable, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (config.region.empty()) config.region = value_of(rest, "region");
  if (config.region.empty()) config.region = "us-east-1";
  config.endpoint = first_set(variable, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"});
  if (config.endpoint.empty()) config.endpoint = value_of(rest, "endpoint_url");
  while (config.endpoint.ends_with('/')) config.endpoint.pop_back();
  if (!config.endpoint.empty()) {
    const Uri uri = parse_uri(config.endpoint);
    const size_t host = config.endpoint.find("://") + 3;
    if ((uri.scheme != UriScheme::http && uri.scheme != UriScheme::https) ||
        config.endpoint.find_first_of("/?#@", host) != std::string::npos) {
      throw_hint(ErrorKind::usage, "use an address such as https://storage.example.org:9000",
                 "the S3 endpoint {} is not an http:// or https:// address without a path", uri.shown);
    }
    config.path_style = true;
  }
  return config;
}

S3Config read_s3_config() {
  return read_s3_config([](const char* name) -> std::optional<std::string> {
    const char* value = environment(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace ingot
