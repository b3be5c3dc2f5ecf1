#include "checkpoint/native.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "checkpoint/json_object.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_store.h"
#include "formats/safetensors_writer.h"
#include "tensor/staging.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

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

fs::path partial_folder(const fs::path& folder, int64_t step) { return folder / fmt::format("step-{}.partial", step); }

// The name of a checkpoint that is being replaced, on file systems that cannot exchange names.
constexpr std::string_view replaced_suffix = ".replaced.partial";

fs::path with_suffix(fs::path path, std::string_view suffix) { return path += suffix; }

// The name of a checkpoint that is being removed.
fs::path removal_name(const fs::path& checkpoint) { return with_suffix(checkpoint, ".old.partial"); }

// Renames a finished checkpoint to its final name. An existing checkpoint keeps the name until then. Where the file
// system cannot exchange two names (NFS), there is a moment without a checkpoint of that name; after a crash
// remove_leftovers restores it.
void publish(const fs::path& partial, const fs::path& complete) {
  fs::path former = partial;
  if (!path_exists(complete)) {
    rename_path(partial, complete);
  } else if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, complete.c_str(), RENAME_EXCHANGE) != 0) {
    former = with_suffix(complete, replaced_suffix);
    remove_tree(former);
    rename_path(complete, former);
    try {
      rename_path(partial, complete);
    } catch (...) {
      rename_path(former, complete);
      throw;
    }
  }
  sync_folder(complete.parent_path());
  std::error_code in_use;  // another process is reading it: the next start removes it
  if (former != partial) {
    // A partly removed checkpoint must not be restored by remove_leftovers, so it is renamed first.
    const fs::path removal_path = removal_name(complete);
    fs::remove_all(removal_path, in_use);
    fs::rename(former, removal_path, in_use);
    if (!in_use) former = removal_path;
  }
  fs::remove_all(former, in_use);
}

// Removes a surplus checkpoint. It is first renamed to a name that is not a checkpoint's, so that a crash leaves no
// incomplete checkpoint. If this fails because another process reads it, the next checkpoint tries again.
void prune(const fs::path& checkpoint) {
  const fs::path removal_path = removal_name(checkpoint);
  std::error_code failed;
  fs::remove_all(removal_path, failed);
  fs::rename(checkpoint, removal_path, failed);
  if (!failed) fs::remove_all(removal_path, failed);
}

bool is_whole(const NamedTensor& named) {
  return !named.part || named.tensor.elements() == named.part->whole.elements();
}

// Consecutive elements of a tensor: elements [whole, whole + count) of the flattened tensor are elements [local, local
// + count) of a part of it.
struct Run {
  int64_t whole = 0;
  int64_t count = 0;
  int64_t local = 0;
};

int64_t width_of(const Shape& whole) { return whole.rank() > 1 ? whole[1] : 1; }

// The elements of a part of `count` elements, ascending.
std::vector<Run> runs_of(const PartOf& part, int64_t count) {
  const int64_t end = part.begin + count;
  if (!part.slice) return {{part.begin, count, 0}};
  std::vector<Run> runs;
  spec::for_runs(*part.slice, width_of(part.whole), [&](int64_t first, int64_t in_run, int64_t at) {
    const int64_t from = std::max(at, part.begin), to = std::min(at + in_run, end);
    if (from < to) runs.push_back({first + from - at, to - from, from - part.begin});
  });
  return runs;
}

std::string range_text(const spec::Range& range) { return fmt::format("{}:{}", range.begin, range.end); }

// The name in files of a tensor or of a part of one.
std::string file_name_of(const NamedTensor& named) {
  if (is_whole(named)) return named.name;
  const PartOf& part = *named.part;
  const int64_t count = named.tensor.elements();
  const std::vector<Run> runs = runs_of(part, count);
  if (runs.size() == 1) return fmt::format("{}[{}:{}]", named.name, runs[0].whole, runs[0].whole + count);
  std::string rows;
  for (const spec::Range& range : part.slice->rows) rows += (rows.empty() ? "" : "+") + range_text(range);
  std::string name = fmt::format("{}[{},{}]", named.name, rows, range_text(part.slice->columns));
  if (count < part.slice->elements()) name += fmt::format("[{}]", range_text({part.begin, part.begin + count}));
  return name;
}

