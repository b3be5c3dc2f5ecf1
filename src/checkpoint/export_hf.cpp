#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/export.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/text_assets.h"
#include "checkpoint/vocabulary.h"
#include "checkpoint/weight_reader.h"
#include "formats/gguf.h"
#include "formats/safetensors_set.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* text_files[] = {
    "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json", "tokenizer.model",         "vocab.json",
    "merges.txt"};

const char* exported_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    default: throw_error(ErrorKind::internal, "cannot write a model in {}", name(dtype));
  }
}

void write_weights(const fs::path& folder, const ExportModel& model, DType dtype, uint64_t shard_bytes) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model.spec);
  std::vector<formats::TensorDeclaration> declarations;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < table.size(); ++i) {
    const Placement placement = hf_placements(model.spec, table[i]).front();
    declarations.push_back({placement.name, exported_dtype(dtype), placement.shape});
    places[placement.name] = i;
  }
  const auto shards = formats::split_into_shards(declarations, shard_bytes);
  formats::SafetensorsIndex index;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string file =
        formats::safetensors_shard_name(static_cast<int64_t>(shard) + 1, static_cast<int64_t>(shards.size()));
    formats::SafetensorsWriter writer(folder / file, shards[shard]);
    for (const formats::TensorDeclaration& tensor : writer.layout()) {
      const size_t i = places.at(tensor.name);
      index.weight_map[tensor.name] = file;
      read_parameter(model.device, model.parameter(i), hf_placements(model.spec, table[i]).front(), storage_of(dtype),
                     model.pool, tensor.name, [&](std::span<const std::byte> bytes) {
                       writer.write(tensor.name, bytes);
                       index.total_size += bytes.size();
                     });
    }
    writer.finish();
  }
  if (shards.size() > 1) formats::write_safetensors_index(folder / "model.safetensors.index.json", index);
}

json token_or_null(const text::VocabularySpec& vocabulary, std::optional<int32_t> id) {
  if (!id || static_cast<size_t>(*id) >= vocabulary.tokens.size()) return nullptr;
  return vocabulary.tokens[static_cast<size_t>(*id)];
}

// Writes the tokenizer files of transformers from the vocabulary of a GGUF file.
void write_text_of_gguf(const fs::path& folder, const fs::path& source, const TextAssets& assets,
                        const spec::ModelSpec& spec) {
  const formats::GgufSet file(source);
  const text::VocabularySpec vocabulary = gguf_vocabulary(file.metadata(), source.string());
  write_file(folder / "tokenizer.json", tokenizer_json(vocabulary));
  json special = json::object();
  for (const auto& [key, id] : {std::pair{"bos_token", vocabulary.bos_id}, std::pair{"eos_token", vocabulary.eos_id},
                                std::pair{"unk_token", vocabulary.unk_id}, std::pair{"pad_token", vocabulary.pad_id}}) {
    const json token = token_or_null(vocabulary, id);
    if (!token.is_null()) special[key] = token;
  }
  write_file(folder / "special_tokens_map.json", special.dump(2) + "\n");
  json settings = special;
  settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  settings["model_max_length"] = spec.context;
  settings["clean_up_tokenization_spaces"] = false;
  if (assets.chat_template) settings["chat_template"] = *assets.chat_template;
  write_file(folder / "tokenizer_config.json", settings.dump(2) + "\n");
  json generation = json::object();
  if (assets.bos) generation["bos_token_id"] = *assets.bos;
  if (assets.eos.size() == 1) generation["eos_token_id"] = assets.eos.front();
  if (assets.eos.size() > 1) generation["eos_token_id"] = assets.eos;
  if (vocabulary.pad_id) generation["pad_token_id"] = *vocabulary.pad_id;
  write_file(folder / "generation_config.json", generation.dump(2) + "\n");
}

}  // namespace

void write_hf(const fs::path& folder, const ExportModel& model, DType dtype, uint64_t shard_bytes) {
  if (path_exists(folder / "config.json")) {
    throw_hint(ErrorKind::usage, "give a new or empty folder", "{}: the folder already contains a model",
               folder.string());
  }
  make_folders(folder);

  HfConfig config;
  config.model = model.spec;
  config.dtype = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
  if (model.text && model.text->kind == SourceKind::gguf) {
    const TextAssets assets = load_text(*model.text);
    if (assets.bos) config.bos = {*assets.bos};
    config.eos.assign(assets.eos.begin(), assets.eos.end());
    if (assets.tokenizer) write_text_of_gguf(folder, model.text->path, assets, model.spec);
  } else if (model.text) {
    const fs::path source_config = model.text->path / "config.json";
    if (path_exists(source_config)) {
      const HfConfig source = parse_hf_config(read_file(source_config, uint64_t{1} << 26), source_config.string());
      config.bos = source.bos;
      config.eos = source.eos;
    }
    for (const char* file : text_files) {
      if (path_exists(model.text->path / file)) {
        write_file(folder / file, read_file(model.text->path / file, uint64_t{1} << 30));
      }
    }
  }
  const std::string config_json = write_hf_config(config);  // may refuse the model: before the weights are written
  write_weights(folder, model, dtype, shard_bytes);
  write_file(folder / "config.json", config_json);
}

}  // namespace ingot::checkpoint
