#include "server/connections.h"

namespace ingot::server {

Admittance Connections::enter(const std::shared_ptr<OpenConnection>& peer, const std::string& address) {
  auto known = known_.lock();
  const auto there = known->by_address.find(address);
  const bool served = known->served < limits_.connections &&
                      (there == known->by_address.end() || there->second < limits_.connections_per_address);
  const int64_t refused = static_cast<int64_t>(known->connections.size()) - known->served;
  if (!served && refused >= limits_.refusals) return Admittance::dropped;
  // Both insertions may throw, so they precede the counting.
  int64_t* of_address = served ? &known->by_address[address] : nullptr;
  known->connections.insert(peer);
  if (known->stopping) peer->stop();
  if (!served) return Admittance::refused;
  ++*of_address;
  ++known->served;
  return Admittance::served;
}

void Connections::leave(const std::shared_ptr<OpenConnection>& peer, const std::string& address, Admittance entered) {
  auto known = known_.lock();
  known->connections.erase(peer);
  if (entered != Admittance::served) return;
  --known->served;
  if (--known->by_address[address] == 0) known->by_address.erase(address);
}

int64_t Connections::count() { return static_cast<int64_t>(known_.lock()->connections.size()); }

void Connections::drain() {
  auto known = known_.lock();
  for (const std::shared_ptr<OpenConnection>& peer : known->connections) peer->drain();
}

void Connections::finish() {
  auto known = known_.lock();
  for (const std::shared_ptr<OpenConnection>& peer : known->connections) peer->finish();
}

void Connections::stop() {
  auto known = known_.lock();
  known->stopping = true;
  for (const std::shared_ptr<OpenConnection>& peer : known->connections) peer->stop();
}

}  // namespace ingot::server
