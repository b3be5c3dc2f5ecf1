// A model whose weights are finite but overflow in computation: the run continues, skips the updates, and names the
// layer and op where it happened. (Weights that are not finite are refused at loading: tests/checkpoint.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>

#include "formats/safetensors.h"
#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

// Sets every bf16 element of a tensor in a file.
void set_bf16(const std::filesystem::path& file, const std::string& tensor, uint16_t bits) {
  std::string bytes = read(file);
  const formats::SafetensorsFile parsed(std::as_bytes(std::span(bytes.data(), bytes.size())), file.string());
  const formats::TensorEntry& entry = parsed.at(tensor);
  ASSERT_EQ(entry.dtype, "BF16");
  const auto at = static_cast<size_t>(entry.bytes.data() - reinterpret_cast<const std::byte*>(bytes.data()));
  for (size_t i = 0; i < entry.bytes.size(); i += sizeof bits) std::memcpy(bytes.data() + at + i, &bits, sizeof bits);
  write(file, bytes);
}

TEST(NonFinite, TheLayerAndTheOpAreNamed) {
  const Program program;
  const std::filesystem::path model = make_text_model(program, false);
  const std::string culprit = "model.layers.1.mlp.up_proj.weight";
  set_bf16(model / "model.safetensors", culprit, 0x7F7F);  // the largest finite number
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"text\": \"A line that says something.\"}\n";
  write(program / "train.jsonl", text);
  write(program / "recipe.yaml",
        "name: run\nmodel: " + model.string() + "\nadapter: {rank: 2}\ndata: {train: " +
            (program / "train.jsonl").string() + ", eval: " + (program / "train.jsonl").string() +
            ", sequence_length: 64}\nsteps: 2\nbatch: {global: 2}\neval: {prompts: [A]}\nrun_dir: " +
            (program / "runs").string() + "\n");
  const Result result = program.run({"finetune", (program / "recipe.yaml").string()});
  EXPECT_EQ(result.code, 0) << result.error;
  int warnings = 0, skipped = 0, samples = 0;
  std::istringstream events(read(program / "runs" / "run" / "events.jsonl"));
  for (std::string line; std::getline(events, line);) {
    const Json event = Json::parse(line);
    if (event.at("type") == "step") skipped += event.at("skipped").get<bool>();
    if (event.at("type") != "warning") continue;
    const std::string message = event.at("message");
    if (message.find("not finite") == std::string::npos) continue;
    if (message.starts_with("a sample of eval.prompts is incomplete: ")) {
      ++samples;
      continue;
    }
    ++warnings;
    // The layer alone, or fused with the adapter's gemm.
    EXPECT_TRUE(message.find("from linear with " + culprit) != std::string::npos ||
                message.find("from linear_low_rank with " + culprit) != std::string::npos)
        << message;
  }
  EXPECT_EQ(skipped, 2);
  EXPECT_EQ(warnings, 2);
  EXPECT_EQ(samples, 2);  // before and after training
  EXPECT_NE(result.error.find(culprit), std::string::npos) << result.error;
  // Nothing was trained: the adapter's B is still zero.
  const formats::SafetensorsFile adapter((program / "runs/run/adapter/adapter_model.safetensors").string());
  for (const formats::TensorEntry& entry : adapter.entries()) {
    if (entry.name.find("lora_B") == std::string::npos) continue;
    EXPECT_TRUE(std::all_of(entry.bytes.begin(), entry.bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace ingot::e2e
