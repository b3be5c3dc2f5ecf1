// API keys: who may ask, and how much. Only SHA-256 digests of keys are kept.
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
  std::string name;  // for logs and metrics; "key1", "key2", ... without one
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> concurrent;  // requests at a time
  bool admin = true;                  // may load and remove adapters, and ask for a priority above 0
};

// One key a line: the key itself or `sha256:HEX` of it, then optionally a name and limits, apart by spaces:
//   sha256:9f86d0...  alice  requests=600 concurrent=8 infer
// `requests` is a minute's; `infer` keys may not change what is served, nor come before others (`priority`). Empty
// lines and those that begin with '#' are passed over. Errors: usage, naming file and line and never the key, for what
// is wrong, and when there is no key.
std::vector<ApiKey> read_keys(const std::filesystem::path& file);
std::vector<ApiKey> parse_keys(std::string_view text, const std::string& name);

KeyDigest digest_of_key(std::string_view key);

// What a request is allowed, and what it is told of that.
struct Admission {
  enum class Verdict { ok, unknown_key, too_many_requests, too_many_at_once };
  Verdict verdict = Verdict::ok;
  std::optional<int64_t> limit;  // requests a minute
  int64_t remaining = 0;         // of them
  double reset_s = 0;            // until all of them are there again
  double retry_s = 0;            // until one is, when there is none
};

// Counts requests of each key. A key's number stays its own for the process's life. Thread-safe.
class Keys {
 public:
  explicit Keys(std::vector<ApiKey> keys);
  ~Keys();

  // From now on these are the keys. Those that were there keep their numbers and what they have used; requests of those
  // that are gone end as they would. Errors: internal for none where there were some, or the other way round.
  void replace(std::vector<ApiKey> keys);

  bool required() const;
  ApiKey at(int key) const;
  // Whose key it is, or -1. Takes the same time whichever it is.
  int find(std::string_view key) const;
  // One request of a key at this time (seconds of a steady clock). Requests come from a bucket that holds a minute's
  // and fills evenly. `leave` follows every verdict ok.
  Admission enter(int key, double now);
  void leave(int key);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
