// llama.cpp as a command, for check_llamacpp.py. tools/llamacpp.sh compiles it with llama.cpp's headers.
//
//   llamacpp_run logits MODEL.gguf IDS OUT.f32
//       writes the logits [T, vocab] of the comma-separated ids, raw fp32
//   llamacpp_run greedy MODEL.gguf IDS N OUT.f32
//       prints N greedy ids after IDS and writes their logits [N, vocab]
//   llamacpp_run tokenize MODEL.gguf TEXTS
//       prints a line of ids for each text. TEXTS has for each text its number of bytes, a line feed and the bytes.
//       Special tokens in a text are recognised, and none is added.
//   llamacpp_run quantize IN.gguf OUT.gguf FTYPE
//       converts every matrix to FTYPE (a number of llama.h's llama_ftype)
//
// The KV cache is fp32 and flash attention is off, so that differences come from the model.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

using Model = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using Context = std::unique_ptr<llama_context, decltype(&llama_free)>;
using Ids = std::vector<llama_token>;

void only_errors(ggml_log_level level, const char* text, void* /*unused*/) {
  if (level >= GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT) std::fputs(text, stderr);
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "llamacpp_run: %s\n", what.c_str());
  std::exit(3);
}

Model load(const char* path, bool vocab_only) {
  llama_model_params settings = llama_model_default_params();
  settings.vocab_only = vocab_only;
  settings.use_extra_bufts = false;  // no repacking: the AMX kernels of 0.3.36 end in an illegal instruction
  Model model(llama_model_load_from_file(path, settings), llama_model_free);
  if (!model) fail(std::string(path) + " is not loaded");
  return model;
}

Context make_context(llama_model* model, size_t prompt, size_t length) {
  llama_context_params settings = llama_context_default_params();
  settings.n_ctx = static_cast<uint32_t>(length);
  settings.n_batch = settings.n_ubatch = static_cast<uint32_t>(prompt);
  settings.n_threads = settings.n_threads_batch = 1;  // waiting threads of llama.cpp spin
  settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  settings.type_k = settings.type_v = GGML_TYPE_F32;
  Context context(llama_init_from_model(model, settings), llama_free);
  if (!context) fail("no context");
  return context;
}

Ids parse_ids(const char* text) {
  Ids ids;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) ids.push_back(std::stoi(word));
  return ids;
}

void print(const Ids& ids) {
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : ",", ids[i]);
  std::printf("\n");
}

// Runs `ids` at positions `first`, `first` + 1, ... and computes logits for all of them.
void decode(llama_context* context, const Ids& ids, size_t first) {
  llama_batch batch = llama_batch_init(static_cast<int>(ids.size()), 0, 1);
  batch.n_tokens = static_cast<int>(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.token[i] = ids[i];
    batch.pos[i] = static_cast<llama_pos>(first + i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) fail("llama_decode");
  llama_batch_free(batch);
}

size_t vocabulary_size(const llama_model* model) {
  return static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
}

void write(const char* path, const std::vector<float>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!out.flush()) fail(std::string(path) + " is not written");
}

void logits(const char* path, const Ids& ids, const char* out) {
  const Model model = load(path, false);
  const Context context = make_context(model.get(), ids.size(), ids.size());
  decode(context.get(), ids, 0);
  const float* all = llama_get_logits(context.get());
  write(out, {all, all + ids.size() * vocabulary_size(model.get())});
}

void greedy(const char* path, Ids ids, size_t count, const char* out) {
  const Model model = load(path, false);
  const Context context = make_context(model.get(), ids.size(), ids.size() + count);
  const size_t vocab = vocabulary_size(model.get());
  std::vector<float> all;
  Ids chosen;
  for (size_t position = 0; chosen.size() < count; position += ids.size(), ids = {chosen.back()}) {
    decode(context.get(), ids, position);
    const float* last = llama_get_logits_ith(context.get(), -1);
    all.insert(all.end(), last, last + vocab);
    size_t best = 0;
    for (size_t id = 1; id < vocab; ++id) {
      if (last[id] > last[best]) best = id;
    }
    chosen.push_back(static_cast<llama_token>(best));
  }
  print(chosen);
  write(out, all);
}

void tokenize(const char* path, const char* texts, bool add_special) {
  const Model model = load(path, true);
  std::ifstream in(texts, std::ios::binary);
  for (size_t size = 0; in >> size;) {
    in.get();
    std::string text(size, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(size))) fail(std::string(texts) + " ends in a text");
    Ids ids(4 * size + 16);
    const int count = llama_tokenize(llama_model_get_vocab(model.get()), text.data(), static_cast<int>(size),
                                     ids.data(), static_cast<int>(ids.size()), add_special, true);
    if (count < 0) fail("llama_tokenize");
    ids.resize(static_cast<size_t>(count));
    print(ids);
  }
}

void quantize(const char* in, const char* out, const char* type) {
  llama_model_quantize_params settings = llama_model_quantize_default_params();
  settings.ftype = static_cast<llama_ftype>(std::atoi(type));
  settings.nthread = 1;
  settings.pure = true;
  if (llama_model_quantize(in, out, &settings) != 0) fail("llama_model_quantize");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string command = count > 1 ? arguments[1] : "";
  llama_log_set(only_errors, nullptr);
  llama_backend_init();
  if (command == "logits" && count == 5) {
    logits(arguments[2], parse_ids(arguments[3]), arguments[4]);
  } else if (command == "greedy" && count == 6) {
    greedy(arguments[2], parse_ids(arguments[3]), std::stoul(arguments[4]), arguments[5]);
  } else if (command == "tokenize" && count == 5) {
    tokenize(arguments[2], arguments[3], arguments[4][0] == '1');
  } else if (command == "quantize" && count == 5) {
    quantize(arguments[2], arguments[3], arguments[4]);
  } else {
    fail("usage: logits MODEL IDS OUT | greedy MODEL IDS N OUT | tokenize MODEL TEXTS 0|1 | quantize IN OUT FTYPE");
  }
  llama_backend_free();
}
