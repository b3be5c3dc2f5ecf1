// score and eval against the logits of transformers (tests/golden/llama).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/npy.h"
#include "formats/safetensors.h"
#include "tensor/tolerance.h"
#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

template <class T>
std::vector<T> values(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The first packed sequence of a golden model: ids, and the logits [T, V] of transformers.
struct Golden {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  size_t vocab;

  Golden(const std::string& shape, const char* file) {
    const formats::SafetensorsFile state(llama(shape) + "/state.safetensors");
    const formats::SafetensorsFile expected(llama(shape) + "/" + file);
    const size_t tokens = static_cast<size_t>(values<int32_t>(state.at("cu_seqlens").bytes)[1]);
    ids = values<int32_t>(state.at("ids").bytes);
    ids.resize(tokens);
    vocab = static_cast<size_t>(expected.at("logits").shape[1]);
    logits = values<float>(expected.at("logits").bytes);
    logits.resize(tokens * vocab);
  }
  double logprob(size_t row, int32_t id) const {
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[row * vocab + v]));
    return static_cast<double>(logits[row * vocab + static_cast<size_t>(id)]) - std::log(sum);
  }
  std::string id_list() const { return fmt::format("{}", fmt::join(ids, ",")); }
};

// Two blocks of hidden size up to 64 and MLP size 96, and the head: at most 16 sums of 96 terms in sequence.
const double score_bound = tolerance(DType::f32, 16 * 96);

void expect_score(const std::string& shape, const char* file, std::vector<std::string> more) {
  const Program program;
  const Golden golden(shape, file);
  const std::string npy = (program / "logits.npy").string();
  std::vector<std::string> arguments = {"score",   "--model", llama(shape),   "--ids", golden.id_list(),
                                        "--dtype", "fp32",    "--logits-out", npy};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Json report = program.report(arguments);
  ASSERT_EQ(report.at("tokens").size(), golden.ids.size());
  EXPECT_TRUE(report["tokens"][0]["logprob"].is_null());
  double sum = 0;
  for (size_t t = 0; t < golden.ids.size(); ++t) {
    EXPECT_EQ(report["tokens"][t]["id"], golden.ids[t]);
    EXPECT_TRUE(report["tokens"][t]["text"].is_null());
    if (t == 0) continue;
    const double expected = golden.logprob(t - 1, golden.ids[t]);
    EXPECT_NEAR(report["tokens"][t]["logprob"].get<double>(), expected, score_bound * std::abs(expected)) << t;
    sum += expected;
  }
  const double loss = -sum / static_cast<double>(golden.ids.size() - 1);
  EXPECT_NEAR(report.at("loss").get<double>(), loss, score_bound * loss);
  EXPECT_NEAR(report.at("perplexity").get<double>(), std::exp(loss), 2 * score_bound * loss * std::exp(loss));

  const formats::NpyFile file_of_logits(npy);
  EXPECT_EQ(file_of_logits.dtype(), "f4");
  EXPECT_EQ(file_of_logits.shape(),
            (std::vector<int64_t>{static_cast<int64_t>(golden.ids.size()), static_cast<int64_t>(golden.vocab)}));
  const std::vector<float> found = values<float>(file_of_logits.bytes());
  ASSERT_EQ(found.size(), golden.logits.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - static_cast<double>(golden.logits[i]);
    error += difference * difference;
    size += static_cast<double>(golden.logits[i]) * static_cast<double>(golden.logits[i]);
  }
  EXPECT_LT(std::sqrt(error / size), score_bound);
}

class Score : public testing::TestWithParam<const char*> {};

TEST_P(Score, AgreesWithTransformers) { expect_score(GetParam(), "state.safetensors", {}); }
TEST_P(Score, WithAnAdapterAgreesWithPeft) {
  expect_score(GetParam(), "lora.safetensors", {"--adapter", llama(GetParam()) + "/lora"});
}

INSTANTIATE_TEST_SUITE_P(Shapes, Score, testing::Values("a", "b", "c"), [](const auto& info) { return info.param; });

TEST(ScoreText, TokensHaveTheirText) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const Json report = program.report({"score", "--model", model, "--text", "Hi!"});
  ASSERT_EQ(report.at("tokens").size(), 3);
  EXPECT_EQ(report["tokens"][0]["text"], "H");
  EXPECT_EQ(report["tokens"][2]["text"], "!");
  EXPECT_LT(report["tokens"][2]["logprob"].get<double>(), 0);
}

