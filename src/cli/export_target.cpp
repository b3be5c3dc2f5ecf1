#include "cli/export_target.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/path.h"
#include "base/strings.h"
#include "checkpoint/export.h"

namespace ingot::cli {

namespace fs = std::filesystem;

namespace {

ExportFormat format_of(const ExportOptions& options) {
  if (!options.to) return fs::path(options.out).extension() == ".gguf" ? ExportFormat::gguf : ExportFormat::hf;
  if (*options.to == "hf") return ExportFormat::hf;
  if (*options.to == "gguf") return ExportFormat::gguf;
  throw_hint(ErrorKind::usage, "use hf or gguf", "--to '{}' is not known", *options.to);
}

std::optional<StorageType> storage_named(const std::string& dtype) {
  if (dtype == "f32" || dtype == "fp32") return StorageType::f32;
  if (dtype == "f16" || dtype == "fp16") return StorageType::f16;
  if (dtype == "bf16") return StorageType::bf16;
  if (dtype == "q8_0") return StorageType::q8_0;
  if (dtype == "q4_0") return StorageType::q4_0;
  return std::nullopt;
}

DType dtype_of(StorageType storage) {
  switch (storage) {
    case StorageType::f32: return DType::f32;
    case StorageType::f16: return DType::f16;
    default: return DType::bf16;
  }
}

uint64_t bytes_under(const fs::path& path) {
  if (!is_folder(path)) return regular_file_bytes(path);
  uint64_t bytes = 0;
  for (const fs::path& file : list_folder(path)) bytes += regular_file_bytes(file);
  return bytes;
}

}  // namespace

void ExportOptions::declare(Arguments& arguments) {
  arguments.positional("out", out, "the folder or .gguf file to write; it must not exist");
  arguments.option("to", to, "hf (a folder) or gguf (default: by the name of OUT)");
  arguments.option(
      "dtype", dtype,
      "fp32, f16, bf16 or, in GGUF, q8_0 or q4_0 (default: as stored, but bf16 for block-quantised models)");
}

ExportTarget resolve(const ExportOptions& options, const std::string& stored_dtype) {
  ExportTarget target;
  target.out = options.out;
  target.format = format_of(options);
  if (options.dtype) {
    const std::optional<StorageType> named = storage_named(*options.dtype);
    if (!named)
      throw_hint(ErrorKind::usage, "use fp32, f16, bf16, q8_0 or q4_0", "--dtype '{}' is not known", *options.dtype);
    target.storage = *named;
  } else {
    const std::optional<StorageType> stored = storage_named(stored_dtype);
    target.storage = stored && is_plain(*stored) ? *stored : StorageType::bf16;
  }
  if (target.format == ExportFormat::hf && !is_plain(target.storage)) {
    throw_hint(ErrorKind::usage, "use --to gguf, or fp32, f16 or bf16", "--dtype {} is only supported for GGUF files",
               ingot::name(target.storage));
  }
  if (name_exists(target.out)) {
    throw_hint(ErrorKind::usage, "give another name, or remove it first", "{} already exists", target.out.string());
  }
  return target;
}

void write_model(const ExportTarget& target, const checkpoint::LoadedModel& model,
                 const checkpoint::ModelSource& source, runtime::Runtime& runtime) {
  const checkpoint::ExportModel exported{model.spec, model.weights, *runtime.device,
                                         model.name, source,        runtime.threads.get()};
  if (target.format == ExportFormat::hf) {
    checkpoint::write_hf(target.out, exported, dtype_of(target.storage));
  } else {
    const Log log(LogLevel::info);
    for (const std::string& lost : checkpoint::write_gguf(target.out, exported, target.storage)) {
      log.warning("{}: {}", target.out.string(), lost);
    }
  }
}

void report(const Output& output, const ExportTarget& target) {
  const uint64_t bytes = bytes_under(target.out);
  const char* dtype = ingot::name(target.storage);
  const char* format = target.format == ExportFormat::hf ? "hf" : "gguf";
  output.print(fmt::format("wrote {} ({}, {}, {})\n", target.out.string(), format, dtype, format_bytes(bytes)));
  output.print_json(json_line({{"path", target.out.string()}, {"format", format}, {"dtype", dtype}, {"bytes", bytes}}));
}

}  // namespace ingot::cli
