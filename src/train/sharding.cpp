#include "train/sharding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/adamw_bytes.h"
#include "ops/blockwise.h"

namespace ingot::train {

std::vector<std::vector<Range>> divide(std::span<const int64_t> elements, int ranks) {
  constexpr int64_t block = ops::sum_squares_block;
  static_assert(block % ops::blockwise_elements == 0, "blocks of 8-bit states may not span two ranks");
  std::vector<std::vector<int64_t>> ends;
  for (const int64_t n : elements) {
    std::vector<int64_t>& own = ends.emplace_back();
    for (int64_t begin = 0; begin < n; begin += block) own.push_back(std::min(n, begin + block));
  }
  return divide(ends, ranks);
}

std::vector<std::vector<Range>> divide(std::span<const std::vector<int64_t>> ends, int ranks) {
  int64_t total = 0;
  for (const std::vector<int64_t>& own : ends) total += own.empty() ? 0 : own.back();
  std::vector<std::vector<Range>> parts;
  int64_t before = 0;  // elements assigned so far, in all tensors
  for (const std::vector<int64_t>& own : ends) {
    std::vector<Range>& part = parts.emplace_back(static_cast<size_t>(ranks));
    int64_t begin = 0;
    for (const int64_t end : own) {
      const int64_t middle = before + (end - begin) / 2;
      Range& range = part[static_cast<size_t>(middle * ranks / total)];
      range = {range.count() > 0 ? range.begin : begin, end};
      before += end - begin;
      begin = end;
    }
  }
  return parts;
}

std::vector<SquareBlock> square_blocks(const spec::Slice& held, std::span<const spec::Slice> slices, int64_t first) {
  std::vector<SquareBlock> blocks;
  for (size_t i = 0; i < slices.size(); ++i) {
    const Range all = slices[i].columns;
    const Range columns{all.begin - held.columns.begin, all.end - held.columns.begin};
    const int64_t most = std::max<int64_t>(1, ops::sum_squares_block / std::max<int64_t>(1, all.count()));
    for (const Range& rows : slices[i].rows) {
      int64_t before = 0;  // rows that are held, in earlier ranges
      for (const Range& range : held.rows) {
        const int64_t begin = std::max(rows.begin, range.begin), end = std::min(rows.end, range.end);
        for (int64_t row = begin; row < end; row += most) {
          const int64_t at = before + row - range.begin;
          blocks.push_back({first + static_cast<int64_t>(i), {at, at + std::min(most, end - row)}, columns});
        }
        before += range.count();
      }
    }
  }
  return blocks;
}

std::vector<int64_t> block_ends(std::span<const SquareBlock> blocks, int64_t columns) {
  std::vector<int64_t> ends;
  for (const SquareBlock& block : blocks) ends.push_back(block.rows.end * columns);
  std::ranges::sort(ends);
  const auto repeated = std::ranges::unique(ends);
  ends.erase(repeated.begin(), repeated.end());
  constexpr int64_t multiple = 8;  // so that a part begins at a multiple of 16 bytes
  std::erase_if(ends, [last = ends.back()](int64_t end) { return end % multiple != 0 && end != last; });
  return ends;
}

Sections make_sections(std::span<const size_t> order, std::span<const int64_t> room,
                       std::span<const std::vector<Range>> parts, int ranks) {
  const auto count = static_cast<size_t>(ranks);
  Sections made;
  made.offsets.resize(order.size());
  // Offset of each rank's first element; a rank without elements starts where the next rank does.
  std::vector<int64_t> starts(count + 1, -1);
  for (const size_t i : order) {
    for (size_t rank = 0; rank < count; ++rank) {
      if (parts[i][rank].count() > 0 && starts[rank] < 0) starts[rank] = made.total + parts[i][rank].begin;
    }
    made.offsets[i] = made.total;
    made.total += room[i];
  }
  starts[count] = made.total;
  for (size_t rank = count; rank-- > 0;) {
    if (starts[rank] < 0) starts[rank] = starts[rank + 1];
  }
  for (size_t rank = 0; rank < count; ++rank)
    made.sizes.push_back(static_cast<size_t>(starts[rank + 1] - starts[rank]));
  return made;
}

std::vector<int> assign(std::span<const int64_t> elements, std::vector<int64_t>& loads) {
  std::vector<size_t> order(elements.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-elements[i], i); });
  std::vector<int> ranks(elements.size());
  for (const size_t i : order) {
    const auto smallest = std::ranges::min_element(loads);
    *smallest += elements[i];
    ranks[i] = static_cast<int>(smallest - loads.begin());
  }
  return ranks;
}

Range rank_sequences(int64_t sequences, int64_t accumulation_unit, int rank, int ranks) {
  const int64_t units = sequences / accumulation_unit;
  return {units * rank / ranks * accumulation_unit, units * (rank + 1) / ranks * accumulation_unit};
}

std::vector<int64_t> RankOrder::step_samples(int64_t step) const {
  std::vector<int64_t> samples = whole_.step_samples(step);
  const Range local = rank_sequences(static_cast<int64_t>(samples.size()), accumulation_unit_, rank_, ranks_);
  return {samples.begin() + local.begin, samples.begin() + local.end};
}

}  // namespace ingot::train
