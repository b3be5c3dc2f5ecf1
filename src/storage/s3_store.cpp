#include "storage/s3_store.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "base/threads.h"

namespace ingot {

namespace {

constexpr size_t max_parts = 10'000;                // per upload, S3's limit
constexpr uint64_t max_listed = uint64_t{1} << 24;  // bytes per page of a list
constexpr double last_timeout_s = 5;                // of a best-effort call when everything is to end
constexpr size_t headers_of_answers = 64;           // bytes by which an answer may exceed the requested range

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string unescaped(std::string_view xml) {
  std::string out;
  while (!xml.empty()) {
    bool found = false;
    for (const auto& [name, value] : {std::pair<std::string_view, char>{"&amp;", '&'},
                                      {"&lt;", '<'},
                                      {"&gt;", '>'},
                                      {"&quot;", '"'},
                                      {"&apos;", '\''},
                                      {"&#34;", '"'},
                                      {"&#39;", '\''}}) {
      if (!xml.starts_with(name)) continue;
      out += value;
      xml.remove_prefix(name.size());
      found = true;
      break;
    }
    if (found) continue;
    out += xml[0];
    xml.remove_prefix(1);
  }
  return out;
}

// The texts of all elements of this name, which do not nest.
std::vector<std::string_view> elements(std::string_view xml, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  std::vector<std::string_view> found;
  for (size_t at = 0; (at = xml.find(open, at)) != std::string_view::npos;) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == std::string_view::npos) break;
    found.push_back(xml.substr(at, end - at));
    at = end + close.size();
  }
  return found;
}

std::string element(std::string_view xml, const std::string& name) {
  const std::vector<std::string_view> found = elements(xml, name);
  return found.empty() ? std::string() : unescaped(found[0]);
}

// Decodes the keys of a list that was requested with encoding-type=url.
std::string url_decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      const char c = at < text.size() ? text[at] : ' ';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

std::string without_quotes(std::string text) {
  std::erase(text, '"');
  return text;
}

}  // namespace

void S3Bucket::address(HttpRequest& request, const std::string& key, const S3Query& query,
                       std::vector<std::pair<std::string, std::string>> amz_headers) const {
  const bool path_style = config_.path_style || bucket_.find('.') != std::string::npos;
  S3Request signing;
  signing.method = request.method;
  std::string scheme = "https://";
  if (!config_.endpoint.empty()) {
    const size_t host = config_.endpoint.find("://") + 3;
    scheme = config_.endpoint.substr(0, host);
    signing.host = config_.endpoint.substr(host);
  } else {
    signing.host = fmt::format("{}s3.{}.amazonaws.com", path_style ? "" : bucket_ + ".", config_.region);
  }
  signing.path = path_style ? "/" + percent_encoded(bucket_) : "";
  signing.path += "/" + percent_encoded(key, true);
  if (path_style && key.empty()) signing.path.pop_back();
  signing.query = s3_query_text(query);
  request.url = scheme + signing.host + signing.path + (signing.query.empty() ? "" : "?" + signing.query);
  request.redirects = false;  // a signature is valid for one host only
  request.path_as_is = true;
  if (config_.credentials) {
    signing.amz_headers = std::move(amz_headers);
    signing.payload_sha256 = sha256_hex(request.body);
    for (std::string& line : s3_signed_headers(signing, *config_.credentials, config_.region, seconds_now())) {
      request.headers.push_back(std::move(line));
    }
  } else {
    for (const auto& [name, value] : amz_headers) request.headers.push_back(fmt::format("{}: {}", name, value));
  }
}

void S3Bucket::fail(const std::string& shown, const AttemptsResult& failed) const {
  const HttpResult& result = failed.result;
  if (!result.bucket_region.empty() && result.bucket_region != config_.region) {
    throw_hint(ErrorKind::unavailable, fmt::format("set AWS_REGION={}", result.bucket_region),
               "{}: the bucket is in the region {}, not in {}", shown, result.bucket_region, config_.region);
  }
  if (result.outcome == HttpOutcome::missing && result.error_code == "NoSuchBucket") {
    throw_hint(ErrorKind::not_found, "check the bucket's name and AWS_ENDPOINT_URL", "{}: there is no bucket '{}'",
               shown, bucket_);
  }
  if (result.status == 401 || result.status == 403) {
    std::string hint = "check that these credentials may do this";
    if (!config_.credentials)
      hint = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE";
    if (result.error_code == "RequestTimeTooSkewed") hint = "set this machine's clock";
    if (result.error_code == "SignatureDoesNotMatch") hint = "check the secret access key, and AWS_REGION";
    if (result.error_code == "ExpiredToken") hint = "fetch new credentials: those in use have expired";
    throw_hint(ErrorKind::unavailable, hint, "{}: {}", shown, result.reason);
  }
  throw_http(shown, failed);
}

