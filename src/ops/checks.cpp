#include "ops/checks.h"

#include <string>

#include "base/error.h"

namespace ingot::ops {

void require(bool holds, const char* op, const char* rule, NamedTensors tensors) {
  if (holds) return;
  std::string list;
  for (const NamedTensor& named : tensors) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", named.name,
                        named.tensor.data == nullptr ? std::string("absent") : named.tensor.text());
  }
  throw_error(ErrorKind::internal, "{}: {} does not hold for {}", op, rule, list);
}

}  // namespace ingot::ops
