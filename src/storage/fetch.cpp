#include "storage/fetch.h"

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "storage/http_attempts.h"
#include "storage/s3_store.h"
#include "storage/uri.h"

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

// Where the body goes, and from where an interrupted transfer continues.
struct Target {
  std::function<void(HttpRequest&)> prepare;  // sets offset and validator
  std::function<void(uint64_t start, const std::string& validator)> start;
  std::function<void(std::span<const std::byte>)> take;
  std::function<uint64_t()> size;
  std::function<void()> restart;  // start over
};

// How a file is requested: sets the address and headers of a request, and throws the error of a failed one.
struct RequestSetup {
  std::function<void(HttpRequest&)> address;
  std::function<void(const AttemptsResult&)> fail;  // throws
};

RequestSetup request_setup_of(const Uri& uri, const FetchOptions& options) {
  if (uri.scheme == UriScheme::s3) {
    auto bucket = std::make_shared<const S3Bucket>(read_s3_config(), uri.bucket);
    return {[bucket, key = uri.key](HttpRequest& request) { bucket->address(request, key); },
            [bucket, shown = uri.shown](const AttemptsResult& failed) { bucket->fail(shown, failed); }};
  }
  return {[&uri, &options](HttpRequest& request) {
            request.url = uri.text;
            request.headers = options.headers;
          },
          [&uri](const AttemptsResult& failed) { throw_http(uri.shown, failed); }};
}

void run_attempts(const Uri& uri, const FetchOptions& options, const Target& target) {
  const RequestSetup setup = request_setup_of(uri, options);
  ProgressReporter reporter(options);
  uint64_t total = 0;
  Attempts attempts;
  attempts.size = target.size;
  attempts.total = [&] { return total; };
  attempts.once = [&] {
    HttpRequest request{.connect_timeout_s = options.connect_timeout_s, .stall_timeout_s = options.stall_timeout_s};
    setup.address(request);
    target.prepare(request);
    request.on_start = [&](uint64_t start, const std::string& validator, uint64_t length) {
      total = length;
      target.start(start, validator);
    };
    request.on_bytes = [&](std::span<const std::byte> bytes) { target.take(bytes); };
    request.keep_going = [&] { return reporter.keep_going(target.size(), total); };
    return http_perform(request);
  };
  AttemptsResult result = attempt(uri.shown, options, attempts);
  if (result.result.outcome == HttpOutcome::stale_range) {
    // Starts over at once. If the server answers a plain request in this way too, the fetch fails.
    target.restart();
    result = attempt(uri.shown, options, attempts);
  }
  if (result.result.outcome != HttpOutcome::done) setup.fail(result);
  reporter.keep_going(target.size(), target.size(), true);
}

// The version of the file that the bytes in OUT.partial are from, stored as two lines: the digest of the URI (which may
// hold secrets) and the validator.
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
  const auto restart = [&] {
    writer.cut(0);
    origin.remove();
  };
  Target target;
  target.prepare = [&](HttpRequest& request) {
    request.validator = writer.offset() > 0 ? origin.validator() : "";
    if (request.validator.empty() && writer.offset() > 0) restart();
    request.offset = writer.offset();
  };
  target.start = [&](uint64_t start, const std::string& validator) {
    if (start == 0) {
      restart();
      if (!validator.empty()) origin.keep(validator);
    }
  };
  target.take = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
  target.size = [&] { return writer.offset(); };
  target.restart = restart;
  run_attempts(uri, options, target);
  if (!options.sha256.empty()) {
    try {
      check_digest(uri.shown, digest_of(writer.partial()), options.sha256);
    } catch (...) {
      restart();
      throw;
    }
  }
  writer.publish();
  origin.remove();
}

void fetch_local(const Uri& uri, const fs::path& out, const FetchOptions& options) {
  const MappedFile source(uri.path);
  ProgressReporter reporter(options);
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

}  // namespace

void fetch(const std::string& text, const fs::path& out, const FetchOptions& options) {
  const Uri uri = parse_uri(text);
  switch (uri.scheme) {
    case UriScheme::file: return fetch_local(uri, out, options);
    case UriScheme::http:
    case UriScheme::https:
    case UriScheme::s3: return fetch_http(uri, out, options);
  }
}

std::string fetch_text(const std::string& text, uint64_t limit, const FetchOptions& options) {
  const Uri uri = parse_uri(text);
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
    target.restart = [&] { body.clear(); };
    run_attempts(uri, options, target);
  }
  if (!options.sha256.empty()) {
    check_digest(uri.shown, sha256_hex(std::as_bytes(std::span(body.data(), body.size()))), options.sha256);
  }
  return body;
}

}  // namespace ingot
