// Where the time of a training step goes, op by op, beside the floor of each: what its arithmetic and its memory
// traffic take at the rates that the device reaches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/device_rates.h"
#include "ops/context.h"

namespace ingot::app {

class OpProfile : public ops::Watch {
 public:
  // The time, work and traffic of an op's calls; of a matrix product's those of one shape.
  struct Row {
    std::string op;
    std::string shape;  // of a product, "MxNxK"; empty for others
    bool wide = false;  // computes in f32
    int64_t calls = 0;
    double seconds = 0;  // without the ops that it is made of
    // Of products and of attention, whose backward has five products where its forward has two. An op that is made of
    // products, which have rows of their own, has neither FLOPs nor bytes.
    double flops = 0;
    double bytes = 0;  // of every operand once, coded matrices left out

    // What it takes at least, in seconds: the larger of its arithmetic's time and its traffic's. What lies in a cache
    // may take less.
    double floor(const Ceilings& most) const;
  };

  // `attention`: FLOPs of a token in a block's attention, forward, in the mean of all blocks. A GPU is waited for after
  // every op, so what overlaps in a step does not overlap here.
  OpProfile(Device& device, double attention) : done_(device.make_event()), attention_(attention) {}

  void begins(const char* op) override;
  void ran(const char* op, std::span<const Tensor> tensors) override;

  // The longest first.
  std::vector<Row> rows() const;

 private:
  struct Begun {
    double at;                  // seconds
    double inside = 0;          // seconds of ops that it is made of
    bool has_products = false;  // among these
  };
  Row work_of(const char* op, std::span<const Tensor> tensors) const;

  double now();  // seconds, when the device has done what it was given
  std::unique_ptr<Event> done_;
  double attention_;
  std::vector<Begun> begun_;
  std::map<std::pair<std::string, std::string>, Row> rows_;  // by op and shape
};

}  // namespace ingot::app
