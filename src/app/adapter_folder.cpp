#include "app/adapter_folder.h"

#include <ctime>

#include "base/error.h"
#include "server/requests.h"

namespace ingot::app {

AdapterFolder::AdapterFolder(spec::ModelSpec model, infer::AdapterStoreSettings settings)
    : store_(std::move(model), std::move(settings)) {
  store_.scan();
  const auto now = static_cast<int64_t>(std::time(nullptr));
  auto names = names_.lock();
  for (const std::string& name : store_.names()) {
    if (server::is_adapter_name(name)) names->known[name].created = now;
  }
}

std::vector<server::AdapterEntry> AdapterFolder::entries() const {
  std::vector<server::AdapterEntry> entries;
  const auto names = names_.lock();
  for (const auto& [name, fact] : names->known) entries.push_back({name, fact.created, fact.rank});
  return entries;
}

bool AdapterFolder::has(const std::string& name) const {
  {
    const auto names = names_.lock();
    if (names->removed.contains(name)) return false;
    if (names->known.contains(name)) return true;
  }
  if (!server::is_adapter_name(name)) return false;
  try {
    read(name);  // its folder may have come since
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    return false;
  }
}

std::shared_ptr<const infer::HostAdapter> AdapterFolder::get(const std::string& name) {
  if (names_.lock()->removed.contains(name)) throw_error(ErrorKind::not_found, "there is no adapter '{}'", name);
  return read(name);
}

std::shared_ptr<const infer::HostAdapter> AdapterFolder::read(const std::string& name) const {
  std::shared_ptr<const infer::HostAdapter> adapter = store_.get(name);
  auto names = names_.lock();
  if (names->removed.contains(name)) return adapter;
  Fact& fact = names->known[name];
  if (fact.created == 0) fact.created = static_cast<int64_t>(std::time(nullptr));
  fact.rank = adapter->rank;
  return adapter;
}

void AdapterFolder::add(const std::string& name) {
  if (!server::is_adapter_name(name)) throw_error(ErrorKind::usage, "'{}' cannot be an adapter's name", name);
  const bool was_removed = names_.lock()->removed.contains(name);
  const std::shared_ptr<const infer::HostAdapter> adapter = read(name);
  if (!was_removed) return;
  auto names = names_.lock();
  names->removed.erase(name);
  names->known[name] = {static_cast<int64_t>(std::time(nullptr)), adapter->rank};
}

void AdapterFolder::remove(const std::string& name) {
  store_.forget(name);
  auto names = names_.lock();
  names->known.erase(name);
  names->removed.insert(name);
}

}  // namespace ingot::app
