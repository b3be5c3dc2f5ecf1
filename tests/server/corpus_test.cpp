// The seeds of the fuzz targets for HTTP and for request bodies.
#include <gtest/gtest.h>

#include "tests/fuzz/http_bytes.h"
#include "tests/fuzz/replay.h"
#include "tests/fuzz/requests.h"

namespace ingot::server {
namespace {

TEST(Corpus, RequestBodies) {
  ingot::fuzz::replay("request_body", [](const std::string& bytes) { return fuzz::read_request(bytes); });
}

TEST(Corpus, HttpRequests) {
  const fuzz::ByteServer server;
  ingot::fuzz::replay("http_request", [&](const std::string& bytes) { return server.accepts(bytes); });
}

}  // namespace
}  // namespace ingot::server