TEST(ScoreText, OneTokenHasNoLoss) {
  const Program program;
  const Json report = program.report({"score", "--model", llama("a"), "--ids", "7"});
  EXPECT_TRUE(report.at("loss").is_null());
  EXPECT_TRUE(report.at("perplexity").is_null());
}

TEST(ScoreText, StoredAndConvertedWeightsScoreTheSame) {
  const Program program;
  const auto loss = [&](const char* weights) {
    return program
        .report(
            {"score", "--model", llama("a"), "--ids", "1,5,9,12,100", "--dtype", "fp32", "--weights", weights})["loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss("stored"), loss("fp32"), score_bound * loss("fp32"));
}

// int8 weights equal those of a q8_0 GGUF file; they are quantized at loading.
TEST(ScoreText, Int8WeightsScoreLikeAQ8File) {
  const Program program;
  const std::string file = (program / "m.gguf").string();
  program.report({"model", "convert", llama("a"), file, "--dtype", "q8_0"});
  const auto losses = [&](const std::string& model, const char* weights) {
    return program.report({"score", "--model", model, "--ids", "1,5,9,12,100", "--weights", weights});
  };
  EXPECT_EQ(losses(llama("a"), "int8")["tokens"], losses(file, "stored")["tokens"]);
  EXPECT_NE(losses(llama("a"), "int8")["tokens"], losses(llama("a"), "bf16")["tokens"]);
}

TEST(ScoreText, Int4WeightsScoreNearlyTheSame) {
  const Program program;
  const auto loss = [&](const std::string& model, const char* weights) {
    return program.report({"score", "--model", model, "--ids", "1,5,9,12,100", "--weights", weights})["loss"]
        .get<double>();
  };
  const double plain = loss(llama("a"), "bf16"), int4 = loss(llama("a"), "int4"), int8 = loss(llama("a"), "int8");
  EXPECT_NE(int4, int8);
  EXPECT_NEAR(int4, plain, 0.1 * plain);
}

// Rounding activations to 8 bits changes the loss a little, with an adapter as without, and as often as it is computed.
TEST(ScoreText, Int8ActivationsScoreNearlyTheSame) {
  const Program program;
  for (const std::string weights : {"int8", "int4"}) {
    for (const bool adapted : {false, true}) {
      const auto losses = [&](const std::string& compute) {
        std::vector<std::string> words = {"score",     "--model", llama("a"),  "--ids", "1,5,9,12,100",
                                          "--weights", weights,   "--compute", compute};
        if (adapted) words.insert(words.end(), {"--adapter", llama("a") + "/lora"});
        return program.report(words);
      };
      const Json rounded = losses("int8"), exact = losses("auto");
      EXPECT_NE(rounded["tokens"], exact["tokens"]);
      EXPECT_EQ(rounded["tokens"], losses("int8")["tokens"]);
      const double loss = exact["loss"].get<double>();
      EXPECT_NEAR(rounded["loss"].get<double>(), loss, 0.01 * loss) << weights;
    }
  }
}

// Rounding the matrices of blocks to e4m3 changes the loss a little.
TEST(ScoreText, Fp8WeightsScoreNearlyTheSame) {
  const Program program;
  const auto loss = [&](const char* weights) {
    return program.report({"score", "--model", llama("a"), "--ids", "1,5,9,12,100", "--weights", weights})["loss"]
        .get<double>();
  };
  EXPECT_NE(loss("fp8"), loss("bf16"));
  EXPECT_NEAR(loss("fp8"), loss("bf16"), 0.05 * loss("bf16"));
}

// The rounding error of fp16 is an eighth of bf16's.
TEST(ScoreText, Fp16IsNearerThanBf16) {
  const Program program;
  const auto losses = [&](const char* dtype) {
    return program.report({"score", "--model", llama("a"), "--ids", "1,5,9,12,100", "--dtype", dtype})["tokens"];
  };
  const auto off = [&](const Json& tokens, const Json& exact) {
    double sum = 0;
    for (size_t t = 1; t < exact.size(); ++t) {
      sum += std::abs(tokens[t]["logprob"].get<double>() - exact[t]["logprob"].get<double>());
    }
    return sum;
  };
  const Json exact = losses("fp32");
  EXPECT_LT(off(losses("fp16"), exact), off(losses("bf16"), exact));
  EXPECT_GT(off(losses("fp16"), exact), 0);
}

TEST(ScoreErrors, AreOneLineEach) {
  const Program program;
  const std::string a = llama("a");
  program.refuses({"score", "--model", a, "--ids", "1,200"}, 2, "token id 200 is outside the vocabulary of 131");
  program.refuses({"score", "--model", a, "--ids", "1,x"}, 2, "'x' is not a token id");
  program.refuses({"score", "--model", a, "--ids", ""}, 2, "is not a token id");
  program.refuses({"score", "--model", a}, 2, "exactly one of --text, --file and --ids");
  program.refuses({"score", "--model", a, "--ids", "1", "--text", "x"}, 2, "exactly one of");
  program.refuses({"score", "--model", a, "--text", "x"}, 3, "has no tokenizer");
  program.refuses({"score", "--model", (program / "gone").string(), "--ids", "1,2"}, 3, "gone");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--dtype", "fp8"}, 2, "--dtype 'fp8'");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--weights", "fp4"}, 2, "--weights 'fp4'");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--compute", "int4"}, 2, "--compute 'int4'");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--compute", "int8"}, 2, "has none in memory");
  program.refuses(
      {"score", "--model", a, "--ids", "1,2", "--weights", "int8", "--compute", "int8", "--device", "sim32"}, 2,
      "is for CPUs");
  program.refuses({"score", "--model", llama("b"), "--ids", "1,2", "--weights", "int8"}, 3,
                  "not a multiple of the q8_0 block size 32");
  program.refuses({"score", "--model", llama("b"), "--ids", "1,2", "--weights", "int4"}, 3, " block size 32");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--device", "cuda:999"}, 5, "cuda:999");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--device", "sim16"}, 2, "'sim16' is not known");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--threads", "0"}, 2, "0 threads");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--adapter", (program / "gone").string()}, 3, "gone");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--adapter", llama("b") + "/lora"}, 3, "lora");
  program.refuses({"score", "--model", a, "--ids", "1,2", "--logits-out", (program / "no/l.npy").string()}, 5, "l.npy");
  std::string ids = "1";
  for (int i = 0; i < 256; ++i) ids += ",1";
  program.refuses({"score", "--model", a, "--ids", ids}, 2, "257 tokens; the model's context is 256");
}

