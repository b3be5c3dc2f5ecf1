// Runs that move between devices, `ingot bench` and tools/gpu_check, on simulated GPUs and on the strict driver.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "tests/e2e/program.h"
#include "tests/e2e/strict_driver.h"
#include "tests/locations.h"
#include "tests/sanitized.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

std::vector<Json> results_of(const fs::path& file) {
  std::vector<Json> lines;
  std::stringstream text(read(file));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

// A LoRA recipe on llama("a"). The base is identified by a hash of its weights, on any device.
std::string write_recipe(const Program& program) {
  const std::string model = make_text_model(program, false);
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += R"({"text": "The square of )" + std::to_string(i) + " is " + std::to_string(i * i) + R"(."})" + "\n";
  write(program / "train.jsonl", text);
  const fs::path recipe = program / "recipe.yaml";
  write(recipe, "name: run\nmodel: " + model + "\ndata: {train: " + (program / "train.jsonl").string() +
                    ", sequence_length: 24}\nadapter: {rank: 2}\noptimizer: {lr: 1e-3}\nschedule: {name: constant}\n" +
                    "precision: fp32\nsteps: 6\nbatch: {global: 1}\nthreads: 1\nrun_dir: " +
                    (program / "runs").string() + "\n");
  return recipe.string();
}

TEST(MovedRun, MovingToAGpuAndBackGivesTheSameRun) {
  const Program program;
  const std::string recipe = write_recipe(program);
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"finetune", recipe, "--quiet"});
    const Result result = program.run(words);
    EXPECT_EQ(result.code, 0) << result.error;
    return result;
  };
  train({"name=stayed", "device=cpu"});
  train({"name=moved", "device=cpu", "steps=2"});
  const Result there = train({"name=moved", "device=sim32", "steps=4", "--resume"});
  EXPECT_NE(there.error.find("continued on sim32"), std::string::npos) << there.error;
  const Result back = train({"name=moved", "device=cpu", "steps=6", "--resume"});
  EXPECT_NE(back.error.find("earlier steps ran on sim32"), std::string::npos) << back.error;

  const std::vector<std::string> compare = {"bench", "curves", (program / "runs/stayed").string(),
                                            (program / "runs/moved").string()};
  const Json found = program.report(compare);
  EXPECT_TRUE(found.at("agrees").get<bool>());
  EXPECT_EQ(found.at("rows").at(0).at("steps"), 6);
  EXPECT_EQ(found.at("rows").at(0).at("starts"), 3);

  // A run with another learning rate has another curve.
  train({"name=other", "device=cpu", "optimizer.lr=1e-1"});
  const Result other =
      program.run({"bench", "curves", (program / "runs/stayed").string(), (program / "runs/other").string()});
  EXPECT_EQ(other.code, 70) << other.output;
  EXPECT_NE(other.output.find("DISAGREES"), std::string::npos) << other.output;
}

TEST(Bench, ErrorsNameTheFault) {
  const Program program;
  const std::string model = llama("a");
  program.refuses({"bench", "train", model, "--dtype", "fp16"}, 2, "--dtype 'fp16'");
  program.refuses({"bench", "train", model, "--rank", "2", "--dtype", "fp8", "--weights", "int8"}, 2, "fp8 weights");
  program.refuses({"bench", "train", model, "--sequence", "100000"}, 2, "context");
  program.refuses({"bench", "train", model, "--sequence", "16", "--document", "17"}, 2, "--document 17");
  program.refuses({"bench", "train", model, "--optimizer", "adam"}, 2, "--optimizer 'adam'");
  program.refuses({"bench", "train", model, "--state-dtype", "int4"}, 2, "--state-dtype 'int4'");
  program.refuses({"bench", "train", model, "--recompute", "some"}, 2, "--recompute 'some'");
  program.refuses({"bench", "decode", model, "--weights", "stored"}, 2, "--weights 'stored'");
  program.refuses({"bench", "train", model, "--weights", "int4"}, 2, "--weights int4");
  program.refuses({"bench", "train", llama("b"), "--weights", "int4", "--rank", "2"}, 3, " block size 32");
  program.refuses({"bench", "decode", model, "--tokens", "2"}, 2, "--tokens 2");
  program.refuses({"bench", "decode", model, "--alternate", "--adapters", "3"}, 2, "--alternate");
  program.refuses({"bench", "parity", "lama", "--device", "sim32"}, 2, "'lama'");
  program.refuses({"bench", "parity", "llama", "--serving", "--others", "-1", "--device", "sim32"}, 2, "--others -1");
  program.refuses({"bench", "parity", "llama", "--device", "sim32", "--serving", "--steps", "3"}, 2, "--steps");
  program.refuses({"bench", "parity", "llama", "--device", "sim32", "--others", "3"}, 2, "--others");
  program.refuses({"bench", "op", "matmull"}, 2, "'matmull'");
  program.refuses({"bench", "curves", "one"}, 2, "at least two");
  write(program / "lines", "{\"piece\":\"a\"}\n");
  program.refuses({"bench", "report", (program / "lines").string(), "--out", (program / "r").string()}, 3, "line 1");
}

