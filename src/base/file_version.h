// Versions of the file formats that are Ingot's own; docs/formats.md lists them. Files of all versions up to the newest
// can be read, the newest is written, and a later one is refused by name. Formats of other programs carry their own.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

struct FileFormat {
  const char* name;
  int64_t newest;
  bool unversioned_before = false;  // early files have no version, which counts as 1
};

inline constexpr FileFormat recipe_format{"recipe", 1};
inline constexpr FileFormat checkpoint_format{"checkpoint", 1};            // step-N/manifest.json
inline constexpr FileFormat event_log_format{"event log", 1, true};        // events.jsonl, in each line of type "start"
inline constexpr FileFormat packed_data_format{"packed data", 1};          // packing.json
inline constexpr FileFormat model_record_format{"model record", 1, true};  // origin.json of a registered model
inline constexpr FileFormat tokenize_progress_format{"tokenization progress", 1, true};  // PREFIX.progress

// Errors: unsupported for a version beyond format.newest, naming `file` (or a place in it) and both versions.
void require_known_version(const std::string& file, int64_t version, const FileFormat& format);

// The same for the member "version" of a JSON object. To be called before anything else in it is interpreted. Errors:
// also corrupt when it is not a whole number of at least 1, or absent from a format that always had one.
void require_known_version(const std::string& file, const nlohmann::json& object, const FileFormat& format);
void require_known_version(const std::string& file, const nlohmann::ordered_json& object, const FileFormat& format);

}  // namespace ingot
