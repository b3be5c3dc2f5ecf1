// ingot model merge: adds an adapter to a model's weights, or removes it from them.
#include "checkpoint/adapter.h"
#include "cli/export_target.h"
#include "cli/file_totals.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

class ModelMerge : public Command {
 public:
  const char* name() const override { return "merge"; }
  const char* summary() const override {
    return "merge an adapter into a model's weights, or unmerge it, and write the result";
  }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("model", model_, "a Hugging Face folder, a .gguf file or a registered name");
    export_.declare(arguments);
    arguments.option("adapter", adapter_, "a folder with a LoRA adapter in PEFT's layout", true);
    arguments.flag("unmerge", unmerge_,
                   "remove the adapter from a model that it was merged into; restores the base up to the rounding of "
                   "the merged model's type");
    arguments.option("threads", threads_, "CPU threads (default: all)");
    arguments.example(
        "ingot model merge SmolLM2-135M-Instruct --adapter runs/demo/adapter merged\n"
        "  ingot model merge --unmerge merged --adapter runs/demo/adapter base-again");
  }

  int run(const Output& output) override {
    exit_on_interrupt();
    runtime::Runtime runtime = runtime::open_runtime("cpu", threads_);
    const checkpoint::ModelSource source = checkpoint::open_model(model_);
    const spec::ModelSpec spec = checkpoint::read_model_spec(source);
    const checkpoint::AdapterFile adapter = checkpoint::read_adapter(adapter_, spec);
    const ExportTarget target = resolve(export_, file_totals(checkpoint::TensorStore(source)).dtype);
    checkpoint::LoadOptions options{*runtime.device};
    // Sums are rounded once: to bf16 if that is the output type, else later, from fp32.
    options.storage.matrices = target.storage == StorageType::bf16 ? StorageType::bf16 : StorageType::f32;
    options.writable = true;
    options.pool = runtime.threads.get();
    checkpoint::LoadedModel model = checkpoint::load_model(source, options);
    checkpoint::merge_adapter(model.weights, *runtime.device, adapter, unmerge_ ? -1 : 1, runtime.threads.get());
    write_model(target, model, source, runtime);
    report(output, target);
    return 0;
  }

 private:
  std::string model_;
  std::string adapter_;
  ExportOptions export_;
  bool unmerge_ = false;
  std::optional<int64_t> threads_;
};

}  // namespace

std::unique_ptr<Command> model_merge_command() { return std::make_unique<ModelMerge>(); }

}  // namespace ingot::cli
