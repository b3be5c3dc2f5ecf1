// Sends bytes over loopback to an HTTP server that answers every valid request with the request's length.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "server/http_server.h"

namespace ingot::server::fuzz {

class Counting : public Collective {
 public:
  std::optional<size_t> body_limit() const override {
    if (status_ != 0) return std::nullopt;
    return 4096;
  }
  void refuse(int status) override { status_ = status; }
  void receive(std::string body, std::function<void()> wake) override {
    body_ = std::to_string(body.size());
    status_ = 200;
    wake();
  }
  ReplyPart poll() override {
    ReplyPart part;
    part.head.emplace();
    part.head->status = status_;
    part.bytes = body_;
    part.end = true;
    return part;
  }
  void closed(uint64_t, bool) override {}

 private:
  int status_ = 0;
  std::string body_;
};

class CountingHandler : public Handler {
 public:
  std::shared_ptr<Collective> open(RequestHead) override { return std::make_shared<Counting>(); }
  std::pair<ReplyHead, std::string> refusal(int status, const std::string&) override {
    ReplyHead head;
    head.status = status;
    return {head, ""};
  }
};

// The server lives as long as the fuzzer's or the test's process.
class ByteServer {
 public:
  // `seconds`: the time limit for receiving a request.
  explicit ByteServer(double seconds = 0.02) : server_(settings(seconds), handler_) {}

  // Whether the first answer to these bytes has status 200. The server must close the connection; with `leave` the
  // client shuts down its sending side, which makes the server close at once.
  bool accepts(std::string_view bytes, bool leave = false) const {
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    if (leave) ::shutdown(socket.fd, SHUT_WR);
    std::string answer;
    char buffer[4096];
    // The server's time-outs end incomplete requests.
    for (ssize_t got = 0; (got = ::recv(socket.fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
    return answer.starts_with("HTTP/1.1 200 ");
  }

 private:
  static HttpSettings settings(double seconds) {
    HttpSettings settings;
    settings.limits.header_bytes = 4096;
    settings.limits.header_s = settings.limits.body_s = seconds;
    settings.limits.idle_s = settings.limits.linger_s = 0.02;
    return settings;
  }

  CountingHandler handler_;
  HttpServer server_;
};

}  // namespace ingot::server::fuzz
