// A client that sends any bytes, valid or not, and reads answers.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace ingot::server {

struct Answer {
  int status = 0;                              // 0: the connection ended before an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool whole = false;
};

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }

  // False when the peer accepts no more bytes.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Waits for the next answer for at most a minute.
  Answer answer() {
    Answer out;
    const size_t head = until("\r\n\r\n");
    if (head == std::string::npos) return out;
    size_t line = input_.find("\r\n");
    out.status = std::atoi(input_.substr(9, 3).c_str());
    while (line + 2 < head) {
      const size_t begin = line + 2;
      line = input_.find("\r\n", begin);
      const std::string field = input_.substr(begin, line - begin);
      std::string name = field.substr(0, field.find(':'));
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      out.headers[name] = field.substr(field.find(':') + 2);
    }
    input_.erase(0, head + 4);
    if (out.headers.contains("transfer-encoding")) {
      out.whole = read_chunks(out.body);
    } else if (out.headers.contains("content-length")) {
      const size_t length = static_cast<size_t>(std::atoll(out.headers["content-length"].c_str()));
      while (input_.size() < length && read_some()) {
      }
      out.body = input_.substr(0, length);
      out.whole = out.body.size() == length;
      input_.erase(0, length);
    } else {
      while (read_some()) {
      }
      out.body = std::move(input_);
      out.whole = true;
    }
    return out;
  }

  // Whether the connection ends without another byte.
  bool ends() { return input_.empty() && !read_some() && ended_; }

  // The received bytes up to and including `mark`; "" when the connection ends before.
  std::string read_to(std::string_view mark) {
    const size_t at = until(mark);
    if (at == std::string::npos) return {};
    std::string text = input_.substr(0, at + mark.size());
    input_.erase(0, at + mark.size());
    return text;
  }

  void close() { socket_ = Descriptor(); }
  int descriptor() const { return socket_.fd; }

 private:
  bool read_some() {
    pollfd waiting{socket_.fd, POLLIN, 0};
    if (::poll(&waiting, 1, 60000) <= 0) {
      ADD_FAILURE() << "no answer within a minute";
      return false;
    }
    char buffer[16384];
    const ssize_t got = ::recv(socket_.fd, buffer, sizeof buffer, 0);
    ended_ = got <= 0;
    if (got > 0) input_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }
  size_t until(std::string_view mark) {
    size_t at = 0;
    while ((at = input_.find(mark)) == std::string::npos) {
      if (!read_some()) return std::string::npos;
    }
    return at;
  }
  bool read_chunks(std::string& body) {
    for (;;) {
      const size_t line = until("\r\n");
      if (line == std::string::npos) return false;
      const size_t size = std::stoul(input_.substr(0, line), nullptr, 16);
      input_.erase(0, line + 2);
      while (input_.size() < size + 2) {
        if (!read_some()) return false;
      }
      body += input_.substr(0, size);
      input_.erase(0, size + 2);
      if (size == 0) return true;
    }
  }

  Descriptor socket_;
  std::string input_;
  bool ended_ = false;
};

}  // namespace ingot::server
