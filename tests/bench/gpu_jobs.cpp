#include "tests/bench/gpu_jobs.h"

#include <memory>
#include <numeric>

#include "backend/gpu/ops.h"
#include "base/error.h"
#include "infer/engine.h"
#include "runtime/session.h"
#include "spec/flops.h"
#include "spec/sizes.h"
#include "tests/locations.h"

namespace ingot::bench {

namespace {

constexpr size_t gb = 1'000'000'000, gib = size_t{1} << 30;
constexpr GpuModel job_h200{DeviceKind::cuda, "H200", "sm_90", 141 * gb};
// One of an MI250's two dies, with the memory of both: a die alone does not hold the state of a model with 7B
// parameters, which the published runs divide among GPUs.
constexpr GpuModel mi250{DeviceKind::hip, "MI250", "gfx90a", 128 * gib};
constexpr GpuModel mi300x{DeviceKind::hip, "MI300X", "gfx942", 192 * gb};
constexpr GpuModel mi355x{DeviceKind::hip, "MI355X", "gfx950", 288 * gb};

std::string model_folder(const char* name) { return std::string(source_root) + "/" + name; }

GpuJob lora_8b() {
  GpuJob job{"train-llama-3.1-8b-lora", job_h200};
  job.train.model = model_folder("recipes/models/llama-3.1-8b");
  job.train.rank = 16;
  job.train.sequence = 4096;
  job.train.micro = 1;
  return job;
}

GpuJob full_8b(const char* name, const GpuModel& gpu) {
  GpuJob job{name, gpu};
  job.train.model = model_folder("recipes/models/llama-3.1-8b");
  job.train.sequence = 8192;
  job.train.micro = 1;
  job.train.state_dtype = job.train.master = "bf16";
  return job;
}

GpuJob full_1558m() {
  GpuJob job{"train-gpt2-1558m", job_h200};
  job.train.model = model_folder("recipes/models/gpt2-1558m");
  job.train.sequence = 1024;
  job.train.global = 16;
  job.train.micro = 16;
  return job;
}

GpuJob full_mpt_7b() {
  GpuJob job{"train-mpt-7b-mi250", mi250};
  job.train.model = model_folder("recipes/models/mpt-7b");
  job.train.sequence = 2048;
  job.train.micro = 1;
  job.train.state_dtype = job.train.master = "bf16";
  return job;
}

GpuJob lora_70b(const char* name, const GpuModel& gpu) {
  GpuJob job{name, gpu};
  job.train.model = model_folder("bench/models/llama-2-70b");
  job.train.rank = 16;
  job.train.sequence = 8192;
  job.train.micro = 1;
  job.train.dtype = "fp8";
  job.train.recompute = "full";
  return job;
}

GpuJob decoding(const char* name, const char* model, const char* dtype, int64_t batch) {
  GpuJob job{name, job_h200};
  job.decode.model = model_folder(model);
  job.decode.dtype = dtype;
  job.decode.batch = batch;
  return job;
}

runtime::Runtime dry_runtime(const GpuModel& gpu) {
  runtime::Runtime runtime;
  runtime.device = std::make_unique<DryGpu>(gpu);
  runtime.model = gpu.name;
  runtime.threads = std::make_unique<ThreadPool>(1);
  gpu::register_ops(runtime.registry, gpu.kind);
  return runtime;
}

JobBudget budget_of_launches(const GpuJob& job, DryGpu& gpu, int64_t tokens) {
  return {job.name, job.gpu.name, job.gpu.arch, tokens, static_cast<double>(gpu.peak()), budget_rows(gpu.launches())};
}

JobBudget train(const GpuJob& job) {
  runtime::Runtime runtime = dry_runtime(job.gpu);
  auto& gpu = static_cast<DryGpu&>(*runtime.device);
  const spec::ModelSpec model = bench_spec(job.train.model);
  const runs::RunPlan plan = plan_train(job.train, runtime, model);
  TrainJob settings{plan.lora,
                    plan.step,
                    plan.optimizer_types,
                    job.train.document_tokens(),
                    0,
                    job.train.dtype == "fp8" ? "fp8" : job.train.weights};
  TrainBench bench(runtime, model, settings);
  bench.run(job.train.global);  // the first step
  gpu.launches().clear();

  const auto sequence = static_cast<double>(job.train.sequence);
  AttentionCost attention;
  attention.flops_per_token =
      spec::attention_flops(model, {sequence, sequence * sequence}, spec::AttentionCount::causal) / sequence /
      static_cast<double>(model.num_layers());
  StepRecorder recorder(gpu, attention);
  bench.step().context().watch = &recorder;
  const train::StepResult result = bench.run(job.train.global);
  bench.step().context().watch = nullptr;
  return budget_of_launches(job, gpu, result.tokens);
}

JobBudget decode(const GpuJob& job) {
  constexpr int64_t max_tokens = 512;  // enough for all prompts to be computed before the first request ends
  runtime::Runtime runtime = dry_runtime(job.gpu);
  auto& gpu = static_cast<DryGpu&>(*runtime.device);
  const spec::ModelSpec model = bench_spec(job.decode.model);
  infer::EngineSettings settings;
  settings.activation = runtime::activation_of(job.decode.dtype);
  settings.context = job.decode.prompt + max_tokens;
  settings.sequences = job.decode.batch;
  const WeightSet weights =
      random_model(gpu, model, random_weight_storage(job.decode.weights, settings.activation), 1, 0);
  const std::unique_ptr<models::Model> computed = models::make_model(model, weights, gpu);
  infer::Engine engine(gpu, runtime.registry, *runtime.threads, *computed, settings);
  for (int64_t i = 0; i < job.decode.batch; ++i) {
    infer::Request request;
    request.prompt = random_sequence(model, job.decode.prompt, job.decode.prompt, static_cast<uint64_t>(i)).ids;
    request.max_tokens = max_tokens;
    request.cache_salt = static_cast<uint64_t>(i) + 1;
    engine.submit(std::move(request));
  }
  int64_t produced = 0;
  for (int64_t last = 0; last < job.decode.batch; produced += last) {
    if (engine.idle()) throw_error(ErrorKind::internal, "the requests never decode together");
    last = std::ssize(engine.step());
  }
  gpu.launches().clear();

  // Of the batch after the one in flight, which has a key more in each request.
  const auto keys = static_cast<double>(job.decode.batch * (job.decode.prompt + 2) + produced);
  const auto layers = static_cast<double>(model.num_layers());
  AttentionCost attention;
  attention.paged_bytes =
      keys * static_cast<double>(spec::cache_elements(model) * static_cast<int64_t>(size_of(settings.activation))) /
      layers;
  for (const spec::LayerSpec& layer : model.layers) {
    attention.paged_flops += 4 * keys * static_cast<double>(layer.attention.query_width()) / layers;
  }
  StepRecorder recorder(gpu, attention);
  engine.observe(&recorder);
  const auto tokens = static_cast<int64_t>(engine.step().size());
  engine.observe(nullptr);
  return budget_of_launches(job, gpu, tokens);
}

}  // namespace

const std::vector<GpuJob>& gpu_jobs() {
  static const std::vector<GpuJob> jobs{
      lora_8b(),
      full_8b("train-llama-3.1-8b", job_h200),
      full_1558m(),
      decoding("decode-llama-2-13b", "bench/models/llama-2-13b", "fp16", 1),
      decoding("decode-llama-3.1-8b-streams-256", "recipes/models/llama-3.1-8b", "bf16", 256),
      lora_70b("train-llama-2-70b-lora-fp8", job_h200),
      full_mpt_7b(),
      lora_70b("train-llama-2-70b-lora-fp8-mi300x", mi300x),
      lora_70b("train-llama-2-70b-lora-fp8-mi355x", mi355x),
      full_8b("train-llama-3.1-8b-mi355x", mi355x),
  };
  return jobs;
}

JobBudget budget_of(const GpuJob& job) { return job.train.model.empty() ? decode(job) : train(job); }

}  // namespace ingot::bench
