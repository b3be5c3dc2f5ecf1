#include "ops/registry.h"

#include <algorithm>

namespace ingot::ops {

void Registry::add(const char* op, DeviceKind device, Entry entry) { lists_[{op, device}].push_back(std::move(entry)); }

const std::vector<Registry::Entry>& Registry::list(const char* op, DeviceKind device) const {
  static const std::vector<Entry> none;
  const auto found = lists_.find({op, device});
  return found == lists_.end() ? none : found->second;
}

void Registry::select_implementation(const std::string& op, const std::string& implementation) {
  bool kept = false;
  std::string known;
  for (auto& [key, entries] : lists_) {
    if (key.first != op) continue;
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

std::vector<Registry::Listing> Registry::listings() const {
  std::vector<Listing> all;
  for (const auto& [key, entries] : lists_) {
    Listing listing{key.first, key.second, {}};
    for (const Entry& entry : entries) listing.implementations.push_back(entry.name);
    all.push_back(std::move(listing));
  }
  return all;
}

}  // namespace ingot::ops
