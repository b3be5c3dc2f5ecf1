#include "server/http_server.h"

#include <atomic>
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
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "base/error.h"
#include "base/path.h"
#include "base/threads.h"
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
  Guarded<std::shared_ptr<asio::ssl::context>> tls;
  asio::strand<asio::io_context::executor_type> strand{asio::make_strand(io)};  // of the listener
  asio::basic_socket_acceptor<Tcp, decltype(strand)> acceptor{strand};
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, decltype(strand)>
      pause{strand};
  int port = 0;
  std::atomic<bool> listening{true};
  std::atomic<bool> closing{false};  // no new connections are accepted
  WorkQueue workers;
  std::vector<std::thread> threads;
  ConnectionContext all;

  State(HttpSettings s, Handler& handler)
      : settings(std::move(s)),
        workers(settings.workers, settings.limits.waiting_bodies),
        all{settings, handler, io, tls, workers} {}

  void open_tls();
  void listen();
  void begin(asio::basic_stream_socket<Tcp, decltype(strand)> socket);
  static asio::awaitable<void> accept(State& state);
  void start();
  void run();  // the body of a connection thread
  void stop();
};

void HttpServer::State::open_tls() {
  if (settings.certificate.empty() && settings.key.empty()) return;
  if (settings.certificate.empty() || settings.key.empty()) {
    throw_error(ErrorKind::usage, "TLS needs a certificate and its key: one of the two files was not given");
  }
  // OpenSSL opens any kind of file, and would block on a pipe.
  for (const std::string& file : {settings.certificate, settings.key}) open_regular_file(file);
  using Context = asio::ssl::context;
  const auto context = std::make_shared<Context>(Context::tls_server);
  Code failed;
  context->set_options(Context::default_workarounds | Context::no_tlsv1 | Context::no_tlsv1_1 | Context::single_dh_use);
  if (context->use_certificate_chain_file(settings.certificate, failed))
    throw_error(ErrorKind::usage, "the certificate {}: {}", settings.certificate, failed.message());
  if (context->use_private_key_file(settings.key, Context::pem, failed))
    throw_error(ErrorKind::usage, "the key {}: {}", settings.key, failed.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    throw_error(ErrorKind::usage, "the key {} does not belong to the certificate {}", settings.key,
                settings.certificate);
  }
  *tls.lock() = context;
}

void HttpServer::State::listen() {
  Code failed;
  const asio::ip::address address = asio::ip::make_address(settings.host, failed);
  if (failed) {
    throw_hint(ErrorKind::usage, "such as 127.0.0.1, 0.0.0.0 or ::1", "'{}' is not an IP address", settings.host);
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
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& error) {
    throw_hint(ErrorKind::unavailable, "try another --port", "cannot listen on {} port {}: {}", settings.host,
               settings.port, error.code().message());
  }
}

void HttpServer::State::begin(asio::basic_stream_socket<Tcp, decltype(strand)> socket) {
  Code failed;
  const Tcp::endpoint client = socket.remote_endpoint(failed);
  if (failed) return;  // it has left already
  const asio::ip::address address = client.address();
  begin_connection(all, Descriptor(socket.release()), address.is_v6(), address.to_string());
}

asio::awaitable<void> HttpServer::State::accept(State& state) {
  while (state.acceptor.is_open()) {
    Code failed;
    try {
      if (state.closing) {  // connections in the accept queue are still answered
        state.acceptor.non_blocking(true);
        auto socket = state.acceptor.accept(failed);
        if (failed) {
          static_cast<void>(state.acceptor.close(failed));
        } else {
          state.begin(std::move(socket));
        }
        continue;
      }
      auto socket = co_await state.acceptor.async_accept(asio::redirect_error(asio::use_awaitable, failed));
      if (!failed) {
        state.begin(std::move(socket));
        continue;
      }
    } catch (const std::exception&) {
      failed = asio::error::no_memory;  // not even a refusal is possible: this client is dropped
    }
    if (state.closing) continue;
    // No descriptor is free, or the client has left already: retry after a pause.
    try {
      state.pause.expires_after(std::chrono::milliseconds(20));
      Code ignored;
      co_await state.pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    } catch (const std::exception&) {  // no pause without memory
      std::this_thread::yield();
    }
  }
  state.listening = false;
  state.listening.notify_all();
}

void HttpServer::State::start() {
  open_tls();
  listen();
  asio::co_spawn(strand, accept(*this), asio::detached);
  try {
    for (int i = 0; i < std::max(1, settings.threads); ++i) {
      threads.reserve(threads.size() + 1);
      threads.push_back(start_thread("connections", [this] { run(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

void HttpServer::State::run() {
  // If starting one connection's timer or read fails for lack of memory, the other connections go on.
  while (!attempt([&] { io.run(); })) {
  }
}

void HttpServer::State::stop() {
  asio::post(strand, [this] {
    attempt([&] { acceptor.close(); });
    pause.cancel();
  });
  all.connections.stop();
  for (std::thread& thread : threads) thread.join();
  workers.stop();
}

HttpServer::HttpServer(HttpSettings settings, Handler& handler)
    : state_(std::make_unique<State>(std::move(settings), handler)) {
  state_->start();
}

HttpServer::~HttpServer() { state_->stop(); }

int HttpServer::port() const { return state_->port; }

HttpCounts HttpServer::counts() const {
  return {.connections = state_->all.connections.count(),
          .exchanges = state_->all.exchanges,
          .body_bytes = state_->all.bodies.held()};
}

void HttpServer::reload_certificate() { state_->open_tls(); }

void HttpServer::finish() {
  State& state = *state_;
  state.closing = true;
  asio::post(state.strand, [&state] {
    Code ignored;
    static_cast<void>(state.acceptor.cancel(ignored));
    state.pause.cancel();
  });
  state.listening.wait(true);
  state.all.finishing = true;
  state.all.connections.finish();
}

void HttpServer::drain() {
  state_->all.draining = true;
  state_->all.connections.drain();
}

}  // namespace ingot::server
