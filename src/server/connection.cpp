#include "server/connection.h"

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
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <thread>

#include "server/address.h"
#include "server/attempt.h"

namespace ingot::server {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Code = boost::system::error_code;
using Strand = asio::strand<asio::io_context::executor_type>;
using Socket = asio::basic_stream_socket<Tcp, Strand>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Strand>;

constexpr size_t read_bytes = 16 << 10;
constexpr size_t max_ahead = 64 << 10;  // max bytes read ahead while an answer is being sent
// How often a connection polls its exchange without a `wake`, which may have failed when out of memory.
constexpr auto poll_interval = std::chrono::seconds(5);

Clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

using Parser = http::request_parser<http::string_body>;

// Plain and TLS streams differ in the handshake and in how to get at the socket.
Socket& socket_of(Socket& stream) { return stream; }
Socket& socket_of(asio::ssl::stream<Socket>& stream) { return stream.next_layer(); }

// One client. Everything runs on the connection's strand; drain, finish and stop post their work there.
template <class Stream>
class Connection : public OpenConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  using Self = std::shared_ptr<Connection>;

  template <class... Args>
  Connection(ConnectionContext& all, std::string address, Socket socket, Args&... tls)
      : all_(all),
        limits_(all.settings.limits),
        address_(std::move(address)),
        client_(client_of(address_)),
        strand_(socket.get_executor()),
        stream_(std::move(socket), tls...),
        deadline_timer_(strand_),
        changed_(strand_),
        body_(all.bodies) {}

  void drain() override {
    asio::post(strand_, [self = this->shared_from_this()] {
      // A client without a request so far may be about to send one, and a request may have arrived and not been read.
      Code failed;
      const bool unread = !self->input_.empty() || socket_of(self->stream_).available(failed) > 0;
      if (self->idle_ && self->served_ > 0 && !unread) self->close();
    });
  }
  void finish() override {
    asio::post(strand_, [self = this->shared_from_this()] {
      if (self->reading_head_) self->arm(self->limits_.last_head_s);
      self->notify();
    });
  }
  void stop() override {
    asio::post(strand_, [self = this->shared_from_this()] { self->close(); });
  }

  // `self` keeps the connection alive while this runs.
  static asio::awaitable<void> run(Self self, Admittance entered) {
    try {
      if (co_await self->begin()) {
        if (entered == Admittance::refused) {
          co_await self->send_refusal(503);
        } else {
          while (co_await self->serve()) {
          }
        }
      }
    } catch (const std::exception&) {
      self->input_.clear();  // an error that a client can cause ends only its connection
    }
    while (!self->received_) {
      try {
        co_await self->changed();
      } catch (const std::exception&) {  // the worker ends nevertheless
        std::this_thread::yield();
      }
    }
    attempt([&] { self->end_exchange(false); });  // even if this throws, the connection must be released
    self->close();
    self->all_.connections.leave(self, self->client_, entered);
  }

