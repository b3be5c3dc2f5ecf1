// The communication of a rank, counted by the axis of the layout and by the collective operation.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string_view>

#include "spec/layout.h"

namespace ingot::spec {

enum class Collective : uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, send };  // send: to one rank
std::string_view name_of(Collective collective);                                               // "all-reduce"

class Traffic {
 public:
  struct Sum {
    int64_t messages = 0;
    int64_t bytes = 0;
    int64_t largest = 0;  // bytes of one
    bool operator==(const Sum&) const = default;
  };
  struct Kind {
    Axis axis;
    Collective collective;
    auto operator<=>(const Kind&) const = default;
  };

  // Operations of `bytes` each: of the tensor in an all-reduce; of all ranks' parts together in a reduce-scatter or
  // all-gather; of what one rank gives in an all-to-all; of the message. Nothing is added for no bytes.
  void add(Kind kind, int64_t bytes, int64_t messages = 1);
  const std::map<Kind, Sum>& sums() const { return sums_; }
  bool operator==(const Traffic&) const = default;

 private:
  std::map<Kind, Sum> sums_;
};

}  // namespace ingot::spec