TEST(Bench, TrainsAndDecodesOnTheCpu) {
  const Program program;
  const Json lora = program.report({"bench", "train", llama("a"), "--rank", "2", "--sequence", "32", "--global", "2",
                                    "--micro", "1", "--warmup", "1", "--steps", "2", "--recompute", "full"});
  EXPECT_GT(lora.at("tokens_per_s").get<double>(), 0);
  EXPECT_EQ(lora.at("steps").size(), 2U);
  EXPECT_LT(lora.at("trained").get<int64_t>(), lora.at("parameters").get<int64_t>());
  EXPECT_GT(lora.at("memory_bytes").get<double>(), 0);
  // Random logits with a small variance: the loss is near ln 100 for the vocabulary of llama("a").
  EXPECT_NEAR(lora.at("first_loss").get<double>(), std::log(lora.at("vocab").get<double>()), 0.5);
  // The compute dtype by name, and what is trained in it.
  EXPECT_EQ(lora.at("weights"), "bf16");
  const auto full = [&](const char* dtype, const char* weights) {
    return program.report({"bench", "train", llama("a"), "--sequence", "32", "--warmup", "1", "--steps", "2", "--dtype",
                           dtype, "--weights", weights});
  };
  for (const char* dtype : {"bf16", "fp32"}) {
    const Json named = full(dtype, dtype), own = full(dtype, "auto");
    EXPECT_EQ(named.at("first_loss"), own.at("first_loss"));
    EXPECT_EQ(named.at("weights"), dtype);
  }
  program.refuses({"bench", "train", llama("a"), "--weights", "fp32"}, 2, "--weights fp32");
  const Json decoded = program.report(
      {"bench", "decode", llama("a"), "--dtype", "fp16", "--batch", "3", "--prompt", "9", "--tokens", "7"});
  EXPECT_GT(decoded.at("ms_per_token").get<double>(), 0);
  EXPECT_EQ(decoded.at("adapter_bytes"), 0);
  EXPECT_TRUE(decoded.at("alternate").is_null());
  // The bytes read for two of three adapters, and the steps of a cached prompt, whose adapters alternate.
  const auto adapted = [&](const char* batch, std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "decode", llama("a"), "--dtype", "fp16", "--rank", "2", "--batch", batch,
                               "--prompt", "20", "--tokens", "7", "--targets", "q_proj", "--adapters"});
    return program.report(more);
  };
  const Json three = adapted("2", {"3"});
  const Json two = adapted("1", {"2", "--alternate"});
  EXPECT_EQ(three.at("adapter_bytes").get<double>(), 2 * two.at("adapter_bytes").get<double>());
  EXPECT_GT(two.at("adapter_bytes").get<double>(), 0);
  EXPECT_GT(two.at("alternate").at("one_ms").get<double>(), 0);
  EXPECT_GT(two.at("alternate").at("alternating_ms").get<double>(), 0);
}

// On a GPU, decode steps are recorded; those that are observed are not, and give the same text.
TEST(Bench, ProfilesDecodeSteps) {
  const Program program;
  for (const char* device : {"cpu", "sim32"}) {
    const Json result =
        program.report({"bench", "decode", llama("a"), "--device", device, "--dtype", "fp32", "--prompt", "9",
                        "--tokens", "7", "--batch", "2", "--profile"});  // 18 tokens of prompts: one step
    const Json& profile = result.at("profile");
    std::map<std::string, int64_t> calls;
    double seconds = 0;
    for (const Json& row : profile.at("rows")) {
      calls[row.at("op")] += row.at("calls").get<int64_t>();
      seconds += row.at("seconds").get<double>();
    }
    EXPECT_LE(seconds, profile.at("seconds").get<double>());
    const bool gpu = device != std::string("cpu");
    EXPECT_EQ(calls["linear_group"], gpu ? 2 : 2 * 2) << device;  // q, k and v; gate and up
    EXPECT_EQ(calls["linear_glu"], 2);
    EXPECT_EQ(calls["paged_attention"], 2);
    EXPECT_EQ(calls["embedding"], 1);
    EXPECT_EQ(calls["sample"], 1);
    EXPECT_TRUE(program
                    .report({"bench", "decode", llama("a"), "--device", device, "--dtype", "fp32", "--prompt", "9",
                             "--tokens", "7"})
                    .at("profile")
                    .is_null());
  }
}

