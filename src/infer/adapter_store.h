// The adapters that a server can be asked for: folders in PEFT's layout under one root, read when they are first asked
// for and kept in host memory as far as a budget goes. Thread-safe; a file is read on the thread that asks, so that an
// engine's thread never does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "infer/host_adapter.h"
#include "spec/model.h"

namespace ingot::infer {

struct AdapterStoreSettings {
  std::filesystem::path root;  // adapter NAME is root/NAME, or root/NAME/adapter of a run's folder
  DType activation = DType::bf16;
  size_t budget = size_t{1} << 30;  // bytes of weights in host memory that requests do not use at the moment
  int64_t most_rank = 64;
};

struct AdapterStoreCounts {
  int64_t registered = 0;
  int64_t resident = 0;  // in host memory
  size_t bytes = 0;      // of these
  int64_t loads = 0;     // since the start
};

class AdapterStore {
 public:
  // Errors: not_found when the root is no folder.
  AdapterStore(spec::ModelSpec model, AdapterStoreSettings settings);

  // Looks at the root anew: folders that came are registered, those that went are forgotten. Requests keep what they
  // have.
  void scan();
  // Sorted.
  std::vector<std::string> names() const;

  // The adapter, from memory or its files; with files that changed since, as they are now. A folder that came after the
  // last scan is found, too. Several threads that ask for one at once wait for one of them to read it.
  // Errors: usage for a name that is no plain folder's name; not_found for one that is not there; resource for one
  // larger than the budget; unsupported for one of a larger rank than `most_rank`, and for one that replaces weights
  // (DoRA, modules_to_save), which must be merged; those of checkpoint::read_adapter.
  std::shared_ptr<const HostAdapter> get(const std::string& name);

  // A pinned adapter stays in memory once it is there. Errors: get's for the name.
  void pin(const std::string& name, bool pinned);
  // Forgets it: the next that asks for it finds it anew. False when it was not known.
  bool forget(const std::string& name);

  AdapterStoreCounts counts() const;

 private:
  struct Entry {
    std::filesystem::path folder;
    std::string version;  // of the files that `adapter` was read from
    std::shared_ptr<const HostAdapter> adapter;
    bool loading = false;
    bool pinned = false;
    uint64_t used = 0;
  };
  struct Entries {
    std::map<std::string, Entry> by_name;
    size_t bytes = 0;
    int64_t loads = 0;
    uint64_t clock = 0;
  };

  std::filesystem::path folder_of(const std::string& name) const;
  std::shared_ptr<const HostAdapter> read(const std::string& name, const std::filesystem::path& folder) const;
  void drop(Entries& all, Entry& entry) const;
  void make_room(Entries& all) const;

  spec::ModelSpec model_;
  AdapterStoreSettings settings_;
  mutable Guarded<Entries> entries_;
};

}  // namespace ingot::infer
