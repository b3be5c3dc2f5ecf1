// ingot bench tokenizer: tokenization on one thread, in MB/s.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/text_input.h"

namespace ingot::cli {

namespace {

struct Seconds {
  double wall = 0;
  double cpu = 0;  // of this process, user and system

  static Seconds now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
            seconds(usage.ru_utime) + seconds(usage.ru_stime)};
  }
  Seconds operator-(const Seconds& other) const { return {wall - other.wall, cpu - other.cpu}; }
};

class BenchTokenizer : public Command {
 public:
  const char* name() const override { return "tokenizer"; }
  const char* summary() const override {
    return "time tokenization on one thread, after a check that ids decode back to the text";
  }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.option("model", model_, "a model, or only its tokenizer: a folder or a .gguf file", true);
    arguments.option("file", file_, "a file with one text (UTF-8)");
    arguments.option("texts", texts_, "a file with one JSON string per line, each encoded separately");
    arguments.option("repeats", repeats_, "passes over all texts; the fastest one is reported");
    arguments.example("ingot bench tokenizer --model SmolLM2-135M-Instruct --file book.txt");
  }

  int run(const Output& output) override {
    if (repeats_ < 1) throw_error(ErrorKind::usage, "--repeats {}; must be at least 1", repeats_);
    if (file_.has_value() == texts_.has_value())
      throw_error(ErrorKind::usage, "give exactly one of --file and --texts");
    const checkpoint::TextAssets assets = checkpoint::load_text(checkpoint::open_model(model_));
    if (!assets.tokenizer) throw_error(ErrorKind::not_found, "the model {} has no tokenizer", model_);
    const text::Tokenizer& tokenizer = *assets.tokenizer;
    const std::vector<std::string> texts = file_ ? std::vector<std::string>{read_text(*file_)} : read_texts(*texts_);
    size_t num_bytes = 0;
    for (const std::string& text : texts) num_bytes += text.size();
    if (num_bytes == 0) throw_error(ErrorKind::usage, "{} is empty", file_ ? *file_ : *texts_);

    std::vector<int32_t> all;  // the ids of all texts, concatenated
    bool same = true;
    Seconds first, best;
    std::vector<std::vector<int32_t>> ids(texts.size());
    for (int64_t i = 0; i < repeats_; ++i) {
      for (std::vector<int32_t>& list : ids) list = {};
      const Seconds start = Seconds::now();
      for (size_t t = 0; t < texts.size(); ++t) ids[t] = tokenizer.encode(texts[t], {.add_special_tokens = false});
      const Seconds taken = Seconds::now() - start;
      if (i == 0) first = best = taken;
      best = {std::min(best.wall, taken.wall), std::min(best.cpu, taken.cpu)};
    }
    for (size_t t = 0; t < texts.size(); ++t) {
      all.insert(all.end(), ids[t].begin(), ids[t].end());
      same = same && tokenizer.decode(ids[t]) == texts[t];
    }
    const double megabytes = static_cast<double>(num_bytes) / 1e6;
    output.print(fmt::format(
        "{:.1f} MB in {} texts, {} tokens, decoded back {}\nfirst time {:.1f} MB/s, best of {} {:.1f} MB/s; by CPU "
        "time "
        "{:.1f} and {:.1f} MB/s\n",
        megabytes, texts.size(), all.size(), same ? "to the same text" : "to another text", megabytes / first.wall,
        repeats_, megabytes / best.wall, megabytes / first.cpu, megabytes / best.cpu));
    output.print_json(json_line({{"bytes", num_bytes},
                                 {"texts", texts.size()},
                                 {"tokens", all.size()},
                                 {"ids_sha256", sha256_hex(std::as_bytes(std::span(all)))},
                                 {"same_text", same},
                                 {"first_mb_s", megabytes / first.wall},
                                 {"mb_s", megabytes / best.wall},
                                 {"first_cpu_mb_s", megabytes / first.cpu},
                                 {"cpu_mb_s", megabytes / best.cpu}}));
    return 0;
  }

 private:
  std::string model_;
  std::optional<std::string> file_, texts_;
  int64_t repeats_ = 5;
};

}  // namespace

std::unique_ptr<Command> bench_tokenizer_command() { return std::make_unique<BenchTokenizer>(); }

}  // namespace ingot::cli
