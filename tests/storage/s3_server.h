// An object store on a loopback port with the part of S3 that ingot uses. It recomputes the signature of every request
// from the bytes received and rejects mismatches. Tests can inject faults.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/storage/loopback_socket.h"

namespace ingot {

class S3Server {
 public:
  struct Request {
    std::string method, path, query;             // as received
    std::map<std::string, std::string> headers;  // lower-case names
    std::string body;
    std::string key;                          // "bucket/key", decoded
    std::map<std::string, std::string> args;  // of the query, decoded
  };
  enum class Fault {
    none,
    busy,      // 503 SlowDown
    denied,    // 403 AccessDenied
    reset,     // the connection is reset before the answer
    truncate,  // half of the body is sent, then the connection is closed
    flip,      // one bit of the body is flipped
    late,      // status 200 whose body is an error (CompleteMultipartUpload)
  };
  struct State {
    std::map<std::string, std::string> objects;  // "bucket/key"
    std::map<std::string, std::map<int, std::string>> uploads;
    std::map<std::string, std::string> upload_keys;  // "bucket/key" of these uploads
    std::vector<Request> requests;
    std::string problem;  // why the first request was rejected
    int max_at_once = 0, now = 0;
  };

  const std::string access = "AKIDLOOPBACK", secret = "aVery/Secret+Key", region = "test-region-1";
  std::string token;                                          // required session token, if not empty
  size_t page = 2;                                            // objects per page of a listing
  std::function<Fault(const Request&, size_t number)> fault;  // called for each correctly signed request

