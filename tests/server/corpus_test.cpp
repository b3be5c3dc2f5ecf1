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
  // One of little patience, for what never comes to an end, would refuse a valid one that is late, too.
  const fuzz::ByteServer patient(600);
  const fuzz::ByteServer hasty;
  ingot::fuzz::replay("http_request",
                      [&](const std::string& bytes, bool valid) { return (valid ? patient : hasty).accepts(bytes); });
}

}  // namespace
}  // namespace ingot::server
