// Shared by the parity tests: reading golden folders (tools/reference/make_model_golden.py) and running models on them.
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

// The models with golden states ("llama/a"), in order: those in the repository, or those of $INGOT_GOLDEN where set
// (made anew by tools/reference/check_models.py).
std::vector<std::string> golden_models();
std::filesystem::path golden_folder(const std::string& model);

// The parameter of the tests: each model on the CPU, and on the simulated GPUs except under a sanitizer, where these
// are many times slower and the op table covers every kernel.
struct Subject {
  std::string model;
  std::string device;
};
std::vector<Subject> golden_subjects();
std::string name_of(const testing::TestParamInfo<Subject>& info);  // "sim32_llama_a"

// A tensor of a golden file as floats, from F32 or BF16.
std::vector<float> floats(const formats::SafetensorsFile& file, const std::string& name);
std::vector<int32_t> integers(const formats::SafetensorsFile& file, const std::string& name);
std::vector<float> floats(Device& device, const Tensor& tensor);  // an f32 or bf16 tensor on the device
// The tensor KIND.NAME of a golden file, in Ingot's layout of parameter `name`: matrices that checkpoints store as [in,
// out] are transposed to [out, in].
std::vector<float> of_parameter(const formats::SafetensorsFile& file, const spec::ModelSpec& model,
                                const std::string& kind, const std::string& name);

// |a - b| in the Euclidean norm; infinite when the sizes differ.
double distance(const std::vector<float>& a, const std::vector<float>& b);
double norm(const std::vector<float>& a);  // Euclidean
// |found - expected| / |expected| over the whole tensor.
double relative_error(const std::vector<float>& found, const std::vector<float>& expected);

// Gradients and the results of ten steps may differ from the exact result by tolerance() plus this multiple of torch's
// own fp32 error, which is the largest over four rounding patterns. (Four samples underestimate the maximum, and
// another program rounds differently; make_model_golden.py says how the error is measured.)
inline constexpr double error_multiple = 4;

// A device with all ops registered, and threads.
struct Machine {
  std::unique_ptr<Device> device;
  ops::Registry registry;
  ThreadPool threads;
  explicit Machine(int count = 2, const std::string& name = "cpu");  // "cpu", "sim32" or "sim64"
};

// The packed sequence of state.safetensors as one accumulation unit.
data::PackedSequence golden_sequence(const std::string& model);
// `count` sequences: the golden one, and others with its documents and targets, each with other tokens.
std::vector<data::PackedSequence> different_sequences(const std::string& model, int count);

// A model of a golden folder in `type`, with memory for training steps on its sequence.
struct Bench {
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<Device> host;  // with BenchSettings::types.offload
  std::optional<train::OptimizerState> optimizer_state;
  std::optional<train::Step> step;
};
struct BenchSettings {
  DType activation = DType::f32;
  bool lora = false;  // with the golden folder's adapter and its weights
  spec::Recompute recompute = spec::Recompute::none;
  int64_t micro = 1;
  train::OptimizerDtypes types = {};
  // The golden file of the steps ("muon.safetensors"), whose optimizer settings are used. Empty: adamw.safetensors, or
  // lora.safetensors with `lora`.
  std::string steps = {};
  // A new adapter of random values, also in B, in place of the golden folder's.
  std::optional<spec::LoraSpec> new_adapter = {};
  // Context-parallel ranks, in full training.
  comm::Group ranks = {};
  spec::CpCommType cp_comm_type = spec::CpCommType::a2a;
  int zero = 0;  // of these ranks; at most 2
};
std::unique_ptr<Bench> make_bench(Machine& machine, const std::string& model, const BenchSettings& settings);

// Runs the ten steps of a golden file and compares losses, gradient norms and weights. A weight's bound is relative to
// its change over the steps, not to its size. `prefix`: of the parameter names in the file.
void expect_ten_steps(Machine& machine, Bench& bench, const std::string& model,
                      const formats::SafetensorsFile& expected, const std::string& prefix, double lr);

// A golden model for inference only, with activations of any type.
struct Served {
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
};
Served serve(Machine& machine, const std::string& model, DType type);

// Logits [T * V] of the golden sequence.
std::vector<float> logits(Machine& machine, Bench& bench, const std::string& model, DType activation);
std::vector<float> logits(Machine& machine, const Served& served, const std::string& model, DType activation);

// The reduction length for tolerance(): the largest number of fp32 terms summed one after another between ids and a
// gradient, which is the longest reduction of a layer times the number of layers' reductions in sequence.
int64_t chain_length(const spec::ModelSpec& model, int64_t tokens);

}  // namespace ingot::parity
