// ingot data pack: packs documents into sequences once, as a run would pack them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/progress.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/packed_dataset.h"

namespace ingot::cli {

namespace {

class DataPack : public Command {
 public:
  const char* name() const override { return "pack"; }
  const char* summary() const override { return "tokenize and pack documents into sequences, ready for training"; }
  bool reports() const override { return true; }

  void declare(Arguments& a) override {
    a.positional("inputs", inputs_,
                 "files of documents as for data.train, MDS folders, or Megatron data sets (.idx and .bin)");
    a.option("out", out_, "the folder of MDS shards to write", true);
    a.option("model", model_, "the model whose tokenizer and chat template are used", true);
    a.option("length", length_, "tokens per sequence, the data.sequence_length of the recipes that use it");
    a.option("format", format_, "format of the inputs, as in recipes: auto, text, chat, tokens, ...");
    a.option("on-error", on_error_, "on a malformed line: stop or skip");
    a.option("too-long", too_long_, "on a chat or instruction longer than a sequence: truncate, skip or stop");
    a.flag("no-packing", no_packing_, "one document per sequence, then padding");
    a.option("compression", compression_, "compression of the shards: zstd, gz, bz2, br, snappy; with a level: zstd:7");
    a.option("hashes", hashes_, "hashes of the shards, separated by commas: sha1,xxh64");
    a.option("size-limit", size_limit_, "uncompressed bytes per shard");
    a.flag("quiet", quiet_, "no progress bar");
    a.example("ingot data pack c4.json.gz --model SmolLM2-135M --length 2048 --out c4-packed");
  }

  int run(const Output& output) override;

 private:
  std::vector<std::string> inputs_;
  std::string out_, model_, format_ = "auto", on_error_ = "stop", too_long_ = "truncate", compression_,
                            hashes_ = "xxh64";
  int64_t length_ = 1024, size_limit_ = int64_t{1} << 26;
  bool no_packing_ = false, quiet_ = false;
};

int DataPack::run(const Output& output) {
  exit_on_interrupt();  // files written so far have no index.json, so they are not a data set
  if (size_limit_ < 1) throw_error(ErrorKind::usage, "--size-limit {}; must be at least 1", size_limit_);
  data::DatasetSettings settings;
  settings.format = data::parse_format(format_);
  settings.on_error = data::parse_on_error(on_error_);
  settings.packing = {length_, !no_packing_, data::parse_too_long(too_long_)};
  const checkpoint::TextAssets assets = checkpoint::load_text(checkpoint::open_model(model_));
  if (!assets.tokenizer) {
    throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer", model_);
  }
  std::optional<text::ChatTemplate> chat;
  if (assets.chat_template) chat.emplace(*assets.chat_template, model_);
  formats::MdsWriterSettings shards;
  shards.compression = compression_;
  if (!hashes_.empty()) shards.hashes = split(hashes_, ',');
  shards.size_limit = static_cast<uint64_t>(size_limit_);
  std::vector<data::Source> sources;
  for (const std::string& input : inputs_) sources.push_back({input, 1});
  ThreadPool threads(available_cpus(), {}, no_workspace);
  const data::Dataset set =
      data::Dataset::build(sources, *assets.tokenizer, chat ? &*chat : nullptr, settings, threads);
  Progress progress("pack", set.num_sequences(),
                    {.style = progress_style(quiet_ || output.json()), .unit = "sequences"});
  data::write_packed(set, assets.tokenizer->size(), out_, shards, [&](int64_t written) {
    progress.update(written);
    return true;
  });
  progress.finish();
  const data::DatasetStatistics& s = set.statistics();
  std::string text = fmt::format("{}: {} sequences of {}, {:.1f} % full, of {} documents\n", out_, s.num_sequences,
                                 length_, 100 * s.packing_efficiency, s.num_documents);
  if (s.num_bad_lines > 0)
    text += fmt::format("{} malformed lines skipped; the first: {}\n", s.num_bad_lines, s.first_bad_line);
  if (s.num_truncated > 0) text += fmt::format("{} documents cut at {} tokens\n", s.num_truncated, length_);
  if (s.num_too_long > 0) text += fmt::format("{} documents skipped because they are longer\n", s.num_too_long);
  output.print(text);
  output.print_json(json_line({{"path", out_},
                               {"documents", s.num_documents},
                               {"bad_lines", s.num_bad_lines},
                               {"sequences", s.num_sequences},
                               {"sequence_length", length_},
                               {"tokens", s.num_tokens},
                               {"counted", s.num_loss_tokens},
                               {"truncated", s.num_truncated},
                               {"too_long", s.num_too_long},
                               {"packing_efficiency", s.packing_efficiency}}));
  return 0;
}

}  // namespace

std::unique_ptr<Command> data_pack_command() { return std::make_unique<DataPack>(); }

}  // namespace ingot::cli
