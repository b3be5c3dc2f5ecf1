#include "tests/backend/gpu/fakes/cudnn_graph.h"

namespace fake::cudnn {
namespace {

void append(std::vector<std::byte>& bytes, const void* data, size_t count) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count);
}
void append(std::vector<std::byte>& bytes, size_t number) { append(bytes, &number, sizeof number); }

class Reader {
 public:
  explicit Reader(const std::byte* bytes) : at_(bytes) {}
  size_t number() {
    size_t value = 0;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::vector<std::byte> bytes(size_t count) {
    const std::byte* const begin = at_;
    at_ += count;
    return {begin, at_};
  }

 private:
  const std::byte* at_;
};

// Appends the node behind those that it refers to, unless it is there.
void append_node(const Node& node, std::map<const Node*, size_t>& numbers, std::vector<std::byte>& bytes) {
  if (numbers.count(&node) > 0) return;
  for (const auto& [attribute, values] : node.attributes) {
    if (values.type != descriptor_type) continue;
    for (const Node* each : node.all<const Node*>(attribute)) append_node(*each, numbers, bytes);
  }
  append(bytes, static_cast<size_t>(node.kind));
  append(bytes, node.attributes.size());
  for (const auto& [attribute, values] : node.attributes) {
    for (const size_t number : {static_cast<size_t>(attribute), static_cast<size_t>(values.type), values.count})
      append(bytes, number);
    if (values.type == descriptor_type) {
      for (const Node* each : node.all<const Node*>(attribute)) append(bytes, numbers.at(each));
    } else {
      append(bytes, values.bytes.size());
      append(bytes, values.bytes.data(), values.bytes.size());
    }
  }
  numbers.emplace(&node, numbers.size());
}

}  // namespace

std::vector<std::byte> packed(const Node& root) {
  std::map<const Node*, size_t> numbers;
  std::vector<std::byte> nodes, all;
  append_node(root, numbers, nodes);
  append(all, numbers.size());
  append(all, nodes.data(), nodes.size());
  return all;
}

std::deque<Node> unpacked(const std::byte* bytes) {
  Reader from(bytes);
  std::deque<Node> nodes;
  for (size_t count = from.number(); count > 0; --count) {
    Node node;
    node.kind = static_cast<int>(from.number());
    node.final = true;
    for (size_t attributes = from.number(); attributes > 0; --attributes) {
      const int attribute = static_cast<int>(from.number());
      Values& values = node.attributes[attribute];
      values.type = static_cast<int>(from.number());
      values.count = from.number();
      if (values.type != descriptor_type) {
        values.bytes = from.bytes(from.number());
        continue;
      }
      for (size_t i = 0; i < values.count; ++i) {
        const auto address = reinterpret_cast<uintptr_t>(&nodes.at(from.number()));
        append(values.bytes, &address, sizeof address);
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace fake::cudnn
