// A store of objects (files by name): an object store that speaks S3, or a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "storage/fetch.h"

namespace ingot {

struct StoredObject {
  std::string key;
  uint64_t bytes = 0;
  std::string etag;  // S3's tag of this version; empty in a folder
};

struct StoreOptions {
  FetchOptions attempts;                     // retries, timeouts and progress; its digest and headers are not used
  uint64_t part_bytes = uint64_t{64} << 20;  // larger objects are sent in parts; parts grow where 10,000 are not enough
  int parallel_parts = 4;                    // sent concurrently
};

// Keys are relative to the store's own prefix, with '/' between their parts. Thread-safe. Temporary failures (503, a
// broken connection, a truncated body) are retried. Errors: not_found for a missing object; unavailable for a store
// that cannot be reached or that refuses, naming the address but never the credentials; resource for a full disk.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual std::string uri(const std::string& key) const = 0;  // for messages, and for fetch
  // Nothing when there is no such object.
  virtual std::optional<StoredObject> find(const std::string& key) const = 0;
  // Bytes [first, first + bytes), fewer at the end of the object.
  virtual std::string get(const std::string& key, uint64_t first, uint64_t bytes) const = 0;
  // As ingot::fetch: complete or absent, and continues an interrupted transfer.
  virtual void get_file(const std::string& key, const std::filesystem::path& out) const = 0;
  // Writes the object completely or not at all, and replaces an existing one; large ones are sent in parts.
  virtual void put(const std::string& key, std::span<const std::byte> bytes) = 0;
  virtual void put_file(const std::string& key, const std::filesystem::path& file) = 0;
  // Every object whose key begins with `prefix`, ascending.
  virtual std::vector<StoredObject> list(const std::string& prefix) const = 0;
  // Succeeds also when there is no such object.
  virtual void remove(const std::string& key) = 0;
  // Removes what unfinished uploads have left of objects whose keys begin with `prefix`; returns how many there were.
  // REQUIRES that nobody is writing such objects.
  virtual int64_t abort_unfinished_uploads(const std::string& prefix) = 0;
};

// `uri`: s3://bucket/prefix, or a folder (a path or file://), which is created. Errors: usage for another scheme; those
// of read_s3_config.
std::unique_ptr<Store> open_store(const std::string& uri, const StoreOptions& options = {});

}  // namespace ingot
