// Why an implementation of an op declines a call.
#pragma once

#include <fmt/core.h>

#include <string>

namespace ingot::ops {

// The last argument of a decline function. A call that is declined costs no formatting unless somebody reads the
// reason:
//   if (in != DType::bf16) return refuse("supports bf16 only");
//   return k > max_k && refuse("k {} is above {}", k, max_k);
class Refusal {
 public:
  Refusal() = default;  // drops reasons
  explicit Refusal(std::string& reason) : reason_(&reason) {}

  // Returns true: the call is declined.
  template <class... Args>
  bool operator()(fmt::format_string<Args...> format, Args&&... args) const {
    if (reason_ != nullptr) *reason_ = fmt::vformat(format, fmt::make_format_args(args...));
    return true;
  }

 private:
  std::string* reason_ = nullptr;
};

}  // namespace ingot::ops
