// The routes: who may ask, what is asked, and who answers (specs/openai_api.md; docs/serving.md).
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
  size_t body_bytes = 8 << 20;                       // most of a request
  int64_t slow_outputs = 4096;                       // that wait for a reader; then its request is given up
  std::vector<ApiKey> keys;                          // none: anybody may ask, from this machine
  std::vector<std::string> origins;                  // of pages that may read answers (server/cors.h)
  std::function<void(std::string_view)> access_log;  // gets a JSON line a request; may be called from several threads
  std::function<HttpCounts()> http_counts;           // for the metrics; may be empty
};

class Api : public Handler {
 public:
  // All outlive it; `adapters` and `masks` may be null.
  Api(ApiSettings settings, const ServedModel& model, infer::Service& service, AdapterList* adapters,
      MaskFactory* masks);
  ~Api() override;

  std::shared_ptr<Exchange> open(RequestHead head) override;
  std::pair<ReplyHead, std::string> refusal(int status, const std::string& peer) override;

  // From now on /ready says no, and nothing new is generated.
  void drain();
  // As `drain`, and every request that is not answered yet ends with an error, `unavailable`: as a 503 where nothing of
  // the answer was sent, as the last event of a stream where something was. HttpServer::finish must follow: it has the
  // connections send that.
  void finish();

  // Keys::replace.
  void set_keys(std::vector<ApiKey> keys);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
