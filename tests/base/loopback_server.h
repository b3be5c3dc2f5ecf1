// A tiny HTTP server on a loopback port of its own: one connection at a time, each answered by a function of the test.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ingot {

class LoopbackServer {
 public:
  // Gives the bytes to send for a request's head (lines up to the empty one); then the connection is closed, so an
  // answer shorter than its Content-Length is a broken connection.
  using Handler = std::function<std::string(const std::string& head, int number)>;

  explicit LoopbackServer(Handler handler) : handler_(std::move(handler)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() {
    stop_ = true;
    thread_.join();
    ::close(socket_);
  }

  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  std::vector<std::string> heads() { return *heads_.lock(); }

 private:
  void serve() {
    while (!stop_) {
      pollfd waiting{socket_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) continue;
      answer(connection);
      ::close(connection);
    }
  }

  void answer(int connection) {
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos) {
      char buffer[4096];
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      head.append(buffer, static_cast<size_t>(got));
    }
    int number = 0;
    {
      auto heads = heads_.lock();
      number = static_cast<int>(heads->size());
      heads->push_back(head);
    }
    const std::string reply = handler_(head, number);
    for (size_t sent = 0; sent < reply.size();) {
      const ssize_t done = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
      if (done <= 0) return;
      sent += static_cast<size_t>(done);
    }
  }

  Handler handler_;
  int socket_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  Guarded<std::vector<std::string>> heads_;
  std::thread thread_;
};

}  // namespace ingot
