// The API's routes: authorisation, request parsing and dispatch (docs/serving.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "infer/service.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/served_model.h"

namespace ingot::server {

struct ApiSettings {
  size_t body_bytes = 8 << 20;       // max size of a request body
  int64_t slow_outputs = 4096;       // max outputs that wait for a slow client; then its request is dropped
  std::vector<ApiKey> keys;          // empty: no keys are needed, and only this machine may connect
  std::vector<std::string> origins;  // origins whose pages may read answers (server/cors.h)
  std::function<void(std::string_view)> access_log;  // called with one JSON line per request, by several threads
  std::function<HttpCounts()> http_counts;           // for the metrics; may be empty
};

class Api : public Handler {
 public:
  // All references must outlive it; `adapters` and `masks` may be null.
  Api(ApiSettings settings, const ServedModel& model, infer::Service& service, AdapterList* adapters,
      MaskFactory* masks);
  ~Api() override;

  std::shared_ptr<Collective> open(RequestHead head) override;
  std::pair<ReplyHead, std::string> refusal(int status, const std::string& peer) override;

  // From now on /ready answers 503, and no new generation starts.
  void drain();
  // As `drain`, and every unfinished request ends with the error `unavailable`: as a 503 if nothing of the answer was
  // sent, else as the last event of its stream. HttpServer::finish must follow: it makes the connections send that.
  void finish();

  // See Keys::replace.
  void set_keys(std::vector<ApiKey> keys);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
