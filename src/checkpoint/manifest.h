// step-N/manifest.json: the files of a training checkpoint with their sizes and hashes at the time of writing. JSON:
// {"format": "ingot-checkpoint", "version": 1, "step": N, "model": "...", "metadata": {...},
//  "files": [{"name", "size", "sha256"}], "sha256": hash of this JSON without the key "sha256"}.
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
  std::string name;  // plain file name, directly in the checkpoint's folder
  uint64_t bytes = 0;
  std::string sha256;
};
struct Manifest {
  std::vector<ManifestFile> files;
  std::string model;     // identifies the model; may be empty
  std::string metadata;  // JSON text of an object, stored verbatim
};

// Converts {"name", "size", "sha256"} for nlohmann::json. Missing members are left empty.
void to_json(nlohmann::json& json, const ManifestFile& file);
void from_json(const nlohmann::json& json, ManifestFile& file);

// Describes the file `name` in `folder` with its current size and hash.
ManifestFile manifest_file(const std::filesystem::path& folder, const std::string& name);

// Returns the manifest's text for step `step`. Errors: internal for metadata that is not a JSON object.
std::string manifest_text(const Manifest& manifest, int64_t step);

// Parses a manifest. When it differs from what was written, or names a file outside the checkpoint's folder, calls
// `damaged(what)`, which must throw. `shown`: the checkpoint, for messages. Other errors: as require_known_version
// (base/file_version.h).
Manifest parse_manifest(const std::string& text, int64_t step, const std::string& shown,
                        FunctionRef<void(const std::string&)> damaged);
// Compares the file in `folder` with its manifest entry; returns what is wrong, or empty when size and hash match.
std::string verify_file(const std::filesystem::path& folder, const ManifestFile& file);
// Throws ErrorKind::corrupt for the checkpoint `shown` of step `step`; `what` describes the fault. The hint names the
// latest earlier step in `steps` (the existing checkpoints): Ingot never falls back to it by itself.
[[noreturn]] void throw_damaged(const std::string& shown, int64_t step, std::span<const int64_t> steps,
                                const std::string& what);

}  // namespace ingot::checkpoint
