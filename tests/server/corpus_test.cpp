// Runs the fuzz targets of HTTP and request bodies on their corpora.
#include <gtest/gtest.h>

#include "tests/fuzz/http_bytes.h"
#include "tests/fuzz/replay.h"
#include "tests/fuzz/requests.h"

namespace ingot::server {
namespace {

TEST(RequestBodyCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("request_body", [](const std::string& bytes) { return fuzz::read_request(bytes); });
}

TEST(HttpRequestCorpus, IsAcceptedOrRefusedByName) {
  // A short time limit, needed for seeds without an end, would also refuse a valid seed that is late.
  const fuzz::ByteServer patient(600);
  const fuzz::ByteServer hasty;
  ingot::fuzz::replay("http_request",
                      [&](const std::string& bytes, bool valid) { return (valid ? patient : hasty).accepts(bytes); });
}

}  // namespace
}  // namespace ingot::server
