// The program on the strict driver with stand-ins for the vendors' libraries (tests/backend/gpu/fakes), whose work runs
// on its GPU.
#include <gtest/gtest.h>

#include "tests/e2e/pretrain.h"
#include "tests/e2e/strict_driver.h"
#include "tests/sanitized.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class StrictLibraries : public Pretrain, public testing::WithParamInterface<StrictVendor> {
 protected:
  const StrictMachine with_ = {.settings = std::string("devices=1,arch=") + GetParam().architecture, .libraries = true};
  const StrictMachine without_ = {.settings = with_.settings};

  // Runs a recipe and returns what it exports. Fails where driver or libraries describe a misuse.
  std::string exported(const StrictMachine& machine, std::vector<std::string> words, const std::string& file,
                       const std::vector<std::string>& more = {}) const {
    const std::string name = words.at(2);
    words.insert(words.end(), {"device=" + std::string(GetParam().device), "--quiet"});
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run_on_strict_driver(program_, machine, words);
    EXPECT_EQ(result.code, 0) << result.error;
    for (const char* misuse : {"strict driver:", "stand-in library:"})
      EXPECT_EQ(result.error.find(misuse), std::string::npos) << result.error;
    const std::string bytes = read(run(name.substr(name.find('=') + 1)) / file);
    EXPECT_GT(bytes.size(), 100U);
    return bytes;
  }
  // Whether the curves of two runs agree to rounding.
  void expect_same_curves(const std::string& one, const std::string& other) const {
    const Json found = program_.report({"bench", "curves", run(one).string(), run(other).string()});
    EXPECT_TRUE(found.at("agrees").get<bool>()) << found;
  }
};

TEST_P(StrictLibraries, AreListedWithTheirAlgorithms) {
  const std::vector<std::string> words = {"devices", "--products", "--seconds", "0.1"};
  const Json found = report_on_strict_driver(program_, with_, words);
  const bool cuda = GetParam().kind() == "cuda";
  for (const Json& library : found.at("libraries")) {
    if (library.at("name") != (cuda ? "cuBLASLt" : "hipBLASLt") && (!cuda || library.at("name") != "cuDNN")) continue;
    EXPECT_NE(library.at("path").get<std::string>().find("libstrict_"), std::string::npos) << library;
    EXPECT_NE(library.at("version"), "") << library;
    EXPECT_EQ(library.at("reason"), "") << library;
  }
  for (const Json& gemm : found.at("devices").back().at("products")) {
    if (gemm.at("name") == "1558M head, forward") continue;  // its rows are no multiples of 16 bytes without padding
    const bool whole = gemm.at("name").get<std::string>().find(", forward") != std::string::npos &&
                       gemm.at("name").get<std::string>().find("head") == std::string::npos;
    ASSERT_TRUE(gemm.at("algorithm").is_string()) << gemm;
    if (whole) EXPECT_EQ(gemm.at("workspace_bytes"), 0) << gemm;
  }
  // A version without what we need is not used, and said to be so.
  StrictMachine refused = with_;
  refused.variables = cuda ? "INGOT_FAKE_CUDNN_VERSION=90902" : "INGOT_HIPBLASLT_LIBRARY=libm.so.6";
  const Json without = report_on_strict_driver(program_, refused, {"devices", "--seconds", "0.1"});
  std::string reasons;
  for (const Json& library : without.at("libraries")) reasons += library.at("reason").get<std::string>() + "\n";
  EXPECT_NE(reasons.find(cuda ? "is version 9.9.2; fused attention needs 9.10.0 or later"
                              : "libm.so.6 has no function hipblasLtCreate"),
            std::string::npos)
      << reasons;
}

