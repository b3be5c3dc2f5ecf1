// ingot data inspect: shows the contents of a data file.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/source.h"
#include "formats/megatron.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t max_shown = 400;  // characters of a document

// The beginning of a document, for display.
std::string start_of(std::string text) {
  if (text.size() <= max_shown) return text;
  size_t end = max_shown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
  return text.substr(0, end) + "...";
}

std::string words_of(const data::Document& document) {
  if (document.format == data::Format::chat) return document.messages;
  if (document.format == data::Format::text) return document.text;
  return document.prompt + document.input + document.answer;
}

class DataInspect : public Command {
 public:
  const char* name() const override { return "inspect"; }
  const char* summary() const override { return "show the format, size and first documents of a data file"; }
  bool reports() const override { return true; }

  void declare(Arguments& a) override {
    a.positional("data", data_,
                 "a JSONL, text or .npy file, an MDS folder, or a .idx and .bin pair (either file, or their path "
                 "without suffix)");
    a.option("model", model_, "a model whose tokenizer decodes the tokens to text");
    a.option("documents", shown_, "number of documents to show");
    a.example("ingot data inspect c4_text_document.idx --model SmolLM2-135M --documents 2");
  }

  int run(const Output& output) override {
    if (shown_ < 0) throw_error(ErrorKind::usage, "--documents {} is below 0", shown_);
    exit_on_interrupt();
    checkpoint::TextAssets assets;
    if (model_) assets = checkpoint::load_text(checkpoint::open_model(*model_));
    if (model_ && !assets.tokenizer) {
      throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer",
                 *model_);
    }
    const Json result = data::is_megatron(data_) ? megatron(assets) : documents(assets);
    for (const auto& [key, value] : result.items()) {
      if (key != "first")
        output.print(fmt::format("{:<14} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
    }
    for (const Json& first : result["first"]) output.print(fmt::format("\n{}\n", first.get<std::string>()));
    output.print_json(json_line(result));
    return 0;
  }

 private:
  std::string tokens_as_text(const checkpoint::TextAssets& assets, std::span<const int32_t> ids) const {
    if (assets.tokenizer) return start_of(assets.tokenizer->decode(std::vector<int32_t>(ids.begin(), ids.end())));
    return start_of(fmt::format("{}", fmt::join(ids, " ")));
  }

  Json megatron(const checkpoint::TextAssets& assets) const {
    const formats::MegatronFile file(data_);
    int64_t longest = 0, shortest = file.num_sequences() > 0 ? file.length(0) : 0;
    for (int64_t i = 0; i < file.num_sequences(); ++i) {
      longest = std::max(longest, file.length(i));
      shortest = std::min(shortest, file.length(i));
    }
    Json first = Json::array();
    const bool readable = formats::holds_tokens(file.dtype());
    for (int64_t d = 0; readable && d < std::min(shown_, file.num_documents()); ++d) {
      std::vector<int32_t> ids;
      for (int64_t i = file.first_sequence(d); i < file.first_sequence(d + 1) && ids.size() < max_shown; ++i) {
        std::vector<int32_t> part(static_cast<size_t>(std::min<int64_t>(file.length(i), max_shown)));
        file.read(i, 0, part);
        ids.insert(ids.end(), part.begin(), part.end());
      }
      first.push_back(tokens_as_text(assets, ids));
    }
    return {{"format", "megatron"},
            {"path", file.source()},
            {"dtype", formats::name(file.dtype())},
            {"documents", file.num_documents()},
            {"sequences", file.num_sequences()},
            {"tokens", file.num_tokens()},
            {"shortest", shortest},
            {"longest", longest},
            {"index_bytes", file.index_bytes().size()},
            {"token_bytes", file.token_bytes().size()},
            {"first", std::move(first)}};
  }

  Json documents(const checkpoint::TextAssets& assets) const {
    data::DocumentReader reader(data_, data::Format::automatic, data::OnError::skip);
    Json first = Json::array();
    int64_t tokens = 0, bytes = 0;
    for (data::Document document; reader.next(document);) {
      const std::string words = words_of(document);
      tokens += std::ssize(document.ids);
      bytes += std::ssize(words);
      if (std::ssize(first) >= shown_) continue;
      first.push_back(reader.tokens() ? tokens_as_text(assets, document.ids) : start_of(words));
    }
    Json result = {{"format", data::name(reader.format())}, {"path", data_}, {"documents", reader.num_documents()}};
    if (reader.num_skipped() > 0) {
      result["bad_lines"] = reader.num_skipped();
      result["first_bad_line"] = reader.first_skipped();
    }
    if (data::is_mds_folder(data_)) add_shards(result);
    result[reader.tokens() ? "tokens" : "text_bytes"] = reader.tokens() ? tokens : bytes;
    result["first"] = std::move(first);
    return result;
  }

  // Adds the contents of an MDS folder's index.
  void add_shards(Json& result) const {
    const formats::MdsFolder folder(data_);
    uint64_t raw = 0, stored = 0;
    for (const formats::MdsShardInfo& shard : folder.shards()) {
      raw += shard.raw.bytes;
      stored += (shard.zip ? *shard.zip : shard.raw).bytes;
    }
    const formats::MdsShardInfo& shard = folder.shards().front();
    std::string columns;
    for (const formats::MdsColumn& column : folder.columns()) {
      columns += fmt::format("{}{} ({})", columns.empty() ? "" : ", ", column.name, column.encoding.name);
    }
    result["container"] = "mds";
    result["columns"] = columns;
    result["shards"] = folder.shards().size();
    result["shard_bytes"] = raw;
    result["stored_bytes"] = stored;
    result["compression"] = shard.compression.empty() ? Json() : Json(shard.compression);
    result["hashes"] = shard.hashes;
  }

  std::string data_;
  std::optional<std::string> model_;
  int64_t shown_ = 1;
};

}  // namespace

std::unique_ptr<Command> data_inspect_command() { return std::make_unique<DataInspect>(); }

}  // namespace ingot::cli
