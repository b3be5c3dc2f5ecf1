#include "runs/tensorboard_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "base/machine.h"
#include "base/path.h"

namespace ingot::runs {

namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard recognises its files by the first part of the name, and reads those of a folder in the order of their
// names.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  make_folders(folder);
  return folder / fmt::format("events.out.tfevents.{:010.0f}.{}.{}", unix_seconds(), host_name(), ::getpid());
}

}  // namespace

TensorboardLog::TensorboardLog(const std::filesystem::path& folder, std::optional<int64_t> first_repeated)
    : file_(new_file(folder)) {
  file_.append(formats::tensorboard_version(unix_seconds()));
  if (first_repeated) file_.append(formats::tensorboard_restart(unix_seconds(), *first_repeated));
}

void TensorboardLog::on_step(const train::StepEvent& e) {
  std::vector<formats::TensorboardScalar> scalars = {
      {"train/loss", static_cast<float>(e.loss)},
      {"train/lr", static_cast<float>(e.lr)},
      {"train/grad_norm", static_cast<float>(e.grad_norm)},
      {"train/tokens", static_cast<float>(e.tokens)},
      {"speed/tokens_per_s", static_cast<float>(e.tokens_per_s)},
      {"speed/tflops", static_cast<float>(e.tflops)},
      {"speed/step_s", static_cast<float>(e.step_s)},
      {"speed/data_s", static_cast<float>(e.data_s)},
      {"memory/bytes", static_cast<float>(e.memory_bytes)},
  };
  if (e.shares.mfu) scalars.push_back({"speed/mfu", static_cast<float>(*e.shares.mfu)});
  if (e.energy_j) scalars.push_back({"speed/energy_j", static_cast<float>(*e.energy_j)});
  file_.append(formats::tensorboard_scalars(unix_seconds(), e.step, scalars));
}

void TensorboardLog::on_eval(const train::EvalEvent& e) {
  const formats::TensorboardScalar scalars[] = {{"eval/loss", static_cast<float>(e.loss)},
                                                {"eval/perplexity", static_cast<float>(e.perplexity)}};
  file_.append(formats::tensorboard_scalars(unix_seconds(), e.step, scalars));
}

}  // namespace ingot::runs
