// A cuDNN whose descriptors store their attributes. Its only operation, attention, is computed on the host from the
// attributes: ragged offsets, sequence lengths, and masks from the inner graph. Written from the documentation of the
// backend API, not from our binding. Its engine supports head sizes up to 128.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int success = 0;
constexpr int bad_param = 2000;
constexpr int not_supported = 3000;
constexpr int64_t workspace_bytes = 17408;

enum Kind {
  engine = 2,
  config = 3,
  heuristic = 4,
  plan = 5,
  knob = 7,
  graph = 15,
  pack = 16,
  tensor = 17,
  sdpa = 41,
  band = 44
};

std::string last_error;  // returned by cudnnGetLastErrorString

struct Values {
  size_t count = 0;
  std::vector<std::byte> bytes;
};

struct Node {
  int kind = 0;
  bool final = false;
  std::map<int, Values> attributes;

  bool has(int attribute) const { return attributes.count(attribute) > 0; }
  template <class T>
  std::vector<T> all(int attribute) const {
    const auto& [count, bytes] = attributes.at(attribute);
    std::vector<T> values(count);
    std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  T one(int attribute) const {
    return all<T>(attribute).at(0);
  }
  const Node& node(int attribute) const { return *one<const Node*>(attribute); }
};

// Bytes of one element of an attribute type.
size_t type_bytes(int type) {
  switch (type) {
    case 2: return 1;  // boolean
    case 1:
    case 4:
    case 8:
    case 9:
    case 14: return 4;  // data type, float, heuristic, knob, pointwise mode
    case 24: return 1;  // char
    default: return 8;  // handle, int64, pointer, descriptor
  }
}

const Node& operation_of(const Node& outer) { return outer.node(801); }

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

int refuse(int status, const char* why) {
  last_error = why;
  return status;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cudnnGetVersion() { return 92803; }
EXPORT void cudnnGetLastErrorString(char* text, size_t bytes) {
  std::strncpy(text, last_error.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}
EXPORT int cudnnCreate(void** handle) {
  *handle = new int(0);
  return success;
}
EXPORT int cudnnDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return success;
}
EXPORT int cudnnSetStream(void*, void*) { return success; }
EXPORT int cudnnBackendCreateDescriptor(int kind, Node** node) {
  *node = new Node{kind, false, {}};
  return success;
}
EXPORT int cudnnBackendDestroyDescriptor(Node* node) {
  delete node;
  return success;
}
EXPORT int cudnnBackendSetAttribute(Node* node, int attribute, int type, int64_t count, const void* values) {
  if (node->final) return refuse(bad_param, "the descriptor is final");
  const auto* bytes = static_cast<const std::byte*>(values);
  const auto all = static_cast<size_t>(count);
  node->attributes[attribute] = {all, {bytes, bytes + all * type_bytes(type)}};
  return success;
}
EXPORT int cudnnBackendFinalize(Node* node) {
  if (node->kind == sdpa) {
    for (const int attribute_id : {2800, 2801, 2802, 2803, 2805, 2811, 2812, 2813, 2820, 2821}) {
      if (!node->has(attribute_id)) return refuse(bad_param, "attention lacks an attribute");
    }
    // The inner graph must begin at the scores tensor (2812) and end at the masked one (2813).
    const auto masks = node->node(2811).all<const Node*>(801);
    if (masks.front()->node(3000).one<int64_t>(906) != node->one<int64_t>(2812) ||
        masks.back()->node(3006).one<int64_t>(906) != node->one<int64_t>(2813)) {
      return refuse(bad_param, "the graph inside has other ends");
    }
  }
  node->final = true;
  return success;
}
EXPORT int cudnnBackendGetAttribute(const Node* node, int attribute, int, int64_t count, int64_t* returned,
                                    void* values) {
  *returned = 0;
  if (node->kind == heuristic && attribute == 202) {
    const Node& operation = operation_of(node->node(201));
    if (operation.kind != sdpa || operation.node(2800).all<int64_t>(902)[3] > 128 || count < 1) return success;
    Node* made = static_cast<Node**>(values)[0];
    made->attributes = {{201, node->attributes.at(201)}};
    *returned = 1;
  } else if (node->kind == config && attribute == 300) {
    *returned = 1;
  } else if (node->kind == engine && attribute == 1301) {
    const int64_t index = 9;
    std::memcpy(values, &index, sizeof index);
    *returned = 1;
  } else if (node->kind == config && attribute == 302) {
    *returned = 1;
  } else if (node->kind == knob && attribute == 600) {
    const int type = 40;
    std::memcpy(values, &type, sizeof type);
    *returned = 1;
  } else if (node->kind == knob && attribute == 601) {
    const int64_t value = 3;
    std::memcpy(values, &value, sizeof value);
    *returned = 1;
  } else if (node->kind == config && attribute == 303) {
    // Only an engine of the library's choice with its one knob is accepted.
    if (node->node(300).one<int64_t>(1301) != 9 || node->node(302).one<int64_t>(601) != 3) return not_supported;
    std::memcpy(values, &workspace_bytes, sizeof workspace_bytes);
    *returned = 1;
  } else {
    return refuse(bad_param, "no such attribute");
  }
  return success;
}
EXPORT int cudnnBackendExecute(void* handle, const Node* ready, const Node* given) {
  if (handle == nullptr || ready->kind != plan || given->kind != pack || ready->one<void*>(400) != handle)
    return bad_param;
  void* const workspace = given->one<void*>(1003);
  if (workspace == nullptr) return refuse(bad_param, "no workspace");
  std::memset(workspace, 0xff, static_cast<size_t>(workspace_bytes));
  const Node& inner = ready->node(401).node(300).node(1300);
  Data data;
  const auto ids = given->all<int64_t>(1000);
  const auto pointers = given->all<void*>(1001);
  for (size_t i = 0; i < ids.size(); ++i) data.pointers[ids[i]] = pointers.at(i);
  attend(operation_of(inner), data);
  return success;
}
