// ingot model convert: converts between Hugging Face folders and GGUF files.
#include "cli/export_target.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

class ModelConvert : public Command {
 public:
  const char* name() const override { return "convert"; }
  const char* summary() const override { return "write a model as a Hugging Face folder or a GGUF file"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("model", model_, "a Hugging Face folder, a .gguf file or a registered name");
    export_.declare(arguments);
    arguments.option("threads", threads_, "CPU threads (default: all)");
    arguments.example("ingot model convert SmolLM2-135M-Instruct smol.gguf --dtype q8_0");
  }

  int run(const Output& output) override {
    exit_on_interrupt();
    runtime::Runtime runtime = runtime::open_runtime("cpu", threads_);
    const checkpoint::ModelSource source = checkpoint::open_model(model_);
    checkpoint::LoadOptions options{*runtime.device};
    options.storage.matrices.reset();
    options.pool = runtime.threads.get();
    const checkpoint::LoadedModel model = checkpoint::load_model(source, options);
    const ExportTarget target = resolve(export_, model.stored_dtype);
    write_model(target, model, source, runtime);
    report(output, target);
    return 0;
  }

 private:
  std::string model_;
  ExportOptions export_;
  std::optional<int64_t> threads_;
};

}  // namespace

std::unique_ptr<Command> model_convert_command() { return std::make_unique<ModelConvert>(); }

}  // namespace ingot::cli
