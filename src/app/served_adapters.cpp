#include "app/served_adapters.h"

namespace ingot::app {

std::vector<server::AdapterEntry> ServedAdapters::entries() const {
  store_.scan();
  std::vector<server::AdapterEntry> entries;
  for (const infer::ListedAdapter& listed : store_.list()) {
    entries.push_back({listed.name, listed.modified, listed.rank, listed.resident});
  }
  return entries;
}

}  // namespace ingot::app