bool is_on_host(const Tensor& tensor) { return tensor.device != nullptr && tensor.device->host_visible(); }

json write_shards(const fs::path& folder, const std::string& stem, std::span<const NamedTensor> tensors, Device* device,
                  uint64_t shard_bytes) {
  std::vector<formats::TensorDeclaration> declarations;
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& named : tensors) {
    const auto dims = named.part && is_whole(named) ? named.part->whole.dims() : named.tensor.shape.dims();
    declarations.push_back({file_name_of(named), file_dtype(named.tensor.dtype), {dims.begin(), dims.end()}});
    by_name[declarations.back().name] = &named.tensor;
  }
  const auto shards = formats::split_into_shards(declarations, shard_bytes);
  const auto count = static_cast<int64_t>(shards.size());
  json part = {{"files", json::array()}, {"tensors", json::object()}, {"bytes", uint64_t{0}}};
  uint64_t total = 0;
  for (int64_t shard = 0; shard < count; ++shard) {
    const std::string name = formats::safetensors_shard_name(shard + 1, count, stem);
    formats::SafetensorsWriter writer(folder / name, shards[static_cast<size_t>(shard)]);
    std::vector<DeviceRange> ranges;
    for (const formats::TensorDeclaration& tensor : writer.layout()) {
      const Tensor& memory = *by_name.at(tensor.name);
      ranges.push_back({memory.data, memory.bytes(), is_on_host(memory)});
      part["tensors"][tensor.name] = name;
      total += memory.bytes();
    }
    const auto write = [&](size_t index, std::span<const std::byte> bytes) {
      writer.write(writer.layout()[index].name, bytes);
    };
    if (device != nullptr) {
      download(*device, ranges, staging_bytes, write);  // writes a chunk to the file while the next one is copied
    } else {
      for (size_t index = 0; index < ranges.size(); ++index) {
        write(index, {static_cast<const std::byte*>(ranges[index].data), ranges[index].bytes});
      }
    }
    writer.finish();
    part["files"].push_back(manifest_file(folder, name));
  }
  part["bytes"] = total;
  return part;
}

[[noreturn]] void throw_corrupt(const fs::path& folder, int64_t step, const std::string& what) {
  throw_damaged(step_folder(folder, step).string(), step, list_checkpoints(folder), what);
}

Manifest read_manifest(const fs::path& folder, int64_t step) {
  const fs::path path = step_folder(folder, step) / manifest_name;
  const auto damaged = [&](const std::string& what) { throw_corrupt(folder, step, what); };
  if (!path_exists(path)) damaged("it is incomplete: there is no manifest.json");
  return parse_manifest(read_file(path, uint64_t{1} << 28), step, path.parent_path().string(), damaged);
}

}  // namespace

void import_checkpoint(const fs::path& folder, int64_t step, const std::string& manifest_text,
                       FunctionRef<void(const fs::path& folder)> fetch_files) {
  begin_checkpoint(folder, step);
  try {
    const fs::path partial = partial_folder(folder, step);
    fetch_files(partial);
    write_file(partial / manifest_name, manifest_text);
    sync_folder(partial);
    publish(partial, step_folder(folder, step));
  } catch (...) {
    discard_checkpoint(folder, step);
    throw;
  }
}

std::optional<int64_t> step_of(std::string_view name) {
  constexpr std::string_view stem = "step-";
  if (!name.starts_with(stem)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, bad] = std::from_chars(name.data() + stem.size(), end, step);
  if (bad != std::errc() || stop != end) return std::nullopt;
  return step;
}

