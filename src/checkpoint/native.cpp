#include "checkpoint/native.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "checkpoint/json_object.h"
#include "checkpoint/tensor_store.h"
#include "formats/safetensors_writer.h"
#include "tensor/staging.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* manifest_name = "manifest.json";
constexpr const char* format_name = "ingot-checkpoint";
constexpr int format_version = 1;
constexpr size_t staging_bytes = size_t{16} << 20;

const char* file_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i8: return "I8";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::u8: return "U8";
  }
  throw_error(ErrorKind::internal, "unknown type");
}

fs::path step_folder(const fs::path& folder, int64_t step) { return folder / fmt::format("step-{}", step); }

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (!failed) return;
  const bool full = failed == std::errc::no_space_on_device;
  throw_hint(full ? ErrorKind::resource : ErrorKind::unavailable, "check the disk and the folder's permissions",
             "{}: the folder cannot be made: {}", folder.string(), failed.message());
}

void remove_folder(const fs::path& folder) {
  std::error_code failed;
  fs::remove_all(folder, failed);
  if (failed) throw_error(ErrorKind::unavailable, "{}: cannot be removed: {}", folder.string(), failed.message());
}

// Under a name that is not a checkpoint's first, so that a crash in between leaves no half of one.
void retire(const fs::path& checkpoint) {
  fs::path doomed = checkpoint;
  doomed += ".old.partial";
  remove_folder(doomed);
  std::error_code failed;
  fs::rename(checkpoint, doomed, failed);
  if (failed) throw_error(ErrorKind::unavailable, "{}: cannot be renamed: {}", checkpoint.string(), failed.message());
  remove_folder(doomed);
}

json write_shards(const fs::path& folder, std::span<const NamedTensor> tensors, Device* device, uint64_t shard_bytes) {
  std::vector<formats::TensorDeclaration> declarations;
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& named : tensors) {
    const auto dims = named.tensor.shape.dims();
    declarations.push_back({named.name, file_dtype(named.tensor.dtype), {dims.begin(), dims.end()}});
    by_name[named.name] = &named.tensor;
  }
  const auto shards = formats::split_into_shards(declarations, shard_bytes);
  const auto count = static_cast<int64_t>(shards.size());
  formats::SafetensorsIndex index;
  std::vector<std::string> names;
  for (int64_t shard = 0; shard < count; ++shard) {
    names.push_back(formats::safetensors_shard_name(shard + 1, count));
    formats::SafetensorsWriter writer(folder / names.back(), shards[static_cast<size_t>(shard)]);
    std::vector<DeviceRange> ranges;
    for (const formats::TensorDeclaration& tensor : writer.layout()) {
      const Tensor& memory = *by_name.at(tensor.name);
      ranges.push_back({memory.data, memory.bytes()});
      index.weight_map[tensor.name] = names.back();
      index.total_size += memory.bytes();
    }
    const auto write = [&](size_t place, std::span<const std::byte> bytes) {
      writer.write(writer.layout()[place].name, bytes);
    };
    if (device != nullptr) {
      download(*device, ranges, staging_bytes, write);  // a piece goes to the file while the next comes
    } else {
      for (size_t place = 0; place < ranges.size(); ++place) {
        write(place, {static_cast<const std::byte*>(ranges[place].data), ranges[place].bytes});
      }
    }
    writer.finish();
  }
  if (count > 1) {
    names.emplace_back("model.safetensors.index.json");
    formats::write_safetensors_index(folder / names.back(), index);
  }
  json files = json::array();
  for (const std::string& name : names) {
    const MappedFile file(folder / name);
    files.push_back({{"name", name}, {"size", file.bytes().size()}, {"sha256", sha256_hex(file.bytes())}});
  }
  return files;
}

// The manifest's own digest: over its text without the digest.
std::string digest_of(const json& manifest) {
  json rest = manifest;
  rest.erase("sha256");
  const std::string text = rest.dump();
  return sha256_hex(std::as_bytes(std::span(text)));
}