// A prompt of more than 16 tokens, and steps of as many streams: our own kernels compute smaller ones.
TEST_P(StrictLibraries, DecodeInGraphs) {
  const std::vector<std::string> generate = {
      "generate",       "--model", llama("a"),  "--ids", "1,5,9,2,8,4,3,7,6,11,12,13,14,15,16,17,18,19",
      "--max-tokens",   "3",       "--threads", "1",     "--device",
      GetParam().device};
  EXPECT_EQ(report_on_strict_driver(program_, with_, generate).at("ids"),
            report_on_strict_driver(program_, without_, generate).at("ids"));
  fs::create_directories(program_ / "model");
  write(program_ / "model/config.json",
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 16,
            "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
            "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
  const std::vector<std::string> decode = {
      "bench",    "decode",         (program_ / "model").string(), "--batch", "17", "--prompt", "2", "--tokens", "6",
      "--device", GetParam().device};
  const Result captured = run_on_strict_driver(program_, with_, decode);
  EXPECT_EQ(captured.code, 0) << captured.error;
  for (const char* fault : {"without graphs", "strict driver:", "stand-in library:"})
    EXPECT_EQ(captured.error.find(fault), std::string::npos) << captured.error;
  // A library that allocates memory in a call cannot be captured.
  StrictMachine allocates = with_;
  allocates.variables = "STRICT_LIBRARIES=allocates";
  const Result refused = run_on_strict_driver(program_, allocates, decode);
  EXPECT_EQ(refused.code, 5) << refused.error;
  EXPECT_NE(refused.error.find("a library allocates memory"), std::string::npos) << refused.error;
  EXPECT_NE(refused.error.find("set INGOT_GRAPHS=0"), std::string::npos) << refused.error;
  allocates.graphs = false;
  const Result unaided = run_on_strict_driver(program_, allocates, decode);
  EXPECT_EQ(unaided.code, 0) << unaided.error;
  EXPECT_NE(unaided.error.find("kernels are launched without graphs"), std::string::npos) << unaided.error;
}

TEST_P(StrictLibraries, FineTuneAnAdapterInBf16) {
  write(program_ / "adapter.yaml",
        "name: run\nmodel: " + make_text_model(program_, false) +
            "\ndata: {train: " + (program_ / "train.jsonl").string() +
            ", sequence_length: 24}\nadapter: {rank: 8}\noptimizer: {lr: 1e-3}\nsteps: 2\n" +
            "batch: {global: 2}\nthreads: 1\ndeterminism: bitwise\nrun_dir: " + (program_ / "runs").string() + "\n");
  const auto adapter = [&](const StrictMachine& machine, const std::string& name, const std::string& micro) {
    return exported(machine, {"finetune", (program_ / "adapter.yaml").string(), "name=" + name},
                    "adapter/adapter_model.safetensors", {"batch.micro=" + micro});
  };
  const std::string with = adapter(with_, "with", "1");
  EXPECT_TRUE(with == adapter(with_, "again", "1"));
  EXPECT_TRUE(with == adapter(with_, "whole", "2"));
  EXPECT_FALSE(with == adapter(without_, "without", "1"));  // the library's sums have another order
  expect_same_curves("with", "without");
}

// A vocabulary of 515 tokens: logits and their gradients lie in rows of 520.
TEST_P(StrictLibraries, PretrainAGpt2WithAPaddedVocabulary) {
  const fs::path model = program_ / "gpt2";
  fs::copy(narrow_model(), model);
  write(
      model / "config.json",
      R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 515, "n_positions": 64, "n_embd": 32,
            "n_layer": 1, "n_head": 2, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
            "initializer_range": 0.02, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            "tie_word_embeddings": true, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0})");
  const auto weights = [&](const StrictMachine& machine, const std::string& name, const std::string& micro) {
    std::vector<std::string> words = command(name, {"model=" + model.string(), "steps=2", "batch.global=2",
                                                    "data.sequence_length=16", "determinism=bitwise"});
    return exported(machine, words, "model/model.safetensors", {"batch.micro=" + micro});
  };
  const std::string with = weights(with_, "with", "1");
  EXPECT_TRUE(with == weights(with_, "whole", "2"));
  weights(without_, "without", "1");
  EXPECT_NE(curve("with"), curve("without"));  // the library's sums have another order
  expect_same_curves("with", "without");
}

// Ranks on two devices: gradients and weights are sums and gatherings of the library, stages send messages by it.
TEST_P(StrictLibraries, RanksCommunicate) {
  StrictMachine two = with_;
  two.settings = std::string("devices=2,delay_us=20,arch=") + GetParam().architecture;
  const auto weights = [&](const std::string& name, const std::string& how, std::vector<std::string> more) {
    more.insert(more.begin(), {"model=" + narrow_model(), "steps=1", "batch.global=2", "data.sequence_length=16",
                               "determinism=bitwise", "device=" + GetParam().kind(), "threads=2", "--quiet",
                               "parallel.collectives=" + how});
    const Result result = run_on_strict_driver(program_, two, command(name, more));
    EXPECT_EQ(result.code, 0) << result.error;
    for (const char* misuse : {"strict driver:", "stand-in library:"})
      EXPECT_EQ(result.error.find(misuse), std::string::npos) << result.error;
    EXPECT_EQ(result.error.find("CCL 2.28.3") != std::string::npos, how == "device") << result.error;
    const std::string bytes = read(run(name) / "model/model.safetensors");
    EXPECT_GT(bytes.size(), 100U);
    return bytes;
  };
  EXPECT_TRUE(weights("shares", "device", {"parallel.dp=2", "parallel.zero=3"}) ==
              weights("shares-host", "host", {"parallel.dp=2", "parallel.zero=3"}));
  EXPECT_TRUE(weights("stages", "device", {"parallel.pp=2", "batch.micro=1"}) ==
              weights("stages-host", "host", {"parallel.pp=2", "batch.micro=1"}));
}

INSTANTIATE_TEST_SUITE_P(Vendors, StrictLibraries, testing::ValuesIn(strict_vendors),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::e2e
