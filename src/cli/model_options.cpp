#include "cli/model_options.h"

#include "base/error.h"

namespace ingot::cli {

void declare(runtime::ModelOptions& options, Arguments& arguments, bool with_adapter) {
  arguments.option("model", options.model, "a Hugging Face folder, a .gguf file or a registered name", true);
  if (with_adapter) arguments.option("adapter", options.adapter, "a folder with a LoRA adapter in PEFT's layout");
  arguments.option(
      "device", options.device,
      "auto (the first GPU that works, else the CPU), cpu, cuda:N, hip:N, or a simulated GPU: sim32, sim64");
  arguments.option("dtype", options.dtype, dtype_help);
  arguments.option("weights", options.weights,
                   "type of the weights in memory: auto (default: as --dtype), stored (as in the file), bf16, fp16, "
                   "fp32, int8 (GGUF's q8_0), int4 (the blocks' linear layers in q4_0, the rest in q8_0), or fp8 (the "
                   "blocks' linear layers in e4m3, the rest as --dtype)");
  arguments.option("compute", options.compute,
                   "auto (default: as --dtype), or int8: weights in int8 or int4 are multiplied in integers, with "
                   "activations rounded to 8 bits; CPU only");
  arguments.option("threads", options.threads, "CPU threads (default: all)");
  arguments.option("tp", options.tp,
                   "divide every layer among this many devices (tensor parallelism): of --device cuda or hip the GPUs "
                   "of this machine, of a list (cuda:0,cuda:1) those");
  arguments.option("pp", options.pp,
                   "divide the blocks among this many devices, or groups of --tp devices, which compute in turn "
                   "(pipeline stages)");
}

std::vector<int32_t> encode(runtime::Session& session, const TextInput& input) {
  std::vector<int32_t> ids = input.ids ? parse_ids(*input.ids) : session.tokenizer().encode(input.words());
  if (ids.empty()) throw_error(ErrorKind::usage, "the text is empty");
  runtime::check_ids(ids, session.loaded.spec.vocab);
  return ids;
}

}  // namespace ingot::cli
