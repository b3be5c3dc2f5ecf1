// Runs a GGUF file in llama.cpp, for check_llamacpp.py, which compiles this against llama.cpp's own headers.
//
//   llamacpp_logits MODEL.gguf OUT.f32 IDS            logits [T, vocab] of the comma-separated ids, fp32, raw
//   llamacpp_logits MODEL.gguf - IDS --generate N     N greedy ids after them, comma-separated, on standard output
//
// Keys and values are kept in fp32 and flash attention is off, so that what differs is the model.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

void only_errors(ggml_log_level level, const char* text, void* /*unused*/) {
  if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

std::vector<llama_token> parse_ids(const char* text) {
  std::vector<llama_token> ids;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) ids.push_back(std::stoi(word));
  return ids;
}

// Decodes `ids` at positions from `first` on, with logits for all of them.
bool decode(llama_context* context, const std::vector<llama_token>& ids, int first) {
  llama_batch batch = llama_batch_init(static_cast<int>(ids.size()), 0, 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.token[i] = ids[i];
    batch.pos[i] = first + static_cast<int>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = static_cast<int>(ids.size());
  const bool done = llama_decode(context, batch) == 0;
  llama_batch_free(batch);
  return done;
}

int greedy(llama_context* context, std::vector<llama_token> ids, int vocab, int count) {
  int position = 0;
  for (int n = 0; n < count; ++n) {
    if (!decode(context, ids, position)) return 1;
    position += static_cast<int>(ids.size());
    const float* logits = llama_get_logits_ith(context, -1);
    int best = 0;
    for (int id = 1; id < vocab; ++id) {
      if (logits[id] > logits[best]) best = id;
    }
    std::printf("%s%d", n == 0 ? "" : ",", best);
    ids = {best};
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4 && !(count == 6 && std::strcmp(arguments[4], "--generate") == 0)) {
    std::fputs("usage: llamacpp_logits MODEL.gguf OUT.f32|- IDS [--generate N]\n", stderr);
    return 2;
  }
  llama_log_set(only_errors, nullptr);
  llama_backend_init();
  const std::vector<llama_token> ids = parse_ids(arguments[3]);
  const int generated = count == 6 ? std::atoi(arguments[5]) : 0;

  llama_model_params model_settings = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(arguments[1], model_settings);
  if (model == nullptr) return 3;
  llama_context_params settings = llama_context_default_params();
  settings.n_ctx = static_cast<uint32_t>(ids.size()) + static_cast<uint32_t>(generated);
  settings.n_batch = settings.n_ubatch = static_cast<uint32_t>(ids.size());
  settings.n_threads = settings.n_threads_batch = 2;
  settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  settings.type_k = settings.type_v = GGML_TYPE_F32;
  llama_context* context = llama_init_from_model(model, settings);
  if (context == nullptr) return 3;
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));

  int status = 0;
  if (generated > 0) {
    status = greedy(context, ids, vocab, generated);
  } else if (decode(context, ids, 0)) {
    std::FILE* out = std::fopen(arguments[2], "wb");
    if (out == nullptr) return 3;
    const size_t values = ids.size() * static_cast<size_t>(vocab);
    if (std::fwrite(llama_get_logits(context), sizeof(float), values, out) != values) status = 3;
    std::fclose(out);
  } else {
    status = 3;
  }
  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return status;
}
