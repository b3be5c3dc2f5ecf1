// The adapters that a server can serve: folders in PEFT's layout under one root. They are read on first use and cached
// in host memory within a budget. Thread-safe. Files are read on the calling thread, so that the engine's thread never
// reads any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "infer/host_adapter.h"
#include "spec/model.h"

namespace ingot::checkpoint {
struct AdapterFile;
}

namespace ingot::infer {

struct AdapterStoreSettings {
  std::filesystem::path root;  // adapter NAME is in root/NAME, or root/NAME/adapter of a training run
  DType activation = DType::bf16;
  size_t budget = size_t{1} << 30;  // bytes of cached weights above which unused, unpinned adapters are evicted
  int64_t max_rank = 64;
};

struct ListedAdapter {
  std::string name;
  int64_t modified = 0;   // Unix seconds: modification time of its configuration, as of the last scan
  int64_t rank = 0;       // 0 if not resident
  bool resident = false;  // in host memory
};

// An adapter that cannot be served, and why.
struct BrokenAdapter {
  std::string name;
  std::string reason;
};

struct AdapterStoreCounts {
  int64_t registered = 0;  // without removed and broken ones
  int64_t resident = 0;    // in host memory
  size_t bytes = 0;        // of the resident ones
  int64_t loads = 0;       // since the start
};

class AdapterStore {
 public:
  // Errors: not_found when the root is not a folder or cannot be listed.
  AdapterStore(spec::ModelSpec model, AdapterStoreSettings settings);

  // Lists the root again: registers new folders and drops removed ones. Requests in flight keep their adapters.
  void scan();
  // Checks the configuration and the safetensors header of every adapter under the root and returns those that cannot
  // be used. Weight values are checked when an adapter is read. Folders that hold only some of an adapter's files, or
  // cannot be listed, are returned too.
  std::vector<BrokenAdapter> check();
  // The registered adapters, by name, without those that were removed or are known to be broken. A broken adapter can
  // still be requested, to get the error, and is listed again once its files have changed.
  std::vector<ListedAdapter> list() const;
  // Whether `get` would find a folder of that name. Errors: usage as get's.
  bool has(const std::string& name) const;

  // Returns the adapter from memory, or reads its files if it is not there or they have changed. Also finds a folder
  // that was added after the last scan. If several threads request an adapter at once, one of them reads it and the
  // others wait.
  // An adapter's folder may be a symbolic link to a folder elsewhere: whoever runs the server controls the root, and
  // names cannot be paths.
  // Errors: usage for a name that is_adapter_name refuses; not_found for an adapter that does not exist or was removed;
  // unavailable when its files change while they are read, and when adapters in memory would take more than twice the
  // budget because requests use them; resource for an adapter larger than the budget; unsupported for a rank above
  // `max_rank`, and for an adapter that replaces weights (DoRA, modules_to_save) and must be merged; those of
  // checkpoint::read_adapter.
  std::shared_ptr<const HostAdapter> get(const std::string& name);

  // Pinning reads the adapter and protects it from eviction. Errors: get's, of which unpinning has only usage.
  void pin(const std::string& name, bool pinned);
  // Stops serving the adapter although its files exist; requests in flight keep it. Errors: usage and not_found as
  // get's.
  void remove(const std::string& name);
  // Reverts `remove` and reads the adapter. Errors: get's.
  void add(const std::string& name);

  AdapterStoreCounts counts() const;

 private:
  struct Entry {
    std::string version;  // version_of() of the files that `adapter` was read from
    int64_t modified = 0;
    std::shared_ptr<const HostAdapter> adapter;
    bool loading = false;
    bool pinned = false;
    bool removed = false;
    std::string broken;  // version of the files that could not be used; empty: not known to be broken
    std::list<Entry*>::iterator lru_position;  // position in `resident`; valid while `adapter` is set
  };
  struct Entries {
    std::map<std::string, Entry> by_name;
    std::list<Entry*> resident;  // entries whose adapter is in memory, least recently requested first
    size_t bytes = 0;            // of the resident adapters
    int64_t loads = 0;
  };

  std::filesystem::path folder_of(const std::string& name) const;
  std::vector<std::filesystem::path> adapter_folders() const;
  void check_fits(const std::string& name, const checkpoint::AdapterFile& file) const;
  void set_broken(const std::string& name, const std::string& version);
  std::shared_ptr<const HostAdapter> read(const std::string& name, const std::filesystem::path& folder) const;
  // As `read`, and checks that the files still have `version` afterwards. Errors: read's; unavailable when they have
  // not, whatever error reading them gave.
  std::shared_ptr<const HostAdapter> read_version(const std::string& name, const std::filesystem::path& folder,
                                                  const std::string& version) const;
  void erase(const std::string& name);
  static void drop(Entries& all, Entry& entry);
  void make_room(Entries& all, size_t bytes) const;

  spec::ModelSpec model_;
  AdapterStoreSettings settings_;
  mutable Guarded<Entries> entries_;
};

}  // namespace ingot::infer
