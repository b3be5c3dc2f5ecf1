#include "base/fetch.h"

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/http_transfer.h"
#include "base/strings.h"
#include "base/uri.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::string digest_of(const fs::path& path) { return sha256_hex(MappedFile(path).bytes()); }

void check_digest(const std::string& shown, const std::string& found, const std::string& expected) {
  std::string wanted = expected;
  for (char& c : wanted) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (found == wanted) return;
  throw_hint(ErrorKind::corrupt, "fetch it again; if that does not help, the source or the expected checksum is wrong",
             "{}: the SHA-256 is {}, expected {}", shown, found, wanted);
}

// Progress at most ten times a second.
class Reporter {
 public:
  explicit Reporter(const FetchOptions& options) : options_(options) {}
  bool keep_going(uint64_t done, uint64_t total, bool always = false) {
    if (!options_.progress) return true;
    const double now = steady_seconds();
    if (!always && now - last_ < 0.1) return true;
    last_ = now;
    return options_.progress(done, total);
  }

 private:
  const FetchOptions& options_;
  double last_ = -1;
};

[[noreturn]] void throw_stopped(const std::string& shown) {
  throw_hint(ErrorKind::unavailable, "run the same command again; it goes on where it was", "{}: stopped", shown);
}

[[noreturn]] void throw_failed(const Uri& uri, const HttpResult& result, int attempts) {
  if (result.outcome == HttpOutcome::missing) {
    throw_hint(ErrorKind::not_found, "check the name", "{}: {}", uri.shown, result.reason);
  }
  std::string hint = "check the address, the network and the proxy settings";
  if (attempts > 1) hint += fmt::format("; {} attempts were made", attempts);
  throw_hint(ErrorKind::unavailable, hint, "{}: {}", uri.shown, result.reason);
}

// Where the body goes, and where it starts when there is something to continue.
struct Target {
  std::function<void(HttpRequest&)> prepare;  // sets offset and validator
  std::function<void(uint64_t start, const std::string& validator)> start;
  std::function<void(std::span<const std::byte>)> take;
  std::function<uint64_t()> size;
  std::function<void()> forget;  // start over
};

void run_attempts(const Uri& uri, const FetchOptions& options, const Target& target) {
  Reporter reporter(options);
  uint64_t total = 0;
  uint64_t furthest = target.size();
  int idle_attempts = 0;
  int attempts = 0;
  bool ranges_work = true;
  double wait = options.first_wait_s;
  for (;;) {
    HttpRequest request{.url = uri.text,
                        .headers = options.headers,
                        .connect_timeout_s = options.connect_timeout_s,
                        .stall_timeout_s = options.stall_timeout_s};
    target.prepare(request);
    request.on_start = [&](uint64_t start, const std::string& validator, uint64_t length) {
      total = length;
      target.start(start, validator);
    };
    request.on_bytes = [&](std::span<const std::byte> bytes) { target.take(bytes); };
    request.keep_going = [&] { return reporter.keep_going(target.size(), total); };
    const HttpResult result = http_get(request);
    ++attempts;
    switch (result.outcome) {
      case HttpOutcome::done: reporter.keep_going(target.size(), target.size(), true); return;
      case HttpOutcome::stopped: throw_stopped(uri.shown);
      case HttpOutcome::missing:
      case HttpOutcome::failed: throw_failed(uri, result, attempts);
      case HttpOutcome::stale_range:
        // From the beginning at once; a server that answers so to a plain request as well is beyond help.
        if (!ranges_work) throw_failed(uri, result, attempts);
        ranges_work = false;
        target.forget();
        furthest = 0;
        continue;
      case HttpOutcome::retry: break;
    }
    if (target.size() > furthest) {
      furthest = target.size();
      idle_attempts = 0;
      wait = options.first_wait_s;
    }
    if (++idle_attempts >= options.max_attempts) throw_failed(uri, result, attempts);
    const double until = steady_seconds() + std::min(std::max(wait, result.retry_after_s), 60.0);
    while (steady_seconds() < until) {
      if (!reporter.keep_going(target.size(), total)) throw_stopped(uri.shown);
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.05, until - steady_seconds())));
    }
    wait = std::min(wait * 2, 30.0);
  }
}