[[noreturn]] void throw_corrupt(const fs::path& folder, int64_t step, const std::string& what) {
  std::string hint = "there is no earlier checkpoint";
  for (int64_t other : list_checkpoints(folder)) {
    if (other < step) hint = fmt::format("remove the folder to continue from step {}", other);
  }
  throw_hint(ErrorKind::corrupt, hint, "checkpoint {}: {}", step_folder(folder, step).string(), what);
}

void check_file(const fs::path& folder, int64_t step, const json& entry) {
  const std::string name = entry.value("name", "");
  const fs::path path = step_folder(folder, step) / name;
  if (name.empty() || name.find('/') != std::string::npos || !fs::exists(path)) {
    throw_corrupt(folder, step, fmt::format("file '{}' is missing", name));
  }
  const MappedFile file(path);
  const auto size = entry.value("size", uint64_t{0});
  if (file.bytes().size() != size) {
    throw_corrupt(folder, step,
                  fmt::format("file '{}' has {} bytes, {} were written", name, file.bytes().size(), size));
  }
  if (sha256_hex(file.bytes()) != entry.value("sha256", "")) {
    throw_corrupt(folder, step, fmt::format("file '{}' is not what was written: its SHA-256 differs", name));
  }
}

json read_manifest(const fs::path& folder, int64_t step) {
  const fs::path path = step_folder(folder, step) / manifest_name;
  if (!fs::exists(path)) throw_corrupt(folder, step, "it is half-written: there is no manifest.json");
  json manifest = json::parse(read_file(path, uint64_t{1} << 28), nullptr, false);
  if (!manifest.is_object() || manifest.value("format", "") != format_name || !manifest.contains("files") ||
      !manifest["files"].is_array() || !manifest.contains("metadata")) {
    throw_corrupt(folder, step, "manifest.json is damaged");
  }
  if (manifest.value("version", 0) != format_version) {
    throw_hint(ErrorKind::unsupported, "use the version of Ingot that wrote it", "{}: manifest version {}, not {}",
               path.string(), manifest.value("version", 0), format_version);
  }
  if (manifest.value("sha256", "") != digest_of(manifest) || manifest.value("step", int64_t{-1}) != step) {
    throw_corrupt(folder, step, "manifest.json is not what was written: its SHA-256 differs");
  }
  return manifest;
}

}  // namespace

std::vector<int64_t> list_checkpoints(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [stop, bad] = std::from_chars(name.data() + 5, end, step);
    if (bad == std::errc() && stop == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

int64_t remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> doomed;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing)) {
    if (entry.path().extension() == ".partial") doomed.push_back(entry.path());
  }
  for (const fs::path& path : doomed) remove_folder(path);
  return static_cast<int64_t>(doomed.size());
}

void Snapshot::take(std::span<const NamedTensor> tensors, Device& device) {
  tensors_.clear();
  std::vector<DeviceRange> ranges;
  std::vector<size_t> offsets;
  size_t total = 0;
  for (const NamedTensor& named : tensors) {
    ranges.push_back({named.tensor.data, named.tensor.bytes()});
    offsets.push_back(total);
    total += (named.tensor.bytes() + 63) / 64 * 64;
  }
  if (total > bytes_) {
    memory_.reset();
    memory_.reset(new (std::nothrow) std::byte[total]);
    bytes_ = memory_ != nullptr ? total : 0;
    if (memory_ == nullptr) throw_error(ErrorKind::resource, "no {} of memory for a checkpoint", format_bytes(total));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors_.push_back(tensors[i]);
    tensors_.back().tensor.data = memory_.get() + offsets[i];
  }
  std::vector<size_t> copied(tensors.size());
  download(device, ranges, staging_bytes, [&](size_t place, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.get() + offsets[place] + copied[place]);
    copied[place] += bytes.size();
  });
}

