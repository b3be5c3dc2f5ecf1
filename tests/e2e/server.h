// `ingot serve` as a child process, and requests to it.
#pragma once

#include <string>

#include "tests/e2e/process.h"
#include "tests/server/raw_client.h"

namespace ingot::e2e {

// The port that the server says it listens on; waits until it does. A test failure, and 0, if it ends instead.
int port_of(Process& process);

// One request on a connection of its own. `body`: JSON, or empty for none.
server::Answer ask(int port, const std::string& method, const std::string& target, const std::string& body = "");

}  // namespace ingot::e2e
