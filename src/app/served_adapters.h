// The engine's adapters as the server's routes see them.
#pragma once

#include "base/mutex.h"
#include "infer/adapter_store.h"
#include "server/served_model.h"

namespace ingot::app {

// Thread-safe, as the store is, which outlives it.
class ServedAdapters : public server::AdapterList {
 public:
  explicit ServedAdapters(infer::AdapterStore& store) : store_(store) {}

  // Also those that came up to a second ago.
  std::vector<server::AdapterEntry> entries() const override;
  bool has(const std::string& name) const override { return store_.has(name); }
  std::shared_ptr<const infer::HostAdapter> get(const std::string& name) override { return store_.get(name); }
  void add(const std::string& name) override { store_.add(name); }
  void remove(const std::string& name) override { store_.remove(name); }

 private:
  infer::AdapterStore& store_;
  mutable Guarded<double> scanned_{-1.0};  // when, in steady seconds
};

}  // namespace ingot::app
