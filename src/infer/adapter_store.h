// The adapters that a server can be asked for: folders in PEFT's layout under one root, read when they are first asked
// for and kept in host memory as far as a budget goes. Thread-safe; a file is read on the thread that asks, so that an
// engine's thread never does.
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
  std::filesystem::path root;  // adapter NAME is root/NAME, or root/NAME/adapter of a run's folder
  DType activation = DType::bf16;
  size_t budget = size_t{1} << 30;  // bytes of weights in host memory that requests do not use at the moment
  int64_t max_rank = 64;
};

struct ListedAdapter {
  std::string name;
  int64_t modified = 0;   // Unix seconds: when its configuration was written, as of the last scan
  int64_t rank = 0;       // 0 when it is not resident
  bool resident = false;  // in host memory
};

// One that requests would be refused, and why.
struct BrokenAdapter {
  std::string name;
  std::string reason;
};

struct AdapterStoreCounts {
  int64_t registered = 0;  // without broken ones
  int64_t resident = 0;    // in host memory
  size_t bytes = 0;        // of these
  int64_t loads = 0;       // since the start
};

class AdapterStore {
 public:
  // Errors: not_found when the root is no folder, or may not be listed.
  AdapterStore(spec::ModelSpec model, AdapterStoreSettings settings);

  // Looks at the root anew: folders that came are registered, those that went are forgotten. Requests keep what they
  // have.
  void scan();
  // Looks at configurations and headers of all that is there, and says which of them cannot be used; values are looked
  // at when an adapter is read. Folders with half an adapter, and such as may not be looked into, are among them.
  std::vector<BrokenAdapter> check();
  // What is registered, was not removed, and is not known to be broken, by name. What is broken may be asked for all
  // the same, to hear why, and is listed again when its files have changed.
  std::vector<ListedAdapter> list() const;
  // Whether `get` would look into a folder of that name. Errors: usage as get's.
  bool has(const std::string& name) const;

  // The adapter, from memory or its files; with files that changed since, as they are now. A folder that came after the
  // last scan is found, too. Several threads that ask for one at once wait for one of them to read it.
  // A folder may be a link to one elsewhere: the root is whoever's runs the server, and names are no paths.
  // Errors: usage for what is_adapter_name refuses; not_found for one that is not there or was removed; unavailable for
  // one whose files change while they are read, and while requests use more than twice the budget; resource for one
  // larger than the budget; unsupported for one of a larger rank than `max_rank`, and for one that replaces weights
  // (DoRA, modules_to_save), which must be merged; those of checkpoint::read_adapter.
  std::shared_ptr<const HostAdapter> get(const std::string& name);

  // A pinned adapter stays in memory once it is there. Errors: get's for the name.
  void pin(const std::string& name, bool pinned);
  // It is not there any more, whatever its files; requests keep it. Errors: usage and not_found as get's.
  void remove(const std::string& name);
  // Takes `remove` back, and reads it. Errors: get's.
  void add(const std::string& name);

  AdapterStoreCounts counts() const;

 private:
  struct Entry {
    std::string version;  // of the files that `adapter` was read from
    int64_t modified = 0;
    std::shared_ptr<const HostAdapter> adapter;
    bool loading = false;
    bool pinned = false;
    bool removed = false;
    std::string broken;                 // the version of the files that could not be used; empty: none known
    std::list<Entry*>::iterator place;  // in `resident` while there is an adapter
  };
  struct Entries {
    std::map<std::string, Entry> by_name;
    std::list<Entry*> resident;  // whose adapters are in memory, the one asked for longest ago first
    size_t bytes = 0;            // of these
    int64_t loads = 0;
  };

  std::filesystem::path folder_of(const std::string& name) const;
  std::vector<std::filesystem::path> places() const;
  void check_fits(const std::string& name, const checkpoint::AdapterFile& file) const;
  void set_broken(const std::string& name, const std::string& version);
  std::shared_ptr<const HostAdapter> read(const std::string& name, const std::filesystem::path& folder) const;
  // The same for files that are still those of `version` when they have been read. Errors: read's; unavailable when
  // they are not, whatever was wrong with what was read.
  std::shared_ptr<const HostAdapter> read_version(const std::string& name, const std::filesystem::path& folder,
                                                  const std::string& version) const;
  void forget(const std::string& name);
  static void drop(Entries& all, Entry& entry);
  void make_room(Entries& all, size_t bytes) const;

  spec::ModelSpec model_;
  AdapterStoreSettings settings_;
  mutable Guarded<Entries> entries_;
};

}  // namespace ingot::infer
