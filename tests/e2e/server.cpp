#include "tests/e2e/server.h"

namespace ingot::e2e {

int port_of(Process& process) {
  const std::string mark = "://127.0.0.1:";
  for (;;) {
    const std::string said = process.result().error;
    const size_t at = said.find(mark);
    if (at != std::string::npos && said.find('\n', at) != std::string::npos) {
      return std::stoi(said.substr(at + mark.size()));
    }
    if (process.wait(std::chrono::milliseconds(10))) {
      ADD_FAILURE() << "the server ended: " << said;
      return 0;
    }
  }
}

server::Answer ask(int port, const std::string& method, const std::string& target, const std::string& body) {
  server::RawClient client(port);
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n";
  if (!body.empty()) {
    request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  client.send(request + "\r\n" + body);
  return client.answer();
}

}  // namespace ingot::e2e
