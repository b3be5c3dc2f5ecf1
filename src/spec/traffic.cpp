#include "spec/traffic.h"

#include <algorithm>
#include <array>

namespace ingot::spec {

std::string_view name_of(Collective collective) {
  constexpr std::array<std::string_view, 5> names = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all",
                                                     "send"};
  return names.at(static_cast<size_t>(collective));
}

void Traffic::add(Kind kind, int64_t bytes, int64_t messages) {
  if (bytes == 0 || messages == 0) return;
  Sum& sum = sums_[kind];
  sum.messages += messages;
  sum.bytes += bytes * messages;
  sum.largest = std::max(sum.largest, bytes);
}

}  // namespace ingot::spec