// The profile contains every gemm of a step, and counts nothing twice.
TEST(Bench, ProfilesAStep) {
  const Program program;
  const Json result = program.report({"bench", "train", llama("a"), "--sequence", "32", "--global", "2", "--warmup",
                                      "1", "--steps", "2", "--dtype", "fp32", "--profile"});
  const Json& profile = result.at("profile");
  double seconds = 0, flops = 0, attention = 0;
  std::set<std::string> ops;
  for (const Json& row : profile.at("rows")) {
    ops.insert(row.at("op"));
    EXPECT_GT(row.at("calls").get<int64_t>(), 0) << row;
    EXPECT_GT(row.at("floor_seconds").get<double>(), 0) << row;
    seconds += row.at("seconds").get<double>();
    flops += row.at("flops").get<double>();
    if (row.at("op") == "attention") attention = row.at("flops");
  }
  EXPECT_LE(seconds, profile.at("seconds").get<double>());
  for (const char* op : {"linear", "linear_backward_input", "matmul", "attention", "attention_backward", "rms_norm",
                         "rope", "glu", "cross_entropy", "adamw"}) {
    EXPECT_EQ(ops.count(op), 1U) << op;
  }
  // The FLOPs per token of the model description count attention's backward as two forwards; the profile counts two and
  // a half.
  const double useful = 1e12 * result.at("tflops").get<double>() * result.at("step_seconds").get<double>();
  EXPECT_NEAR(flops, useful + attention / 2, 1e-9 * flops);
  // Keys outside a sliding window are not counted.
  fs::create_directories(program / "windowed");
  write(
      program / "windowed/config.json",
      R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "sliding_window": 8,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false})");
  const Json windowed = program.report({"bench", "train", (program / "windowed").string(), "--sequence", "64",
                                        "--warmup", "1", "--steps", "2", "--dtype", "fp32", "--profile"});
  flops = attention = 0;
  for (const Json& row : windowed.at("profile").at("rows")) {
    flops += row.at("flops").get<double>();
    if (row.at("op") == "attention") attention = row.at("flops");
  }
  EXPECT_EQ(attention, 2 * 4.0 * 32 * 64 * 8);
  EXPECT_NEAR(flops,
              1e12 * windowed.at("tflops").get<double>() * windowed.at("step_seconds").get<double>() + attention / 2,
              1e-9 * flops);
  const Json without = program.report({"bench", "train", llama("a"), "--sequence", "32", "--steps", "2"});
  EXPECT_TRUE(without.at("profile").is_null());
}

// The whole script on the strict driver, with the vendors' libraries, too: what it runs, what it stores, and what it
// reports.
class GpuCheck : public testing::TestWithParam<std::string> {};

