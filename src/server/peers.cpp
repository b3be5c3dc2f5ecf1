#include "server/peers.h"

namespace ingot::server {

Entry Peers::enter(const std::shared_ptr<Peer>& peer, const std::string& address) {
  auto known = known_.lock();
  const auto there = known->by_address.find(address);
  const bool served = known->served < limits_.connections &&
                      (there == known->by_address.end() || there->second < limits_.connections_per_address);
  const int64_t refused = static_cast<int64_t>(known->peers.size()) - known->served;
  if (!served && refused >= limits_.refusals) return Entry::dropped;
  int64_t* of_address = served ? &known->by_address[address] : nullptr;  // what can fail comes before it is counted
  known->peers.insert(peer);
  if (known->stopping) peer->stop();
  if (!served) return Entry::refused;
  ++*of_address;
  ++known->served;
  return Entry::served;
}

void Peers::leave(const std::shared_ptr<Peer>& peer, const std::string& address, Entry entered) {
  auto known = known_.lock();
  known->peers.erase(peer);
  if (entered != Entry::served) return;
  --known->served;
  if (--known->by_address[address] == 0) known->by_address.erase(address);
}

int64_t Peers::count() { return static_cast<int64_t>(known_.lock()->peers.size()); }

void Peers::drain() {
  auto known = known_.lock();
  for (const std::shared_ptr<Peer>& peer : known->peers) peer->drain();
}

void Peers::finish() {
  auto known = known_.lock();
  for (const std::shared_ptr<Peer>& peer : known->peers) peer->finish();
}

void Peers::stop() {
  auto known = known_.lock();
  known->stopping = true;
  for (const std::shared_ptr<Peer>& peer : known->peers) peer->stop();
}

}  // namespace ingot::server
