#include "train/weight_run.h"

#include <algorithm>
#include <numeric>

namespace ingot::train {

namespace {

bool has_part(const Range& part) { return part.count() > 0; }

int64_t first_rank(const DividedWeight& weight) {
  return std::ranges::find_if(weight.parts, has_part) - weight.parts.begin();
}

int64_t last_rank(const DividedWeight& weight) {
  return weight.parts.rend() - std::find_if(weight.parts.rbegin(), weight.parts.rend(), has_part) - 1;
}

WeightRun make_run(std::span<const DividedWeight> weights, int ranks) {
  std::vector<int64_t> room;
  std::vector<std::vector<Range>> bytes;
  for (const DividedWeight& weight : weights) {
    const auto width = static_cast<int64_t>(weight.width);
    room.push_back(static_cast<int64_t>(weight.room));
    std::vector<Range>& parts = bytes.emplace_back(weight.parts);
    for (Range& part : parts) part = {part.begin * width, part.end * width};
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return {.tensors = weights.size(), .sections = make_sections(order, room, bytes, ranks).sizes};
}

}  // namespace

size_t WeightRun::bytes() const { return std::accumulate(sections.begin(), sections.end(), size_t{0}); }

std::vector<WeightRun> weight_runs(std::span<const DividedWeight> weights, int ranks) {
  std::vector<WeightRun> runs;
  for (size_t begin = 0; begin < weights.size();) {
    size_t end = begin + 1;
    while (end < weights.size() && last_rank(weights[end - 1]) <= first_rank(weights[end])) ++end;
    runs.push_back(make_run(weights.subspan(begin, end - begin), ranks));
    begin = end;
  }
  return runs;
}

}  // namespace ingot::train
