#include "data/tokenize_job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/in_order.h"
#include "base/json.h"
#include "base/path.h"
#include "data/tokenized.h"
#include "formats/megatron.h"
#include "storage/file_cache.h"
#include "storage/uri.h"

namespace ingot::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t records_at_once = 1024;
constexpr size_t bytes_at_once = size_t{1} << 20;
constexpr double save_interval_s = 20;  // seconds

// Makes the file's current contents durable.
void sync_file(const fs::path& path) {
  const Descriptor file = open_regular_file(path);
  if (::fsync(file.fd) != 0) throw_unwritable(path, "cannot be synced", errno);
}

// The files of an input whose size and version identify its contents.
std::vector<fs::path> identifying_files(const fs::path& input) {
  if (is_mds_folder(input)) {
    return {is_remote(input.string()) ? fs::path(uri_below(input.string(), "index.json")) : input / "index.json"};
  }
  if (is_megatron(input)) {
    const fs::path prefix = formats::megatron_prefix(input);
    return {formats::with_suffix(prefix, ".idx"), formats::with_suffix(prefix, ".bin")};
  }
  return {input};
}

// A remote file is identified by what its server reports; anything it does not report is not compared.
Json identity_of(const fs::path& file) {
  const std::string path = shown(file.string());
  if (!is_remote(file.string())) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(file, error);
    return {{"path", path}, {"bytes", error ? 0 : bytes}};
  }
  const std::optional<RemoteFile> found = find_remote(file.string());
  if (!found) throw_hint(ErrorKind::not_found, "check the address", "{}: there is no such file", path);
  return {{"path", path}, {"bytes", found->bytes}, {"version", found->lasting ? found->version : ""}};
}

// Everything that must be unchanged for a job to be resumed.
Json identity_of(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool) {
  std::vector<Json> by_input(job.inputs.size());
  pool.parallel_for(0, std::ssize(job.inputs), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      for (const fs::path& file : identifying_files(job.inputs[i])) by_input[i].push_back(identity_of(file));
    }
  });
  Json inputs = Json::array();
  for (const Json& files : by_input) inputs.insert(inputs.end(), files.begin(), files.end());
  return {{"inputs", std::move(inputs)},
          {"format", name(job.format)},
          {"on_error", job.on_error == OnError::stop ? "stop" : "skip"},
          {"end_of_document", job.end_of_document},
          {"tokenizer", job.tokenizer},
          {"vocabulary", tokenizer.size()}};
}

// Progress of a job: `documents` documents of input file `file` have been read.
struct Progress {
  size_t file = 0;
  int64_t documents = 0;
};

// The job's progress files. They are locked before they are read, so that a second process of the job cannot disturb
// the first.
class ProgressFiles {
 public:
  ProgressFiles(const fs::path& prefix, Json identity)
      : prefix_(prefix),
        path_(formats::with_suffix(prefix, ".progress")),
        identity_(std::move(identity)),
        lengths_(formats::with_suffix(prefix, ".lengths"), WriteMode::resume) {
    read();
  }

  const Progress& found() const { return found_; }
  const std::vector<int32_t>& found_lengths() const { return found_lengths_; }  // of the documents written

  void write(const Progress& progress, const formats::MegatronWriter& writer) {
    lengths_.write(std::as_bytes(std::span(writer.lengths()).subspan(num_saved_)));
    num_saved_ = writer.lengths().size();
    sync_file(writer.partial());
    sync_file(lengths_.partial());
    const Json text = {{"version", tokenize_progress_format.newest},
                       {"job", identity_},
                       {"file", progress.file},
                       {"documents", progress.documents},
                       {"lengths", num_saved_}};
    write_file(path_, text.dump(1) + "\n");
  }

  void remove() {
    remove_path(path_);
    lengths_.remove();
  }

 private:
  void read() {
    if (!path_exists(path_)) return lengths_.cut(0);  // a process was killed before it first saved its progress
    const Json text = try_parse_json(read_file(path_));
    if (text.is_object()) require_known_version(path_.string(), text, tokenize_progress_format);
    const std::string start_over = fmt::format("remove {} to start over", path_.string());
    if (!text.is_object() || !text.contains("job") || !text.value("file", Json()).is_number_unsigned() ||
        !text.value("documents", Json()).is_number_unsigned() || !text.value("lengths", Json()).is_number_unsigned()) {
      throw_hint(ErrorKind::corrupt, start_over, "{}: does not hold the progress of a job", path_.string());
    }
    if (text["job"] != identity_) {
      throw_hint(ErrorKind::usage, start_over, "{}: belongs to another job with different inputs or settings",
                 path_.string());
    }
    found_.file = text["file"];
    found_.documents = text["documents"];
    const std::string bytes = read_file(lengths_.partial(), uint64_t{1} << 40);
    num_saved_ = text["lengths"];
    if (num_saved_ > bytes.size() / sizeof(int32_t)) {
      throw_hint(ErrorKind::corrupt, start_over, "{}: has {} bytes, too few for {} lengths",
                 lengths_.partial().string(), bytes.size(), num_saved_);
    }
    found_lengths_.resize(num_saved_);
    if (num_saved_ > 0) std::memcpy(found_lengths_.data(), bytes.data(), num_saved_ * sizeof(int32_t));
    lengths_.cut(num_saved_ * sizeof(int32_t));
  }