TEST(Eval, PerplexityIsTheScoreOfTheText) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const std::string data = (program / "data.jsonl").string();
  write(data, "{\"prompt\": \"abc\", \"completion\": \"de\"}\n");
  const Json report = program.report(
      {"eval", "--model", model, "--data", data, "--dtype", "fp32", "--sequence-length", "16", "--threads", "1"});
  EXPECT_EQ(report.at("tokens"), 3);  // d, e and the end token
  EXPECT_GT(report.at("seconds").get<double>(), 0);
  const Json score =
      program.report({"score", "--model", model, "--text", "abcde<|im_end|>", "--dtype", "fp32", "--threads", "1"});
  double sum = 0;
  for (size_t t = 3; t < 6; ++t) sum -= score["tokens"][t]["logprob"].get<double>();
  EXPECT_NEAR(report.at("loss").get<double>(), sum / 3, score_bound * sum / 3);
  EXPECT_NEAR(report.at("perplexity").get<double>(), std::exp(sum / 3), 2 * score_bound * sum * std::exp(sum / 3));
}

TEST(Eval, ErrorsNameTheFault) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const std::string data = (program / "data.txt").string();
  write(data, "some text");
  program.refuses({"eval", "--model", model, "--data", (program / "gone.jsonl").string()}, 3, "gone.jsonl");
  program.refuses({"eval", "--model", model, "--data", data, "--sequence-length", "257"}, 2, "context of 256");
  program.refuses({"eval", "--model", model, "--data", data, "--format", "poem"}, 2, "poem");
  program.refuses({"eval", "--model", llama("a"), "--data", data}, 3, "has no tokenizer");
  write(data, "");
  program.refuses({"eval", "--model", model, "--data", data}, 3, "data.txt");
}

}  // namespace
}  // namespace ingot::e2e
