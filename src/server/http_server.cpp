#include "server/http_server.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "server/attempt.h"
#include "server/connection.h"

namespace ingot::server {

namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Code = boost::system::error_code;

}  // namespace

struct HttpServer::State {
  HttpSettings settings;
  asio::io_context io;
  asio::ssl::context tls{asio::ssl::context::tls_server};
  asio::strand<asio::io_context::executor_type> strand{asio::make_strand(io)};  // the listener's
  asio::basic_socket_acceptor<Tcp, decltype(strand)> acceptor{strand};
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, decltype(strand)>
      pause{strand};
  asio::thread_pool workers;
  std::vector<std::thread> threads;
  Connections all;

  State(HttpSettings s, Handler& handler)
      : settings(std::move(s)),
        workers(static_cast<size_t>(std::max(1, settings.workers))),
        all{settings, handler, io, tls, workers} {}

  void open_tls();
  void listen();
  static asio::awaitable<void> accept(State& state);
  void start();
  void run();  // a thread for connections
  void stop();
};

void HttpServer::State::open_tls() {
  if (settings.certificate.empty() && settings.key.empty()) return;
  if (settings.certificate.empty() || settings.key.empty()) {
    throw_error(ErrorKind::usage, "TLS needs a certificate and its key: one of the two files was not given");
  }
  using Context = asio::ssl::context;
  Code failed;
  tls.set_options(Context::default_workarounds | Context::no_tlsv1 | Context::no_tlsv1_1 | Context::single_dh_use);
  if (tls.use_certificate_chain_file(settings.certificate, failed))
    throw_error(ErrorKind::usage, "the certificate {}: {}", settings.certificate, failed.message());
  if (tls.use_private_key_file(settings.key, Context::pem, failed))
    throw_error(ErrorKind::usage, "the key {}: {}", settings.key, failed.message());
  if (SSL_CTX_check_private_key(tls.native_handle()) != 1) {
    throw_error(ErrorKind::usage, "the key {} is not that of the certificate {}", settings.key, settings.certificate);
  }
}

void HttpServer::State::listen() {
  Code failed;
  const asio::ip::address address = asio::ip::make_address(settings.host, failed);
  if (failed) {
    throw_hint(ErrorKind::usage, "such as 127.0.0.1, 0.0.0.0 or ::1", "'{}' is not an address", settings.host);
  }
  if (settings.port < 0 || settings.port > 65535) {
    throw_error(ErrorKind::usage, "port {}; it must be from 0 to 65535", settings.port);
  }
  const Tcp::endpoint endpoint(address, static_cast<uint16_t>(settings.port));
  try {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(asio::socket_base::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(4096);
  } catch (const boost::system::system_error& error) {
    throw_hint(ErrorKind::unavailable, "another --port may be free", "cannot listen on {} port {}: {}", settings.host,
               settings.port, error.code().message());
  }
}

asio::awaitable<void> HttpServer::State::accept(State& state) {
  while (state.acceptor.is_open()) {
    Code failed;
    try {
      auto socket = co_await state.acceptor.async_accept(asio::redirect_error(asio::use_awaitable, failed));
      if (!state.acceptor.is_open()) co_return;
      if (!failed) {
        const Tcp::endpoint client = socket.remote_endpoint(failed);
        if (failed) continue;  // it has left already
        const asio::ip::address address = client.address();
        begin_connection(state.all, Descriptor(socket.release()), address.is_v6(), address.to_string());
        continue;
      }
    } catch (const std::exception&) {
      failed = asio::error::no_memory;  // not even a refusal can be made: this client is dropped
    }
    // No descriptor is free, or the client has left already: others may come.
    state.pause.expires_after(std::chrono::milliseconds(20));
    Code ignored;
    co_await state.pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void HttpServer::State::start() {
  open_tls();
  listen();
  asio::co_spawn(strand, accept(*this), asio::detached);
  const BlockedSignals blocked;
  for (int i = 0; i < std::max(1, settings.threads); ++i) threads.emplace_back([this] { run(); });
}

void HttpServer::State::run() {
  // Where one connection's timer or read could not be begun, for want of memory, the others are to go on.
  while (!attempt([&] { io.run(); })) {
  }
}

void HttpServer::State::stop() {
  asio::post(strand, [this] {
    attempt([&] { acceptor.close(); });
    pause.cancel();
  });
  all.peers.stop();
  for (std::thread& thread : threads) thread.join();
  workers.join();
}

HttpServer::HttpServer(HttpSettings settings, Handler& handler)
    : state_(std::make_unique<State>(std::move(settings), handler)) {
  state_->start();
}

HttpServer::~HttpServer() { state_->stop(); }

int HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

HttpCounts HttpServer::counts() const {
  return {.connections = state_->all.peers.count(),
          .exchanges = state_->all.exchanges,
          .body_bytes = state_->all.bodies.held()};
}

void HttpServer::drain() {
  state_->all.draining = true;
  state_->all.peers.drain();
}

}  // namespace ingot::server
