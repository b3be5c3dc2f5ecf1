// `ingot serve` as a child process, and requests to it.
#pragma once

#include <string>

#include "tests/e2e/process.h"
#include "tests/server/raw_client.h"

namespace ingot::e2e {

// Waits until the server reports its port and returns it. When it ends instead, the test fails and the result is 0.
int port_of(Process& process);

// Sends one request on a new connection. `body`: JSON, or empty for none.
server::Answer ask(int port, const std::string& method, const std::string& target, const std::string& body = "");

}  // namespace ingot::e2e
