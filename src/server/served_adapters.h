// The engine's adapters, as an interface for the server's routes.
#pragma once

#include "base/mutex.h"
#include "infer/adapter_store.h"
#include "server/served_model.h"

namespace ingot::server {

// Thread-safe, like the store, which must outlive this object.
class ServedAdapters : public AdapterList {
 public:
  explicit ServedAdapters(infer::AdapterStore& store) : store_(store) {}

  // Rescans the folder at most once a second, so a new adapter appears after at most a second.
  std::vector<AdapterEntry> entries() const override;
  bool has(const std::string& name) const override { return store_.has(name); }
  std::shared_ptr<const infer::HostAdapter> get(const std::string& name) override { return store_.get(name); }
  void add(const std::string& name) override { store_.add(name); }
  void remove(const std::string& name) override { store_.remove(name); }

 private:
  infer::AdapterStore& store_;
  mutable Guarded<double> scanned_{-1.0};  // time of the last scan, in steady seconds
};

}  // namespace ingot::server
