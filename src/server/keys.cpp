#include "server/keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace ingot::server {

namespace {

std::optional<KeyDigest> parse_digest(std::string_view hex) {
  KeyDigest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* begin = hex.data() + 2 * i;
    const auto [end, failed] = std::from_chars(begin, begin + 2, digest[i], 16);
    if (failed != std::errc() || end != begin + 2) return std::nullopt;
  }
  return digest;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view blank = " \t\r";
  for (size_t at = line.find_first_not_of(blank); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(blank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(blank, end);
  }
  return words;
}

ApiKey parse_line(const std::vector<std::string_view>& words, const std::string& where) {
  ApiKey key;
  constexpr std::string_view hashed = "sha256:";
  if (words[0].starts_with(hashed)) {
    const std::optional<KeyDigest> digest = parse_digest(words[0].substr(hashed.size()));
    if (!digest) throw_error(ErrorKind::usage, "{}: 'sha256:' must be followed by 64 hexadecimal digits", where);
    key.digest = *digest;
  } else {
    if (words[0].size() < 16) {
      throw_hint(ErrorKind::usage, "generate one with openssl rand -hex 24",
                 "{}: the key has {} characters; it must have at least 16", where, words[0].size());
    }
    key.digest = digest_of_key(words[0]);
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    if (word == "infer") {
      key.admin = false;
    } else if (equals != std::string_view::npos) {
      const std::string_view limit = word.substr(0, equals);
      const std::string_view digits = word.substr(equals + 1);
      int64_t value = 0;
      const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (failed != std::errc() || end != digits.data() + digits.size() || value < 1) {
        throw_error(ErrorKind::usage, "{}: '{}' must be a whole number of at least 1", where, limit);
      }
      if (limit == "requests") {
        key.requests_per_minute = value;
      } else if (limit == "concurrent") {
        key.concurrent = value;
      } else {
        throw_error(ErrorKind::usage, "{}: the limit '{}' is not known; use requests or concurrent", where, limit);
      }
    } else if (i == 1) {
      key.name = word;
    } else {
      throw_error(ErrorKind::usage, "{}: unknown word '{}' after the name", where, word);
    }
  }
  return key;
}

}  // namespace

KeyDigest digest_of_key(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::vector<ApiKey> parse_keys(std::string_view text, const std::string& name) {
  std::vector<ApiKey> keys;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    keys.push_back(parse_line(words, fmt::format("{} line {}", name, number)));
    if (keys.back().name.empty()) keys.back().name = fmt::format("key{}", keys.size());
  }
  if (keys.empty()) throw_error(ErrorKind::usage, "{} contains no key", name);
  return keys;
}

std::vector<ApiKey> read_keys(const std::filesystem::path& file) { return parse_keys(read_file(file), file.string()); }

struct Keys::State {
  // A current or former key, and its usage.
  struct Slot {
    ApiKey key;
    bool valid = true;
    double tokens = 0;  // token bucket: requests that are available
    double at = 0;      // time of that count
    int64_t running = 0;
    bool used = false;
  };
  bool required = false;
  Guarded<std::vector<Slot>> slots;
};

Keys::Keys(std::vector<ApiKey> keys) : state_(std::make_unique<State>()) {
  state_->required = !keys.empty();
  replace(std::move(keys));
}

Keys::~Keys() = default;

void Keys::replace(std::vector<ApiKey> keys) {
  if (keys.empty() == state_->required)
    throw_error(ErrorKind::internal, "keys cannot be added to a server without keys, or all removed");
  auto held = state_->slots.lock();
  std::vector<State::Slot> slots = *held;
  for (State::Slot& slot : slots) slot.valid = false;
  for (ApiKey& key : keys) {
    const auto same = std::find_if(slots.begin(), slots.end(),
                                   [&](const State::Slot& slot) { return slot.key.digest == key.digest; });
    State::Slot& slot = same == slots.end() ? slots.emplace_back() : *same;
    slot.key = std::move(key);
    slot.valid = true;
  }
  *held = std::move(slots);
}

bool Keys::required() const { return state_->required; }

ApiKey Keys::at(int key) const { return state_->slots.lock()->at(static_cast<size_t>(key)).key; }

int Keys::find(std::string_view key) const {
  const KeyDigest digest = digest_of_key(key);
  int found = -1;
  const auto slots = state_->slots.lock();
  // Every key is compared completely: constant time.
  for (size_t i = 0; i < slots->size(); ++i) {
    const bool same = CRYPTO_memcmp(digest.data(), (*slots)[i].key.digest.data(), digest.size()) == 0;
    found = same && (*slots)[i].valid ? static_cast<int>(i) : found;
  }
  return found;
}

Admission Keys::enter(int key, double now) {
  Admission admission;
  if (!required()) return admission;
  if (key < 0) {
    admission.verdict = Admission::Verdict::unknown_key;
    return admission;
  }
  auto slots = state_->slots.lock();
  State::Slot& use = (*slots)[static_cast<size_t>(key)];
  const ApiKey& who = use.key;
  if (who.concurrent && use.running >= *who.concurrent) {
    admission.verdict = Admission::Verdict::too_many_at_once;
    admission.retry_s = 1;
  }
  if (who.requests_per_minute) {
    const double capacity = static_cast<double>(*who.requests_per_minute);
    const double per_second = capacity / 60;
    use.tokens = use.used ? std::min(capacity, use.tokens + (now - use.at) * per_second) : capacity;
    use.at = now;
    use.used = true;
    if (use.tokens < 1 && admission.verdict == Admission::Verdict::ok) {
      admission.verdict = Admission::Verdict::too_many_requests;
      admission.retry_s = (1 - use.tokens) / per_second;
    }
    if (admission.verdict == Admission::Verdict::ok) use.tokens -= 1;
    admission.limit = who.requests_per_minute;
    admission.remaining = static_cast<int64_t>(use.tokens);
    admission.reset_s = (capacity - use.tokens) / per_second;
  }
  if (admission.verdict == Admission::Verdict::ok) ++use.running;
  return admission;
}

void Keys::leave(int key) {
  if (key >= 0) --(*state_->slots.lock())[static_cast<size_t>(key)].running;
}

}  // namespace ingot::server
