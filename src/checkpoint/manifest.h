// step-N/manifest.json: which files a training checkpoint has, and what they were when they were written. JSON:
// {"format": "ingot-checkpoint", "version": 1, "step": N, "model": "...", "metadata": {...},
//  "files": [{"name", "size", "sha256"}], "sha256": of this text without it}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace ingot::checkpoint {

inline constexpr const char* manifest_name = "manifest.json";

struct ManifestFile {
  std::string name;  // of a file in the checkpoint's folder itself
  uint64_t bytes = 0;
  std::string sha256;
};
struct Manifest {
  std::vector<ManifestFile> files;
  std::string model;     // identity of what is trained
  std::string metadata;  // JSON text of an object, kept as it is
};

// {"name", "size", "sha256"}, as nlohmann::json converts it. What lacks is empty.
void to_json(nlohmann::json& json, const ManifestFile& file);
void from_json(const nlohmann::json& json, ManifestFile& file);

// The file `name` in `folder`, as it is now.
ManifestFile manifest_file(const std::filesystem::path& folder, const std::string& name);

// The text of the manifest of step `step`. Errors: internal for metadata that is no JSON object.
std::string manifest_text(const Manifest& manifest, int64_t step);

// Reads it back. `damaged(what)` is called, and throws, when it is not what was written or names a file that is not in
// the checkpoint's folder itself. `shown`: the checkpoint, for messages. Errors besides: unsupported for another
// version.
Manifest parse_manifest(const std::string& text, int64_t step, const std::string& shown,
                        FunctionRef<void(const std::string&)> damaged);
// What is wrong with a file of that name in `folder`: empty when it is what was written.
std::string fault_of(const std::filesystem::path& folder, const ManifestFile& file);
// ErrorKind::corrupt of the checkpoint `shown`, of step `step`: `what` is wrong. Of `steps`, those that there are, an
// earlier one is never taken instead: the hint names it.
[[noreturn]] void throw_damaged(const std::string& shown, int64_t step, std::span<const int64_t> steps,
                                const std::string& what);

}  // namespace ingot::checkpoint
