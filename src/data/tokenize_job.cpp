#include "data/tokenize_job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "data/tokenized.h"
#include "formats/megatron.h"

namespace ingot::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t documents_at_once = 1024;
constexpr double note_every = 20;  // seconds

// Its bytes survive a power cut from here on.
void sync_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = file >= 0 && ::fsync(file) == 0;
  const int code = errno;
  if (file >= 0) ::close(file);
  if (!done) throw_error(ErrorKind::unavailable, "{}: cannot be synced: {}", path.string(), std::strerror(code));
}

// What must be the same for a job to go on.
Json identity_of(const TokenizeJob& job, const text::Tokenizer& tokenizer) {
  Json inputs = Json::array();
  for (const fs::path& input : job.inputs) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(input, error);
    inputs.push_back({{"path", input.string()}, {"bytes", error ? 0 : bytes}});
  }
  return {{"inputs", std::move(inputs)},
          {"format", name(job.format)},
          {"on_error", job.on_error == OnError::stop ? "stop" : "skip"},
          {"end_of_document", job.end_of_document},
          {"tokenizer", job.tokenizer},
          {"vocabulary", tokenizer.size()}};
}

// How far a job is: `documents` of file `file` are read.
struct Note {
  size_t file = 0;
  int64_t documents = 0;
};

class Notes {
 public:
  Notes(const fs::path& prefix, Json identity)
      : prefix_(prefix), path_(formats::with_suffix(prefix, ".progress")), identity_(std::move(identity)) {
    read();
    lengths_.emplace(formats::with_suffix(prefix_, ".lengths"), WriteMode::resume);
  }

  const Note& found() const { return found_; }
  const std::vector<int32_t>& found_lengths() const { return found_lengths_; }  // of the documents written

  void write(const Note& note, const formats::MegatronWriter& writer) {
    lengths_->write(std::as_bytes(std::span(writer.lengths()).subspan(noted_)));
    noted_ = writer.lengths().size();
    sync_file(writer.partial());
    sync_file(lengths_->partial());
    const Json text = {{"job", identity_}, {"file", note.file}, {"documents", note.documents}, {"lengths", noted_}};
    write_file(path_, text.dump(1) + "\n");
  }

  void remove() {
    const fs::path lengths = lengths_->partial();
    lengths_.reset();
    fs::remove(lengths);
    fs::remove(path_);
  }

 private:
  void read() {
    const fs::path lengths = formats::with_suffix(prefix_, ".lengths.partial");
    if (!fs::exists(path_)) {
      fs::remove(lengths);  // of a process that was killed before its first note
      return;
    }
    const Json text = Json::parse(read_file(path_), nullptr, false);
    const std::string begin_again = fmt::format("remove {} to begin again", path_.string());
    if (!text.is_object() || !text.contains("job") || !text.value("file", Json()).is_number_unsigned() ||
        !text.value("documents", Json()).is_number_unsigned() || !text.value("lengths", Json()).is_number_unsigned()) {
      throw_hint(ErrorKind::corrupt, begin_again, "{}: does not say how far a job is", path_.string());
    }
    if (text["job"] != identity_) {
      throw_hint(ErrorKind::usage, begin_again, "{}: another job was left here: its inputs or settings differ",
                 path_.string());
    }
    found_.file = text["file"];
    found_.documents = text["documents"];
    const std::string bytes = fs::exists(lengths) ? read_file(lengths, uint64_t{1} << 40) : std::string();
    noted_ = text["lengths"];
    if (noted_ > bytes.size() / sizeof(int32_t)) {
      throw_hint(ErrorKind::corrupt, begin_again, "{}: has {} bytes, less than {} lengths", lengths.string(),
                 bytes.size(), noted_);
    }
    found_lengths_.resize(noted_);
    if (noted_ > 0) std::memcpy(found_lengths_.data(), bytes.data(), noted_ * sizeof(int32_t));
    if (fs::exists(lengths)) fs::resize_file(lengths, noted_ * sizeof(int32_t));
  }

  fs::path prefix_, path_;
  Json identity_;
  Note found_;
  std::vector<int32_t> found_lengths_;
  size_t noted_ = 0;  // lengths in the file
  std::optional<FileWriter> lengths_;
};

std::vector<int32_t> ids_of(const Document& document, const TokenizeJob& job, const text::Tokenizer& tokenizer) {
  if (document.format == Format::tokens) {
    if (counts_in_part(document)) {
      throw_hint(ErrorKind::unsupported, "use such data in a recipe as it is",
                 "only a part of the tokens counts in the loss, and a Megatron data set cannot say which");
    }
    return tokenize(document, tokenizer, nullptr).ids;
  }
  std::vector<int32_t> ids = encode_start(document.text, tokenizer);
  if (job.end_of_document) ids.push_back(*tokenizer.eos_id());
  return ids;
}

