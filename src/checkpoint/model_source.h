// Where a model is: a Hugging Face folder, a GGUF file, or a registered name that stands for one of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ingot::checkpoint {

enum class SourceKind { hugging_face, gguf };

struct ModelSource {
  SourceKind kind = SourceKind::hugging_face;
  std::filesystem::path path;  // the folder, or the .gguf file
  std::string name;            // registered name, or the folder's or file's own
};

// What `--model` takes. A path that exists wins over a registered name; "model" also stands for the only registered
// "org/model". Looks at names of files only; weights may be missing (tokenizer folders, vocabulary-only GGUF files):
// load_model tells that.
// Errors: not_found for what is neither a path nor a name, for a folder without config.json and a tokenizer, and for
// a registered model whose files are gone; unsupported, with how to convert, for a folder of PyTorch .bin weights only
// and for files of another kind.
ModelSource open_model(std::string_view path_or_name, const std::filesystem::path& home);
// In find_ingot_home(), which is needed for a name only. Errors: also not_found for a name when there is none.
ModelSource open_model(std::string_view path_or_name);

}  // namespace ingot::checkpoint
