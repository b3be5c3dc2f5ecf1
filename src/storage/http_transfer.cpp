#include "storage/http_transfer.h"

#include <curl/curl.h>

#include <charconv>
#include <cstring>
#include <exception>
#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "base/path.h"
#include "base/strings.h"
#include "storage/uri.h"

namespace ingot {
namespace {

struct CloseEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CloseList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

uint64_t number_at(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

constexpr size_t max_error_bytes = 4096;  // of the body of an unsuccessful response

// State of one transfer, used by libcurl's callbacks. They are called from C code, so exceptions are stored and
// rethrown.
struct Transfer {
  const HttpRequest& request;
  CURL* handle;
  long status = 0;
  std::string etag;
  std::string modified;
  std::string content_range;
  std::string bucket_region, checksum;
  size_t sent = 0;  // bytes of the request body
  uint64_t content_length = 0;
  bool started = false;
  bool stopped = false;
  bool bad_range = false;
  std::string error_body;
  std::exception_ptr failure;

  bool good() const { return status == 200 || status == 206 || (request.method != "GET" && status == 204); }

  void header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // a new response, after a redirect or a 100
      etag.clear();
      modified.clear();
      content_range.clear();
      content_length = 0;
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string key = lowered(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1));
    if (key == "etag") etag = value;
    if (key == "last-modified") modified = value;
    if (key == "content-range") content_range = value;
    if (key == "content-length") content_length = number_at(value);
    if (key == "x-amz-bucket-region") bucket_region = value;
    if (key == "x-amz-checksum-sha256") checksum = value;
  }

  // Whether the response is of another version than the bytes before `offset`. For servers that ignore If-Range.
  bool is_another_version() const {
    const std::string& before = request.validator;
    const std::string& now = before.starts_with('"') ? etag : modified;
    return !before.empty() && !now.empty() && before != etag && before != modified;
  }

  // Returns whether to receive the body.
  bool start() {
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    started = true;
    if (!good()) return true;  // the first bytes of the body go into the message
    uint64_t first = 0;
    uint64_t total = content_length;
    if (status == 206) {  // "bytes FIRST-LAST/TOTAL"
      const bool bytes = content_range.starts_with("bytes ");
      first = bytes ? number_at(std::string_view(content_range).substr(6)) : 0;
      const size_t slash = content_range.find('/');
      total = slash == std::string::npos ? 0 : number_at(std::string_view(content_range).substr(slash + 1));
      bad_range = !bytes || first != request.offset || is_another_version();
      if (bad_range) return false;
    }
    // If-Range takes strong validators only.
    const std::string validator = !etag.empty() && !etag.starts_with("W/") ? etag : modified;
    if (request.on_start) request.on_start(first, validator, total);
    return true;
  }

  bool body(std::span<const std::byte> bytes) {
    if (!started && !start()) return false;
    if (good()) {
      if (request.on_bytes) request.on_bytes(bytes);
    } else if (error_body.size() < max_error_bytes) {
      const size_t room = max_error_bytes - error_body.size();
      error_body.append(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), room));
    }
    return true;
  }
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  static_cast<Transfer*>(user)->header(trim({data, size * count}));
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  try {
    return transfer->body(std::as_bytes(std::span(data, size * count))) ? size * count : 0;
  } catch (...) {
    transfer->failure = std::current_exception();
    return 0;
  }
}

size_t on_send(char* out, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const auto left = transfer->request.body.subspan(transfer->sent);
  const size_t now = std::min(size * count, left.size());
  if (now > 0) std::memcpy(out, left.data(), now);
  transfer->sent += now;
  return now;
}

// Called when libcurl sends the body again, because the server had closed the connection.
int on_seek(void* user, curl_off_t offset, int origin) {
  auto* transfer = static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > transfer->request.body.size()) {
    return CURL_SEEKFUNC_FAIL;
  }
  transfer->sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int on_tick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(user);
  try {
    transfer->stopped = transfer->request.keep_going && !transfer->request.keep_going();
    return transfer->stopped ? 1 : 0;
  } catch (...) {
    transfer->failure = std::current_exception();
    return 1;
  }
}

