#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/export.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/placement.h"
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
  StorageType storage;
  GgufType type;
  uint32_t id;  // general.file_type
};

const FileType& file_type(StorageType storage) {
  static constexpr FileType types[] = {{StorageType::f32, GgufType::f32, 0},
                                       {StorageType::f16, GgufType::f16, 1},
                                       {StorageType::q4_0, GgufType::q4_0, 2},
                                       {StorageType::q8_0, GgufType::q8_0, 7},
                                       {StorageType::bf16, GgufType::bf16, 32}};
  for (const FileType& type : types) {
    if (type.storage == storage) return type;
  }
  throw_hint(ErrorKind::unsupported, "supported: f32, f16, bf16, q8_0, q4_0", "GGUF files in {} cannot be written",
             name(storage));
}

// Adds to `lost` the properties that the file cannot express.
void add_vocabulary(GgufMetadata& metadata, GgufVocabulary made, const TextAssets& assets,
                    std::vector<std::string>& lost) {
  text::VocabularySpec& vocabulary = made.spec;
  lost.insert(lost.end(), made.lost.begin(), made.lost.end());
  if (!vocabulary.rstrip.empty() && !is_phi3(metadata.text("general.name", ""))) {
    lost.emplace_back(
        "special tokens that strip the white space after them (rstrip): GGUF keeps this only for models with Phi-3 in "
        "their name");
  }
  const auto id = [&](const char* key, std::optional<int32_t> value) {
    if (value) metadata.add(key, static_cast<uint32_t>(*value));
  };
  metadata.add("tokenizer.ggml.model", vocabulary.model);
  metadata.add("tokenizer.ggml.pre", vocabulary.model == "gpt2" ? vocabulary.pre : "default");
  const size_t num_tokens = vocabulary.tokens.size();
  metadata.add("tokenizer.ggml.tokens", GgufArray{std::move(vocabulary.tokens)});
  if (vocabulary.token_types.empty()) vocabulary.token_types.assign(num_tokens, 1);
  metadata.add("tokenizer.ggml.token_type", GgufArray{std::move(vocabulary.token_types)});
  if (vocabulary.model == "gpt2") {
    metadata.add("tokenizer.ggml.merges", GgufArray{std::move(vocabulary.merges)});
  } else {
    metadata.add("tokenizer.ggml.scores", GgufArray{std::move(vocabulary.scores)});
    metadata.add("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix.value_or(true));
    metadata.add("tokenizer.ggml.remove_extra_whitespaces", vocabulary.remove_extra_whitespaces.value_or(false));
  }
  if (!vocabulary.charsmap.empty()) {
    metadata.add("tokenizer.ggml.precompiled_charsmap",
                 GgufArray{std::vector<uint8_t>(vocabulary.charsmap.begin(), vocabulary.charsmap.end())});
  }
  id("tokenizer.ggml.bos_token_id", vocabulary.bos_id);
  // The tokenizer's end-of-text token, then the other tokens that end generation: end of turn and end of message.
  std::vector<int32_t> stops;
  if (vocabulary.eos_id) stops.push_back(*vocabulary.eos_id);
  for (int32_t other : assets.eos) {
    if (other != vocabulary.eos_id) stops.push_back(other);
  }
  constexpr const char* stop_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
  if (stops.size() > std::size(stop_keys)) {
    throw_hint(ErrorKind::unsupported, "keep at most three in \"eos_token_id\" of generation_config.json",
               "{}: generation has {} stop tokens, but GGUF can store only three", vocabulary.name, stops.size());
  }
  for (size_t i = 0; i < stops.size(); ++i) id(stop_keys[i], stops[i]);
  id("tokenizer.ggml.unknown_token_id", vocabulary.unk_id);
  id("tokenizer.ggml.padding_token_id", vocabulary.pad_id);
  if (vocabulary.add_bos) metadata.add("tokenizer.ggml.add_bos_token", *vocabulary.add_bos);
  if (vocabulary.add_eos) metadata.add("tokenizer.ggml.add_eos_token", *vocabulary.add_eos);
  if (assets.chat_template) metadata.add("tokenizer.chat_template", *assets.chat_template);
}

void add_text(GgufMetadata& metadata, const ModelSource& source, const spec::ModelSpec& spec,
              std::vector<std::string>& lost) {
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
  if (!path_exists(path)) {
    add_vocabulary(metadata, gguf_vocabulary_of(sentencepiece_vocabulary(source.path), spec.vocab), assets, lost);
    return;
  }
  add_vocabulary(metadata,
                 gguf_vocabulary_of(read_file(path, uint64_t{1} << 30), path.string(),
                                    hf_tokenizer_config(source.path).special, spec.vocab),
                 assets, lost);
}

// A tensor to write: the parameters stored in it, in order (the experts of a block are one tensor).
struct FileTensor {
  formats::GgufDeclaration declaration;
  StorageType storage = StorageType::f32;
  std::vector<std::pair<size_t, Placement>> parts;  // index in the table of parameters
};

std::vector<FileTensor> file_tensors(const spec::ModelSpec& spec, const std::vector<spec::ParamSpec>& table,
                                     const FileType& type) {
  std::vector<FileTensor> tensors;
  std::map<std::string, size_t> tensor_of_name;
  for (size_t i = 0; i < table.size(); ++i) {
    const spec::ParamSpec& p = table[i];
    const Placement placement = gguf_placements(spec, p).front();
    const auto [position, is_new] = tensor_of_name.try_emplace(placement.name, tensors.size());
    if (is_new) {
      const bool matrix = p.shape.size() == 2;
      const FileType& stored = matrix && !p.precise ? type : file_type(StorageType::f32);
      if (placement.shape.back() % block_elements(stored.storage) != 0) {
        throw_hint(ErrorKind::unsupported, "write f16 or bf16",
                   "tensor '{}': rows of {} elements are not a multiple of the {} block size {}", p.name,
                   placement.shape.back(), name(stored.storage), block_elements(stored.storage));
      }
      tensors.push_back(
          {{placement.name, stored.type, {placement.shape.rbegin(), placement.shape.rend()}}, stored.storage, {}});
    }
    tensors[position->second].parts.emplace_back(i, placement);
  }
  // The separate output head that the architecture requires even for a tied head.
  if (spec.tied_head && gguf_needs_head(spec)) {
    FileTensor head = tensors.front();
    head.declaration.name = "output.weight";
    tensors.push_back(std::move(head));
  }
  return tensors;
}

}  // namespace