TEST_P(GpuCheck, RunsResumesAndReports) {
  const Program program;
  make_home(program / "home");
  const fs::path out = program / "check";
  const std::string device = GetParam();
  const std::string settings = std::string("devices=1,arch=") + (device == "cuda:0" ? "sm_90" : "gfx942");
  const auto check = [&](const std::string& words) {
    const std::string command =
        on_strict_driver({.settings = settings, .libraries = true}) + "INGOT_HOME=" + (program / "home").string() +
        " INGOT_EXECUTABLE=" + ingot_with_test_code + " INGOT_COMMIT=tested INGOT_PYTHON=/nowhere " +
        std::string(source_root) + "/tools/gpu_check " + words + " --tiny --device " + device + " --out " +
        out.string() + " >" + (program / "output").string() + " 2>&1";
    return std::system(command.c_str());
  };
  ASSERT_EQ(check("parity"), 0) << read(program / "output");
  ASSERT_EQ(check("speed"), 0) << read(program / "output");
  ASSERT_EQ(check("peers"), 0) << read(program / "output");
  const std::vector<Json> lines = results_of(out / "results.jsonl");
  std::map<std::string, std::string> status;
  for (const Json& line : lines) {
    status[line.at("piece")] = line.at("status");
    EXPECT_EQ(line.at("commit"), "tested");
    EXPECT_EQ(line.at("device"), device);
    if (line.at("piece") != "devices" || device == "cpu") continue;
    const Json& gemms = line.at("result").at("devices").back().at("products");
    EXPECT_GE(gemms.size(), 15);
    int by_library = 0;
    for (const Json& gemm : gemms) {
      EXPECT_NE(gemm.at("algorithm").is_null(), gemm.at("declined").is_null()) << gemm;
      by_library += gemm.at("algorithm").is_null() ? 0 : 1;
    }
    EXPECT_GE(by_library, 15) << gemms;
  }
  const std::map<std::string, std::string> expected = {{"devices", "finished"},
                                                       {"ops-0", "finished"},
                                                       {"models-llama", "finished"},
                                                       {"serving-llama", "finished"},
                                                       {"training-fp32", "finished"},
                                                       {"train-tiny", "finished"},
                                                       {"train-tiny-lora", "finished"},
                                                       {"train-tiny-lora-fp8", "finished"},
                                                       {"train-tiny-fp16", "refused"},
                                                       {"decode-tiny", "finished"},
                                                       {"kernels-tiny", "finished"},
                                                       {"torch", "not there"},
                                                       {"decode-tiny-streams-3", "finished"},
                                                       {"decode-tiny-streams-3-adapters-2", "finished"},
                                                       {"decode-tiny-alternating", "finished"}};
  EXPECT_EQ(status, expected) << read(program / "output");
  EXPECT_TRUE(fs::exists(out / "training-fp32.svg"));

  // Finished parts are not repeated; refused parts are tried again.
  ASSERT_EQ(check("parity"), 0);
  ASSERT_EQ(check("speed"), 0);
  EXPECT_EQ(results_of(out / "results.jsonl").size(), lines.size() + 1);
  // Without time left, the script leaves everything for the next call and says so.
  fs::rename(out / "results.jsonl", out / "kept.jsonl");
  ASSERT_EQ(check("parity --seconds 0"), 0);
  for (const Json& line : results_of(out / "results.jsonl")) EXPECT_EQ(line.at("status"), "skipped");
  fs::rename(out / "kept.jsonl", out / "results.jsonl");

  ASSERT_EQ(check("report --name found"), 0) << read(program / "output");
  const Json merged = Json::parse(read(out / "found.json"));
  EXPECT_EQ(merged.at("pieces").size(), expected.size());
  const std::string page = read(out / "found.md");
  for (const char* words :
       {"# GPU check of ", "| llama | fp32 | yes |", "| llama | in company bf16 | yes |", "| moved | fp32 | 6 | 3 |",
        "| tiny-lora |", "| tiny-streams-3-adapters-2 | 3 | 2 |", "| tiny-alternating | ", "| rope |",
        "| tiny-lora-fp8 |", "| train-tiny-fp16 | refused |", "| torch | not there |"}) {
    EXPECT_NE(page.find(words), std::string::npos) << "'" << words << "' not found in:\n" << page;
  }
}

// Stand-ins for NVIDIA's tools run the command that follows their options.
void write_tools(const fs::path& folder) {
  fs::create_directories(folder);
  write(folder / "compute-sanitizer",
        "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift 2; done\n[[ \" $* \" != *\" adamw \"* ]] || code=99\n"
        "\"$@\" && exit ${code-0}\n");
  write(folder / "ncu", R"x(#!/bin/bash
while [[ $1 == --* ]]; do
  case $1 in --csv) shift ;; --log-file) log=$2; shift 2 ;; *) shift 2 ;; esac
done
cat >"$log" <<'TEXT'
==PROF== Connected
"ID","Kernel Name","Block Size","Grid Size","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","%","ns","register/thread","%","%"
"0","rope(Args)","(256, 1, 1)","(8, 1, 1)","10.5","2,000","32","20","30"
"1","gemm(Args)","(256, 1, 1)","(9, 1, 1)","40","1,500,000","128","50","60"
"2","rope(Args)","(256, 1, 1)","(8, 1, 1)","11.5","3,000","32","21","31"
TEXT
exec "$@"
)x");
  for (const char* name : {"compute-sanitizer", "ncu"})
    fs::permissions(folder / name, fs::perms::owner_exec, fs::perm_options::add);
}

