#include "runs/samples.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "data/tokenized.h"
#include "text/chat_template.h"

namespace ingot::runs {

std::vector<std::vector<int32_t>> encode_prompts(const train::Recipe& r, const checkpoint::TextAssets& text,
                                                 const RunData& data) {
  std::vector<std::vector<int32_t>> encoded;
  if (r.eval.prompts.empty()) return encoded;
  if (!text.tokenizer) {
    throw_hint(ErrorKind::not_found, "give a model that has a tokenizer (tokenizer=...), or remove eval.prompts",
               "eval.prompts: model {} has no tokenizer", r.model);
  }
  std::optional<text::ChatTemplate> chat;
  if (data.is_chat && text.chat_template) chat.emplace(*text.chat_template, r.model);
  for (const std::string& prompt : r.eval.prompts) {
    encoded.push_back(chat ? data::encode_question(prompt, *text.tokenizer, *chat)
                           : text.tokenizer->encode(prompt, {.add_special_tokens = true}));
  }
  return encoded;
}

Sampler::Sampler(runtime::Runtime& runtime, const models::InferenceModel& model, const checkpoint::TextAssets& text,
                 const RunPlan& plan, std::vector<std::vector<int32_t>> prompts, const nn::Adapter* adapter)
    : text_(text), plan_(plan), prompts_(std::move(prompts)), adapter_(adapter) {
  if (plan.samples) engine_.emplace(*runtime.device, runtime.registry, *runtime.threads, model, *plan.samples);
}

void Sampler::run(int64_t step, train::Observer& observer) {
  if (!engine_) return;
  // Sampled, not greedy: small models repeat themselves when greedy. The same seed at every evaluation.
  const infer::SamplingParams sampling{
      .temperature = 0.8, .top_p = 0.95, .seed = static_cast<uint64_t>(plan_.recipe.seed)};
  std::map<int64_t, std::vector<int32_t>> answers;
  const std::shared_ptr<const infer::HostAdapter> adapter = infer::shared_adapter(adapter_);
  for (const std::vector<int32_t>& prompt : prompts_) {
    infer::Request request;
    request.prompt = prompt;
    request.max_tokens = plan_.recipe.eval.sample_tokens;
    request.sampling = sampling;
    request.stop_ids = text_.eos;
    request.adapter = adapter;
    answers[engine_->submit(std::move(request))];
  }
  while (!engine_->idle()) {
    for (const infer::Output& output : engine_->step()) {
      if (output.token) answers[output.request].push_back(output.token->id);
      if (output.finish != infer::FinishReason::failed) continue;
      observer.on_warning({step, fmt::format("a sample of eval.prompts is incomplete: {}", output.error)});
    }
  }
  size_t index = 0;
  for (const auto& [request, ids] : answers) {
    observer.on_sample({step, plan_.recipe.eval.prompts[index++], text_.tokenizer->decode(ids, true)});
  }
}

}  // namespace ingot::runs
