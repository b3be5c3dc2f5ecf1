#include "server/served_adapters.h"

#include "base/clock.h"

namespace ingot::server {

std::vector<AdapterEntry> ServedAdapters::entries() const {
  {
    const auto scanned = scanned_.lock();
    const double now = steady_seconds();
    if (*scanned < 0 || now - *scanned > 1) {
      store_.scan();
      *scanned = now;
    }
  }
  std::vector<AdapterEntry> entries;
  for (const infer::ListedAdapter& listed : store_.list()) {
    entries.push_back({listed.name, listed.modified, listed.rank, listed.resident});
  }
  return entries;
}

}  // namespace ingot::server
