// ingot bench tokenizer: text to ids on one thread, in MB a second.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/text_input.h"
#include "base/error.h"
#include "checkpoint/text_assets.h"

namespace ingot::app {

namespace {

class BenchTokenizer : public Command {
 public:
  const char* name() const override { return "tokenizer"; }
  const char* summary() const override { return "time text to ids on one thread, after decoding them back"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.option("model", model_, "a model, or only its tokenizer: a folder or a .gguf file", true);
    arguments.option("file", file_, "a file with the text (UTF-8)", true);
    arguments.option("repeats", repeats_, "of the whole text; the fastest counts");
    arguments.example("ingot bench tokenizer --model SmolLM2-135M-Instruct --file book.txt");
  }

  int run(const Output& output) override {
    if (repeats_ < 1) throw_error(ErrorKind::usage, "--repeats {}; at least 1", repeats_);
    const checkpoint::TextAssets assets = checkpoint::load_text(checkpoint::open_model(model_));
    if (!assets.tokenizer) throw_error(ErrorKind::not_found, "the model {} has no tokenizer", model_);
    const std::string text = read_text(file_);
    if (text.empty()) throw_error(ErrorKind::usage, "{} is empty", file_);
    const auto encode = [&] { return assets.tokenizer->encode(text, {.add_special_tokens = false}); };

    using Clock = std::chrono::steady_clock;
    double first = 0, best = 0;  // seconds
    size_t num_tokens = 0;
    bool same = false;
    for (int64_t i = 0; i < repeats_; ++i) {
      const auto start = Clock::now();
      const std::vector<int32_t> ids = encode();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (i == 0) {
        first = best = seconds;
        num_tokens = ids.size();
        same = assets.tokenizer->decode(ids) == text;
      }
      best = std::min(best, seconds);
    }
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    output.print(fmt::format("{:.1f} MB, {} tokens, decoded back {}\nfirst time {:.1f} MB/s, best of {} {:.1f} MB/s\n",
                             megabytes, num_tokens, same ? "to the same text" : "to another text", megabytes / first,
                             repeats_, megabytes / best));
    output.print_json(json_line({{"bytes", text.size()},
                                 {"tokens", num_tokens},
                                 {"same_text", same},
                                 {"first_mb_s", megabytes / first},
                                 {"mb_s", megabytes / best}}));
    return 0;
  }

 private:
  std::string model_, file_;
  int64_t repeats_ = 5;
};

}  // namespace

std::unique_ptr<Command> bench_tokenizer_command() { return std::make_unique<BenchTokenizer>(); }

}  // namespace ingot::app
