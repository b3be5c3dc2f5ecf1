// Test certificates, and a client that shows the server's certificate.
#pragma once

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/server/raw_client.h"

namespace ingot::server {

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* value) const { release(value); }
};
template <class T, void (*release)(T*)>
using Held = std::unique_ptr<T, Release<T, release>>;

// Writes a self-signed certificate with this serial number, and its key.
inline void write_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key, long number) {
  const Held<EVP_PKEY, EVP_PKEY_free> pair(EVP_EC_gen("P-256"));
  const Held<X509, X509_free> made(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), number);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), pair.get());
  X509_sign(made.get(), pair.get(), EVP_sha256());
  const auto write = [](const std::filesystem::path& path, const auto& into) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(into(file), 1);
    std::fclose(file);
  };
  write(certificate, [&](std::FILE* file) { return PEM_write_X509(file, made.get()); });
  write(key,
        [&](std::FILE* file) { return PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}

class TlsClient {
 public:
  explicit TlsClient(int port) : raw_(port), context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_.get())) {
    SSL_set_fd(ssl_.get(), raw_.descriptor());
    EXPECT_EQ(SSL_connect(ssl_.get()), 1);
  }
  long number() const {
    const Held<X509, X509_free> theirs(SSL_get1_peer_certificate(ssl_.get()));
    return theirs ? ASN1_INTEGER_get(X509_get0_serialNumber(theirs.get())) : -1;
  }
  // The status line of an answer without a body.
  std::string ask() {
    const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    EXPECT_GT(SSL_write(ssl_.get(), request.data(), static_cast<int>(request.size())), 0);
    std::string answer;
    char buffer[4096];
    while (answer.find("\r\n\r\n") == std::string::npos) {
      const int got = SSL_read(ssl_.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      answer.append(buffer, static_cast<size_t>(got));
    }
    return answer.substr(0, 12);
  }

 private:
  RawClient raw_;
  Held<SSL_CTX, SSL_CTX_free> context_;
  Held<SSL, SSL_free> ssl_;
};

}  // namespace ingot::server
