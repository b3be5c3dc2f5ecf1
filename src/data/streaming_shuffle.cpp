#include "data/streaming_shuffle.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/numpy_random.h"

namespace ingot::data {

namespace {

constexpr std::array<std::pair<std::string_view, StreamingShuffle>, 6> words = {{{"naive", StreamingShuffle::naive},
                                                                                 {"py1b", StreamingShuffle::py1b},
                                                                                 {"py1br", StreamingShuffle::py1br},
                                                                                 {"py1e", StreamingShuffle::py1e},
                                                                                 {"py1s", StreamingShuffle::py1s},
                                                                                 {"py2s", StreamingShuffle::py2s}}};

// Samples begin .. end of the epoch.
struct Span {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  Span cut_front(int64_t count) {
    const Span front{begin, begin + count};
    begin += count;
    return front;
  }
};

// The samples of a shuffle unit, in an order of their own (py2s).
struct Samples {
  std::vector<int64_t> ids;
  int64_t size() const { return std::ssize(ids); }
  Samples cut_front(int64_t count) {
    Samples front{{ids.begin(), ids.begin() + count}};
    ids.erase(ids.begin(), ids.begin() + count);
    return front;
  }
};

std::vector<Span> spans_of(std::span<const int64_t> units) {
  std::vector<Span> spans;
  int64_t begin = 0;
  for (const int64_t size : units) {
    spans.push_back({begin, begin + size});
    begin += size;
  }
  return spans;
}

// Distributes the segments to nodes: node c gets those up to sample n (c + 1) / C, and a segment that crosses that
// border is cut in two. An empty segment at a border belongs to the node before it.
template <class Segment>
std::vector<std::vector<Segment>> share_out(std::vector<Segment> pieces, int64_t n, int64_t nodes) {
  std::vector<std::vector<Segment>> shares(static_cast<size_t>(nodes));
  size_t next = 0;
  int64_t done = 0;
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t end = n * (node + 1) / nodes;
    std::vector<Segment>& share = shares[static_cast<size_t>(node)];
    while (next < pieces.size() && done + pieces[next].size() <= end) {
      done += pieces[next].size();
      share.push_back(std::move(pieces[next++]));
    }
    if (next < pieces.size() && done < end) {
      share.push_back(pieces[next].cut_front(end - done));
      done = end;
    }
  }
  return shares;
}

void append(std::vector<int64_t>& ids, Span span) {
  for (int64_t id = span.begin; id < span.end; ++id) ids.push_back(id);
}

// Appends the samples of `span` in random order.
void append_shuffled(std::vector<int64_t>& ids, Span span, NumpyGenerator& random) {
  const size_t first = ids.size();
  append(ids, span);
  random.shuffle(std::span(ids).subspan(first));
}

struct Task {
  std::vector<std::vector<Span>> nodes;  // in this epoch's order
  NumpyGenerator random;                 // the epoch's generator, after it has shuffled the spans
  int64_t n = 0;
  int64_t least_block = 0, block = 0, max_block = 0;
};

std::vector<int64_t> shuffle_py1s(Task task) {
  std::vector<int64_t> ids;
  for (const std::vector<Span>& node : task.nodes) {
    for (const Span span : node) append_shuffled(ids, span, task.random);
  }
  return ids;
}

std::vector<int64_t> shuffle_py2s(std::span<const int64_t> units, int64_t n, int64_t nodes, uint64_t seed,
                                  int64_t epoch) {
  std::vector<Samples> pieces;
  for (const Span span : spans_of(units)) append(pieces.emplace_back().ids, span);
  NumpyGenerator run(seed);
  run.shuffle(std::span(pieces));
  for (Samples& piece : pieces) run.shuffle(std::span(piece.ids));

  NumpyGenerator random(seed + static_cast<uint64_t>(epoch));
  std::vector<int64_t> ids;
  for (std::vector<Samples>& node : share_out(std::move(pieces), n, nodes)) {
    random.shuffle(std::span(node));
    for (Samples& piece : node) {
      random.shuffle(std::span(piece.ids));
      ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    }
  }
  return ids;
}

// Appends the samples of a node in the order of its spans; returns the index of the first.
int64_t lay_out(std::vector<int64_t>& ids, const std::vector<Span>& node) {
  const int64_t start = std::ssize(ids);
  for (const Span span : node) append(ids, span);
  return start;
}

void shuffle_range(std::vector<int64_t>& ids, Span range, NumpyGenerator& random) {
  random.shuffle(std::span(ids).subspan(static_cast<size_t>(range.begin),
                                        static_cast<size_t>(std::max<int64_t>(range.size(), 0))));
}

std::vector<int64_t> shuffle_py1b(Task task) {
  std::vector<int64_t> ids;
  for (const std::vector<Span>& node : task.nodes) {
    const int64_t start = lay_out(ids, node), stop = std::ssize(ids);
    for (int64_t begin = start; begin < stop; begin += task.block) {
      shuffle_range(ids, {begin, std::min(begin + task.block, stop)}, task.random);
    }
  }
  return ids;
}

std::vector<int64_t> shuffle_py1br(Task task) {
  std::vector<int64_t> staggers;
  for (size_t node = 0; node < task.nodes.size(); ++node) {
    staggers.push_back(task.random.integers(0, task.least_block));
  }
  std::vector<int64_t> ids;
  for (size_t node = 0; node < task.nodes.size(); ++node) {
    const int64_t start = lay_out(ids, task.nodes[node]), stop = std::ssize(ids);
    std::vector<Span> ranges;
    for (int64_t end = start; end < stop; end += ranges.back().size()) {
      const int64_t size = task.random.integers(task.least_block, task.max_block);
      ranges.push_back({std::max(end - staggers[node], start), std::min(end + size - staggers[node], stop)});
    }
    for (const Span range : ranges) shuffle_range(ids, range, task.random);
  }
  return ids;
}

std::vector<int64_t> shuffle_py1e(Task task) {
  std::vector<int64_t> ids;
  for (const std::vector<Span>& node : task.nodes) {
    std::vector<int64_t> samples;
    for (const Span span : node) append_shuffled(samples, span, task.random);
    const int64_t m = std::ssize(samples);
    if (m == 0) {
      throw_hint(ErrorKind::usage, "lower num_canonical_nodes, or use a shuffle algorithm other than py1e",
                 "{} samples leave one of {} canonical nodes without any", task.n, task.nodes.size());
    }
    std::vector<double> places(samples.size());
    std::iota(places.begin(), places.end(), 0.0);
    int64_t offset = 0;
    for (const Span span : node) {
      const auto size = static_cast<double>(span.size());
      const auto block = static_cast<double>(task.random.integers(task.least_block, task.max_block));
      const double cut = std::max((block - size) / 2, 0.0);
      const double low = std::max(-cut, -static_cast<double>(offset));
      const double high = std::min(cut, static_cast<double>(m - offset) - size);
      for (int64_t i = 0; i < span.size(); ++i) {
        places[static_cast<size_t>(offset + i)] += task.random.uniform(low, high);
      }
      offset += span.size();
    }
    std::vector<std::pair<double, int64_t>> placed;  // place, sample
    for (size_t i = 0; i < samples.size(); ++i) placed.emplace_back(places[i], samples[i]);
    std::sort(placed.begin(), placed.end());
    for (const auto& [position, sample] : placed) ids.push_back(sample);
  }
  return ids;
}

}  // namespace

