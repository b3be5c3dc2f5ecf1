// Fetches a model into the registry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/registry.h"

namespace ingot::checkpoint {

struct PullOptions {
  std::filesystem::path home;  // of the registry
  std::string name;            // name to register; empty: from the origin ("org/model", or the folder's or file's name)
  std::string endpoint;        // URL of the hub; empty: $HF_ENDPOINT, else the public hub
  std::string token;           // sent as "Authorization: Bearer"; empty: $HF_TOKEN, else none
  bool copy = false;           // for a local path: copy its files instead of referring to them
  // Called periodically with the bytes of `file`; return false to cancel.
  std::function<bool(const std::string& file, uint64_t done, uint64_t total)> progress;
};

// `origin`: a path; "org/model" or "org/model@revision" on the hub; "https://host/org/model" on another hub;
// "https://host/.../file.gguf"; "s3://bucket/folder" or "s3://bucket/.../file.gguf". From a hub or folder only files
// that Ingot reads are fetched: config.json, safetensors and their index, tokenizer and generation files, licence and
// model card. The next call resumes interrupted transfers; the name is registered once all files are complete. Sizes
// are checked against the listing of the hub or store, and SHA-256 where it has one (large files).
// Errors: those of fetch; not_found for a model that the hub does not have or that has no safetensors.
RegisteredModel pull(const std::string& origin, const PullOptions& options);

}  // namespace ingot::checkpoint
