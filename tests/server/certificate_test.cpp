// TLS certificates that are reloaded while connections are open.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/scratch.h"
#include "tests/server/echo_server.h"
#include "tests/server/tls_client.h"

namespace ingot::server {
namespace {

TEST(Certificate, IsReloadedWhileConnectionsAreOpen) {
  const Scratch scratch;
  EchoHandler handler;
  HttpSettings settings;
  settings.certificate = (scratch / "cert.pem").string();
  settings.key = (scratch / "key.pem").string();
  write_certificate(settings.certificate, settings.key, 1);
  HttpServer server(settings, handler);
  TlsClient before(server.port());
  EXPECT_EQ(before.number(), 1);
  EXPECT_EQ(before.ask(), "HTTP/1.1 200");

  write_certificate(settings.certificate, settings.key, 2);
  EXPECT_EQ(TlsClient(server.port()).number(), 1);
  server.reload_certificate();
  TlsClient after(server.port());
  EXPECT_EQ(after.number(), 2);
  EXPECT_EQ(after.ask(), "HTTP/1.1 200");
  EXPECT_EQ(before.ask(), "HTTP/1.1 200");

  // One of the two files alone, or an invalid certificate, changes nothing.
  write_certificate(settings.certificate, scratch / "another key", 3);
  EXPECT_THROW(server.reload_certificate(), Error);
  write_file(settings.certificate, "no certificate");
  EXPECT_THROW(server.reload_certificate(), Error);
  EXPECT_EQ(TlsClient(server.port()).number(), 2);
}

}  // namespace
}  // namespace ingot::server
