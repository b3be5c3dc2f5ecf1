// A part of a matrix [R, C], or of a vector, which counts as [R, 1].
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ingot::spec {

// Elements [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// What two ranges have in common; if nothing, a range of count 0.
inline Range common(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The rows in `rows` (ascending ranges that do not overlap), one after another, and of each of them these columns.
struct Slice {
  std::vector<Range> rows;
  Range columns;

  bool operator==(const Slice&) const = default;
  int64_t num_rows() const {
    int64_t count = 0;
    for (const Range& range : rows) count += range.count();
    return count;
  }
  int64_t elements() const { return num_rows() * columns.count(); }
};

// All of a tensor [rows, columns].
inline Slice whole_slice(int64_t rows, int64_t columns) { return {{{0, rows}}, {0, columns}}; }

// Calls fn(range) with the whole tensor's rows of rows [begin, end) of a slice, one call for each range of them.
template <class Fn>
void for_rows(const Slice& slice, int64_t begin, int64_t end, Fn fn) {
  int64_t before = 0;  // rows of the slice in earlier ranges
  for (const Range& range : slice.rows) {
    const int64_t from = std::max(begin, before), to = std::min(end, before + range.count());
    if (from < to) fn(Range{range.begin + from - before, range.begin + to - before});
    before += range.count();
  }
}

// Calls fn(first, count, at) for consecutive elements of a slice of a tensor with rows of `width`: elements [first,
// first + count) of the flattened tensor are elements [at, at + count) of the flattened slice. Ascending.
template <class Fn>
void for_runs(const Slice& slice, int64_t width, Fn fn) {
  int64_t at = 0;
  for (const Range& range : slice.rows) {
    if (slice.columns.count() == width) {
      fn(range.begin * width, range.count() * width, at);
      at += range.count() * width;
      continue;
    }
    for (int64_t row = range.begin; row < range.end; ++row, at += slice.columns.count())
      fn(row * width + slice.columns.begin, slice.columns.count(), at);
  }
}

}  // namespace ingot::spec
