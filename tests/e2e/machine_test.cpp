// devices, doctor, init, recipe schema, and the command line itself.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

TEST(CommandLine, PrintsHelpAndVersion) {
  const Program program;
  const Result help = program.run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"devices", "doctor", "init", "model", "tokenize", "render", "score", "eval", "generate",
                              "chat", "pretrain", "finetune", "recipe"}) {
    EXPECT_NE(help.output.find(std::string("\n  ") + command + " "), std::string::npos) << command;
    const Result of_command = program.run({command, "--help"});
    EXPECT_EQ(of_command.code, 0) << command;
    EXPECT_NE(of_command.output.find("Example:\n  ingot "), std::string::npos) << command;
  }
  for (const char* command : {"pull", "list", "inspect", "convert", "merge"}) {
    EXPECT_NE(program.run({"model", command, "--help"}).output.find("Example:\n  ingot model "), std::string::npos);
  }
  EXPECT_EQ(program.run({"--version"}).code, 0);
}

TEST(CommandLine, UnknownCommandsAndOptionsAreErrors) {
  const Program program;
  program.refuses({"frobnicate"}, 2, "'frobnicate' is not a command");
  program.refuses({"model", "frobnicate"}, 2, "'frobnicate' is not a command");
  EXPECT_NE(program.run({"genrate"}).error.find("did you mean 'generate'?"), std::string::npos);
  program.refuses({}, 2, "ubcommand");
  program.refuses({"score", "--modle", "x"}, 2, "'--modle' is not an option of score");
  EXPECT_NE(program.run({"score", "--modle", "x"}).error.find("did you mean '--model'?"), std::string::npos);
  program.refuses({"model", "inspect", "x", "--hsh"}, 2, "'--hsh' is not an option of inspect");
  program.refuses({"score", "--model", llama("a"), "--ids", "1,2", "--frob"}, 2, "--frob");
  program.refuses({"generate", "--model"}, 2, "--model");
}

TEST(Devices, ReportsItsFields) {
  const Program program;
  const Json report = program.report({"devices", "--seconds", "0.2"});
  const auto built_for = report.at("built_for").get<std::vector<std::string>>();
  for (const char* always : {"cpu", "sim32", "sim64"}) EXPECT_EQ(std::ranges::count(built_for, always), 1) << always;
  ASSERT_GE(report.at("devices").size(), 1);
  const Json& cpu = report["devices"][0];
  EXPECT_EQ(cpu.at("name"), "cpu");
  EXPECT_EQ(cpu.at("kind"), "cpu");
  EXPECT_TRUE(cpu.at("arch").is_string());
  EXPECT_GT(cpu.at("memory_bytes").get<int64_t>(), 0);
  for (const char* rate :
       {"peak_tflops", "peak_bf16_tflops", "peak_f32_tflops", "gemm_bf16_tflops", "gemm_f32_tflops", "read_gb_s"}) {
    EXPECT_GT(cpu.at(rate).get<double>(), 0) << rate;
  }
  // For each vendor there is a device, or the reason why there is none.
  for (const char* kind : {"cuda", "hip"}) {
    const auto is = [&](const char* key) { return [=](const Json& each) { return each.at(key) == kind; }; };
    const auto reason = std::ranges::find_if(report.at("unavailable"), is("backend"));
    if (std::ranges::none_of(report.at("devices"), is("kind"))) {
      ASSERT_NE(reason, report.at("unavailable").end()) << kind;
      EXPECT_NE(reason->at("reason"), "");
    }
  }
  // The same holds for the vendors' libraries.
  std::vector<std::string> libraries;
  for (const Json& library : report.at("libraries")) {
    libraries.push_back(library.at("name"));
    const std::string path = library.at("path"), reason = library.at("reason");
    EXPECT_NE(path.empty(), reason.empty()) << library;
  }
  EXPECT_EQ(libraries, (std::vector<std::string>{"cuBLASLt", "cuDNN", "hipBLASLt", "NCCL", "RCCL"}));
  program.refuses({"devices", "--seconds", "0"}, 2, "--seconds");
}