 private:
  asio::awaitable<bool> begin() {
    if constexpr (!std::is_same_v<Stream, Socket>) {
      arm(limits_.header_s);
      busy_ = true;
      Code failed;
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, failed));
      busy_ = false;
      if (failed || expired_) co_return false;
    }
    co_return !closed_;
  }

  // Serves one request. Returns whether another may follow.
  asio::awaitable<bool> serve() {
    idle_ = reading_head_ = true;
    if (all_.draining && served_ > 0) co_return false;
    arm_for_head(served_ == 0 ? limits_.header_s : limits_.idle_s);
    while (input_.empty()) {
      if (!co_await more()) co_return false;
    }
    idle_ = false;
    arm_for_head(limits_.header_s);
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser.body_limit(std::numeric_limits<uint64_t>::max());  // the route sets the limit once the head is known
    while (!parser.is_header_done()) {
      const Code failed = feed(parser);
      if (failed && failed != http::error::need_more) {
        co_return co_await send_refusal(failed == http::error::header_limit ? 431 : 400);
      }
      if (parser.is_header_done()) break;
      if (input_.size() > limits_.header_bytes) co_return co_await send_refusal(431);
      if (!co_await more()) co_return expired_ ? co_await send_refusal(all_.finishing ? 503 : 408) : false;
    }
    reading_head_ = false;
    const auto& fields = parser.get().base();
    if (static_cast<size_t>(std::distance(fields.begin(), fields.end())) > limits_.headers) {
      co_return co_await send_refusal(431);
    }
    RequestHead head = head_of(parser);
    if (!is_plain(head, parser.get().version(), parser.chunked())) co_return co_await send_refusal(400);
    begin_exchange(std::move(head));
    const bool has_body = parser.chunked() || parser.content_length().value_or(0) > 0;
    version_ = parser.get().version();
    bool keep = parser.keep_alive() && version_ >= 11;
    head_only_ = parser.get().method() == http::verb::head;
    if (const std::optional<size_t> limit = exchange_->body_limit()) {
      if (!co_await read_body(parser, *limit)) {
        if (client_gone_ || closed_) co_return false;
        std::string().swap(parser.get().body());  // the parser lives until the client has read the answer
        body_.release();
        keep = false;
      }
    } else {
      keep = keep && !has_body;
    }
    ++served_;
    const bool whole = co_await answer(keep);
    end_exchange(whole);
    if (whole && !keep_) co_await linger();
    co_return whole&& keep_ && !closed_;
  }

  // Passes the input to the parser. The header is parsed alone first: the route decides how large a body may be.
  Code feed(Parser& parser) {
    Code failed;
    const size_t used = parser.put(asio::buffer(input_), failed);
    input_.erase(0, used);
    return failed;
  }

  RequestHead head_of(const Parser& parser) const {
    RequestHead head;
    head.method = std::string(parser.get().method_string());
    head.target = std::string(parser.get().target());
    head.peer = address_;
    for (const auto& field : parser.get().base()) {
      head.headers.emplace_back(lower(std::string(field.name_string())), std::string(field.value()));
    }
    return head;
  }

  void begin_exchange(RequestHead head) {
    exchange_ = all_.handler.open(std::move(head));
    body_.set_owner(exchange_->owner());
    ++all_.exchanges;
    sent_ = 0;
    received_ = true;
  }

  void end_exchange(bool whole) {
    const std::shared_ptr<Collective> ended = std::exchange(exchange_, nullptr);
    if (!ended) return;
    body_.release();
    --all_.exchanges;
    ended->closed(sent_, whole);
  }

  // False when the body was not received: `refuse` gave the exchange the reason, or the client has left.
  asio::awaitable<bool> read_body(Parser& parser, size_t limit) {
    if (parser.content_length().value_or(0) > limit) {
      exchange_->refuse(413);
      co_return false;
    }
    parser.body_limit(limit);
    parser.eager(true);
    arm(limits_.body_s);
    const auto expects = parser.get()[http::field::expect];
    if (!parser.is_done() && input_.empty() && lower(std::string(expects)) == "100-continue") {
      if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
      arm(limits_.body_s);
    }
    while (!parser.is_done()) {
      if (!input_.empty()) {
        const Code failed = feed(parser);
        if (failed && failed != http::error::need_more) {
          exchange_->refuse(failed == http::error::body_limit ? 413 : 400);
          co_return false;
        }
        // A body with a Content-Length has its memory reserved at once, of which only the received part is touched. A
        // chunked body is copied as it grows, into memory that may have been used before: its whole capacity counts,
        // unless the body is so small that it always passes.
        const std::string& body = parser.get().body();
        if (!body_.grow(parser.chunked() && body.size() > limits_.uncounted_bytes ? body.capacity() : body.size())) {
          exchange_->refuse(503);
          co_return false;
        }
        if (parser.is_done()) break;
        // The parser takes all of a body; the rest is the beginning of a chunk size or of a trailer.
        if (input_.size() > limits_.header_bytes) {
          exchange_->refuse(400);
          co_return false;
        }
      }
      const bool came = !all_.finishing && co_await more(true);
      if (!came) {
        if (all_.finishing) {
          exchange_->refuse(503);
        } else if (expired_) {
          exchange_->refuse(408);
        }
        co_return false;
      }
    }
    disarm();
    auto wake = [weak = std::weak_ptr<Connection>(this->shared_from_this())] {
      if (const Self woken = weak.lock()) asio::post(woken->strand_, [woken] { woken->notify(); });
    };
    if (exchange_->quick()) {
      exchange_->receive(std::move(parser.get().body()), std::move(wake));
      body_.release();
      co_return true;
    }
    received_ = false;
    bool taken = false;
    try {
      taken = all_.workers.add(
          exchange_->owner(),
          [self = this->shared_from_this(), exchange = exchange_, body = std::move(parser.get().body()),
           wake = std::move(wake)]() mutable { self->receive_body(*exchange, std::move(body), std::move(wake)); });
    } catch (...) {
      received_ = true;
      throw;
    }
    if (!taken) {
      received_ = true;
      body_.release();
      exchange_->refuse(429);
    }
    co_return true;
  }

  // On a worker's thread.
  void receive_body(Collective& exchange, std::string body, std::function<void()> wake) {
    // If the client has left, nobody waits for the answer.
    if (!client_gone_ && !attempt([&] { exchange.receive(std::move(body), std::move(wake)); })) broken_ = true;
    received_ = true;
    // When this fails for lack of memory, the connection notices by polling.
    attempt([&] { asio::post(strand_, [self = this->shared_from_this()] { self->notify(); }); });
  }

  // Sends the answer part by part. Returns whether all of it was sent.
  asio::awaitable<bool> answer(bool keep) {
    keep_ = keep;
    bool chunked = false;
    for (;;) {
      // Input at this point is the next request, or the news that the client has closed the connection.
      if (input_.size() < max_ahead) start_read();
      const bool received = received_;
      if (received) body_.release();
      if (received && (closed_ || client_gone_ || broken_)) co_return false;
      if (!received && all_.finishing) {  // `receive` may take long
        co_await send_last(exchange_->cut_short());
        while (!received_) co_await changed();
        co_return false;
      }
      ReplyPart part = received ? exchange_->poll() : ReplyPart();
      if (part.broken) co_return false;
      std::string out;
      if (part.head) {
        if (all_.draining) keep_ = false;
        chunked = part.head->streamed && version_ >= 11;
        if (part.head->streamed && !chunked) keep_ = false;
        std::optional<size_t> length;
        if (!part.head->streamed) length = part.bytes.size();
        out = head_text(*part.head, length, chunked, !keep_);
      }
      if (!head_only_) out += chunked ? chunks_of(part) : part.bytes;
      if (!out.empty() && !co_await send(out)) co_return false;
      if (part.end) co_return true;
      if (out.empty()) co_await changed();
    }
  }

  asio::awaitable<bool> send_refusal(int status) {
    co_await send_last(all_.handler.refusal(status, address_));
    co_return false;
  }

  // Sends an answer that ends the connection.
  asio::awaitable<void> send_last(std::pair<ReplyHead, std::string> answer) {
    const auto& [head, body] = answer;
    if (co_await send(head_text(head, body.size(), false, true) + body)) co_await linger();
  }

  asio::awaitable<bool> send(std::string bytes) {
    arm(limits_.write_s);
    busy_ = true;
    Code failed;
    const size_t sent =
        co_await asio::async_write(stream_, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, failed));
    busy_ = false;
    sent_ += sent;
    disarm();
    co_return !failed && !closed_;
  }

  // Closing a socket with unread bytes would reset the connection and lose the answer: read and drop input for a while.
  asio::awaitable<void> linger() {
    Code ignored;
    socket_of(stream_).shutdown(Tcp::socket::shutdown_send, ignored);
    arm(limits_.linger_s);
    do {
      input_.clear();
    } while (co_await more());
  }

  // Reads once. False when the client has left or time is up; with `until_finish`, also when nothing was read and the
  // server finishes.
  asio::awaitable<bool> more(bool until_finish = false) {
    const size_t before = input_.size();
    start_read();
    while (reading_ && !expired_ && !closed_ && !(until_finish && all_.finishing)) co_await changed();
    co_return !expired_ && !closed_ && input_.size() > before;
  }

  void start_read() {
    if (reading_ || client_gone_ || closed_) return;
    reading_ = true;
    if (read_buffer_.empty()) read_buffer_.resize(read_bytes);
    stream_.async_read_some(asio::buffer(read_buffer_), [self = this->shared_from_this()](Code failed, size_t bytes) {
      self->reading_ = false;
      if (failed) self->client_gone_ = true;
      try {
        self->input_.append(self->read_buffer_.data(), bytes);
      } catch (const std::bad_alloc&) {
        self->close();  // with bytes missing, the rest would be misread
      }
      self->notify();
    });
  }

  asio::awaitable<void> changed() {
    if (!notified_) {
      changed_.expires_after(poll_interval);
      Code cancelled;
      co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    notified_ = false;
  }
  void notify() {
    notified_ = true;
    changed_.cancel();
  }

  // Sets the deadline to `seconds` from now. At most one timer wait is pending; when it ends, it checks the current
  // deadline.
  void arm(double seconds) {
    expired_ = false;
    if (closed_) return;  // a pending timer would keep the server from ending
    deadline_ = Clock::now() + of_seconds(seconds);
    if (waiting_ && deadline_timer_.expiry() <= deadline_) return;
    wait_for_deadline();
  }
  void arm_for_head(double seconds) { arm(all_.finishing ? std::min(seconds, limits_.last_head_s) : seconds); }
  void disarm() { deadline_ = Clock::time_point::max(); }
  void wait_for_deadline() {
    waiting_ = true;
    deadline_timer_.expires_at(deadline_);
    deadline_timer_.async_wait([weak = std::weak_ptr<Connection>(this->shared_from_this())](Code cancelled) {
      const Self self = weak.lock();
      if (cancelled || !self) return;
      self->waiting_ = false;
      if (self->closed_ || self->deadline_ == Clock::time_point::max()) return;
      if (Clock::now() < self->deadline_) return self->wait_for_deadline();
      self->expired_ = true;
      Code ignored;
      // Waits for reads check `expired_`; an operation that the coroutine itself awaits must be cancelled.
      if (self->busy_) socket_of(self->stream_).cancel(ignored);
      self->notify();
    });
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    Code ignored;
    deadline_timer_.cancel();
    socket_of(stream_).shutdown(Tcp::socket::shutdown_both, ignored);
    socket_of(stream_).close(ignored);
    notify();
  }

  ConnectionContext& all_;
  const HttpLimits& limits_;
  std::string address_;
  std::string client_;  // key for counting connections
  Strand strand_;
  Stream stream_;
  Timer deadline_timer_;
  Timer changed_;  // cancelled by notify()
  Clock::time_point deadline_ = Clock::time_point::max();
  std::shared_ptr<Collective> exchange_;
  BodyBudget::Share body_;         // of the exchange's body
  std::string input_;              // received and not yet parsed
  std::vector<char> read_buffer_;  // read buffer
  uint64_t sent_ = 0;              // bytes of this answer
  int64_t served_ = 0;
  unsigned version_ = 11;
  bool head_only_ = false;
  bool keep_ = true;
  bool idle_ = true;
  bool reading_head_ = true;           // waiting for a head or reading one
  std::atomic<bool> received_ = true;  // `receive` is not running: the exchange may be polled
  std::atomic<bool> broken_ = false;   // `receive` has thrown: there is no answer
  bool reading_ = false;
  std::atomic<bool> client_gone_ = false;  // the client sends no more
  bool closed_ = false;
  bool expired_ = false;
  bool busy_ = false;  // the coroutine is in a write or a handshake
  bool waiting_ = false;
  bool notified_ = false;
};

}  // namespace

void begin_connection(ConnectionContext& all, Descriptor socket, bool ipv6, const std::string& address) {
  const Strand strand = asio::make_strand(all.io);
  const std::string client = client_of(address);
  Socket taken(strand, ipv6 ? Tcp::v6() : Tcp::v4(), socket.fd);
  socket.fd = -1;
  attempt([&] { taken.set_option(Tcp::no_delay(true)); });  // fails if the client has left
  const auto begin = [&](const auto& connection) {
    const Admittance entered = all.connections.enter(connection, client);
    if (entered == Admittance::dropped) return;
    try {
      asio::co_spawn(strand, connection->run(connection, entered), asio::detached);
    } catch (const std::exception&) {
      all.connections.leave(connection, client, entered);
      throw;
    }
  };
  if (all.settings.certificate.empty()) {
    begin(std::make_shared<Connection<Socket>>(all, address, std::move(taken)));
  } else {
    const std::shared_ptr<asio::ssl::context> tls = *all.tls.lock();
    begin(std::make_shared<Connection<asio::ssl::stream<Socket>>>(all, address, std::move(taken), *tls));
  }
}

}  // namespace ingot::server
