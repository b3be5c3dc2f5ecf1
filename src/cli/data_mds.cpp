// ingot data mds: writes texts or tokens to a folder of MDS shards (MosaicML Streaming).
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/progress.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "checkpoint/model_source.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/source.h"
#include "data/tokenized.h"
#include "formats/mds.h"
#include "storage/uri.h"

namespace ingot::cli {

namespace {

constexpr size_t documents_at_once = 4096;

// Writes tokens as samples: one per document, or all documents concatenated and cut into samples of one length.
class TokenSamples {
 public:
  TokenSamples(formats::MdsWriter& writer, int64_t length)
      : writer_(writer), length_(static_cast<size_t>(length)), encoding_(writer.columns().front().encoding) {}

  void add(std::span<const int32_t> ids) {
    if (length_ == 0) return write(ids);
    left_.insert(left_.end(), ids.begin(), ids.end());
    size_t begin = 0;
    for (; left_.size() - begin >= length_; begin += length_) write(std::span(left_).subspan(begin, length_));
    left_.erase(left_.begin(), left_.begin() + static_cast<int64_t>(begin));
  }

  size_t left_over() const { return left_.size(); }  // tokens that do not fill a sample
  int64_t tokens() const { return tokens_; }         // written

 private:
  void write(std::span<const int32_t> ids) {
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
    const std::string value = formats::mds_array_value(encoding_, {"i4", {std::ssize(ids)}, bytes});
    writer_.write(std::array<std::string_view, 1>{value});
    tokens_ += std::ssize(ids);
  }

  formats::MdsWriter& writer_;
  size_t length_;  // 0: one sample per document
  formats::MdsEncoding encoding_;
  std::vector<int32_t> left_;
  int64_t tokens_ = 0;
};

class DataMds : public Command {
 public:
  const char* name() const override { return "mds"; }
  const char* summary() const override { return "convert texts or tokens to MDS shards"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("inputs", inputs_, "files of texts (JSON lines, text) or of tokens (.npy), or MDS folders");
    arguments.option("out", out_, "the folder to write", true);
    arguments.option("model", model_, "tokenize with this model's tokenizer (default: texts are stored as text)");
    arguments.option("length", length_,
                     "tokens per sample: documents are concatenated and cut into pieces of this length (default: one "
                     "document per sample)");
    arguments.option("format", format_, "format of the inputs, as in recipes: auto, text, completion, tokens, ...");
    arguments.option("on-error", on_error_, "on a malformed line: stop or skip");
    arguments.option("compression", compression_,
                     "compression of the shards: zstd, gz, bz2, br, snappy; with a level: zstd:7");
    arguments.option("hashes", hashes_, "hashes of the files, separated by commas: sha1,xxh64");
    arguments.option("size-limit", size_limit_, "uncompressed bytes per shard; StreamingDataset's default is 67108864");
    arguments.flag("quiet", quiet_, "no progress bar");
    arguments.example("ingot data mds c4.json.gz --out c4-mds --model HuggingFaceTB/SmolLM2-135M --length 1024");
  }

  int run(const Output& output) override;

 private:
  int64_t write(data::DocumentReader& reader, const text::Tokenizer* tokenizer, ThreadPool& threads,
                Progress& progress);
  formats::MdsWriter& writer(bool tokens);

  std::vector<std::string> inputs_;
  std::string out_, format_ = "auto", on_error_ = "stop", compression_, hashes_;
  std::optional<std::string> model_;
  std::optional<int64_t> length_;
  int64_t size_limit_ = int64_t{1} << 26;
  bool quiet_ = false;

