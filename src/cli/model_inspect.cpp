// ingot model inspect: shows the contents of a model's files.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/strings.h"
#include "checkpoint/inspect.h"
#include "checkpoint/load.h"
#include "cli/command.h"
#include "cli/file_totals.h"
#include "cli/interrupt.h"
#include "formats/npy.h"

namespace ingot::cli {

namespace {

class ModelInspect : public Command {
 public:
  const char* name() const override { return "inspect"; }
  const char* summary() const override { return "describe a model, hash it, or extract a tensor"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("model", model_, "a Hugging Face folder, a .gguf file or a registered name");
    arguments.flag("hash", hash_,
                   "print the SHA-256 of all tensors (name, type, shape, bytes), independent of sharding");
    arguments.option("tensor", tensor_, "name of a tensor in the file, to write to --npy as fp32");
    arguments.option("npy", npy_, "the .npy file for --tensor");
    arguments.example("ingot model inspect model.gguf --tensor output_norm.weight --npy norm.npy");
  }

  int run(const Output& output) override {
    if (tensor_.has_value() != npy_.has_value()) {
      throw_error(ErrorKind::usage, "--tensor and --npy must be given together");
    }
    exit_on_interrupt();
    using Json = nlohmann::ordered_json;
    const checkpoint::ModelSource source = checkpoint::open_model(model_);
    const spec::ModelSpec spec = checkpoint::read_model_spec(source);
    const spec::Attention& attention = spec.layers.front().attention;
    // Of the first layer that has them, where layers differ.
    const std::vector<spec::LayerSpec>& layers = spec.layers;
    const auto rope = std::find_if(layers.begin(), layers.end(),
                                   [](const spec::LayerSpec& layer) { return layer.attention.rope.has_value(); });
    const auto experts = std::find_if(layers.begin(), layers.end(), [](const spec::LayerSpec& layer) {
      return spec::experts_of(layer.mlp) != nullptr;
    });
    const checkpoint::TensorStore store(source);
    const FileTotals files = file_totals(store);
    Json result = {{"name", source.name},
                   {"path", source.path.string()},
                   {"format", source.kind == checkpoint::SourceKind::gguf ? "gguf" : "hf"},
                   {"family", spec.family},
                   {"parameters", spec::num_parameters(spec)},
                   {"layers", spec.num_layers()},
                   {"hidden", spec.hidden},
                   {"heads", attention.heads},
                   {"kv_heads", attention.kv_heads},
                   {"head_dim", attention.head_dim},
                   {"ffn", spec::dense_of(spec.layers.front().mlp).features},
                   {"vocab", spec.vocab},
                   {"context", spec.context},
                   {"rope_theta", rope != layers.end() ? Json(rope->attention.rope->theta) : Json(nullptr)},
                   {"tied_head", spec.tied_head},
                   {"dtype", files.dtype},
                   {"tensors", store.tensors().size()},
                   {"bytes", files.bytes}};
    if (experts != layers.end()) {
      const spec::Experts& variant = *spec::experts_of(experts->mlp);
      result["experts"] = {
          {"count", variant.count}, {"per_token", variant.per_token}, {"ffn", variant.expert.features}};
    }
    if (hash_) result["sha256"] = checkpoint::model_hash(store);
    if (tensor_) {
      const checkpoint::TensorValues values = checkpoint::read_tensor(store, *tensor_);
      formats::NpyWriter writer(*npy_, values.shape);
      writer.write(values.values);
      writer.finish();
      result["tensor"] = {{"name", *tensor_}, {"shape", values.shape}, {"npy", *npy_}};
    }
    for (const auto& [key, value] : result.items()) {
      const std::string words = value.is_string() ? value.get<std::string>() : json_line(value);
      output.print(fmt::format("{:<12}{}{}\n", key, words,
                               key == "bytes" ? fmt::format(" ({})", format_bytes(files.bytes)) : ""));
    }
    output.print_json(json_line(result));
    return 0;
  }

 private:
  std::string model_;
  bool hash_ = false;
  std::optional<std::string> tensor_, npy_;
};

}  // namespace

std::unique_ptr<Command> model_inspect_command() { return std::make_unique<ModelInspect>(); }

}  // namespace ingot::cli