void check_format(const DocumentReader& reader) {
  if (reader.format() == Format::text || reader.format() == Format::tokens) return;
  throw_hint(ErrorKind::unsupported, "ingot finetune reads it as it is",
             "{}: is of the format {}; a Megatron data set cannot say which of its tokens count",
             reader.path().string(), name(reader.format()));
}

class Job {
 public:
  Job(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool)
      : job_(job),
        tokenizer_(tokenizer),
        pool_(pool),
        notes_(job.prefix, identity_of(job, tokenizer)),
        note_(notes_.found()),
        writer_(job.prefix, formats::megatron_dtype(tokenizer.size()), notes_.found_lengths()) {
    totals_.num_files = static_cast<int64_t>(note_.file);
    totals_.num_documents = totals_.resumed_at = std::ssize(writer_.lengths());
    totals_.num_tokens = std::accumulate(writer_.lengths().begin(), writer_.lengths().end(), int64_t{0});
  }

  TokenizeTotals run(FunctionRef<bool(const TokenizeTotals&)> go_on) {
    double noted_at = steady_seconds();
    for (; note_.file < job_.inputs.size(); ++note_.file, ++totals_.num_files, note_.documents = 0) {
      DocumentReader reader(job_.inputs[note_.file], job_.format, job_.on_error);
      for (int64_t left = note_.documents; left > 0; left -= documents_at_once) {
        read(reader, std::min(left, documents_at_once));  // were written before
      }
      const int64_t skipped_before = totals_.num_skipped;
      std::vector<Document> documents = read(reader, documents_at_once);
      while (!documents.empty()) {
        check_format(reader);
        std::future<std::vector<Document>> next =
            std::async(std::launch::async, [&] { return read(reader, documents_at_once); });
        write(documents);
        documents = next.get();
        totals_.num_skipped = skipped_before + reader.num_skipped();
        if (totals_.first_skipped.empty()) totals_.first_skipped = reader.first_skipped();
        const bool wanted = go_on(totals_);
        if (wanted && steady_seconds() - noted_at < note_every) continue;
        notes_.write(note_, writer_);
        noted_at = steady_seconds();
        if (!wanted) return totals_;
      }
    }
    writer_.finish();
    notes_.remove();
    totals_.finished = true;
    return totals_;
  }

 private:
  static std::vector<Document> read(DocumentReader& reader, int64_t number) {
    std::vector<Document> documents;
    for (Document document; std::ssize(documents) < number && reader.next(document);) {
      documents.push_back(std::move(document));
    }
    return documents;
  }

  void write(const std::vector<Document>& documents) {
    std::vector<std::vector<int32_t>> ids(documents.size());
    pool_.parallel_for(0, std::ssize(documents), 1, [&](int64_t begin, int64_t end) {
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          ids[i] = ids_of(documents[i], job_, tokenizer_);
        } catch (const Error& error) {
          throw Error(
              error.kind(),
              fmt::format("{} line {}: {}", job_.inputs[note_.file].string(), documents[i].line, error.message()),
              error.hint());
        }
      }
    });
    for (const std::vector<int32_t>& tokens : ids) {
      ++note_.documents;
      writer_.add_sequence(tokens);
      writer_.end_document();
      ++totals_.num_documents;
      totals_.num_tokens += std::ssize(tokens);
    }
  }

  const TokenizeJob& job_;
  const text::Tokenizer& tokenizer_;
  ThreadPool& pool_;
  Notes notes_;
  Note note_;
  formats::MegatronWriter writer_;
  TokenizeTotals totals_;
};

}  // namespace

TokenizeTotals tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool,
                              FunctionRef<bool(const TokenizeTotals&)> go_on) {
  if (job.inputs.empty()) throw_error(ErrorKind::usage, "no file to tokenize is given");
  for (const char* suffix : {".idx", ".bin"}) {
    const fs::path path = formats::with_suffix(job.prefix, suffix);
    if (fs::exists(path)) {
      throw_hint(ErrorKind::usage, "remove it, or write somewhere else", "{}: is there already", path.string());
    }
  }
  if (job.end_of_document && !tokenizer.eos_id()) {
    throw_hint(ErrorKind::unsupported, "name one as eos_token in the model's tokenizer_config.json, or write none",
               "the tokenizer has no end-of-text token (EOS) to end a document with");
  }
  return Job(job, tokenizer, pool).run(go_on);
}

}  // namespace ingot::data
