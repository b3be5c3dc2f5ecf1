#include "ops/registry.h"

#include <algorithm>

namespace ingot::ops {

void Registry::select_implementation(const std::string& op, const std::string& implementation) {
  bool kept = false;
  std::string known;
  for (Slot& slot : slots_) {
    if (slot.op != op) continue;
    for (std::vector<Entry>& entries : slot.entries) {
      std::vector<Entry> chosen;
      for (const Entry& entry : entries) {
        known += known.empty() ? entry.name : ", " + entry.name;
        if (entry.name == implementation) chosen.push_back(entry);
      }
      if (!chosen.empty()) {
        entries = std::move(chosen);
        kept = true;
      }
    }
  }
  if (!kept) {
    throw_hint(ErrorKind::usage, known.empty() ? "see docs/support-matrix.md" : "available: " + known,
               "op '{}' has no implementation '{}'", op, implementation);
  }
}

void Registry::select_implementation(const std::string& list) {
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw_hint(ErrorKind::usage, "write op=implementation, separated by commas", "INGOT_OPS: '{}' has no '='", item);
    select_implementation(item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
}

Registry Registry::without_kernels() const {
  Registry copy = *this;
  for (Slot& slot : copy.slots_) {
    for (std::vector<Entry>& entries : slot.entries) {
      for (Entry& entry : entries) entry.run = entry.nothing;
    }
  }
  return copy;
}

std::vector<Registry::Listing> Registry::listings() const {
  std::vector<Listing> all;
  for (const Slot& slot : slots_) {
    for (size_t kind = 0; kind < num_device_kinds; ++kind) {
      if (slot.entries[kind].empty()) continue;
      Listing listing{slot.op, static_cast<DeviceKind>(kind), {}};
      for (const Entry& entry : slot.entries[kind]) listing.implementations.push_back(entry.name);
      all.push_back(std::move(listing));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Listing& a, const Listing& b) { return std::pair(a.op, a.device) < std::pair(b.op, b.device); });
  return all;
}

void throw_unsupported(const Context& context, const char* op,
                       const std::vector<std::pair<std::string, std::string>>& reasons) {
  std::string text;
  for (const auto& [implementation, reason] : reasons) text += fmt::format("; {}: {}", implementation, reason);
  throw_error(ErrorKind::unsupported, "no implementation of {} on {} supports this call{}", op, context.device.name(),
              text.empty() ? "; none is registered" : text);
}

}  // namespace ingot::ops