  S3Server() {
    thread_ = std::thread([this] { serve(); });
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;
  ~S3Server() {
    stop_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
  }

  // Transient faults: of(number) for each request, but at most twice for one method and address. A client that tries
  // three times is answered, however the requests of others interleave.
  static std::function<Fault(const Request&, size_t)> passing(std::function<Fault(size_t)> of) {
    auto faults = std::make_shared<Guarded<std::map<std::string, int>>>();
    return [faults, of = std::move(of)](const Request& request, size_t number) {
      const Fault wanted = of(number);
      if (wanted == Fault::none) return wanted;
      const auto had = faults->lock();
      return ++(*had)[request.method + request.path + "?" + request.query] <= 2 ? wanted : Fault::none;
    };
  }

  std::string endpoint() const { return socket_.url(); }
  // Sets the environment variables with which programs find the server.
  void announce() const {
    for (const char* name : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"})
      ::unsetenv(name);
    ::setenv("no_proxy", "127.0.0.1", 1);
    ::setenv("AWS_ENDPOINT_URL", endpoint().c_str(), 1);
    ::setenv("AWS_REGION", region.c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", access.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
    ::setenv("AWS_SESSION_TOKEN", token.c_str(), 1);
    ::setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
  }
  void put(const std::string& key, std::string bytes) { state_.lock()->objects[key] = std::move(bytes); }
  // Empty when there is no such object.
  std::string object(const std::string& key) {
    const auto state = state_.lock();
    const auto found = state->objects.find(key);
    return found != state->objects.end() ? found->second : "";
  }
  std::vector<Request> requests() { return state_.lock()->requests; }
  size_t unfinished_uploads() { return state_.lock()->uploads.size(); }
  std::string problem() { return state_.lock()->problem; }
  int max_at_once() { return state_.lock()->max_at_once; }

 private:
  static std::string hmac(const std::string& key, const std::string& text) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), digest.data(), &size);
    return {reinterpret_cast<const char*>(digest.data()), size};
  }
  static std::string hex(const std::string& bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
      text += digits[static_cast<unsigned char>(c) >> 4];
      text += digits[static_cast<unsigned char>(c) & 15];
    }
    return text;
  }
  static std::string sha256(const std::string& text) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
    return hex({reinterpret_cast<const char*>(digest.data()), size});
  }
  static std::string decoded(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        out += text[i];
        continue;
      }
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
    return out;
  }
  static std::string encoded(const std::string& text, const std::string& keep) {
    std::string out;
    for (const char c : text) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || keep.find(c) != std::string::npos) {
        out += c;
      } else {
        std::string code = hex(std::string(1, c));
        for (char& digit : code) digit = static_cast<char>(std::toupper(digit));
        out += "%" + code;
      }
    }
    return out;
  }
  static std::vector<std::string> pieces(const std::string& text, char separator) {
    std::vector<std::string> out;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(separator, begin), text.size());
      if (end > begin) out.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return out;
  }
  static std::string answer(int status, const std::string& body, const std::string& more = "") {
    return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
  }
  static std::string error(int status, const std::string& code) {
    return answer(
        status, "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>as the test wants</Message></Error>");
  }

  // Empty when the request is signed correctly, otherwise S3's error code.
  std::string check(const Request& request) const {
    const auto header = [&](const std::string& name) {
      const auto found = request.headers.find(name);
      return found == request.headers.end() ? std::string() : found->second;
    };
    const std::string authorization = header("authorization");
    const auto field = [&](const std::string& name) {
      const size_t at = authorization.find(name + "=");
      if (at == std::string::npos) return std::string();
      const size_t begin = at + name.size() + 1;
      return authorization.substr(begin, authorization.find(',', begin) - begin);
    };
    if (!authorization.starts_with("AWS4-HMAC-SHA256 ")) return "AccessDenied";
    if (header("x-amz-security-token") != token) return "InvalidToken";
    if (header("x-amz-content-sha256") != sha256(request.body)) return "XAmzContentSHA256Mismatch";
    std::vector<std::string> arguments = pieces(request.query, '&');
    for (std::string& argument : arguments) {
      const size_t equals = std::min(argument.find('='), argument.size());
      argument = encoded(decoded(argument.substr(0, equals)), "-._~") + "=" +
                 (equals < argument.size() ? encoded(decoded(argument.substr(equals + 1)), "-._~") : "");
    }
    std::sort(arguments.begin(), arguments.end());
    std::string canonical = request.method + "\n" + encoded(decoded(request.path), "-._~/") + "\n";
    for (size_t i = 0; i < arguments.size(); ++i) canonical += (i == 0 ? "" : "&") + arguments[i];
    canonical += "\n";
    const std::vector<std::string> names = pieces(field("SignedHeaders"), ';');
    for (const std::string& name : names) canonical += name + ":" + header(name) + "\n";
    for (const auto& [name, value] : request.headers) {
      if (name.starts_with("x-amz-") && std::find(names.begin(), names.end(), name) == names.end())
        return "HeadersNotSigned";
    }
    if (std::find(names.begin(), names.end(), "host") == names.end()) return "HostNotSigned";
    canonical += "\n" + field("SignedHeaders") + "\n" + sha256(request.body);
    const std::string date = header("x-amz-date"), day = date.substr(0, 8);
    const std::string scope = day + "/" + region + "/s3/aws4_request";
    if (field("Credential") != access + "/" + scope) return "InvalidAccessKeyId";
    std::string key = "AWS4" + secret;
    for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")}) key = hmac(key, part);
    const std::string signature = hex(hmac(key, "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256(canonical)));
    return field("Signature") == signature ? "" : "SignatureDoesNotMatch";
  }

  void serve() {
    while (!stop_) {
      const int connection = socket_.accept();
      if (connection < 0) continue;
      connections_.emplace_back([this, connection] {
        converse(connection);
        ::close(connection);
      });
    }
  }

  bool receive(int connection, std::string& text, const std::function<bool()>& enough) const {
    while (!enough()) {
      if (stop_) return false;
      if (!LoopbackSocket::readable(connection)) continue;
      std::array<char, 65536> buffer{};
      const ssize_t got = ::recv(connection, buffer.data(), buffer.size(), 0);
      if (got <= 0) return false;
      text.append(buffer.data(), static_cast<size_t>(got));
    }
    return true;
  }

  void converse(int connection) {
    std::string text;
    if (!receive(connection, text, [&] { return text.find("\r\n\r\n") != std::string::npos; })) return;
    const size_t end = text.find("\r\n\r\n") + 4;
    Request request;
    for (const std::string& line : pieces(text.substr(0, end), '\n')) {
      const size_t colon = line.find(": ");
      if (request.method.empty()) {
        const std::vector<std::string> words = pieces(line, ' ');
        request.method = words.at(0);
        const size_t mark = words.at(1).find('?');
        request.path = words.at(1).substr(0, mark);
        if (mark != std::string::npos) request.query = words.at(1).substr(mark + 1);
      } else if (colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(c));
        request.headers[name] = line.substr(colon + 2, line.find('\r') - colon - 2);
      }
    }
    const size_t length =
        request.headers.contains("content-length") ? std::stoul(request.headers["content-length"]) : 0;
    if (request.headers.contains("expect")) LoopbackSocket::send(connection, "HTTP/1.1 100 Continue\r\n\r\n");
    if (!receive(connection, text, [&] { return text.size() >= end + length; })) return;
    request.body = text.substr(end);
    request.key = decoded(request.path.substr(1));
    for (const std::string& argument : pieces(request.query, '&')) {
      const size_t equals = std::min(argument.find('='), argument.size());
      request.args[decoded(argument.substr(0, equals))] =
          decoded(argument.substr(std::min(equals + 1, argument.size())));
    }
    const std::string bad = check(request);
    size_t number = 0;
    {
      auto state = state_.lock();
      number = state->requests.size();
      state->requests.push_back(request);
      if (!bad.empty() && state->problem.empty()) state->problem = bad;
      state->max_at_once = std::max(state->max_at_once, ++state->now);
    }
    const Fault wanted = bad.empty() && fault ? fault(request, number) : Fault::none;
    std::string reply;
    if (!bad.empty()) {
      reply = error(403, bad);
    } else if (wanted == Fault::busy) {
      reply = error(503, "SlowDown");
    } else if (wanted == Fault::denied) {
      reply = error(403, "AccessDenied");
    } else if (wanted == Fault::late) {
      reply = answer(200, "<Error><Code>InternalError</Code><Message>too late</Message></Error>");
    } else if (wanted == Fault::reset) {
      const linger hard{1, 0};
      ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    } else {
      reply = act(request);
      const size_t body = reply.find("\r\n\r\n") + 4;
      if (wanted == Fault::truncate) reply.resize(body + (reply.size() - body) / 2);
      if (wanted == Fault::flip) reply.back() = static_cast<char>(reply.back() ^ 1);
    }
    --state_.lock()->now;
    LoopbackSocket::send(connection, reply);
  }

  std::string act(const Request& request) {
    auto state = state_.lock();
    auto& objects = state->objects;
    const std::string upload = request.args.contains("uploadId") ? request.args.at("uploadId") : "";
    if (!upload.empty() && !state->uploads.contains(upload)) return error(404, "NoSuchUpload");
    if (request.method == "POST" && request.args.contains("uploads")) {
      const std::string id = "id/of+" + std::to_string(state->requests.size()) + "=";
      state->uploads[id];
      state->upload_keys[id] = request.key;
      return answer(200,
                    "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>");
    }
    if (request.method == "PUT" && !upload.empty()) {
      state->uploads[upload][std::stoi(request.args.at("partNumber"))] = request.body;
      return answer(200, "", "ETag: \"" + sha256(request.body) + "\"\r\n");
    }
    if (request.method == "POST" && !upload.empty()) {
      std::string whole, wanted = "<CompleteMultipartUpload>";
      for (const auto& [part, bytes] : state->uploads[upload]) {
        whole += bytes;
        wanted +=
            "<Part><PartNumber>" + std::to_string(part) + "</PartNumber><ETag>\"" + sha256(bytes) + "\"</ETag></Part>";
      }
      if (request.body != wanted + "</CompleteMultipartUpload>") return error(400, "InvalidPart");
      objects[request.key] = whole;
      state->uploads.erase(upload);
      return answer(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
    }
    if (request.method == "DELETE") {
      if (upload.empty()) objects.erase(request.key);
      state->uploads.erase(upload);
      return answer(204, "");
    }
    if (request.method == "PUT") {
      objects[request.key] = request.body;
      return answer(200, "", "ETag: \"" + sha256(request.body) + "\"\r\n");
    }
    if (request.args.contains("list-type")) return list(request, objects);
    if (request.args.contains("uploads")) return list_uploads(request, *state);
    const auto found = objects.find(request.key);
    if (found == objects.end()) return error(404, "NoSuchKey");
    const std::string& bytes = found->second;
    const std::string tag = "ETag: \"" + sha256(bytes) + "\"\r\n";
    if (request.method == "HEAD") {
      return "HTTP/1.1 200 OK\r\n" + tag + "Content-Length: " + std::to_string(bytes.size()) +
             "\r\nConnection: close\r\n\r\n";
    }
    const auto range = request.headers.find("range");
    const auto condition = request.headers.find("if-range");
    if (range == request.headers.end() ||
        (condition != request.headers.end() && condition->second != "\"" + sha256(bytes) + "\"")) {
      return answer(200, bytes, tag);
    }
    const std::vector<std::string> ends = pieces(range->second.substr(6), '-');
    const size_t first = std::stoul(ends.at(0)),
                 last = std::min(ends.size() > 1 ? std::stoul(ends[1]) : bytes.size(), bytes.size() - 1);
    if (first >= bytes.size()) return error(416, "InvalidRange");
    return answer(206, bytes.substr(first, last - first + 1),
                  tag + "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                      std::to_string(bytes.size()) + "\r\n");
  }

  std::string list_uploads(const Request& request, const State& state) const {
    const auto argument = [&](const std::string& name) {
      const auto found = request.args.find(name);
      return found == request.args.end() ? std::string() : found->second;
    };
    const std::string bucket = request.key + "/";
    const std::pair<std::string, std::string> after = {argument("key-marker"), argument("upload-id-marker")};
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& [id, parts] : state.uploads) {
      const std::string& key = state.upload_keys.at(id);
      if (!key.starts_with(bucket + argument("prefix"))) continue;
      if (const std::pair one = {key.substr(bucket.size()), id}; one > after) found.push_back(one);
    }
    std::sort(found.begin(), found.end());
    const bool more = found.size() > page;
    if (more) found.resize(page);
    std::string body = "<ListMultipartUploadsResult>";
    for (const auto& [key, id] : found) {
      body += "<Upload><Key>" + encoded(key, "-._~/") + "</Key><UploadId>" + id + "</UploadId></Upload>";
    }
    body += std::string("<IsTruncated>") + (more ? "true" : "false") + "</IsTruncated>";
    if (more) {
      body += "<NextKeyMarker>" + encoded(found.back().first, "-._~/") + "</NextKeyMarker><NextUploadIdMarker>" +
              found.back().second + "</NextUploadIdMarker>";
    }
    return answer(200, body + "</ListMultipartUploadsResult>");
  }

  std::string list(const Request& request, const std::map<std::string, std::string>& objects) const {
    const std::string prefix = request.key + "/" + request.args.at("prefix");
    const auto after = request.args.find("continuation-token");
    std::string body = "<ListBucketResult>", last;
    size_t number = 0;
    bool more = false;
    for (const auto& [key, bytes] : objects) {
      if (!key.starts_with(prefix) || (after != request.args.end() && key <= after->second)) continue;
      if (number++ == page) {
        more = true;
        break;
      }
      body += "<Contents><Key>" + encoded(key.substr(request.key.size() + 1), "-._~/") + "</Key><ETag>&quot;" +
              sha256(bytes) + "&quot;</ETag><Size>" + std::to_string(bytes.size()) + "</Size></Contents>";
      last = key;
    }
    body += more ? "<IsTruncated>true</IsTruncated><NextContinuationToken>" + last + "</NextContinuationToken>"
                 : "<IsTruncated>false</IsTruncated>";
    return answer(200, body + "</ListBucketResult>");
  }

  LoopbackSocket socket_;
  std::atomic<bool> stop_ = false;
  Guarded<State> state_;
  std::list<std::thread> connections_;
  std::thread thread_;
};

}  // namespace ingot
