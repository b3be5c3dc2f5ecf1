// The adapters below one folder: named by their folders, read when they are first asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>

#include "base/mutex.h"
#include "checkpoint/adapter.h"
#include "server/served_model.h"

namespace ingot::app {

class AdapterFolder : public server::AdapterList {
 public:
  struct Limits {
    int64_t rank = 64;  // of an adapter; more is refused
    size_t bytes =
        size_t{4} << 30;  // in host memory; those used longest ago are forgotten and read again when asked for
  };
  // Registers every folder below `root` that has an adapter_config.json and a name that may be one. Nothing else is
  // read. `base` outlives it. Errors: not_found for a root that is not there.
  AdapterFolder(std::filesystem::path root, const spec::ModelSpec& base, DType activation, Limits limits);

  std::vector<server::AdapterEntry> entries() const override;
  bool has(const std::string& name) const override;
  std::shared_ptr<const infer::HostAdapter> get(const std::string& name) override;
  void add(const std::string& name) override;
  void remove(const std::string& name) override;

 private:
  using Weights = std::shared_ptr<const infer::HostAdapter>;
  struct Known {
    int64_t created = 0;
    int64_t rank = 0;                        // 0 until it was read
    Weights weights;                         // null: not resident
    std::list<std::string>::iterator place;  // in `recent` when resident
  };
  struct State {
    std::map<std::string, Known> known;
    std::list<std::string> recent;  // the one used last first
    size_t bytes = 0;
  };

  // Errors: not_found for what is no folder below the root, and for one that leads out of it.
  std::filesystem::path folder_of(const std::string& name) const;
  Weights read(const std::string& name) const;
  // Makes it resident and forgets others where that is too much.
  void keep(State& state, const std::string& name, const Weights& weights) const;
  static void forget(State& state, Known& known);

  std::filesystem::path root_;
  const spec::ModelSpec& base_;
  DType activation_;
  Limits limits_;
  mutable Guarded<State> state_;
};

}  // namespace ingot::app
