// /v1/embeddings: the mean of the final norm's output over an input's tokens, scaled to length 1.
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "server/adapters.h"
#include "server/outputs.h"
#include "server/prompts.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "embeddings in base64 are little-endian");

std::string base64(const std::vector<float>& values) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  const size_t count = values.size() * sizeof(float);
  std::string text;
  text.reserve((count + 2) / 3 * 4);
  for (size_t i = 0; i < count; i += 3) {
    const size_t left = std::min<size_t>(3, count - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < left ? bytes[i + k] : 0U);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

void normalise(std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  const double length = std::sqrt(squares);
  if (length == 0) return;
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) / length);
}

class EmbeddingWork : public Work {
 public:
  EmbeddingWork(std::unique_ptr<Outputs> outputs, EmbeddingsRequest request, int64_t prompt_tokens)
      : outputs_(std::move(outputs)),
        request_(std::move(request)),
        prompt_tokens_(prompt_tokens),
        vectors_(request_.inputs.size()) {}

  ReplyPart poll(RequestRecord&) override {
    for (OutputDelta& piece : outputs_->take()) {
      if (!piece.embedding.empty()) vectors_[piece.choice] = std::move(piece.embedding);
    }
    ReplyPart part;
    if (!outputs_->ended()) return part;
    Json data = Json::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      normalise(vectors_[i]);
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", nullptr}});
      data.back()["embedding"] = request_.base64 ? Json(base64(vectors_[i])) : Json(vectors_[i]);
    }
    part.head = ReplyHead();
    part.bytes = line_of({{"object", "list"},
                          {"data", std::move(data)},
                          {"model", request_.model},
                          {"usage", {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}}}});
    part.end = true;
    return part;
  }

 private:
  std::unique_ptr<Outputs> outputs_;
  EmbeddingsRequest request_;
  int64_t prompt_tokens_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace

std::unique_ptr<Work> start_embeddings(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake) {
  EmbeddingsRequest request = parse_embeddings(body);
  record.model = request.model;
  if (request.dimensions && *request.dimensions != api.model.hidden) {
    throw bad_field("dimensions", "unsupported_value",
                    fmt::format("'dimensions' is {}; only the model's own {} is supported.", *request.dimensions,
                                api.model.hidden));
  }
  const int64_t numbers = static_cast<int64_t>(request.inputs.size()) * api.model.hidden;
  if (numbers > max_answer_numbers) {
    throw bad_field(
        "input", "invalid_value",
        fmt::format(
            "{} inputs of {} numbers each are {}; a response may have at most {}: split them over several requests.",
            request.inputs.size(), api.model.hidden, numbers, max_answer_numbers));
  }
  const std::shared_ptr<const infer::HostAdapter> adapter = adapter_of(api, request.model, record);
  std::vector<infer::Request> requests;
  for (const Prompt& input : request.inputs) {
    infer::Request one;
    one.prompt = encode(api.model, input, "input", 0);
    one.max_tokens = 1;
    one.embed = true;
    one.adapter = adapter;
    one.owner = owner_of(record);
    record.prompt_tokens += one.prompt.size();
    requests.push_back(std::move(one));
  }
  auto outputs = std::make_unique<Outputs>(api.service, *api.model.tokenizer, std::move(requests),
                                           OutputSettings{.queue = api.settings.slow_outputs}, std::move(wake));
  return std::make_unique<EmbeddingWork>(std::move(outputs), std::move(request), record.prompt_tokens);
}

}  // namespace ingot::server
