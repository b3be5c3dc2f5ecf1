// HTTP as the routes see it: heads, answers in parts, and limits. Independent of the network library.
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

// A request's head, as received.
struct RequestHead {
  std::string method;
  std::string target;                                          // path and query, percent-encoded
  std::vector<std::pair<std::string, std::string>> headers;    // names in lower case
  std::string peer;                                            // the client's address, without the port
  std::string_view header(std::string_view lower_name) const;  // "" when absent; the first of several
};

// Whether every implementation reads this head in the same way. `version`: 10 or 11; `chunked`: the body is read as
// chunks. The end of the body must be stated in one way only (RFC 9112, 6.1 and 6.3), and so must the host, which
// HTTP/1.1 requires (3.2): otherwise a proxy in front could see other request boundaries than this server (request
// smuggling).
bool is_plain(const RequestHead& head, unsigned version, bool chunked);

// The head of an answer.
struct ReplyHead {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  bool streamed = false;  // the length is not known: the body comes in parts
};

// Status line and headers. The body has this length, or is chunked, or (neither) lasts to the end of the connection,
// which `close` announces.
std::string head_text(const ReplyHead& head, std::optional<size_t> length, bool chunked, bool close);

// The next part of an answer.
struct ReplyPart {
  std::optional<ReplyHead> head;  // in the first part; without `streamed`, the same part has the whole body
  std::string bytes;
  bool end = false;     // the last part
  bool broken = false;  // the answer cannot be completed: the connection is dropped
};

// The part's bytes as an HTTP/1.1 chunk, with the final chunk after the last part.
std::string chunks_of(const ReplyPart& part);

// One request and its answer. The server makes these calls, in this order and one at a time: body_limit, quick,
// receive, poll (any number of times), closed. After `closed` nothing is called, and the exchange calls nothing.
class Collective {
 public:
  virtual ~Collective() = default;

  // Max bytes of the body; nullopt when the head alone decides the answer: `receive` is not called then, and a body
  // that arrives anyway is not read.
  virtual std::optional<size_t> body_limit() const = 0;
  // The body could not be received or processed: 400 (not HTTP), 408 (too slow), 413 (too large), 429 (too many bodies
  // wait for a worker, of this owner or in total) or 503 (all bodies together are too large, or the server ends). The
  // answer must say so.
  virtual void refuse(int status) = 0;
  // Whether `receive` reads no files and does not wait: then it is called at once, on the connection's thread.
  virtual bool quick() const { return false; }
  // The owner of the request: owners have fair shares of the workers' time. 0: no owner.
  virtual uint64_t owner() const { return 0; }
  // Receives the whole body. Called on a worker's thread, where it may take its time, unless `quick`. `wake` may be
  // called from any thread, and must be called when poll may return something new; not after `closed` has returned.
  virtual void receive(std::string body, std::function<void()> wake) = 0;
  // What can be sent now.
  virtual ReplyPart poll() = 0;
  // The answer when the server ends while `receive` runs on another thread. After this only `closed` is called, when
  // `receive` has returned.
  virtual std::pair<ReplyHead, std::string> cut_short() {
    ReplyHead head;
    head.status = 503;
    return {head, {}};
  }
  // The end: everything was sent, or (`whole` false) the client has left or was too slow, or the server stops. Must not
  // throw.
  virtual void closed(uint64_t bytes_sent, bool whole) = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // May be called from several threads.
  virtual std::shared_ptr<Collective> open(RequestHead head) = 0;
  // The answer to bytes that are not a request: 400 (not HTTP), 408 (the head came too slowly), 431 (head too large) or
  // 503 (too many connections).
  virtual std::pair<ReplyHead, std::string> refusal(int status, const std::string& peer) = 0;
};

// Max bytes of an ordinary small body.
constexpr size_t small_body = 64 << 10;

struct HttpLimits {
  size_t header_bytes = 32 << 10;
  size_t headers = 100;
  size_t bodies_bytes = size_t{256} << 20;  // of all bodies that are being read or processed by `receive`; only bytes
                                            // beyond `uncounted_bytes` of each body count
  size_t uncounted_bytes = small_body;      // bodies up to this size always pass, whatever others hold
  int64_t connections = 16384;              // open at a time
  int64_t connections_per_address = 4096;   // IPv6 clients are counted by their /64 network
  int64_t waiting_bodies = 1024;            // max bodies that wait for a worker; one owner may have half of them
  int64_t refusals = 256;  // over-limit connections that get an answer at a time; others are just closed
  double header_s = 10;    // from a request's first byte to the end of its head; a TLS handshake too
  double body_s = 60;      // for all of a body
  double idle_s = 75;      // between requests
  double write_s = 30;     // for the client to take a part
  double linger_s = 2;     // for the client to read an answer after which the connection is closed
  double last_head_s = 1;  // for a head that has not arrived when the server finishes
};

struct HttpSettings {
  std::string host = "127.0.0.1";  // an address
  int port = 0;                    // 0: any free port
  std::string certificate;         // PEM files; both or none
  std::string key;
  int threads = 2;  // for connections
  int workers = 4;  // for Collective::receive unless it is quick
  HttpLimits limits;
};

// The current load of a server.
struct HttpCounts {
  int64_t connections = 0;
  int64_t exchanges = 0;  // requests whose answer is not complete
  size_t body_bytes = 0;  // as bounded by HttpLimits::bodies_bytes
};

// ASCII letters of either case are equal, as in names of hosts, headers and authentication schemes.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace ingot::server
