// infer::AdapterStore as the server sees it: adapters are models that can be taken away and made servable again.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "base/mutex.h"
#include "infer/adapter_store.h"
#include "server/served_model.h"

namespace ingot::app {

class AdapterFolder : public server::AdapterList {
 public:
  // Every folder below the root is servable, also one that comes later. Errors: AdapterStore's.
  AdapterFolder(spec::ModelSpec model, infer::AdapterStoreSettings settings);

  std::vector<server::AdapterEntry> entries() const override;
  bool has(const std::string& name) const override;
  std::shared_ptr<const infer::HostAdapter> get(const std::string& name) override;
  void add(const std::string& name) override;
  void remove(const std::string& name) override;

 private:
  struct Fact {
    int64_t created = 0;  // when it was first known here
    int64_t rank = 0;     // 0 until it was read
  };
  struct Names {
    std::map<std::string, Fact> known;
    std::set<std::string> removed;  // their folders may still be there
  };
  std::shared_ptr<const infer::HostAdapter> read(const std::string& name) const;

  mutable infer::AdapterStore store_;
  mutable Guarded<Names> names_;
};

}  // namespace ingot::app
