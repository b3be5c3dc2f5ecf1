// Output location and format of `model convert` and `model merge`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/load.h"
#include "checkpoint/model_source.h"
#include "cli/command.h"
#include "runtime/runtime.h"

namespace ingot::cli {

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
  StorageType storage = StorageType::bf16;
};

// Resolves missing options: the format from the name of OUT (.gguf or a folder), the type from the stored type. Errors:
// usage for unknown words, types that the format does not support, and an output that exists already.
ExportTarget resolve(const ExportOptions& options, const std::string& stored_dtype);

// Writes the model, with a warning for each property that the format cannot express. Errors: those of
// checkpoint/export.h.
void write_model(const ExportTarget& target, const checkpoint::LoadedModel& model,
                 const checkpoint::ModelSource& source, runtime::Runtime& runtime);

// Reports what was written, as text and as JSON: {path, format, dtype, bytes}.
void report(const Output& output, const ExportTarget& target);

}  // namespace ingot::cli