  fs::path prefix_, path_;
  Json identity_;
  Progress found_;
  std::vector<int32_t> found_lengths_;
  size_t num_saved_ = 0;  // number of lengths in the file
  FileWriter lengths_;    // locked: only one process at a time works on this data set
};

// Totals at the point where an earlier process stopped.
TokenizeTotals totals_of(const ProgressFiles& progress_files) {
  const std::vector<int32_t>& lengths = progress_files.found_lengths();
  TokenizeTotals totals;
  totals.num_files = static_cast<int64_t>(progress_files.found().file);
  totals.num_documents = totals.resumed_at = std::ssize(lengths);
  totals.num_tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  return totals;
}

std::vector<int32_t> ids_of(const Document& document, const TokenizeJob& job, const text::Tokenizer& tokenizer) {
  if (document.format == Format::tokens) {
    if (has_loss_mask(document)) {
      throw_hint(ErrorKind::unsupported, "use the data in a recipe directly, without tokenizing it",
                 "only part of the tokens counts in the loss, which a Megatron data set cannot store");
    }
    return tokenize(document, tokenizer, nullptr).ids;
  }
  std::vector<int32_t> ids = encode_start(document.text, tokenizer);
  if (job.end_of_document) ids.push_back(*tokenizer.eos_id());
  return ids;
}

void check_format(const DocumentReader& reader, Format format) {
  if (format == Format::text || format == Format::tokens) return;
  throw_hint(ErrorKind::unsupported, "use it in ingot finetune directly, without tokenizing it",
             "{}: has the format {}; a Megatron data set cannot store which of its tokens count in the loss",
             reader.path().string(), name(format));
}

// Result of a record: its tokens, or an error.
struct Outcome {
  std::vector<int32_t> ids;
  std::optional<Error> error;
  std::optional<Format> format;  // set if the record could be parsed, even if tokenization failed
  int64_t number = 0;            // of the record
};

// Consecutive records of one file: few enough that the first results are written soon, many enough for all threads.
struct Batch {
  std::shared_ptr<DocumentReader> reader;
  std::vector<Record> records;  // empty: the end of the file
  std::vector<Outcome> outcomes;
};

size_t bytes_of(const Record& record) {
  if (const auto* line = std::get_if<std::string>(&record.content)) return line->size();
  const auto* document = std::get_if<Document>(&record.content);
  return document == nullptr ? 0 : document->text.size() + document->ids.size() * sizeof(int32_t);
}

// The batches of all files in order, starting after what an earlier process has read.
class Batches {
 public:
  Batches(const TokenizeJob& job, const Progress& begin) : job_(job), file_(begin.file), skip_(begin.documents) {}

  // Fills the batch and returns its bytes; nullopt after the last file. A read error is thrown only after the records
  // before it were returned.
  std::optional<int64_t> take(Batch& batch) {
    if (error_) std::rethrow_exception(error_);
    if (!reader_) {
      if (file_ == job_.inputs.size()) return std::nullopt;
      reader_ = std::make_shared<DocumentReader>(job_.inputs[file_++], job_.format, job_.on_error);
      for (Document document; skip_ > 0 && reader_->next(document);) --skip_;
      skip_ = 0;
      reader_->reset_skipped();
    }
    batch.reader = reader_;
    size_t bytes = 0;
    try {
      for (Record record;
           std::ssize(batch.records) < records_at_once && bytes < bytes_at_once && reader_->take(record);) {
        bytes += bytes_of(record);
        batch.records.push_back(std::move(record));
      }
    } catch (const Error&) {
      if (batch.records.empty()) throw;
      error_ = std::current_exception();
    }
    if (batch.records.empty()) reader_.reset();
    return static_cast<int64_t>(bytes);
  }

 private:
  const TokenizeJob& job_;
  size_t file_;
  int64_t skip_;  // documents to skip in the current file
  std::shared_ptr<DocumentReader> reader_;
  std::exception_ptr error_;
};

class Job {
 public:
  Job(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool, ProgressFiles& progress_files)
      : job_(job),
        tokenizer_(tokenizer),
        pool_(pool),
        progress_files_(progress_files),
        progress_(progress_files.found()),
        writer_(job.prefix, formats::megatron_dtype(tokenizer.size()), progress_files_.found_lengths()) {
    totals_ = totals_of(progress_files);
  }