const char* name(StreamingShuffle algorithm) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.second == algorithm; });
  return found->first.data();
}

StreamingShuffle parse_streaming_shuffle(std::string_view word) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.first == word; });
  if (found != words.end()) return found->second;
  throw_hint(ErrorKind::usage, "use naive, py1b, py1br, py1e, py1s or py2s", "the shuffle algorithm '{}' is not known",
             word);
}

std::vector<int64_t> streaming_shuffle(StreamingShuffle algorithm, std::span<const int64_t> units, int64_t nodes,
                                       uint64_t seed, int64_t epoch, int64_t block_size) {
  if (nodes < 1 || epoch < 0) {
    throw_error(ErrorKind::usage, "cannot shuffle for {} canonical nodes in epoch {}", nodes, epoch);
  }
  if (std::any_of(units.begin(), units.end(), [](int64_t size) { return size < 0; })) {
    throw_error(ErrorKind::usage, "a shard has a negative number of samples");
  }
  // With a block size of 3 or less, one of the algorithms would draw from an empty range.
  if (block_size < 4) {
    throw_hint(ErrorKind::usage, "give 4 or more; the default is 262144 or more",
               "the shuffle block size {} is too small", block_size);
  }
  const int64_t n = std::accumulate(units.begin(), units.end(), int64_t{0});
  NumpyGenerator epoch_random(seed + static_cast<uint64_t>(epoch));
  if (algorithm == StreamingShuffle::naive) {
    std::vector<int64_t> ids;
    append_shuffled(ids, {0, n}, epoch_random);
    return ids;
  }
  if (algorithm == StreamingShuffle::py2s) return shuffle_py2s(units, n, nodes, seed, epoch);

  std::vector<Span> spans = spans_of(units);
  NumpyGenerator(seed).shuffle(std::span(spans));
  Task task{share_out(std::move(spans), n, nodes), epoch_random, n};
  task.block = block_size;
  task.least_block = static_cast<int64_t>(0.75 * static_cast<double>(block_size));
  task.max_block = static_cast<int64_t>(1.25 * static_cast<double>(block_size));
  for (std::vector<Span>& node : task.nodes) task.random.shuffle(std::span(node));
  switch (algorithm) {
    case StreamingShuffle::py1b: return shuffle_py1b(std::move(task));
    case StreamingShuffle::py1br: return shuffle_py1br(std::move(task));
    case StreamingShuffle::py1e: return shuffle_py1e(std::move(task));
    default: return shuffle_py1s(std::move(task));
  }
}

}  // namespace ingot::data