  int64_t skipped_ = 0;  // number of bad lines
  std::string first_skipped_;
  std::optional<formats::MdsWriter> writer_;
  std::optional<TokenSamples> samples_;  // present when the shards contain tokens
};

// Returns the writer, creating it for the first document, which determines the column type.
formats::MdsWriter& DataMds::writer(bool tokens) {
  if (writer_) {
    if (tokens != samples_.has_value()) {
      throw_hint(ErrorKind::usage, "give --model to tokenize the texts",
                 "the inputs mix texts and tokens, which is not supported in one data set");
    }
    return *writer_;
  }
  if (length_ && !tokens) {
    throw_hint(ErrorKind::usage, "give --model to tokenize the texts",
               "--length needs tokens, but without --model texts are stored as text");
  }
  formats::MdsWriterSettings settings;
  settings.compression = compression_;
  if (!hashes_.empty()) settings.hashes = split(hashes_, ',');
  settings.size_limit = static_cast<uint64_t>(size_limit_);
  const formats::MdsColumn column = tokens ? formats::MdsColumn{"tokens", formats::parse_mds_encoding("ndarray:int32")}
                                           : formats::MdsColumn{"text", formats::parse_mds_encoding("str")};
  writer_.emplace(out_, std::vector{column}, settings);
  if (tokens) samples_.emplace(*writer_, length_.value_or(0));
  return *writer_;
}

// Rejects documents with a loss mask: MDS shards of tokens cannot store one.
void check(const data::DocumentReader& reader, const data::Document& document) {
  const bool is_text = document.format == data::Format::text;
  if (!has_loss_mask(document) && (is_text || document.format == data::Format::tokens)) return;
  throw_hint(ErrorKind::unsupported, "use this file in a recipe directly",
             "{}: in documents of format {} only a part counts in the loss, which MDS shards cannot record",
             reader.location(document.line), data::name(document.format));
}

int64_t DataMds::write(data::DocumentReader& reader, const text::Tokenizer* tokenizer, ThreadPool& threads,
                       Progress& progress) {
  std::vector<data::Document> documents;
  std::vector<std::vector<int32_t>> tokenized;
  std::vector<std::optional<Error>> refused;
  int64_t number = 0;
  for (bool more = true; more;) {
    documents.clear();
    for (data::Document document; documents.size() < documents_at_once && (more = reader.next(document));) {
      check(reader, document);
      documents.push_back(std::move(document));
    }
    tokenized.assign(documents.size(), {});
    refused.assign(documents.size(), std::nullopt);
    if (tokenizer != nullptr) {
      threads.parallel_for(0, std::ssize(documents), 16, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
          try {
            tokenized[i] = data::tokenize(documents[i], *tokenizer, nullptr).ids;
          } catch (const Error& error) {
            refused[i].emplace(error.kind(), reader.location(documents[i].line) + ": " + error.message(), error.hint());
          }
        }
      });
    }
    for (size_t i = 0; i < documents.size(); ++i) {
      if (refused[i]) {
        // `corrupt`, such as a token outside the vocabulary, is an error of the document; other errors are not.
        if (on_error_ != "skip" || refused[i]->kind() != ErrorKind::corrupt) throw Error(*refused[i]);
        if (skipped_++ == 0) first_skipped_ = refused[i]->message();
        continue;
      }
      const bool is_text = tokenizer == nullptr && documents[i].format == data::Format::text;
      formats::MdsWriter& to = writer(!is_text);
      if (is_text) {
        to.write(std::array<std::string_view, 1>{documents[i].text});
      } else {
        samples_->add(tokenizer != nullptr ? tokenized[i] : documents[i].ids);
      }
    }
    number += std::ssize(documents);
    progress.update(number);
  }
  return number;
}

int DataMds::run(const Output& output) {
  exit_on_interrupt();  // files written so far have no index.json, so they are not a data set
  if (length_ && *length_ < 1) throw_error(ErrorKind::usage, "--length {}; must be at least 1", *length_);
  if (size_limit_ < 1) throw_error(ErrorKind::usage, "--size-limit {}; must be at least 1", size_limit_);
  const data::Format format = data::parse_format(format_);
  const data::OnError on_error = data::parse_on_error(on_error_);
  std::optional<checkpoint::TextAssets> assets;
  if (model_) {
    assets = checkpoint::load_text(checkpoint::open_model(*model_));
    if (!assets->tokenizer) {
      throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer",
                 *model_);
    }
  }
  ThreadPool threads(available_cpus(), {}, no_workspace);
  int64_t documents = 0;
  for (const std::string& input : inputs_) {
    data::DocumentReader reader(input, format, on_error);
    Progress progress(shown(input), 0, {.style = progress_style(quiet_ || output.json()), .unit = "documents"});
    documents += write(reader, assets ? assets->tokenizer.get() : nullptr, threads, progress);
    progress.finish();
    skipped_ += reader.num_skipped();
    if (first_skipped_.empty()) first_skipped_ = reader.first_skipped();
  }
  if (!writer_) {
    throw_error(ErrorKind::corrupt, "no usable documents: all {} are malformed, the first: {}", skipped_,
                first_skipped_);
  }
  if (samples_ && writer_->num_samples() == 0) {
    throw_error(ErrorKind::usage, "{} documents have {} tokens, less than a sample of {}", documents,
                samples_->left_over(), *length_);
  }
  writer_->finish();
  const int64_t left_over = samples_ ? static_cast<int64_t>(samples_->left_over()) : 0;
  std::string text = fmt::format("{}: {} samples in {} shards, of {} documents\n", out_, writer_->num_samples(),
                                 writer_->num_shards(), documents);
  if (skipped_ > 0) text += fmt::format("{} malformed lines skipped; the first: {}\n", skipped_, first_skipped_);
  if (left_over > 0) text += fmt::format("the last {} tokens were dropped: they do not fill a sample\n", left_over);
  output.print(text);
  output.print_json(json_line({{"path", out_},
                               {"documents", documents},
                               {"bad_lines", skipped_},
                               {"samples", writer_->num_samples()},
                               {"shards", writer_->num_shards()},
                               {"tokens", samples_ ? nlohmann::ordered_json(samples_->tokens()) : nullptr},
                               {"tokens_left_out", left_over}}));
  return 0;
}

}  // namespace

std::unique_ptr<Command> data_mds_command() { return std::make_unique<DataMds>(); }

}  // namespace ingot::cli