uint64_t write_checkpoint(const fs::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                          std::string_view metadata, Device* device, const NativeOptions& options) {
  json manifest = {{"format", format_name},
                   {"version", format_version},
                   {"step", step},
                   {"model", options.model},
                   {"metadata", json::parse(metadata, nullptr, false)}};
  if (!manifest["metadata"].is_object()) throw_error(ErrorKind::internal, "checkpoint metadata is no JSON object");
  fs::path partial = step_folder(folder, step);
  partial += ".partial";
  const fs::path complete = step_folder(folder, step);
  remove_folder(partial);
  make_folder(partial);
  try {
    manifest["files"] = write_shards(partial, tensors, device, options.shard_bytes);
    manifest["sha256"] = digest_of(manifest);
    write_file(partial / manifest_name, manifest.dump(1) + "\n");
    sync_folder(partial);
    if (fs::exists(complete)) retire(complete);
    fs::rename(partial, complete);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(partial, ignored);
    throw;
  }
  sync_folder(folder);
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(complete)) bytes += file.file_size();
  if (options.keep < 1) return bytes;
  std::vector<int64_t> steps = list_checkpoints(folder);
  std::erase_if(steps, [&](int64_t other) { return other >= step; });
  const auto stay = static_cast<size_t>(options.keep - 1);
  for (size_t i = 0; i + stay < steps.size(); ++i) retire(step_folder(folder, steps[i]));
  return bytes;
}

NativeCheckpoint open_checkpoint(const fs::path& folder, std::optional<int64_t> step, std::string_view model) {
  const std::vector<int64_t> steps = list_checkpoints(folder);
  if (steps.empty() || (step && !std::binary_search(steps.begin(), steps.end(), *step))) {
    throw_hint(ErrorKind::not_found,
               steps.empty() ? "the run wrote none yet"
                             : fmt::format("the latest is step {}, the first step {}", steps.back(), steps.front()),
               "{}: there is no checkpoint{}", folder.string(), step ? fmt::format(" of step {}", *step) : "");
  }
  NativeCheckpoint checkpoint;
  checkpoint.step = step ? *step : steps.back();
  checkpoint.path = step_folder(folder, checkpoint.step);
  const json manifest = read_manifest(folder, checkpoint.step);
  const std::string written = manifest.value("model", "");
  if (!model.empty() && written != model) {
    throw_hint(ErrorKind::usage, "continue with the recipe it was written by, or use another run_dir",
               "checkpoint {} is of another model: {}, not {}", checkpoint.path.string(), written, model);
  }
  for (const json& file : manifest["files"]) check_file(folder, checkpoint.step, file);
  checkpoint.metadata = manifest["metadata"].dump();
  checkpoint.tensors = std::make_unique<formats::SafetensorsSet>(checkpoint.path);
  return checkpoint;
}

void restore_tensors(const NativeCheckpoint& checkpoint, std::span<const NamedTensor> tensors, Device& device) {
  std::optional<Uploader> uploader;  // a file is read while what was read before is uploaded
  if (!device.host_visible()) uploader.emplace(device, staging_bytes);
  for (const auto& [name, to] : tensors) {
    const formats::TensorEntry& entry = checkpoint.tensors->at(name);
    const auto dims = to.shape.dims();
    if (entry.dtype != file_dtype(to.dtype) ||
        !std::equal(dims.begin(), dims.end(), entry.shape.begin(), entry.shape.end())) {
      throw_hint(ErrorKind::corrupt, "the checkpoint was written by a run with other settings",
                 "checkpoint {}: tensor '{}' is {} {}, expected {}", checkpoint.path.string(), name, entry.dtype,
                 shape_text(entry.shape), to.text());
    }
    if (!uploader) {
      device.copy_from_host(to.data, entry.bytes.data(), entry.bytes.size());
      continue;
    }
    for (size_t done = 0; done < entry.bytes.size(); done += staging_bytes) {
      const auto part = entry.bytes.subspan(done, std::min(staging_bytes, entry.bytes.size() - done));
      std::copy(part.begin(), part.end(), uploader->piece());
      uploader->send(static_cast<std::byte*>(to.data) + done, part.size());
    }
  }
  if (uploader) uploader->finish();
}

}  // namespace ingot::checkpoint
