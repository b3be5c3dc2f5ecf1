// The S3 endpoint, region and credentials, from the environment and files that AWS's own tools read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "storage/s3_signature.h"

namespace ingot {

struct S3Config {
  std::string endpoint;  // "http://127.0.0.1:9000"; empty: Amazon's endpoint of the region
  std::string region = "us-east-1";
  bool path_style = false;  // host/bucket/key instead of bucket.host/key; always true when `endpoint` is set
  std::optional<S3Credentials> credentials;  // none: requests are not signed, as for public buckets
};

// - Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile AWS_PROFILE or
//   AWS_DEFAULT_PROFILE (default: "default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), else of
//   AWS_CONFIG_FILE (~/.aws/config).
// - Region: AWS_REGION, AWS_DEFAULT_REGION, or the profile's.
// - Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, S3_ENDPOINT_URL (which MosaicML Streaming reads), or the profile's
//   endpoint_url.
// `variable` reads the environment; nothing for a variable that is unset. Errors: usage for a named profile that does
// not exist, for one key without the other, and for an endpoint that is not an http(s):// address; unsupported for a
// profile whose credentials come from elsewhere (a role, SSO, a process), with what to do; corrupt for a line that is
// not a setting.
S3Config read_s3_config(const std::function<std::optional<std::string>(const char*)>& variable);
// From this process's environment.
S3Config read_s3_config();

}  // namespace ingot