// Vendor drivers and libraries are loaded on demand: the executable starts on a machine without them.
TEST(Devices, ExecutableLinksNoVendorLibrary) {
  FILE* pipe = popen((std::string("ldd ") + ingot_executable).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string needed;
  char part[4096];
  while (const size_t bytes = fread(part, 1, sizeof part, pipe)) needed.append(part, bytes);
  ASSERT_EQ(pclose(pipe), 0);
  EXPECT_NE(needed.find("libc.so"), std::string::npos) << needed;
  for (const char* vendor :
       {"libcuda", "libcublas", "libcudnn", "libnvrtc", "libnccl", "libamdhip", "libhip", "librccl"}) {
    EXPECT_EQ(needed.find(vendor), std::string::npos) << needed;
  }
}

TEST(Doctor, FindsABrokenModel) {
  const Program program;
  const std::string runs = (program / "runs").string();
  const Json healthy = program.report({"doctor", "--run-dir", runs});
  EXPECT_EQ(healthy.at("ok"), true);
  EXPECT_FALSE(healthy.at("findings").empty());
  program.report({"model", "pull", llama("a"), "--name", "tiny", "--copy"});
  EXPECT_EQ(program.report({"doctor", "--run-dir", runs}).at("ok"), true);
  fs::remove(program / "home/models/tiny/model.safetensors");
  const Result result = program.run({"doctor", "--run-dir", runs, "--json"});
  EXPECT_EQ(result.code, 5);
  const Json sick = json_of(result);
  EXPECT_EQ(sick.at("ok"), false);
  bool found = false;
  for (const Json& finding : sick.at("findings")) {
    if (finding.at("status") != "fail") continue;
    found = true;
    EXPECT_EQ(finding.at("check"), "models");
    EXPECT_NE(finding.at("message").get<std::string>().find("model.safetensors"), std::string::npos);
    EXPECT_NE(finding.at("advice").get<std::string>().find("ingot model pull"), std::string::npos);
  }
  EXPECT_TRUE(found);
}

TEST(RecipeSchema, IsJsonSchema) {
  const Program program;
  const Result result = program.run({"recipe", "schema"});
  EXPECT_EQ(result.code, 0);
  const Json schema = json_of(result);
  EXPECT_TRUE(schema.at("properties").contains("data"));
  EXPECT_EQ(schema.at("additionalProperties"), false);
}

// A measurement is stored with its date, and repeated on request.
TEST(Devices, AreMeasuredOnce) {
  const Program program;
  fs::create_directory(program / "home");  // with rates of its own
  const auto cpu = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"devices", "--seconds", "0.2"});
    return program.report(more).at("devices").at(0);
  };
  const Json first = cpu({});
  EXPECT_EQ(first.at("cached"), true);
  const auto rates = [](const Json& device) {
    return std::tuple(device.at("peak_tflops"), device.at("peak_f32_tflops"), device.at("gemm_bf16_tflops"),
                      device.at("gemm_f32_tflops"), device.at("read_gb_s"), device.at("measured"));
  };
  EXPECT_EQ(rates(cpu({})), rates(first));
  // Sets an old date.
  const fs::path folder = program / "home/rates";
  for (const auto& entry : fs::directory_iterator(folder)) {
    Json cached_rates = Json::parse(read(entry.path()));
    cached_rates["date"] = "2020-01-01T00:00:00Z";
    write(entry.path(), cached_rates.dump());
  }
  EXPECT_EQ(cpu({}).at("measured").at("f32"), "2020-01-01T00:00:00Z");
  const Result words = program.run({"devices"});
  EXPECT_NE(words.output.find("as measured 2020-01-01T00:00:00Z"), std::string::npos) << words.output;
  EXPECT_NE(cpu({"--measure"}).at("measured").at("f32"), "2020-01-01T00:00:00Z");
}

