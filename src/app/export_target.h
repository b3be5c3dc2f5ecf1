// Where and how `model convert` and `model merge` write.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/command.h"
#include "app/runtime.h"
#include "checkpoint/load.h"
#include "checkpoint/model_source.h"

namespace ingot::app {

// The options --to and --dtype, and the positional OUT.
struct ExportOptions {
  std::string out;
  std::optional<std::string> to;
  std::optional<std::string> dtype;

  void declare(Arguments& arguments);
};

enum class ExportFormat { hf, gguf };

struct ExportTarget {
  std::filesystem::path out;
  ExportFormat format = ExportFormat::hf;
  Storage storage = Storage::bf16;
};

// Resolves what was left out: the format from the name of OUT (.gguf or a folder), the type from what is stored.
// Errors: usage for words that are not known, types that the format has not, and an output that exists already.
ExportTarget resolve(const ExportOptions& options, const std::string& stored_dtype);

// Writes the model, and warns of what the format cannot say. Errors: those of checkpoint/export.h.
void write_model(const ExportTarget& target, const checkpoint::LoadedModel& model,
                 const checkpoint::ModelSource& source, Runtime& runtime);

// Says what was written, for people and as JSON: {path, format, dtype, bytes}.
void report(const Output& output, const ExportTarget& target);

}  // namespace ingot::app
