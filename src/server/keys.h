// API keys and their rate limits. Only SHA-256 digests of keys are stored.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::server {

using KeyDigest = std::array<unsigned char, 32>;

struct ApiKey {
  KeyDigest digest{};
  std::string name;  // for logs and metrics; "key1", "key2", ... if not given
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> concurrent;  // max requests at a time
  bool admin = true;                  // may load and remove adapters, and use a priority above 0
};

// One key per line: the key itself or `sha256:HEX` of it, then optionally a name and limits, separated by spaces:
//    sha256:9f86d0...  alice  requests=600 concurrent=8 infer
// `requests`: per minute. `infer`: the key may neither change what is served nor use a `priority` above 0. Empty lines
// and lines that begin with '#' are skipped. Errors: usage, naming file and line but never the key, for an invalid
// line, and when there is no key.
std::vector<ApiKey> read_keys(const std::filesystem::path& file);
std::vector<ApiKey> parse_keys(std::string_view text, const std::string& name);

KeyDigest digest_of_key(std::string_view key);

// Whether a request is allowed, and the rate limit that its answer reports.
struct Admission {
  enum class Verdict { ok, unknown_key, too_many_requests, too_many_at_once };
  Verdict verdict = Verdict::ok;
  std::optional<int64_t> limit;  // requests per minute
  int64_t remaining = 0;         // of these
  double reset_s = 0;            // until all of them are available again
  double retry_s = 0;            // until a retry makes sense, when refused
};

// Counts the requests of each key. A key's index stays the same for the life of the process. Thread-safe.
class Keys {
 public:
  explicit Keys(std::vector<ApiKey> keys);
  ~Keys();

  // Replaces the keys. Keys that are also in the new list retain their index and their usage; running requests of
  // removed keys are not aborted. Errors: internal for no keys where there were some, or the other way round.
  void replace(std::vector<ApiKey> keys);

  bool required() const;
  ApiKey at(int key) const;
  // The index of the key, or -1. Runs in constant time, so that timing reveals nothing about the keys.
  int find(std::string_view key) const;
  // Starts a request of a key at time `now` (seconds of a steady clock). Token bucket: holds the requests of a minute
  // and refills evenly. `leave` must follow every verdict ok.
  Admission enter(int key, double now);
  void leave(int key);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
