// The route handlers, except for those in api.cpp, and what they share.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "server/api.h"
#include "server/api_error.h"
#include "server/metrics.h"
#include "server/requests.h"

namespace ingot::server {

struct ApiContext {
  ApiSettings settings;
  const ServedModel& model;
  infer::Service& service;
  AdapterList* adapters;
  MaskFactory* masks;
  Keys keys;
  Metrics metrics;
  std::atomic<bool> draining{false};
  std::atomic<bool> finishing{false};
};

// What is counted and logged about a request.
struct RequestRecord {
  int key = -1;  // index of its API key; -1 without keys
  std::string model;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<double> first_token_s;  // seconds from the head
  std::string failure;                  // a failure of the server; for the log only
};

// The owner of the request in the engine and in the work queue; 0 without keys.
inline uint64_t owner_of(const RequestRecord& record) { return static_cast<uint64_t>(int64_t{record.key} + 1); }

// An answer that takes time. Lives on the connection's thread; cancels what it runs when it is destroyed.
class Work {
 public:
  virtual ~Work() = default;
  // What can be sent now. Errors: ApiError, Error; after the head they become the last event of a stream.
  virtual ReplyPart poll(RequestRecord& record) = 0;
  // The text of that event. `error`: {"error": {...}}. REQUIRES a stream.
  virtual std::string failure(const std::string& error) { return error; }
};

using Wake = std::function<void()>;

// Errors: ApiError, Error.
std::unique_ptr<Work> start_chat(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake);
std::unique_ptr<Work> start_responses(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake);
std::unique_ptr<Work> start_completion(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake);
std::unique_ptr<Work> start_embeddings(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake);
std::string list_models(ApiContext& api);
std::string one_model(ApiContext& api, const std::string& id);
std::string tokenize(ApiContext& api, std::string_view body, RequestRecord& record);
std::string detokenize(ApiContext& api, std::string_view body, RequestRecord& record);
std::string list_adapters(ApiContext& api);
std::string add_adapter(ApiContext& api, std::string_view body, RequestRecord& record);
std::string remove_adapter(ApiContext& api, const std::string& name, const char* object);

// The HTML page at "/".
extern const char* const page_html;

}  // namespace ingot::server