S3Store::S3Store(const S3Config& config, std::string bucket, std::string prefix, StoreOptions options)
    : bucket_(config, bucket), name_(std::move(bucket)), prefix_(std::move(prefix)), options_(std::move(options)) {
  while (prefix_.ends_with('/')) prefix_.pop_back();
  if (!prefix_.empty()) prefix_ += '/';
}

std::string S3Store::uri(const std::string& key) const { return fmt::format("s3://{}/{}{}", name_, prefix_, key); }

S3Store::Answer S3Store::call(const Call& call) const {
  Answer answer;
  FetchOptions options = options_.attempts;
  if (call.best_effort) {
    options.progress = nullptr;
    options.max_attempts = 1;
    options.connect_timeout_s = std::min(options.connect_timeout_s, last_timeout_s);
    options.stall_timeout_s = std::min(options.stall_timeout_s, last_timeout_s);
  }
  Attempts attempts;
  attempts.size = [] { return uint64_t{0}; };
  attempts.total = attempts.size;
  attempts.once = [&] {
    HttpRequest request;
    request.method = call.method;
    request.body = call.body;
    request.offset = call.first;
    request.length = call.bytes;
    request.connect_timeout_s = options.connect_timeout_s;
    request.stall_timeout_s = options.stall_timeout_s;
    const uint64_t max_bytes = call.bytes > 0 ? call.bytes + headers_of_answers : max_listed;
    answer.body.clear();
    request.on_bytes = [&](std::span<const std::byte> bytes) {
      if (answer.body.size() + bytes.size() > max_bytes) {
        throw_error(ErrorKind::resource, "{}: the response is longer than {} bytes", uri(call.key), max_bytes);
      }
      answer.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    request.keep_going = [&] { return !options.progress || options.progress(0, 0); };
    // A request for the bucket itself has the prefix in its query.
    bucket_.address(request, call.query.empty() || !call.key.empty() ? prefix_ + call.key : "", call.query,
                    call.amz_headers);
    HttpResult result = http_perform(request);
    // S3 may report a late error in the body of a response whose status is success.
    if (result.outcome == HttpOutcome::done && answer.body.find("<Error>") != std::string::npos &&
        call.method == "POST") {
      result.outcome = HttpOutcome::retry;
      result.reason = fmt::format("{}: {}", element(answer.body, "Code"), element(answer.body, "Message"));
    }
    return result;
  };
  answer.attempts = attempt(uri(call.key), options, attempts);
  return answer;
}

S3Store::Answer S3Store::call_or_throw(const Call& what) const {
  Answer answer = call(what);
  if (!answer.done()) bucket_.fail(uri(what.key), answer.attempts);
  return answer;
}

std::optional<StoredObject> S3Store::find(const std::string& key) const {
  const Call head{.method = "HEAD", .key = key};
  const Answer answer = call(head);
  if (answer.result().outcome == HttpOutcome::missing) return std::nullopt;
  if (!answer.done()) bucket_.fail(uri(key), answer.attempts);
  return StoredObject{key, answer.result().length, without_quotes(answer.result().etag)};
}

std::string S3Store::get(const std::string& key, uint64_t first, uint64_t bytes) const {
  if (bytes == 0) return {};
  const Call range{.method = "GET", .key = key, .first = first, .bytes = bytes};
  Answer answer = call(range);
  if (answer.result().status == 416) return {};  // beyond the end of the object
  if (!answer.done()) bucket_.fail(uri(key), answer.attempts);
  if (answer.result().status == 200 && first > 0) {
    throw_error(ErrorKind::unavailable, "{}: the server does not support range requests", uri(key));
  }
  if (answer.body.size() > bytes) answer.body.resize(static_cast<size_t>(bytes));
  return std::move(answer.body);
}

void S3Store::get_file(const std::string& key, const std::filesystem::path& out) const {
  fetch(uri(key), out, options_.attempts);
}

void S3Store::put(const std::string& key, std::span<const std::byte> bytes) {
  if (bytes.size() > options_.part_bytes) return put_parts(key, bytes);
  call_or_throw({.method = "PUT", .key = key, .body = bytes});
}

void S3Store::put_file(const std::string& key, const std::filesystem::path& file) {
  put(key, MappedFile(file).bytes());
}

void S3Store::put_parts(const std::string& key, std::span<const std::byte> bytes) {
  const Answer created = call_or_throw({.method = "POST", .key = key, .query = {{"uploads", ""}}});
  const std::string upload = element(created.body, "UploadId");
  if (upload.empty()) throw_error(ErrorKind::unavailable, "{}: the server did not start a multipart upload", uri(key));
  const size_t size =
      std::max<size_t>(static_cast<size_t>(options_.part_bytes), (bytes.size() + max_parts - 1) / max_parts);
  const size_t parts = (bytes.size() + size - 1) / size;
  std::vector<std::string> tags(parts);
  const auto put_part = [&](size_t part) {
    const Call call{.method = "PUT",
                    .key = key,
                    .query = {{"uploadId", upload}, {"partNumber", std::to_string(part + 1)}},
                    .body = bytes.subspan(part * size, std::min(size, bytes.size() - part * size))};
    tags[part] = call_or_throw(call).result().etag;
  };
  try {
    for (size_t first = 0; first < parts; first += static_cast<size_t>(options_.parallel_parts)) {
      std::vector<std::future<void>> now;
      for (size_t part = first; part < std::min(parts, first + static_cast<size_t>(options_.parallel_parts)); ++part) {
        now.push_back(start_task("an upload", [&put_part, part] { put_part(part); }));
      }
      for (std::future<void>& done : now) done.wait();
      for (std::future<void>& done : now) done.get();
    }
    std::string list = "<CompleteMultipartUpload>";
    for (size_t part = 0; part < parts; ++part) {
      list += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", part + 1, tags[part]);
    }
    list += "</CompleteMultipartUpload>";
    const Answer ended =
        call({.method = "POST", .key = key, .query = {{"uploadId", upload}}, .body = std::as_bytes(std::span(list))});
    // The response to an earlier attempt may have been lost: then the upload no longer exists, but the object does.
    const bool before = ended.attempts.attempts > 1 && ended.result().outcome == HttpOutcome::missing;
    if (before) {
      const std::optional<StoredObject> object = find(key);
      if (object && object->bytes == bytes.size()) return;
    }
    if (!ended.done()) bucket_.fail(uri(key), ended.attempts);
  } catch (...) {
    // Without this, S3 keeps the parts and charges for them. Errors here are ignored: the first error is the one to
    // report.
    std::async(std::launch::deferred, [&] {
      call({.method = "DELETE", .key = key, .query = {{"uploadId", upload}}, .best_effort = true});
    }).wait();
    throw;
  }
}

std::vector<StoredObject> S3Store::list(const std::string& prefix) const {
  std::vector<StoredObject> objects;
  std::string token;
  do {
    S3Query query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", prefix_ + prefix}};
    if (!token.empty()) query.emplace_back("continuation-token", token);
    const Answer page = call_or_throw({.method = "GET", .key = "", .query = std::move(query)});
    for (const std::string_view entry : elements(page.body, "Contents")) {
      StoredObject object;
      object.key = url_decoded(element(entry, "Key"));
      object.bytes = std::strtoull(element(entry, "Size").c_str(), nullptr, 10);
      object.etag = without_quotes(element(entry, "ETag"));
      if (!object.key.starts_with(prefix_)) continue;
      object.key.erase(0, prefix_.size());
      objects.push_back(std::move(object));
    }
    token = element(page.body, "IsTruncated") == "true" ? element(page.body, "NextContinuationToken") : "";
  } while (!token.empty());
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return objects;
}

void S3Store::remove(const std::string& key) {
  const Answer answer = call({.method = "DELETE", .key = key});
  if (!answer.done() && answer.result().outcome != HttpOutcome::missing) bucket_.fail(uri(key), answer.attempts);
}

int64_t S3Store::abort_unfinished_uploads(const std::string& prefix) {
  struct Upload {
    std::string key, id;
  };
  std::vector<Upload> uploads;
  Upload after;
  do {
    S3Query query = {{"uploads", ""}, {"encoding-type", "url"}, {"prefix", prefix_ + prefix}};
    if (!after.key.empty()) query.insert(query.end(), {{"key-marker", after.key}, {"upload-id-marker", after.id}});
    const Answer page = call_or_throw({.method = "GET", .key = "", .query = std::move(query)});
    for (const std::string_view entry : elements(page.body, "Upload")) {
      const Upload upload{url_decoded(element(entry, "Key")), element(entry, "UploadId")};
      if (upload.key.starts_with(prefix_)) uploads.push_back({upload.key.substr(prefix_.size()), upload.id});
    }
    after = {};
    if (element(page.body, "IsTruncated") == "true") {
      after = {url_decoded(element(page.body, "NextKeyMarker")), element(page.body, "NextUploadIdMarker")};
    }
  } while (!after.key.empty());
  for (const Upload& upload : uploads) {
    const Answer answer = call({.method = "DELETE", .key = upload.key, .query = {{"uploadId", upload.id}}});
    const bool gone = answer.done() || answer.result().outcome == HttpOutcome::missing;
    if (!gone) bucket_.fail(uri(upload.key), answer.attempts);
  }
  return std::ssize(uploads);
}

}  // namespace ingot
