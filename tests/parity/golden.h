// What the parity tests share: a golden folder opened (tools/reference/make_model_golden.py), a model run on it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/load.h"
#include "data/packing.h"
#include "formats/safetensors.h"
#include "models/model.h"
#include "ops/registry.h"
#include "train/step.h"

namespace ingot::parity {

// The models with golden states, "llama/a", in order: those of the committed folders, or of $INGOT_GOLDEN where that is
// set (fresh ones, tools/reference/check_models.py).
std::vector<std::string> golden_models();
std::filesystem::path golden_folder(const std::string& model);

// Each of them on the CPU and, but under a sanitizer (where they are many times as slow, and the op table covers every
// kernel), on the simulated GPUs: what a test is instantiated for.
struct Subject {
  std::string model;
  std::string device;
};
std::vector<Subject> golden_subjects();
std::string name_of(const testing::TestParamInfo<Subject>& info);  // "sim32_llama_a"

// A tensor of a golden file as floats, from F32 or BF16.
std::vector<float> floats(const formats::SafetensorsFile& file, const std::string& name);
std::vector<int32_t> integers(const formats::SafetensorsFile& file, const std::string& name);
std::vector<float> floats(Device& device, const Tensor& tensor);  // f32 or bf16, on the device
// What a golden file has of the parameter `name` under KIND.NAME, in the layout that Ingot trains it in: matrices that
// checkpoints hold as [in, out] become [out, in].
std::vector<float> of_parameter(const formats::SafetensorsFile& file, const spec::ModelSpec& model,
                                const std::string& kind, const std::string& name);

// |a - b| in the Euclidean norm. Infinite when sizes differ.
double distance(const std::vector<float>& a, const std::vector<float>& b);
double norm(const std::vector<float>& a);  // Euclidean
// |found - expected| / |expected|: the whole tensor's error as a share of its size.
double relative_error(const std::vector<float>& found, const std::vector<float>& expected);

// Gradients and ten steps may be off the exact result by tolerance() and this many times the error that torch's fp32
// had in the worst of four draws of its rounding (the largest of four is not the largest there is, and another program
// rounds in other places: make_model_golden.py says why there is such an error, and how it is measured).
inline constexpr double error_multiple = 4;

// A device with every op, and threads.
struct Machine {
  std::unique_ptr<Device> device;
  ops::Registry registry;
  ThreadPool threads;
  explicit Machine(int count = 2, const std::string& name = "cpu");  // "cpu", "sim32" or "sim64"
};

// The packed sequence of state.safetensors as one unit.
data::PackedSequence golden_sequence(const std::string& model);

// A model of a golden folder in `type`, with memory for steps on its sequence.
struct Bench {
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
  std::optional<train::OptimizerState> optimizer_state;
  std::optional<train::Step> step;
};
struct BenchSettings {
  DType activation = DType::f32;
  bool lora = false;  // the adapter of the golden folder, its weights included
  spec::Recompute recompute = spec::Recompute::none;
  int64_t micro = 1;
  train::OptimizerDtypes types = {};
  // The golden file of steps ("muon.safetensors"), whose optimizer's settings are taken; empty: adamw.safetensors, or
  // lora.safetensors with `lora`.
  std::string steps = {};
};
std::unique_ptr<Bench> make_bench(Machine& machine, const std::string& model, const BenchSettings& settings);

// Runs the ten steps of a golden file and compares losses, norms and weights; a weight's bound is a share of how far
// the steps moved it, not of its size. `prefix`: of the parameters' names in the file.
void expect_ten_steps(Machine& machine, Bench& bench, const std::string& model,
                      const formats::SafetensorsFile& expected, const std::string& prefix, double lr);

// A golden model for inference alone, in any type of activations.
struct Served {
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
};
Served serve(Machine& machine, const std::string& model, DType type);

// Logits [T * V] of the golden sequence.
std::vector<float> logits(Machine& machine, Bench& bench, const std::string& model, DType activation);
std::vector<float> logits(Machine& machine, const Served& served, const std::string& model, DType activation);

// Most fp32 terms summed one after another on the way from ids to a gradient: the longest reduction of a layer times
// how many follow each other. What tolerance() is asked with.
int64_t chain_length(const spec::ModelSpec& model, int64_t tokens);

}  // namespace ingot::parity