  TokenizeTotals run(FunctionRef<bool(const TokenizeTotals&)> go_on) {
    double saved_at = steady_seconds();
    bool wanted = true;
    Batches batches(job_, progress_);
    ordered_pipeline<Batch>(
        pool_, [&](Batch& batch) { return batches.take(batch); }, [&](Batch& batch) { tokenize_batch(batch); },
        [&](Batch& batch) {
          if (batch.records.empty()) {
            end_file(*batch.reader);
            return true;
          }
          write(batch);
          wanted = go_on(totals_);
          if (!wanted || steady_seconds() - saved_at >= save_interval_s) {
            progress_files_.write(progress_, writer_);
            saved_at = steady_seconds();
          }
          return wanted;
        });
    if (!wanted) return totals_;
    progress_files_.write(progress_, writer_);  // so that finish_killed can complete the job if this process is killed
    writer_.finish();
    progress_files_.remove();
    totals_.finished = true;
    return totals_;
  }

 private:
  void tokenize_batch(Batch& batch) const {
    batch.outcomes.resize(batch.records.size());
    for (size_t i = 0; i < batch.records.size(); ++i) {
      Outcome& outcome = batch.outcomes[i];
      outcome.number = batch.records[i].number;
      try {
        const Document document = batch.reader->parse(std::move(batch.records[i]));
        outcome.format = document.format;
        outcome.ids = ids_of(document, job_, tokenizer_);
      } catch (const Error& error) {
        outcome.error = error;
      }
    }
  }

  void write(const Batch& batch) {
    DocumentReader& reader = *batch.reader;
    for (const Outcome& outcome : batch.outcomes) {
      if (!outcome.format) {
        reader.refuse(*outcome.error, outcome.number);
        continue;
      }
      check_format(reader, *outcome.format);
      ++progress_.documents;
      // The same error, prefixed with the document's location.
      const auto with_location = [&](const Error& error) {
        return Error(error.kind(), reader.location(outcome.number) + ": " + error.message(), error.hint());
      };
      if (outcome.error) {
        refuse(with_location(*outcome.error));
        continue;
      }
      try {
        writer_.add_sequence(outcome.ids);
      } catch (const Error& error) {
        throw Error(with_location(error));
      }
      writer_.end_document();
      ++totals_.num_documents;
      totals_.num_tokens += std::ssize(outcome.ids);
    }
    totals_.num_skipped = skipped_before_ + reader.num_skipped() + refused_;
    if (totals_.first_skipped.empty()) totals_.first_skipped = reader.first_skipped();
  }

  void end_file(const DocumentReader& reader) {
    if (progress_.documents == 0) reader.throw_empty();
    skipped_before_ += reader.num_skipped();
    ++progress_.file;
    ++totals_.num_files;
    progress_.documents = 0;
  }

  // Handles a document that the tokenizer rejects: its tokens are outside the vocabulary.
  void refuse(const Error& error) {
    if (job_.on_error == OnError::stop || error.kind() != ErrorKind::corrupt) throw Error(error);
    ++refused_;
    if (totals_.first_skipped.empty()) totals_.first_skipped = error.message();
  }

  const TokenizeJob& job_;
  const text::Tokenizer& tokenizer_;
  ThreadPool& pool_;
  ProgressFiles& progress_files_;
  Progress progress_;
  formats::MegatronWriter writer_;
  TokenizeTotals totals_;
  int64_t skipped_before_ = 0;  // bad lines in the completed files
  int64_t refused_ = 0;         // documents rejected by the tokenizer
};

// Completes a job whose process was killed after it had written all documents.
TokenizeTotals finish_killed(const TokenizeJob& job, const text::Tokenizer& tokenizer, ProgressFiles& progress_files) {
  if (!path_exists(formats::with_suffix(job.prefix, ".idx"))) {
    formats::MegatronWriter::finish_index(job.prefix, formats::megatron_dtype(tokenizer.size()),
                                          progress_files.found_lengths());
  }
  TokenizeTotals totals = totals_of(progress_files);
  totals.finished = true;
  progress_files.remove();
  return totals;
}

}  // namespace

TokenizeTotals tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool,
                              FunctionRef<bool(const TokenizeTotals&)> go_on) {
  if (job.inputs.empty()) throw_error(ErrorKind::usage, "no file to tokenize is given");
  if (job.end_of_document && !tokenizer.eos_id()) {
    throw_hint(ErrorKind::unsupported,
               "set eos_token in the model's tokenizer_config.json, or write no end-of-text tokens",
               "the tokenizer has no end-of-text token (EOS) to end a document with");
  }
  ProgressFiles progress_files(job.prefix, identity_of(job, tokenizer, pool));
  if (progress_files.found().file == job.inputs.size() && path_exists(formats::with_suffix(job.prefix, ".bin"))) {
    return finish_killed(job, tokenizer, progress_files);
  }
  for (const char* suffix : {".idx", ".bin"}) {
    const fs::path path = formats::with_suffix(job.prefix, suffix);
    if (path_exists(path)) {
      throw_hint(ErrorKind::usage, "remove it, or write somewhere else", "{}: already exists", path.string());
    }
  }
  return Job(job, tokenizer, pool, progress_files).run(go_on);
}

}  // namespace ingot::data