// Which version of which file the bytes in OUT.partial belong to: two lines, the digest of the URI (which may hold
// secrets) and the validator.
struct Origin {
  fs::path path;
  std::string uri_digest;

  std::string validator() const {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return {};
    const std::vector<std::string> lines = split(read_file(path, 1 << 16), '\n');
    return lines.size() >= 2 && lines[0] == uri_digest ? lines[1] : std::string();
  }
  void keep(const std::string& validator) const { write_file(path, uri_digest + "\n" + validator + "\n"); }
  void remove() const {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

void fetch_http(const Uri& uri, const fs::path& out, const FetchOptions& options) {
  FileWriter writer(out, WriteMode::resume);
  Origin origin{writer.partial(), sha256_hex(std::as_bytes(std::span(uri.text.data(), uri.text.size())))};
  origin.path += ".origin";
  const auto forget = [&] {
    writer.cut(0);
    origin.remove();
  };
  Target target;
  target.prepare = [&](HttpRequest& request) {
    request.validator = writer.offset() > 0 ? origin.validator() : "";
    if (request.validator.empty() && writer.offset() > 0) forget();
    request.offset = writer.offset();
  };
  target.start = [&](uint64_t start, const std::string& validator) {
    if (start == 0) {
      forget();
      if (!validator.empty()) origin.keep(validator);
    }
  };
  target.take = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
  target.size = [&] { return writer.offset(); };
  target.forget = forget;
  run_attempts(uri, options, target);
  if (!options.sha256.empty()) {
    try {
      check_digest(uri.shown, digest_of(writer.partial()), options.sha256);
    } catch (...) {
      forget();
      throw;
    }
  }
  writer.publish();
  origin.remove();
}

void fetch_local(const Uri& uri, const fs::path& out, const FetchOptions& options) {
  const MappedFile source(uri.path);
  Reporter reporter(options);
  FileWriter writer(out);
  Sha256 digest;
  std::span<const std::byte> left = source.bytes();
  while (!left.empty()) {
    const auto piece = left.first(std::min(left.size(), size_t{1} << 22));
    writer.write(piece);
    if (!options.sha256.empty()) digest.update(piece);
    left = left.subspan(piece.size());
    if (!reporter.keep_going(writer.offset(), source.bytes().size(), left.empty())) throw_stopped(uri.shown);
  }
  if (!options.sha256.empty()) check_digest(uri.shown, digest.hex(), options.sha256);
  writer.publish();
}

[[noreturn]] void throw_s3(const Uri& uri) {
  throw_hint(ErrorKind::unsupported, "copy the file here first and give its path, or use an https:// address",
             "{}: object stores (s3://) are not supported yet; they come with issue 5", uri.shown);
}

}  // namespace

void fetch(const std::string& text, const fs::path& out, const FetchOptions& options) {
  const Uri uri = parse_uri(text);
  switch (uri.scheme) {
    case UriScheme::file: return fetch_local(uri, out, options);
    case UriScheme::http:
    case UriScheme::https: return fetch_http(uri, out, options);
    case UriScheme::s3: throw_s3(uri);
  }
}

std::string fetch_text(const std::string& text, uint64_t limit, const FetchOptions& options) {
  const Uri uri = parse_uri(text);
  if (uri.scheme == UriScheme::s3) throw_s3(uri);
  std::string body;
  if (uri.scheme == UriScheme::file) {
    body = read_file(uri.path, limit);
  } else {
    Target target;
    target.prepare = [&](HttpRequest&) { body.clear(); };
    target.start = [&](uint64_t, const std::string&) { body.clear(); };
    target.take = [&](std::span<const std::byte> bytes) {
      if (body.size() + bytes.size() > limit) {
        throw_error(ErrorKind::resource, "{}: is longer than {} bytes", uri.shown, limit);
      }
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    target.size = [&] { return uint64_t{body.size()}; };
    target.forget = [&] { body.clear(); };
    run_attempts(uri, options, target);
  }
  if (!options.sha256.empty()) {
    check_digest(uri.shown, sha256_hex(std::as_bytes(std::span(body.data(), body.size()))), options.sha256);
  }
  return body;
}

}  // namespace ingot
