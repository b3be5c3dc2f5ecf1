// The operation SDPA is computed from its attributes: ragged offsets, sequence lengths, and masks from the inner graph;
// gemms, pointwise operations and reductions one after another.
#include "tests/backend/gpu/fakes/cudnn_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "tests/backend/gpu/fakes/cudnn_graph.h"

namespace fake {
namespace {

using namespace cudnn;

float value_of(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t rounded(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The memory of a call's tensors, by unique id.
struct Data {
  std::map<int64_t, void*> pointers;
  void* of(const Node& node) const { return pointers.at(node.one<int64_t>(906)); }
  float scalar(const Node& node) const { return *static_cast<const float*>(of(node)); }
};

// The offset of element (sequence, head, row, 0) of a packed tensor.
int64_t place(const Data& data, const Node& node, int64_t sequence, int64_t head, int64_t row) {
  const auto strides = node.all<int64_t>(903);
  const auto* begins = static_cast<const int32_t*>(data.of(node.node(913)));
  return begins[sequence] * node.one<int64_t>(914) + head * strides[1] + row * strides[2];
}

void attend(const Node& operation, const Data& data) {
  const Node& q = operation.node(2800);
  const Node& k = operation.node(2801);
  const Node& v = operation.node(2802);
  const Node& out = operation.node(2803);
  const auto dimensions = q.all<int64_t>(902);
  const int64_t group = dimensions[1] / k.all<int64_t>(902)[1];
  const int64_t d = dimensions[3];
  const float scale = data.scalar(operation.node(2805));
  const auto* lengths = static_cast<const int32_t*>(data.of(operation.node(2820)));
  const auto masks = operation.node(2811).all<const Node*>(801);
  for (int64_t s = 0; s < dimensions[0]; ++s) {
    const int64_t length = lengths[s + 1] - lengths[s];
    for (int64_t h = 0; h < dimensions[1]; ++h) {
      for (int64_t i = 0; i < length; ++i) {
        std::vector<double> scores(static_cast<size_t>(length));
        const auto* query = static_cast<const uint16_t*>(data.of(q)) + place(data, q, s, h, i);
        for (int64_t j = 0; j < length; ++j) {
          const auto* key = static_cast<const uint16_t*>(data.of(k)) + place(data, k, s, h / group, j);
          double score = 0;
          for (int64_t e = 0; e < d; ++e)
            score += static_cast<double>(value_of(query[e])) * static_cast<double>(value_of(key[e]));
          score *= static_cast<double>(scale);
          for (const Node* mask : masks) {
            const double column =
                static_cast<double>(j) + (mask->has(3003) ? static_cast<double>(data.scalar(mask->node(3003))) : 0.0);
            const bool seen = mask->has(3003) ? column > static_cast<double>(i) && mask->one<int>(3007) == 302
                                              : static_cast<double>(i) >= column && mask->one<int>(3007) == 303;
            if (!seen) score = static_cast<double>(data.scalar(mask->node(3005)));
          }
          scores[static_cast<size_t>(j)] = score;
        }
        const double most = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        std::vector<double> weights;
        for (const double score : scores) {
          weights.push_back(std::exp(score - most));
          sum += weights.back();
        }
        if (operation.has(2804)) {
          const Node& stats = operation.node(2804);
          static_cast<float*>(data.of(stats))[place(data, stats, s, h, i)] = static_cast<float>(most + std::log(sum));
        }
        auto* result = static_cast<uint16_t*>(data.of(out)) + place(data, out, s, h, i);
        for (int64_t e = 0; e < d; ++e) {
          double total = 0;
          for (int64_t j = 0; j < length; ++j) {
            const auto* value = static_cast<const uint16_t*>(data.of(v)) + place(data, v, s, h / group, j);
            total += weights[static_cast<size_t>(j)] / sum * static_cast<double>(value_of(value[e]));
          }
          result[e] = rounded(static_cast<float>(total));
        }
      }
    }
  }
}

// The operations of a graph without SDPA, one after another. Tensors inside it are arrays of [sequences, heads, rows,
// columns]; a dimension of 1 is broadcast.
class Operations {
 public:
  explicit Operations(const Data& data) : data_(data) {}

  void run(const Node& operation) {
    switch (operation.kind) {
      case matmul: return multiply(operation);
      case pointwise: return map(operation);
      case reduction: return reduce(operation);
      default: throw std::runtime_error("no such operation");
    }
  }

 private:
  static constexpr int bf16 = 9;
  using Place = std::array<int64_t, 4>;

  struct View {
    int type;
    int64_t id;
    Place shape, strides;
    Place steps{};                    // the strides, 0 where a dimension is broadcast
    void* data = nullptr;             // null inside the graph
    const int32_t* begins = nullptr;  // where sequences begin, in elements; null: by the strides
    const double* values = nullptr;   // inside the graph
  };

  static Place four(const Node& node, int attribute) {
    Place values{};
    std::ranges::copy(node.all<int64_t>(attribute), values.begin());
    return values;
  }
  View view(const Node& node) const {
    View made{node.one<int>(901), node.one<int64_t>(906), four(node, 902), four(node, 903)};
    for (size_t axis = 0; axis < 4; ++axis) made.steps[axis] = made.shape[axis] == 1 ? 0 : made.strides[axis];
    if (node.has(907)) {
      const auto found = inner_.find(made.id);
      if (found != inner_.end()) made.values = found->second.data();
      return made;
    }
    made.data = data_.of(node);
    if (node.has(913)) made.begins = static_cast<const int32_t*>(data_.of(node.node(913)));
    return made;
  }

  static double at(const View& of, const Place& place) {
    const auto& [s, h, i, j] = place;
    const int64_t begin = of.begins != nullptr ? of.begins[s] : s * of.steps[0];
    const int64_t offset = begin + h * of.steps[1] + i * of.steps[2] + j * of.steps[3];
    if (of.data == nullptr) return of.values[offset];
    if (of.type == bf16) return static_cast<double>(value_of(static_cast<const uint16_t*>(of.data)[offset]));
    return of.type == 4 ? static_cast<const int32_t*>(of.data)[offset]
                        : static_cast<double>(static_cast<const float*>(of.data)[offset]);
  }

  // Assigns value(place) to every element; of a tensor in memory, to the rows that its sequences have.
  template <class Value>
  void assign(const Node& node, Value value) {
    const View to = view(node);
    std::vector<double> values;
    if (to.data == nullptr) values.reserve(static_cast<size_t>(to.shape[0] * to.strides[0]));
    for (int64_t s = 0; s < to.shape[0]; ++s) {
      const int64_t rows = to.data == nullptr ? to.shape[2] : (to.begins[s + 1] - to.begins[s]) / to.strides[2];
      for (int64_t h = 0; h < to.shape[1]; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < to.shape[3]; ++j) {
            const auto result = static_cast<float>(value({s, h, i, j}));
            if (to.data == nullptr) {
              values.push_back(static_cast<double>(to.type == bf16 ? value_of(rounded(result)) : result));
              continue;
            }
            const int64_t offset = to.begins[s] + h * to.strides[1] + i * to.strides[2] + j * to.strides[3];
            if (to.type == bf16) {
              static_cast<uint16_t*>(to.data)[offset] = rounded(result);
            } else {
              static_cast<float*>(to.data)[offset] = result;
            }
          }
        }
      }
    }
    if (to.data == nullptr) inner_[to.id] = std::move(values);
  }

  // Beyond the sizes of a sequence (overrides) elements are 0.
  void multiply(const Node& operation) {
    const View a = view(operation.node(1520)), b = view(operation.node(1521));
    const Node& c = operation.node(1522);
    const int64_t group = four(c, 902)[1] / b.shape[1];
    const auto sizes = [&](int attribute, int64_t whole) {
      std::vector<int64_t> all(static_cast<size_t>(a.shape[0]), whole);
      if (!operation.has(attribute)) return all;
      const View given = view(operation.node(attribute));
      for (size_t s = 0; s < all.size(); ++s)
        all[s] = static_cast<int64_t>(at(given, {static_cast<int64_t>(s), 0, 0, 0}));
      return all;
    };
    const auto m = sizes(1525, a.shape[2]), n = sizes(1526, b.shape[3]), depth = sizes(1527, a.shape[3]);
    // Rows of a and columns of b, one after another.
    const int64_t k_all = a.shape[3];
    const auto lines = [&](const View& of, int64_t count, const std::vector<int64_t>& real, bool columns) {
      std::vector<double> all(static_cast<size_t>(of.shape[0] * of.shape[1] * count * k_all));
      for (int64_t s = 0, to = 0; s < of.shape[0]; ++s) {
        const auto sequence = static_cast<size_t>(s);
        for (int64_t line = 0; line < of.shape[1] * count; ++line, to += k_all) {
          const int64_t h = line / count, i = line % count;
          for (int64_t k = 0; i < real[sequence] && k < depth[sequence]; ++k)
            all[static_cast<size_t>(to + k)] = columns ? at(of, {s, h, k, i}) : at(of, {s, h, i, k});
        }
      }
      return all;
    };
    const std::vector<double> left = lines(a, a.shape[2], m, false), right = lines(b, b.shape[3], n, true);
    assign(c, [&](const Place& place) {
      const auto [s, h, i, j] = place;
      const double* x = left.data() + ((s * a.shape[1] + h) * a.shape[2] + i) * k_all;
      const double* y = right.data() + ((s * b.shape[1] + h / group) * b.shape[3] + j) * k_all;
      double sum = 0;
      for (int64_t k = 0; k < depth[static_cast<size_t>(s)]; ++k) sum += x[k] * y[k];
      return sum;
    });
  }

  void map(const Node& operation) {
    const Node& kind = operation.node(750);
    const int mode = kind.one<int>(0);
    if (mode == 501) {
      const auto axis = static_cast<size_t>(kind.one<int64_t>(9));
      return assign(operation.node(753), [&](const Place& place) { return static_cast<double>(place.at(axis)); });
    }
    const auto operand = [&](int attribute) {
      return view(operation.node(operation.has(attribute) ? attribute : 751));
    };
    const View x_view = operand(751), b_view = operand(752), t_view = operand(758);
    assign(operation.node(753), [&](const Place& place) {
      const double x = at(x_view, place), b = at(b_view, place);
      switch (mode) {
        case 0: return x + b;
        case 1: return x * b;
        case 6: return x / b;
        case 9: return x - b;
        case 13: return std::exp(x);
        case 15: return std::log(x);
        case 302: return x > b ? 1.0 : 0.0;
        case 303: return x >= b ? 1.0 : 0.0;
        case 304: return x < b ? 1.0 : 0.0;
        case 400: return x != 0 && b != 0 ? 1.0 : 0.0;
        case 601: return at(t_view, place) != 0 ? x : b;
        default: throw std::runtime_error("no such pointwise mode");
      }
    });
  }

  void reduce(const Node& operation) {
    const View x = view(operation.node(1610));
    const bool maximum = operation.node(1612).one<int>(1600) == 3;
    assign(operation.node(1611), [&](const Place& place) {
      const auto [s, h, i, unused] = place;
      double result = at(x, {s, h, i, 0});
      for (int64_t j = 1; j < x.shape[3]; ++j) {
        const double value = at(x, {s, h, i, j});
        result = maximum ? std::max(result, value) : result + value;
      }
      return result;
    });
  }

  const Data& data_;
  std::map<int64_t, std::vector<double>> inner_;  // by unique id
};

}  // namespace

void CudnnCall::run() const {
  std::memset(workspace, 0xff, workspace_bytes);
  const std::deque<Node> nodes = unpacked(graph);
  const Node& inner = nodes.back();
  Data data;
  std::array<int32_t, max_tensors> values{};
  for (size_t i = 0; i < tensors; ++i) {
    values[i] = value[i];
    data.pointers[uid[i]] = by_value[i] ? &values[i] : pointer[i];
  }
  if (operation_of(inner).kind == sdpa) return attend(operation_of(inner), data);
  Operations operations(data);
  for (const Node* operation : inner.all<const Node*>(801)) operations.run(*operation);
}

}  // namespace fake
