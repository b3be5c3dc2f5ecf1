#include "comm/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ingot::comm {

namespace {

std::string list(const std::vector<std::string>& ranks) {
  constexpr size_t most = 4;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), most); ++i) text += (i > 0 ? "; " : "") + ranks[i];
  return ranks.size() > most ? fmt::format("{}; and {} more", text, ranks.size() - most) : text;
}

}  // namespace

RollCall::RollCall(int rank, std::vector<std::string> hosts, double now)
    : rank_(static_cast<size_t>(rank)), hosts_(std::move(hosts)), began_(now), answers_(hosts_.size()) {
  answers_[rank_].emplace();
}

bool RollCall::over(double now) const {
  const bool all = std::ranges::all_of(answers_, [](const auto& each) { return each.has_value(); });
  return now - began_ > (all ? patience_s + lead_s : patience_s);
}

std::string RollCall::behind(const std::string& own) const {
  std::vector<std::string> silent, elsewhere;
  for (size_t rank = 0; rank < answers_.size(); ++rank) {
    if (rank == rank_) continue;
    const std::string name = fmt::format("rank {} on {}", rank, hosts_[rank]);
    if (!answers_[rank]) {
      silent.push_back(name + " does not answer");
    } else if (*answers_[rank] != own) {
      elsewhere.push_back(fmt::format("{} is in {}", name, *answers_[rank]));
    }
  }
  if (silent.empty() && elsewhere.empty()) return "all other ranks wait there too";
  return list(silent.empty() ? elsewhere : silent);
}

}  // namespace ingot::comm
