// A small HTTP server on a loopback port. It serves one connection at a time; a function of the test answers each
// request.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tests/storage/loopback_socket.h"

namespace ingot {

class LoopbackServer {
 public:
  // Returns the bytes to send for a request's head (up to the empty line). The connection is then closed, so an answer
  // shorter than its Content-Length is a broken connection.
  using Handler = std::function<std::string(const std::string& head, int number)>;

  explicit LoopbackServer(Handler handler) : handler_(std::move(handler)) {
    thread_ = std::thread([this] { serve(); });
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() {
    stop_ = true;
    thread_.join();
  }

  std::string url(const std::string& path) const { return socket_.url() + path; }
  std::vector<std::string> heads() { return *heads_.lock(); }

 private:
  void serve() {
    while (!stop_) {
      const int connection = socket_.accept();
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
    LoopbackSocket::send(connection, handler_(head, number));
  }

  Handler handler_;
  LoopbackSocket socket_;
  std::atomic<bool> stop_ = false;
  Guarded<std::vector<std::string>> heads_;
  std::thread thread_;
};

}  // namespace ingot
