// Location of a model: a Hugging Face folder, a GGUF file, or a registered name that refers to one of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ingot::checkpoint {

enum class SourceKind { hugging_face, gguf };

struct ModelSource {
  SourceKind kind = SourceKind::hugging_face;
  std::filesystem::path path;  // the folder, or the .gguf file
  std::string name;            // registered name, or the name of the folder or file
};

// Resolves the value of `--model`. An existing path takes precedence over a registered name; "model" also matches
// "org/model" if that is the only such name. Looks only at file names; weights may be missing (tokenizer folders,
// vocabulary-only GGUF files), which load_model reports.
// Errors: not_found for a value that is neither a path nor a name, for a folder with neither config.json nor a
// tokenizer, and for a registered model whose files have been removed; unsupported, with a hint how to convert, for a
// folder with PyTorch .bin weights only and for files of another kind.
ModelSource open_model(std::string_view path_or_name, const std::filesystem::path& home);
// As above with find_ingot_home(), which is only needed for a name. Errors: also not_found for a name when there is no
// home.
ModelSource open_model(std::string_view path_or_name);

}  // namespace ingot::checkpoint