std::vector<int64_t> list_checkpoints(const fs::path& folder) {
  std::vector<int64_t> steps;
  if (!path_exists(folder)) return steps;
  for (const fs::path& path : list_folder(folder)) {
    if (const std::optional<int64_t> step = step_of(path.filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

int64_t remove_leftovers(const fs::path& folder) {
  if (!path_exists(folder)) return 0;
  std::vector<fs::path> leftovers = list_folder(folder);
  std::erase_if(leftovers, [](const fs::path& path) { return path.extension() != ".partial"; });
  for (const fs::path& path : leftovers) {
    const std::string name = path.string();
    const fs::path complete = name.substr(0, name.size() - std::min(name.size(), replaced_suffix.size()));
    if (name.ends_with(replaced_suffix) && !path_exists(complete)) {
      rename_path(path, complete);
    } else {
      remove_tree(path);
    }
  }
  return static_cast<int64_t>(leftovers.size());
}

namespace {

size_t aligned_bytes(const Tensor& tensor) { return (tensor.bytes() + 63) / 64 * 64; }

void run_slices(ThreadPool* threads, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  threads != nullptr ? threads->parallel_for(0, count, grain, body) : body(0, count);
}

}  // namespace

void Snapshot::reserve(std::span<const NamedTensor> tensors, ThreadPool* threads) {
  size_t total = 0;
  for (const NamedTensor& named : tensors) total += aligned_bytes(named.tensor);
  if (total <= memory_.bytes()) return;
  tensors_.clear();  // they point into memory_
  memory_ = {};
  memory_ = HostMemory(total, HostMemory::Pages::small, "a checkpoint");
  constexpr int64_t page = 4096;  // smallest page size
  run_slices(threads, static_cast<int64_t>(total), 1024 * page, [&](int64_t lo, int64_t hi) {
    for (int64_t at = lo; at < hi; at += page) memory_.data()[at] = std::byte{0};
  });
}

void Snapshot::take(std::span<const NamedTensor> tensors, Device& device, ThreadPool* threads) {
  reserve(tensors, threads);
  tensors_.clear();
  std::vector<DeviceRange> ranges;
  std::byte* next = memory_.data();
  for (const NamedTensor& named : tensors) {
    ranges.push_back({named.tensor.data, named.tensor.bytes(), is_on_host(named.tensor)});
    tensors_.push_back(named);
    tensors_.back().tensor.data = std::exchange(next, next + aligned_bytes(named.tensor));
  }
  std::vector<size_t> copied(tensors.size());
  download(device, ranges, staging_bytes, [&](size_t index, std::span<const std::byte> bytes) {
    std::byte* to = static_cast<std::byte*>(tensors_[index].tensor.data) + copied[index];
    run_slices(threads, std::ssize(bytes), 1 << 22,
               [&](int64_t lo, int64_t hi) { std::copy(bytes.begin() + lo, bytes.begin() + hi, to + lo); });
    copied[index] += bytes.size();
  });
}

void begin_checkpoint(const fs::path& folder, int64_t step) {
  const fs::path partial = partial_folder(folder, step);
  remove_tree(partial);
  make_folders(partial);
}

std::string write_part(const fs::path& folder, int64_t step, std::span<const NamedTensor> tensors, Device* device,
                       int rank, int ranks, const NativeOptions& options) {
  const std::string stem = ranks == 1 ? "model" : fmt::format("rank-{}-of-{}", rank + 1, ranks);
  return write_shards(partial_folder(folder, step), stem, tensors, device, options.shard_bytes).dump();
}

uint64_t publish_checkpoint(const fs::path& folder, int64_t step, std::span<const std::string> parts,
                            std::string_view metadata, const NativeOptions& options) {
  Manifest manifest{{}, options.model, std::string(metadata)};
  const fs::path partial = partial_folder(folder, step);
  const fs::path complete = step_folder(folder, step);
  formats::SafetensorsIndex index;
  for (const std::string& text : parts) {
    const json part = parse_lenient_json(text);
    index.total_size += part.at("bytes").get<uint64_t>();
    for (const auto& [name, file] : part.at("tensors").items()) index.weight_map[name] = file.get<std::string>();
    for (const json& file : part.at("files")) manifest.files.push_back(file.get<ManifestFile>());
  }
  if (manifest.files.size() > 1) {
    const std::string name = "model.safetensors.index.json";
    formats::write_safetensors_index(partial / name, index);
    manifest.files.push_back(manifest_file(partial, name));
  }
  write_file(partial / manifest_name, manifest_text(manifest, step));
  sync_folder(partial);
  publish(partial, complete);
  uint64_t bytes = 0;
  for (const fs::path& file : list_folder(complete)) bytes += regular_file_bytes(file);
  if (options.keep < 1) return bytes;
  std::vector<int64_t> steps = list_checkpoints(folder);
  std::erase_if(steps, [&](int64_t other) { return other >= step; });
  const auto stay = static_cast<size_t>(options.keep - 1);
  for (size_t i = 0; i + stay < steps.size(); ++i) prune(step_folder(folder, steps[i]));
  return bytes;
}

void discard_checkpoint(const fs::path& folder, int64_t step) noexcept {
  std::error_code ignored;  // the first error is the one to report
  fs::remove_all(partial_folder(folder, step), ignored);
}

uint64_t write_checkpoint(const fs::path& folder, int64_t step, std::span<const NamedTensor> tensors,
                          std::string_view metadata, Device* device, const NativeOptions& options) {
  begin_checkpoint(folder, step);
  try {
    const std::string part = write_part(folder, step, tensors, device, 0, 1, options);
    return publish_checkpoint(folder, step, {&part, 1}, metadata, options);
  } catch (...) {
    discard_checkpoint(folder, step);
    throw;
  }
}

NativeCheckpoint open_checkpoint(const fs::path& folder, std::optional<int64_t> step, std::string_view model,
                                 const Reader& reader) {
  const std::vector<int64_t> steps = list_checkpoints(folder);
  if (steps.empty() || (step && !std::binary_search(steps.begin(), steps.end(), *step))) {
    throw_hint(ErrorKind::not_found,
               steps.empty() ? "the run has not written one yet"
                             : fmt::format("the latest is step {}, the first step {}", steps.back(), steps.front()),
               "{}: there is no checkpoint{}", folder.string(), step ? fmt::format(" of step {}", *step) : "");
  }
  NativeCheckpoint checkpoint;
  checkpoint.step = step ? *step : steps.back();
  checkpoint.path = step_folder(folder, checkpoint.step);
  const Manifest manifest = read_manifest(folder, checkpoint.step);
  if (!model.empty() && manifest.model != model) {
    throw_hint(ErrorKind::usage, "continue with the recipe that wrote it, or use another run_dir",
               "checkpoint {} is of another model: {}, expected {}", checkpoint.path.string(), manifest.model, model);
  }
  const std::vector<ManifestFile>& files = manifest.files;
  for (auto i = static_cast<size_t>(reader.rank); i < files.size(); i += static_cast<size_t>(reader.ranks)) {
    const std::string fault = verify_file(checkpoint.path, files[i]);
    if (!fault.empty()) throw_corrupt(folder, checkpoint.step, fault);
  }
  checkpoint.metadata = manifest.metadata;
  checkpoint.tensors = std::make_unique<formats::SafetensorsSet>(checkpoint.path);
  return checkpoint;
}

namespace {

// What a name in a file says of a part: a slice, flat elements, or both.
struct StoredPart {
  std::optional<spec::Slice> slice;
  std::optional<spec::Range> elements;
  const formats::TensorEntry* entry = nullptr;
};

// Parses "a:b".
std::optional<spec::Range> range_in(std::string_view text) {
  spec::Range range;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [colon, bad] = std::from_chars(begin, end, range.begin);
  if (bad != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [stop, worse] = std::from_chars(colon + 1, end, range.end);
  const bool valid = worse == std::errc() && stop == end && 0 <= range.begin && range.begin <= range.end;
  return valid ? std::optional(range) : std::nullopt;
}

// Parses "r:s+t:u,c:d".
std::optional<spec::Slice> slice_in(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  spec::Slice slice;
  const std::optional<spec::Range> columns = range_in(text.substr(comma + 1));
  if (!columns) return std::nullopt;
  slice.columns = *columns;
  std::string_view rows = text.substr(0, comma);
  for (bool more = true; more;) {
    const size_t plus = rows.find('+');
    const std::optional<spec::Range> range = range_in(rows.substr(0, plus));
    if (!range || (!slice.rows.empty() && range->begin < slice.rows.back().end)) return std::nullopt;
    slice.rows.push_back(*range);
    more = plus != std::string_view::npos;
    if (more) rows.remove_prefix(plus + 1);
  }
  return slice;
}

// The last "[...]" of a name, which it loses; empty if it has none.
std::string_view take_bracket(std::string_view& name) {
  const size_t bracket = name.rfind('[');
  if (bracket == std::string_view::npos || name.back() != ']') return {};
  const std::string_view text = name.substr(bracket + 1, name.size() - bracket - 2);
  name.remove_suffix(name.size() - bracket);
  return text;
}

// The stored parts of tensors by the tensor's name.
std::map<std::string, std::vector<StoredPart>> stored_parts_of(const formats::SafetensorsSet& tensors) {
  std::map<std::string, std::vector<StoredPart>> stored_parts;
  for (const formats::TensorEntry* entry : tensors.entries()) {
    std::string_view name = entry->name;
    StoredPart part{.entry = entry};
    std::string_view text = take_bracket(name);
    part.elements = range_in(text);
    if (part.elements && name.ends_with(']')) {
      std::string_view before = name;
      part.slice = slice_in(take_bracket(before));
      if (part.slice) name = before;
    } else {
      part.slice = slice_in(text);
    }
    if (part.elements || part.slice) stored_parts[std::string(name)].push_back(part);
  }
  return stored_parts;
}

int64_t elements_of(const formats::TensorEntry& entry) {
  int64_t elements = 1;
  for (const int64_t dim : entry.shape) elements *= dim;
  return elements;
}

// Elements of a stored part.
struct StoredRun {
  Run run;
  const formats::TensorEntry* entry = nullptr;
};

// The elements of the stored parts of a tensor of shape `whole`, in its order; empty, with the part in `unfit`, when
// one cannot be a part of it, or has elements that another one has.
std::vector<StoredRun> stored_runs(const std::vector<StoredPart>& parts, const Shape& whole,
                                   const formats::TensorEntry*& unfit) {
  std::vector<StoredRun> all;
  for (const StoredPart& part : parts) {
    const int64_t elements = elements_of(*part.entry);
    const PartOf of{whole, part.elements ? part.elements->begin : 0, part.slice};
    const spec::Range rows{0, whole.rank() > 0 ? whole[0] : 1}, columns{0, width_of(whole)};
    const bool inside =
        !part.slice || (part.slice->rows.back().end <= rows.end && part.slice->columns.end <= columns.end);
    const int64_t limit = !inside ? 0 : part.slice ? part.slice->elements() : whole.elements();
    const int64_t end = part.elements ? part.elements->end : limit;
    if (!inside || end > limit || end - of.begin != elements) {
      unfit = part.entry;
      return {};
    }
    for (const Run& run : runs_of(of, elements)) all.push_back({run, part.entry});
  }
  std::ranges::sort(all, {}, [](const StoredRun& each) { return each.run.whole; });
  const auto overlap = [](const StoredRun& a, const StoredRun& b) { return a.run.whole + a.run.count > b.run.whole; };
  const auto found = std::ranges::adjacent_find(all, overlap);
  if (found == all.end()) return all;
  unfit = std::next(found)->entry;
  return {};
}

}  // namespace

void restore_tensors(const NativeCheckpoint& checkpoint, std::span<const NamedTensor> tensors, Device& device) {
  std::optional<Uploader> uploader;  // uploads one chunk while the next one is read from the file
  if (!device.host_visible()) uploader.emplace(device, staging_bytes);
  const std::map<std::string, std::vector<StoredPart>> stored_parts = stored_parts_of(*checkpoint.tensors);
  const auto upload = [&](std::byte* to, std::span<const std::byte> bytes, bool to_host) {
    if (to_host) {
      std::ranges::copy(bytes, to);
      return;
    }
    if (!uploader) return device.copy_from_host(to, bytes.data(), bytes.size());
    for (size_t done = 0; done < bytes.size(); done += staging_bytes) {
      const auto part = bytes.subspan(done, std::min(staging_bytes, bytes.size() - done));
      std::copy(part.begin(), part.end(), uploader->next_chunk());
      uploader->send(to + done, part.size());
    }
  };
  for (const NamedTensor& named : tensors) {
    const Tensor& to = named.tensor;
    const PartOf part = named.part.value_or(PartOf{to.shape, 0});
    const auto refuse = [&](const formats::TensorEntry& entry) {
      throw_hint(ErrorKind::corrupt, "the checkpoint was written by a run with other settings",
                 "checkpoint {}: tensor '{}' is {} {}, expected {} {}", checkpoint.path.string(), entry.name,
                 entry.dtype, shape_text(entry.shape), name(to.dtype), part.whole.text());
    };
    std::vector<StoredRun> sources;
    if (const formats::TensorEntry* whole = checkpoint.tensors->find(named.name); whole != nullptr) {
      const auto dims = part.whole.dims();
      if (!std::equal(dims.begin(), dims.end(), whole->shape.begin(), whole->shape.end())) refuse(*whole);
      sources.push_back({{0, part.whole.elements(), 0}, whole});
    } else if (const auto found = stored_parts.find(named.name); found != stored_parts.end()) {
      const formats::TensorEntry* unfit = nullptr;
      sources = stored_runs(found->second, part.whole, unfit);
      if (unfit != nullptr) refuse(*unfit);
      const int64_t end = sources.empty() ? 0 : sources.back().run.whole + sources.back().run.count;
      if (end != part.whole.elements()) refuse(*found->second.back().entry);
    } else {
      checkpoint.tensors->at(named.name);  // throws an error that lists the existing tensors
    }
    for (const StoredRun& source : sources) {
      if (source.entry->dtype != file_dtype(to.dtype)) refuse(*source.entry);
    }
    const size_t width = size_of(to.dtype);
    const std::vector<Run> wanted = runs_of(part, to.elements());
    // Short runs are put together on the host: an upload of each would take longer.
    const bool in_runs = wanted.size() > 1 || sources.size() > 1;
    std::vector<std::byte> assembled(in_runs && !device.host_visible() ? to.bytes() : 0);
    auto source = sources.begin();
    for (const Run& run : wanted) {
      for (int64_t at = run.whole, end = run.whole + run.count; at < end;) {
        while (source != sources.end() && source->run.whole + source->run.count <= at) ++source;
        if (source == sources.end() || source->run.whole > at) {
          throw_error(ErrorKind::corrupt,
                      "checkpoint {}: tensor '{}' is incomplete: the elements from {} on are missing",
                      checkpoint.path.string(), named.name, at);
        }
        const int64_t count = std::min(end, source->run.whole + source->run.count) - at;
        const auto bytes =
            source->entry->bytes.subspan(static_cast<size_t>(source->run.local + at - source->run.whole) * width,
                                         static_cast<size_t>(count) * width);
        const size_t place = static_cast<size_t>(run.local + at - run.whole) * width;
        if (assembled.empty()) {
          upload(static_cast<std::byte*>(to.data) + place, bytes, is_on_host(to));
        } else {
          std::ranges::copy(bytes, assembled.begin() + static_cast<std::ptrdiff_t>(place));
        }
        at += count;
      }
    }
    if (!assembled.empty()) upload(static_cast<std::byte*>(to.data), assembled, is_on_host(to));
  }
  if (uploader) uploader->finish();
}

}  // namespace ingot::checkpoint
