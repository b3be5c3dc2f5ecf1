// Where objects (files by name) are kept: an object store that speaks S3, or a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fetch.h"

namespace ingot {

struct StoredObject {
  std::string key;
  uint64_t bytes = 0;
  std::string etag;  // S3's name for this version; empty in a folder
};

struct StoreOptions {
  FetchOptions attempts;                     // how often, how long; its digest and headers are not used
  uint64_t part_bytes = uint64_t{64} << 20;  // objects above this go up in parts; more where 10,000 are not enough
  int parallel_parts = 4;                    // on their way at once
};

// Keys are below the store's own prefix, with '/' between their parts. Callable from any thread. What goes wrong for a
// while (503, a broken connection, a body cut short) is tried again. Errors: not_found for what is not there;
// unavailable for what cannot be reached or is refused, saying who was asked but never with what key; resource for a
// full disk.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual std::string uri(const std::string& key) const = 0;  // for messages, and for fetch
  // Nothing when there is no such object.
  virtual std::optional<StoredObject> find(const std::string& key) const = 0;
  // Bytes first .. first + bytes (fewer at the end of the object).
  virtual std::string get(const std::string& key, uint64_t first, uint64_t bytes) const = 0;
  // As ingot::fetch: complete or absent, goes on where an earlier call was.
  virtual void get_file(const std::string& key, const std::filesystem::path& out) const = 0;
  // Whole or not at all, replacing what is there; large ones in parts.
  virtual void put(const std::string& key, std::span<const std::byte> bytes) = 0;
  virtual void put_file(const std::string& key, const std::filesystem::path& file) = 0;
  // Every object whose key begins with `prefix`, ascending.
  virtual std::vector<StoredObject> list(const std::string& prefix) const = 0;
  // Done as well when there is none.
  virtual void remove(const std::string& key) = 0;
  // Removes what uploads left that never ended, of objects whose keys begin with `prefix`; returns how many there were.
  // REQUIRES that nobody writes such objects now.
  virtual int64_t drop_unfinished(const std::string& prefix) = 0;
};

// `uri`: s3://bucket/prefix, or a folder (a path or file://), which is made. Errors: usage for another scheme; those of
// read_s3_config.
std::unique_ptr<Store> open_store(const std::string& uri, const StoreOptions& options = {});

}  // namespace ingot