TEST_P(GpuCheck, TheFirstDayIsOneCall) {
  const Program program;
  make_home(program / "home");
  write_tools(program / "tools");
  const fs::path out = program / "check";
  const std::string device = GetParam();
  const std::string settings = std::string("devices=1,arch=") + (device == "cuda:0" ? "sm_90" : "gfx942");
  const std::string command = on_strict_driver({.settings = settings}) + "PATH=" + (program / "tools").string() +
                              ":$PATH INGOT_HOME=" + (program / "home").string() +
                              " INGOT_EXECUTABLE=" + ingot_with_test_code + " INGOT_COMMIT=tested " +
                              std::string(source_root) + "/tools/gpu_check first --tiny --device " + device +
                              " --out " + out.string() + " >" + (program / "output").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read(program / "output");
  std::map<std::string, std::string> status;
  for (const Json& line : results_of(out / "results.jsonl")) {
    status[line.at("piece")] = line.at("status");
    if (line.at("piece") != "devices" || device == "cpu") continue;
    for (const Json& gemm : line.at("result").at("devices").back().at("products")) {  // without a vendor's library
      EXPECT_NE(gemm.at("declined").get<std::string>().find("/nowhere"), std::string::npos) << gemm;
      EXPECT_TRUE(gemm.at("algorithm").is_null());
    }
  }
  for (const char* piece : {"devices", "paper", "ops-0", "train-tiny-lora", "longest-kernels"})
    EXPECT_EQ(status[piece], "finished") << piece << read(program / "output");
  for (const char* piece : {"memcheck-0", "racecheck-0"}) EXPECT_EQ(status[piece], "wrong") << "faults were reported";
  const std::string page = read(out / "first.md");
  for (const char* words : {"## Profile of train-tiny-lora", "## Ops under compute-sanitizer's racecheck",
                            "| gemm(Args) | (9, 1, 1) | 1 | 1.5000 | 40.0 | 50.0 | 60.0 | 128 |\n"
                            "| rope(Args) | (8, 1, 1) | 2 | 0.0030 | 11.5 | 21.0 | 31.0 | 32 |\n",
                            "| memcheck-0 | wrong |"}) {
    EXPECT_NE(page.find(words), std::string::npos) << "'" << words << "' not found in:\n" << page;
  }
}

// In the sanitizer builds smaller tests cover the simulation.
INSTANTIATE_TEST_SUITE_P(Devices, GpuCheck,
                         testing::ValuesIn(sanitized ? std::vector<std::string>{"cpu"}
                                                     : std::vector<std::string>{"cuda:0", "hip:0"}),
                         [](const auto& info) { return info.param.substr(0, info.param.find(':')); });

// A step's losses and gradient norms are compared with the CPU's after updates by the optimizer.
TEST(Bench, TrainsWithEveryOptimizerAndTypeOfState) {
  const Program program;
  const std::string model = make_text_model(program, false);
  std::map<std::string, int64_t> bytes;
  for (const char* optimizer : {"adamw", "muon", "sgd", "lion"}) {
    for (const char* state : {"fp32", "int8"}) {
      const Json report = program.report({"bench", "train", model, "--device", "sim32", "--sequence", "16", "--warmup",
                                          "1", "--steps", "2", "--optimizer", optimizer, "--state-dtype", state});
      EXPECT_EQ(report.at("optimizer"), optimizer);
      EXPECT_EQ(report.at("state"), state);
      const auto& check = report.at("check");
      EXPECT_NE(check.at("cpu").at(0), check.at("cpu").at(4)) << optimizer << " moves no weight";
      bytes[std::string(optimizer) + " " + state] = report.at("state_bytes").get<int64_t>();
    }
  }
  EXPECT_NEAR(static_cast<double>(bytes["adamw fp32"]), 2.0 * static_cast<double>(bytes["sgd fp32"]), 1);
  for (const char* optimizer : {"adamw", "muon", "sgd", "lion"}) {
    EXPECT_LT(bytes[std::string(optimizer) + " int8"], bytes[std::string(optimizer) + " fp32"]) << optimizer;
  }
  const Json alias = program.report({"bench", "train", model, "--sequence", "16", "--warmup", "1", "--steps", "2",
                                     "--threads", "1", "--state", "bf16"});
  EXPECT_EQ(alias.at("state"), "bf16");
}

}  // namespace
}  // namespace ingot::e2e
