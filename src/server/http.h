// HTTP as the routes see it: heads, answers that come in pieces, and limits. Nothing of a network library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::server {

// A request's head, as it came.
struct RequestHead {
  std::string method;
  std::string target;                                          // path and query, percent-encoded
  std::vector<std::pair<std::string, std::string>> headers;    // names in lower case
  std::string peer;                                            // the client's address, without the port
  std::string_view header(std::string_view lower_name) const;  // "" when it is not there; the first of several
};

// Whether others must read a head as it is read here; `version`: 10 or 11; `chunked`: its body is read so. Where a body
// ends may be said in one way only (RFC 9112, 6.1 and 6.3), and so may the host, which HTTP/1.1 requires (3.2): a proxy
// in front that chooses another would take one request for two.
bool is_plain(const RequestHead& head, unsigned version, bool chunked);

// What stands in front of an answer's body.
struct ReplyHead {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  bool streamed = false;  // the length is not known: the body comes in pieces
};

// The lines in front of a body: of this length, in chunks, or (neither) up to the end of the connection, which `close`
// says follows.
std::string head_text(const ReplyHead& head, std::optional<size_t> length, bool chunked, bool close);

// The next piece of an answer.
struct Part {
  std::optional<ReplyHead> head;  // in the first one; without `streamed` all of the body is in the same part
  std::string bytes;
  bool end = false;     // nothing follows
  bool broken = false;  // the answer cannot be ended well: the connection is dropped
};

// Its body as chunks of HTTP/1.1, the last one too.
std::string chunks_of(const Part& part);

// One request and its answer. The server calls in this order, one call at a time: body_limit, quick, receive, poll as
// often as wanted, closed. After `closed` nothing is called, and the exchange calls nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Most bytes of a body; none when the head alone decides the answer: then `receive` is not called, and a body that
  // comes anyway is not read.
  virtual std::optional<size_t> body_limit() const = 0;
  // The body could not be had, or not be looked at: 400 (not HTTP), 408 (too slow), 413 (too large), 429 (too much of
  // `owner` waits already) or 503 (all bodies together are too large, or the server ends). The answer says so.
  virtual void refuse(int status) = 0;
  // `receive` reads no files and waits for nothing: it is called at once, on the connection's thread.
  virtual bool quick() const { return false; }
  // Whose it is: owners share the workers' time in turns. 0: nobody's.
  virtual uint64_t owner() const { return 0; }
  // The whole body; on a worker's thread, where it may take its time, unless it is quick. `wake` may be called from any
  // thread, and must be when poll could give something new; not after `closed` has returned.
  virtual void receive(std::string body, std::function<void()> wake) = 0;
  // What is there by now.
  virtual Part poll() = 0;
  // The answer of a server that ends while `receive` runs, on another thread. Nothing but `closed` is called then, when
  // `receive` has returned.
  virtual std::pair<ReplyHead, std::string> cut_short() {
    ReplyHead head;
    head.status = 503;
    return {head, {}};
  }
  // The end: everything was sent, or (`whole` false) the client has gone, was too slow, or the server stops. May not
  // throw.
  virtual void closed(uint64_t bytes_sent, bool whole) = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // May be called from several threads.
  virtual std::shared_ptr<Exchange> open(RequestHead head) = 0;
  // The answer to bytes that are no request: 400 (not HTTP), 408 (the head came too slowly), 431 (a head too large) or
  // 503 (too many connections).
  virtual std::pair<ReplyHead, std::string> refusal(int status, const std::string& peer) = 0;
};

// Bytes of a body that is as small as ordinary ones are.
constexpr size_t small_body = 64 << 10;

struct HttpLimits {
  size_t header_bytes = 32 << 10;
  size_t headers = 100;
  size_t bodies_bytes = size_t{256} << 20;  // of all bodies that are being read or that `receive` looks at; of each
                                            // what has come beyond `uncounted_bytes`
  size_t uncounted_bytes = small_body;      // so small a body always passes, whatever others hold
  int64_t connections = 16384;              // at a time
  int64_t connections_per_address = 4096;   // an IPv6 client's address is its network of 64 bits
  int64_t waiting_bodies = 1024;            // bodies that wait for a worker; of one owner half of them
  int64_t refusals = 256;                   // beyond these, and told so at a time; others are closed without a word
  double header_s = 10;                     // from a request's first byte to the end of its head; a TLS handshake too
  double body_s = 60;                       // for all of a body
  double idle_s = 75;                       // between requests
  double write_s = 30;                      // for the client to take a piece
  double linger_s = 2;                      // for the client to take an answer after which the connection is closed
  double last_head_s = 1;                   // for a head that is not there when the server finishes
};

struct HttpSettings {
  std::string host = "127.0.0.1";  // an address
  int port = 0;                    // 0: any that is free
  std::string certificate;         // PEM files; both or none
  std::string key;
  int threads = 2;  // for connections
  int workers = 4;  // for Exchange::receive where it is not quick
  HttpLimits limits;
};

// What a server holds at a moment.
struct HttpCounts {
  int64_t connections = 0;
  int64_t exchanges = 0;  // requests whose answer has not ended
  size_t body_bytes = 0;  // of what HttpLimits::bodies_bytes bounds
};

// ASCII letters of either case are equal, as in names of hosts, headers and authentication schemes.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace ingot::server