bool is_retryable(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

bool is_retryable(long status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

// An element of S3's error response. Only <Code> and <Message> are used: the rest may contain what was signed.
std::string error_element(std::string_view xml, const std::string& name) {
  const size_t begin = xml.find("<" + name + ">"), end = xml.find("</" + name + ">");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::string(trim(xml.substr(begin + name.size() + 2, end - begin - name.size() - 2)));
}

HttpResult judge(const Transfer& transfer, CURLcode code, const char* details) {
  HttpResult result;
  result.status = transfer.status;
  result.etag = transfer.etag;
  result.last_modified = transfer.modified;
  result.bucket_region = transfer.bucket_region;
  result.checksum_sha256 = transfer.checksum;
  result.length = transfer.content_length;
  if (transfer.stopped) {
    result.outcome = HttpOutcome::stopped;
    result.reason = "stopped";
    return result;
  }
  if (transfer.bad_range || transfer.status == 416) {
    result.outcome = HttpOutcome::stale_range;
    result.reason = "the file has changed";
    return result;
  }
  if (code != CURLE_OK && (transfer.good() || transfer.status == 0)) {
    result.reason = *details != 0 ? details : curl_easy_strerror(code);
    result.outcome = is_retryable(code) ? HttpOutcome::retry : HttpOutcome::failed;
    return result;
  }
  if (transfer.good()) {
    result.outcome = HttpOutcome::done;
    return result;
  }
  curl_off_t wait = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RETRY_AFTER, &wait);
  result.retry_after_s = static_cast<double>(wait);
  result.reason = fmt::format("the server answered {}", transfer.status);
  result.error_code = error_element(transfer.error_body, "Code");
  std::string body(trim(std::string_view(transfer.error_body).substr(0, 200)));
  if (!result.error_code.empty()) body = result.error_code + ": " + error_element(transfer.error_body, "Message");
  const bool readable =
      std::none_of(body.begin(), body.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (!body.empty() && readable && is_utf8(body) && !body.starts_with('<')) result.reason += ": " + body;
  result.outcome = is_retryable(transfer.status)                      ? HttpOutcome::retry
                   : transfer.status == 404 || transfer.status == 410 ? HttpOutcome::missing
                                                                      : HttpOutcome::failed;
  return result;
}

}  // namespace

HttpResult http_perform(const HttpRequest& request) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  // One handle per thread, kept so that the thread's next request reuses the connection.
  static thread_local std::unique_ptr<CURL, CloseEasy> easy(curl_easy_init());
  if (easy) curl_easy_reset(easy.get());
  if (!easy) throw_error(ErrorKind::unavailable, "libcurl cannot be started");

  Transfer transfer{.request = request, .handle = easy.get()};
  std::vector<std::string> lines = request.headers;
  if (request.offset > 0 || request.length > 0) {
    const std::string last = request.length > 0 ? fmt::format("{}", request.offset + request.length - 1) : "";
    lines.push_back(fmt::format("Range: bytes={}-{}", request.offset, last));
    if (!request.validator.empty()) lines.push_back("If-Range: " + request.validator);
  }
  std::unique_ptr<curl_slist, CloseList> list;
  for (const std::string& line : lines) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) throw_error(ErrorKind::resource, "out of memory for HTTP headers");
    if (!list) list.reset(longer);  // the list's head stays the same afterwards
  }

  std::array<char, CURL_ERROR_SIZE> details{};
  CURL* handle = easy.get();
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR,
                   parse_uri(request.url).scheme == UriScheme::https ? "https" : "http,https");
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, request.path_as_is ? 1L : 0L);
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, request.redirects ? 1L : 0L);
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_READFUNCTION, &on_send);
    curl_easy_setopt(handle, CURLOPT_READDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, &on_seek);
    curl_easy_setopt(handle, CURLOPT_SEEKDATA, &transfer);
  }
  if (request.method != "GET" && request.method != "HEAD") {
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "ingot/0.1");
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout_s * 1000));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(request.stall_timeout_s)));
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, details.data());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &on_tick);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    const char* file = environment(name);
    if (file == nullptr || *file == 0) continue;
    open_regular_file(file);  // refuses pipes and devices, which libcurl would open
    curl_easy_setopt(handle, CURLOPT_CAINFO, file);
  }
  const char* folder = environment("SSL_CERT_DIR");
  if (folder != nullptr && *folder != 0) curl_easy_setopt(handle, CURLOPT_CAPATH, folder);

  const CURLcode code = curl_easy_perform(handle);
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  // An empty file has no body, so start() has not been called yet.
  if (!transfer.started && code == CURLE_OK) transfer.start();
  return judge(transfer, code, details.data());
}

}  // namespace ingot