std::vector<std::string> write_gguf(const fs::path& file, const ExportModel& model, StorageType matrices) {
  std::vector<std::string> lost;
  const FileType& type = file_type(matrices);
  GgufMetadata metadata = gguf_model_metadata(model.spec, model.name, type.id);
  if (model.text) add_text(metadata, *model.text, model.spec, lost);
  if (!metadata.contains("tokenizer.ggml.model")) metadata.add("tokenizer.ggml.model", std::string("none"));

  const std::vector<FileTensor> tensors = file_tensors(model.spec, spec::parameters(model.spec), type);
  std::vector<formats::GgufDeclaration> declarations;
  const std::vector<float> divisors = rope_divisors(model.spec.layers.front().attention);
  if (!divisors.empty()) declarations.push_back({"rope_freqs.weight", GgufType::f32, {std::ssize(divisors)}});
  for (const FileTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  formats::GgufWriter writer(file, metadata, declarations);
  if (!divisors.empty()) {
    writer.write("rope_freqs.weight", std::as_bytes(std::span(divisors)));
  }
  for (const FileTensor& tensor : tensors) {
    const std::string& name = tensor.declaration.name;
    for (const auto& [index, placement] : tensor.parts) {
      read_parameter(model.device, model.parameter(index), placement, tensor.storage, model.pool, name,
                     [&](std::span<const std::byte> bytes) { writer.write(name, bytes); });
    }
  }
  writer.finish();
  return lost;
}

}  // namespace ingot::checkpoint
