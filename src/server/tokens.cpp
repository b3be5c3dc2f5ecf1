// /v1/tokenize and /v1/detokenize.
#include <nlohmann/json.hpp>

#include "server/adapters.h"
#include "server/prompts.h"
#include "server/reply_json.h"

namespace ingot::server {

std::string tokenize(ApiContext& api, std::string_view body, RequestRecord& record) {
  const TokenizeRequest request = parse_tokenize(body);
  if (request.model) check_model(api, *request.model);
  record.model = request.model.value_or(api.model.id);
  const text::ChatText text = request.prompt ? text::ChatText{*request.prompt, {}}
                                             : render_chat(api.model, request.messages, "", request.template_variables);
  check_bytes(api.model, text.text, request.prompt ? "prompt" : "messages");
  const bool add_special_tokens = request.prompt && request.add_special_tokens;
  const Ids ids =
      api.model.tokenizer->encode(text.text, {.add_special_tokens = add_special_tokens, .content = text.content});
  return line_of({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", api.model.context}});
}

std::string detokenize(ApiContext& api, std::string_view body, RequestRecord& record) {
  const DetokenizeRequest request = parse_detokenize(body);
  if (request.model) check_model(api, *request.model);
  record.model = request.model.value_or(api.model.id);
  for (const int32_t id : request.tokens) check_id(api.model, id, "tokens");
  return line_of({{"prompt", api.model.tokenizer->decode(request.tokens)}});
}

}  // namespace ingot::server
