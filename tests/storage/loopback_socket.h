// The listening socket of test servers, on a loopback port that the system chooses.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace ingot {

class LoopbackSocket {
 public:
  // Without `listen` it refuses connections and reserves the port.
  explicit LoopbackSocket(bool listens = true) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    if (listens) EXPECT_EQ(::listen(socket_, 64), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;
  ~LoopbackSocket() { ::close(socket_); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // The next connection, which the caller must close; -1 when none arrives within a short wait.
  int accept() const { return readable(socket_) ? ::accept(socket_, nullptr, nullptr) : -1; }

  // Whether data can be read within a short wait. Between waits servers check whether they should stop.
  static bool readable(int descriptor) {
    pollfd waiting{descriptor, POLLIN, 0};
    return ::poll(&waiting, 1, 20) > 0;
  }

  // Sends as many bytes as the peer accepts.
  static void send(int connection, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t done = ::send(connection, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (done <= 0) return;
      sent += static_cast<size_t>(done);
    }
  }

 private:
  int socket_;
  int port_ = 0;
};

}  // namespace ingot
