#include "backend/gpu/gpu_device.h"

#include <algorithm>

#include "base/log.h"

namespace ingot::gpu {

OpLabel::OpLabel(const char* op, std::span<const Operand> operands) : op_(op) {
  count_ = std::min(operands.size(), operands_.size());
  std::copy_n(operands.begin(), count_, operands_.begin());
}

std::string OpLabel::text() const {
  return op_ == nullptr ? "no op" : ingot::call_text(op_, std::span(operands_).first(count_));
}

void GpuDevice::log_once(const std::string& key, const std::string& line) {
  if (log_ != nullptr && logged_.insert(key).second) log_->info("{}", line);
}

}  // namespace ingot::gpu
