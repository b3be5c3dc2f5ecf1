// What the engine's tests share: a golden llama opened on a device that counts, random adapters for it, and greedy
// decoding the long way round.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/load.h"
#include "infer/engine.h"
#include "models/model.h"
#include "ops/registry.h"

namespace ingot::infer {

// The CPU, counting the bytes it was asked for.
class CountingDevice : public Device {
 public:
  CountingDevice();
  DeviceKind kind() const override { return inner_->kind(); }
  std::string name() const override { return inner_->name(); }
  std::string arch() const override { return inner_->arch(); }
  size_t memory_bytes() const override { return inner_->memory_bytes(); }
  size_t memory_available() const override { return inner_->memory_available(); }
  void* allocate(size_t bytes) override {
    allocated_ += bytes;
    return inner_->allocate(bytes);
  }
  void release(void* data, size_t bytes) noexcept override { inner_->release(data, bytes); }
  void copy_from_host(void* to, const void* from, size_t bytes) override { inner_->copy_from_host(to, from, bytes); }
  void copy_to_host(void* to, const void* from, size_t bytes) override { inner_->copy_to_host(to, from, bytes); }
  bool host_visible() const override { return inner_->host_visible(); }

  size_t allocated() const { return allocated_; }

 private:
  std::unique_ptr<Device> inner_;
  size_t allocated_ = 0;
};

// A random adapter of every linear layer; owns its weights.
struct RandomAdapter {
  Arena arena;
  nn::Adapter adapter;
};

// tests/golden/llama/SHAPE with matrices in `compute`.
struct SmallModel {
  CountingDevice device;
  ops::Registry registry;
  ThreadPool threads{2};
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;

  explicit SmallModel(const std::string& shape, DType compute = DType::f32);

  const spec::ModelSpec& spec() const { return loaded.spec; }
  // `length` ids that depend on `seed`.
  std::vector<int32_t> prompt(uint64_t seed, int64_t length) const;
  std::unique_ptr<RandomAdapter> adapter(int64_t rank, uint64_t seed, DType type = DType::f32);

  // Most likely tokens one after another, each from a forward pass over everything before it: no cache, no batch.
  std::vector<Choice> greedy(std::vector<int32_t> ids, int64_t count, const nn::Adapter* adapter = nullptr);
};

std::vector<int32_t> ids_of(const std::vector<Choice>& choices);

}  // namespace ingot::infer
