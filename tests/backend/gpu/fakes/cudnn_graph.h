// The descriptors of the stand-in for cuDNN: all are nodes with attributes, which may be other nodes. Numbers are those
// of the documentation of the backend API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

namespace fake::cudnn {

enum Kind {
  pointwise_kind = 0,
  engine = 2,
  config = 3,
  heuristic = 4,
  plan = 5,
  knob = 7,
  graph = 15,
  pack = 16,
  tensor = 17,
  pointwise = 13,
  matmul = 19,
  reduction = 22,
  sdpa = 41,
  band = 44
};

constexpr int descriptor_type = 15;  // of attributes

struct Values {
  int type = 0;
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
    const auto& [type, count, bytes] = attributes.at(attribute);
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

inline const Node& operation_of(const Node& outer) { return outer.node(801); }

// The node and all that it refers to as bytes, from which unpacked() makes them again in another process.
std::vector<std::byte> packed(const Node& root);
// The root is the last one.
std::deque<Node> unpacked(const std::byte* bytes);

// Calls visit(node) for the node and for all that it refers to.
template <class Visit>
void visit_all(const Node& node, Visit visit) {
  visit(node);
  for (const auto& [attribute, values] : node.attributes) {
    if (values.type != descriptor_type) continue;
    for (const Node* each : node.all<const Node*>(attribute)) visit_all(*each, visit);
  }
}

}  // namespace fake::cudnn