// Where rates cannot be stored, they are measured each time, and the reason is reported.
TEST(Devices, ReportWhyRatesAreNotCached) {
  const Program program;
  fs::create_directory(program / "home");
  write(program / "home/rates", "no folder");
  const Json cpu = program.report({"devices", "--seconds", "0.2"}).at("devices").at(0);
  EXPECT_EQ(cpu.at("cached"), false);
  EXPECT_NE(cpu.at("not_cached").get<std::string>().find("home/rates"), std::string::npos) << cpu.at("not_cached");
  const Result words = program.run({"devices", "--seconds", "0.2"});
  EXPECT_NE(words.output.find("these rates are not cached: "), std::string::npos) << words.output;
}

// `ingot init` and `ingot bench` compare with cached rates; `init` and `bench train` print when they were measured.
TEST(Devices, OtherCommandsUseAndDateCachedRates) {
  const Program program;
  fs::create_directory(program / "home");  // with rates of its own
  program.report({"devices", "--seconds", "0.2", "--threads", "1"});
  for (const auto& entry : fs::directory_iterator(program / "home/rates")) {
    Json cached_rates = Json::parse(read(entry.path()));
    for (Json& value : cached_rates["values"]) value = 4e18;
    cached_rates["date"] = "2020-01-01T00:00:00Z";
    write(entry.path(), cached_rates.dump());
  }
  const std::string model = make_text_model(program, false), data = (program / "a.jsonl").string();
  write(data, "{\"text\": \"A line.\"}\n");
  const Result init = program.run(
      {"init", data, "--model", model, "--threads", "1", "--out", (program / "recipe.yaml").string(), "--json"});
  EXPECT_EQ(json_of(init).at("rates_measured"), "2020-01-01T00:00:00Z");
  EXPECT_NE(read(program / "recipe.yaml").find("as measured 2020-01-01T00:00:00Z"), std::string::npos);
  const std::vector<std::string> train = {"bench", "train",    model, "--sequence", "16", "--threads",
                                          "1",     "--warmup", "1",   "--steps",    "2"};
  const Result trained = program.run(train);
  EXPECT_EQ(trained.code, 0) << trained.error;
  EXPECT_NE(trained.output.find("measured 2020-01-01T00:00:00Z"), std::string::npos) << trained.output;
  const Json ops = program.report({"bench", "op", "rms_norm", "--seconds", "0.001", "--threads", "1"});
  for (const char* rate : {"peak_bf16_gflops", "peak_f32_gflops", "read_gb_s"}) EXPECT_EQ(ops.at(rate), 4e9) << rate;
}

