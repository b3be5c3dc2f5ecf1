#include "base/error.h"
#include "base/file.h"
#include "checkpoint/export.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/row_order.h"
#include "checkpoint/text_assets.h"
#include "checkpoint/vocabulary.h"
#include "checkpoint/weight_reader.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using formats::GgufArray;
using formats::GgufMetadata;
using formats::GgufType;

namespace {

struct FileType {
  Storage storage;
  GgufType type;
  uint32_t id;  // general.file_type
};

const FileType& file_type(Storage storage) {
  static constexpr FileType types[] = {{Storage::f32, GgufType::f32, 0},
                                       {Storage::f16, GgufType::f16, 1},
                                       {Storage::q8_0, GgufType::q8_0, 7},
                                       {Storage::bf16, GgufType::bf16, 32}};
  for (const FileType& type : types) {
    if (type.storage == storage) return type;
  }
  throw_hint(ErrorKind::unsupported, "Ingot writes: f32, f16, bf16, q8_0", "GGUF files in {} are not written",
             name(storage));
}

void add_vocabulary(GgufMetadata& metadata, text::VocabularySpec vocabulary, const TextAssets& assets) {
  const auto id = [&](const char* key, std::optional<int32_t> value) {
    if (value) metadata.add(key, static_cast<uint32_t>(*value));
  };
  metadata.add("tokenizer.ggml.model", vocabulary.model);
  metadata.add("tokenizer.ggml.pre", vocabulary.pre);
  const size_t num_tokens = vocabulary.tokens.size();
  metadata.add("tokenizer.ggml.tokens", GgufArray{std::move(vocabulary.tokens)});
  if (vocabulary.token_types.empty()) vocabulary.token_types.assign(num_tokens, 1);
  metadata.add("tokenizer.ggml.token_type", GgufArray{std::move(vocabulary.token_types)});
  metadata.add("tokenizer.ggml.merges", GgufArray{std::move(vocabulary.merges)});
  id("tokenizer.ggml.bos_token_id", vocabulary.bos_id);
  // The tokenizer's end of text, else what generation stops at; a second stop is the end of a turn.
  const std::optional<int32_t> eos =
      vocabulary.eos_id || assets.eos.empty() ? vocabulary.eos_id : std::optional<int32_t>(assets.eos.front());
  id("tokenizer.ggml.eos_token_id", eos);
  for (int32_t other : assets.eos) {
    if (other == eos) continue;
    id("tokenizer.ggml.eot_token_id", other);
    break;
  }
  id("tokenizer.ggml.unknown_token_id", vocabulary.unk_id);
  id("tokenizer.ggml.padding_token_id", vocabulary.pad_id);
  if (vocabulary.add_bos) metadata.add("tokenizer.ggml.add_bos_token", *vocabulary.add_bos);
  if (vocabulary.add_eos) metadata.add("tokenizer.ggml.add_eos_token", *vocabulary.add_eos);
  if (assets.chat_template) metadata.add("tokenizer.chat_template", *assets.chat_template);
}

void add_text(GgufMetadata& metadata, const ModelSource& source, const spec::ModelSpec& spec) {
  if (source.kind == SourceKind::gguf) {
    const formats::GgufSet file(source.path);
    for (const auto& [key, value] : file.metadata().items()) {
      if (key.starts_with("tokenizer.")) metadata.add(key, value);
    }
    return;
  }
  const TextAssets assets = load_text(source);
  if (!assets.tokenizer) return;
  const fs::path path = source.path / "tokenizer.json";
  add_vocabulary(metadata,
                 gguf_vocabulary_of(read_file(path, uint64_t{1} << 30), path.string(),
                                    hf_tokenizer_config(source.path).special, spec.vocab),
                 assets);
}

}  // namespace

void write_gguf(const fs::path& file, const ExportModel& model, Storage matrices) {
  const FileType& type = file_type(matrices);
  GgufMetadata metadata = gguf_model_metadata(model.spec, model.name, type.id);
  if (model.text) add_text(metadata, *model.text, model.spec);

  const std::vector<spec::ParamSpec> table = spec::parameters(model.spec);
  std::vector<formats::GgufDeclaration> declarations;
  const bool divided = model.spec.rope_scaling.kind == spec::RopeScaling::Kind::llama3;
  if (divided) declarations.push_back({"rope_freqs.weight", GgufType::f32, {model.spec.head_dim / 2}});
  for (const spec::ParamSpec& p : table) {
    const bool matrix = p.shape.size() == 2;
    if (matrix && p.shape[1] % block_elements(matrices) != 0) {
      throw_hint(ErrorKind::unsupported, "write f16 or bf16",
                 "tensor '{}': rows of {} elements are not whole {} blocks of {}", p.name, p.shape[1], name(matrices),
                 block_elements(matrices));
    }
    declarations.push_back({p.gguf_name, matrix ? type.type : GgufType::f32, {p.shape.rbegin(), p.shape.rend()}});
  }
  formats::GgufWriter writer(file, metadata, declarations);
  if (divided) {
    const std::vector<float> divisors = rope_divisors(model.spec);
    writer.write("rope_freqs.weight", std::as_bytes(std::span(divisors)));
  }
  for (size_t i = 0; i < table.size(); ++i) {
    const spec::ParamSpec& p = table[i];
    const RowSource rows = row_source(model.weights.parameters.at(i), p.rope_heads > 0);
    const int64_t head = p.rope_heads > 0 ? p.shape[0] / p.rope_heads : 0;
    read_rows(
        model.device, rows, p.shape.size() == 2 ? matrices : Storage::f32,
        [head](int64_t row) { return head > 0 ? hf_row(row, head) : row; }, model.pool, p.name,
        [&](std::span<const std::byte> bytes) { writer.write(p.gguf_name, bytes); });
  }
  writer.finish();
}

}  // namespace ingot::checkpoint