// A run is compared with the stored rates, whatever the machine's speed is now.
TEST(Devices, ARunIsComparedWithCachedRates) {
  const Program program;
  fs::create_directory(program / "home");  // with rates of its own
  write(program / "train.jsonl", "{\"text\": \"A line.\"}\n");
  const std::string model = make_text_model(program, false);
  const auto train = [&](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"pretrain", (program / "recipe.yaml").string(), "name=" + name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = program.run(arguments);
    EXPECT_EQ(result.code, 0) << result.error;
    return std::pair(result, events_of(program / "runs" / name, "start").at(0));
  };
  write(program / "recipe.yaml",
        "name: run\nmodel: " + model + "\ninit: random\ndata: {train: " + (program / "train.jsonl").string() +
            ", eval: " + (program / "train.jsonl").string() +
            ", sequence_length: 16}\nsteps: 2\nbatch: {global: 1}\nthreads: 1\ndevice: cpu\n" +
            "eval: {prompts: [A], sample_tokens: 2}\nrun_dir: " + (program / "runs").string() + "\n");
  train("first");
  for (const auto& entry : fs::directory_iterator(program / "home/rates")) {
    Json cached_rates = Json::parse(read(entry.path()));
    cached_rates["values"] = {4e18, 3e18};
    cached_rates["date"] = "2020-01-01T00:00:00Z";
    write(entry.path(), cached_rates.dump());
  }
  const auto [result, start] = train("second");
  EXPECT_EQ(start.at("peak_tflops"), 4e6);
  EXPECT_EQ(start.at("gemm_tflops"), 3e6);
  EXPECT_EQ(start.at("rates_measured"), "2020-01-01T00:00:00Z");
  EXPECT_NE(result.error.find("as measured 2020-01-01T00:00:00Z"), std::string::npos) << result.error;
  EXPECT_NE(result.output.find("measured 2020-01-01T00:00:00Z"), std::string::npos) << result.output;
  // Seven characters and the end token; the rest of the sixteen positions is padding.
  const Json step = events_of(program / "runs/second", "step").at(0);
  const int64_t tokens = step.at("tokens");
  EXPECT_LT(tokens, 16);
  EXPECT_DOUBLE_EQ(step.at("padding"), 1 - static_cast<double>(tokens) / 16);
  const double more = step.at("hfu").get<double>() / step.at("mfu").get<double>();  // HFU counts padding
  EXPECT_GT(more, 1);
  EXPECT_LT(more, 16.0 / static_cast<double>(tokens));  // attention over padding costs less
  EXPECT_NEAR(step.at("tokens_per_s").get<double>() * step.at("step_s").get<double>(), static_cast<double>(tokens),
              1e-6);
  EXPECT_NE(result.output.find("% of what was computed, not in the speed"), std::string::npos) << result.output;
  // The model FLOPs of a step are those of its tokens, whatever the padded length.
  train("unpadded", {"data.sequence_length=8"});
  const Json unpadded = events_of(program / "runs/unpadded", "step").at(0);
  EXPECT_EQ(unpadded.at("tokens"), tokens);
  EXPECT_EQ(unpadded.at("padding"), 0);
  EXPECT_EQ(unpadded.at("hfu"), unpadded.at("mfu"));
  const auto flops = [](const Json& e) { return e.at("tflops").get<double>() * e.at("step_s").get<double>(); };
  EXPECT_DOUBLE_EQ(flops(unpadded), flops(step));
  // Pretraining starts from random weights: samples are labelled before and after, not base and tuned.
  EXPECT_NE(result.output.find("\nprompt: A\n  before: "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\n  after:  "), std::string::npos) << result.output;
}

// One of several ranks must not replace the stored measurement by its own.
TEST(Devices, ARunOfSeveralRanksKeepsCachedRates) {
  const Program program;
  fs::create_directory(program / "home");  // with rates of its own
  write(program / "train.jsonl", "{\"text\": \"A line.\"}\n");
  const std::string model = make_text_model(program, false);
  const auto train = [&](int ranks) {
    const std::string number = std::to_string(ranks);
    write(program / "recipe.yaml", "name: run" + number + "\nmodel: " + model +
                                       "\ninit: random\ndata: {train: " + (program / "train.jsonl").string() +
                                       ", sequence_length: 16}\nsteps: 2\nbatch: {global: 2}\nthreads: 2\n" +
                                       "device: cpu\nparallel: {dp: " + number +
                                       "}\nrun_dir: " + (program / "runs").string() + "\n");
    const Result result = program.run({"pretrain", (program / "recipe.yaml").string()});
    EXPECT_EQ(result.code, 0) << result.error;
    return result.error.find("measured again") != std::string::npos;
  };
  for (const int ranks : {1, 2}) {
    train(ranks);
    for (const auto& entry : fs::directory_iterator(program / "home/rates")) {
      Json cached_rates = Json::parse(read(entry.path()));
      cached_rates["values"] = {1e3, 1e3};  // which any step exceeds
      write(entry.path(), cached_rates.dump());
    }
    fs::remove_all(program / "runs");
    EXPECT_EQ(train(ranks), ranks == 1);
  }
  int left = 0;
  for (const auto& entry : fs::directory_iterator(program / "home/rates")) {
    left += Json::parse(read(entry.path())).at("values") == Json({1e3, 1e3});
  }
  EXPECT_GT(left, 0);
}

// Documents that leave half of the shortest candidate length empty are packed into longer sequences.
TEST(Init, ChoosesTheSequenceLengthByPacking) {
  const Program program;
  const std::string model = make_text_model(program, false);
  Json config = Json::parse(read(fs::path(model) / "config.json"));
  config["max_position_embeddings"] = 4096;
  write(fs::path(model) / "config.json", config.dump());
  const auto init = [&](const std::string& name, const std::string& lines) {
    write(program / (name + ".jsonl"), lines);
    write(program / (name + ".heldout.jsonl"), lines);
    return program.report({"init", (program / (name + ".jsonl")).string(), "--model", model, "--eval",
                           (program / (name + ".heldout.jsonl")).string(), "--out",
                           (program / (name + ".yaml")).string()});
  };
  std::string lines;
  for (int i = 0; i < 57; ++i) {
    lines += R"({"prompt": ")" + std::string(30, 'q') + R"(", "completion": ")" + std::string(40, 'a') + "\"}\n";
  }
  const Json chats = init("chats", lines);  // of slightly more than 70 characters
  EXPECT_GT(chats.at("sequence_length"), 128);
  EXPECT_LT(chats.at("padding"), 0.2);
  const std::string recipe = read(program / "chats.yaml");
  EXPECT_NE(recipe.find("# Packing: "), std::string::npos) << recipe;
  EXPECT_NE(recipe.find("warmup: 5%"), std::string::npos) << recipe;
  EXPECT_NE(recipe.find("minutes: 5"), std::string::npos) << recipe;
  // Documents that fill the shortest candidate length well keep it.
  lines.clear();
  for (int i = 0; i < 200; ++i) {
    lines += R"({"prompt": ")" + std::string(60, 'q') + R"(", "completion": ")" + std::string(60, 'a') + "\"}\n";
  }
  EXPECT_EQ(init("long", lines).at("sequence_length"), 128);
  // A text of two tokens is not padded to a thousand; one of more than a thousand is not truncated.
  EXPECT_EQ(init("two", "{\"text\": \"a\"}\n").at("sequence_length"), 128);
  EXPECT_EQ(init("text", "{\"text\": \"" + std::string(100'000, 'a') + "\"}\n").at("sequence_length"), 1024);
  // The warm-up is never longer than the run.
  const Result dry = program.run({"finetune", (program / "chats.yaml").string(), "steps=8", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.error;
}

// `ingot init` writes a recipe that a dry run accepts.
TEST(Init, WritesARecipe) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const std::string data = (program / "qa.jsonl").string(), recipe = (program / "recipe.yaml").string();
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += R"({"prompt": "What is this?", "completion": "A line."})"
             "\n";
  write(data, lines);
  const Json report = program.report({"init", data, "--model", model, "--out", recipe});
  EXPECT_EQ(report.at("recipe"), recipe);
  EXPECT_EQ(report.at("documents"), 48);  // every 20th document is held out
  EXPECT_EQ(report.at("format"), "completion");
  EXPECT_EQ(report.at("tokens"), 48 * (13 + 7 + 1));
  EXPECT_EQ(report.at("counted"), 48 * 8);
  EXPECT_EQ(report.at("train"), (program / "qa.train.jsonl").string());
  EXPECT_EQ(report.at("eval"), (program / "qa.heldout.jsonl").string());
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 50);
  const std::string train = read(program / "qa.train.jsonl"), held_out = read(program / "qa.heldout.jsonl");
  EXPECT_EQ(std::count(train.begin(), train.end(), '\n'), 48);
  EXPECT_EQ(std::count(held_out.begin(), held_out.end(), '\n'), 2);
  EXPECT_GT(report.at("seconds").get<double>(), 0);
  EXPECT_GT(report.at("memory_bytes").get<int64_t>(), 0);
  EXPECT_TRUE(read(recipe).starts_with("# Written by ingot init"));
  const Result dry = program.run({"finetune", recipe, "--dry-run", "run_dir=" + (program / "runs").string()});
  EXPECT_EQ(dry.code, 0) << dry.error;
  EXPECT_NE(dry.output.find("qa.heldout.jsonl"), std::string::npos) << dry.output;
  EXPECT_NE(dry.error.find("held-out data: 2 documents"), std::string::npos) << dry.error;
  program.refuses({"init", data, "--model", model, "--out", recipe}, 2, "already exists");
  // The first split is not overwritten; its parts are found by their names.
  const std::string again = (program / "again.yaml").string();
  program.refuses({"init", data, "--model", model, "--out", again}, 2, "qa.train.jsonl already exists");
  const Json found = program.report({"init", report.at("train"), "--model", model, "--out", again});
  EXPECT_EQ(found.at("eval"), report.at("eval"));
  EXPECT_EQ(found.at("documents"), 48);
}

// A text is split between two lines and nothing is lost.
TEST(Init, HoldsOutTheEndOfAText) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const std::string data = (program / "book.txt").string(), recipe = (program / "recipe.yaml").string();
  std::string text;
  for (int i = 0; i < 200; ++i) text += "Line " + std::to_string(i) + " of the book.\n";
  write(data, text);
  const Json report = program.report({"init", data, "--model", model, "--out", recipe});
  const std::string train = read(report.at("train")), held_out = read(report.at("eval"));
  EXPECT_EQ(train + held_out, text);
  EXPECT_GT(held_out.size(), text.size() / 20 - 1);
  EXPECT_LT(held_out.size(), text.size() / 20 + 30);  // at most one line more
  EXPECT_EQ(program.run({"finetune", recipe, "--dry-run"}).code, 0);
}

TEST(Init, UsesExistingHeldOutDataAndWarnsWithoutAny) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const auto path = [&](const char* name) { return (program / name).string(); };
  const std::string line = "{\"text\": \"A line that is long enough to learn from.\"}\n";
  for (const char* name : {"chat.jsonl", "chat_heldout.jsonl", "other.jsonl", "alone.jsonl"}) write(path(name), line);
  const auto eval_of = [&](std::vector<std::string> arguments, const char* recipe) {
    arguments.insert(arguments.end(), {"--model", model, "--out", path(recipe)});
    return program.report(arguments).at("eval");
  };
  EXPECT_EQ(eval_of({"init", path("chat.jsonl")}, "1.yaml"), path("chat_heldout.jsonl"));
  EXPECT_EQ(eval_of({"init", path("chat.jsonl"), "--eval", path("other.jsonl")}, "2.yaml"), path("other.jsonl"));
  EXPECT_EQ(eval_of({"init", path("alone.jsonl")}, "3.yaml"), nullptr);
  EXPECT_NE(read(path("3.yaml")).find("Nothing is held out"), std::string::npos);
  program.refuses({"init", path("chat.jsonl"), "--eval", path("gone.jsonl"), "--model", model, "--out", path("4.yaml")},
                  3, "gone.jsonl");
}

TEST(Init, ErrorsNameTheFault) {
  const Program program;
  const std::string data = (program / "qa.jsonl").string(), recipe = (program / "recipe.yaml").string();
  write(data, "{\"prompt\": 1}\n");
  const std::string model = make_text_model(program, true);
  program.refuses({"init", data, "--out", recipe}, 2, "--model is needed");
  program.refuses({"init", data, "--model", model, "--out", recipe}, 3, "qa.jsonl");
  program.refuses({"init", (program / "gone.jsonl").string(), "--model", model, "--out", recipe}, 3, "gone.jsonl");
  EXPECT_FALSE(fs::exists(recipe));
}

// A failure after the split removes the split files.
TEST(Init, AFailureLeavesNoFiles) {
  const Program program;
  const std::string model = make_text_model(program, false);  // no chat template
  const std::string data = (program / "talk.jsonl").string(), recipe = (program / "recipe.yaml").string();
  std::string lines;
  for (int i = 0; i < 30; ++i) {
    lines += R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})"
             "\n";
  }
  write(data, lines);
  const Result result = program.run({"init", data, "--model", model, "--out", recipe});
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.error.find("chat template"), std::string::npos) << result.error;
  for (const char* name : {"recipe.yaml", "talk.train.jsonl", "talk.heldout.jsonl"}) {
    EXPECT_FALSE(fs::exists(program / name)) << name;
  }
}

}  // namespace
}  // namespace ingot::e2e
