#include "data/source.h"

#include "base/error.h"
#include "storage/uri.h"
#include "text/unicode.h"

namespace ingot::data {

namespace fs = std::filesystem;

namespace {

enum class SourceKind { lines, text, rows, unknown };

SourceKind kind_by_name(const fs::path& path) {
  fs::path bare = is_remote(path.string()) ? fs::path(parse_uri(path.string()).file_name) : path.filename();
  if (bare.extension() == ".npy") return SourceKind::rows;
  if (bare.extension() == ".gz" || bare.extension() == ".zst") bare = bare.stem();
  const std::string suffix = bare.extension().string();
  if (suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json") return SourceKind::lines;
  if (suffix == ".txt" || suffix == ".md") return SourceKind::text;
  return SourceKind::unknown;
}

}  // namespace

bool is_remote_file(const fs::path& path) {
  return is_remote(path.string()) && kind_by_name(path) != SourceKind::unknown;
}

bool is_megatron(const fs::path& path) { return !is_remote_file(path) && formats::is_megatron(path); }

OnError parse_on_error(std::string_view word) {
  if (word == "stop") return OnError::stop;
  if (word == "skip") return OnError::skip;
  throw_error(ErrorKind::usage, "on_error '{}' is not known; it may be stop or skip", word);
}

DocumentReader::DocumentReader(const fs::path& path, Format format, OnError on_error)
    : path_(shown(path.string())), format_(format), on_error_(on_error) {
  SourceKind kind = kind_by_name(path);
  if (kind == SourceKind::rows) {
    if (format != Format::automatic && format != Format::tokens) {
      throw_hint(ErrorKind::usage, "give the format auto or tokens",
                 "{}: is an array of tokens, but the requested format is {}", path_.string(), name(format));
    }
    rows_.emplace(path);
    return;
  }
  if (is_mds_folder(path)) {
    mds_.emplace(path, format);
    return;
  }
  if (kind == SourceKind::unknown && formats::is_megatron(path)) {
    if (format != Format::automatic && format != Format::tokens) {
      throw_hint(ErrorKind::usage, "give the format auto or tokens",
                 "{}: is a Megatron data set, but the requested format is {}", path_.string(), name(format));
    }
    megatron_.emplace(path);
    return;
  }
  if (format == Format::tokens) {
    throw_hint(ErrorKind::usage, "give a .npy file, a folder of MDS shards or a Megatron data set",
               "{}: is not an array of tokens, which is the requested format", path_.string());
  }
  lines_.emplace(ByteStream(path));
  const char first = lines_->peek();
  if (kind == SourceKind::unknown && first == '{') kind = SourceKind::lines;
  if (kind == SourceKind::unknown && format == Format::text) kind = SourceKind::text;
  if (kind == SourceKind::unknown && first != '\0') {
    throw_hint(ErrorKind::usage, "name it .jsonl (one JSON object a line) or .txt, or give the format: text",
               "{}: neither its name nor its first byte shows what kind of data it is", path_.string());
  }
  plain_ = kind == SourceKind::text;
  if (plain_ && format != Format::automatic && format != Format::text) {
    throw_hint(ErrorKind::usage, "give the format auto or text, or a file of JSON lines",
               "{}: is plain text, but the requested format is {}", path_.string(), name(format));
  }
  if (!plain_ && first == '[') {
    throw_hint(ErrorKind::unsupported, "convert it to JSON lines: jq -c '.[]' in.json > out.jsonl",
               "{}: is one JSON array; expected JSON lines, one object a line", path_.string());
  }
}

bool DocumentReader::next(Document& document) {
  for (Record record; take(record);) {
    const int64_t number = record.number;
    try {
      document = parse(std::move(record));
      ++num_documents_;
      return true;
    } catch (const Error& error) {
      refuse(error, number);
    }
  }
  if (num_documents_ == 0) throw_empty();
  return false;
}

bool DocumentReader::take(Record& record) {
  const bool found = plain_      ? take_text(record)
                     : rows_     ? take_row(record)
                     : mds_      ? take_sample(record)
                     : megatron_ ? take_megatron(record)
                                 : take_line(record);
  if (found) ++num_taken_;
  return found;
}

Document DocumentReader::parse(Record record) const {
  if (const Error* error = std::get_if<Error>(&record.content)) throw Error(*error);
  if (Document* document = std::get_if<Document>(&record.content)) return std::move(*document);
  Format format = format_;
  Document document = parse_record(std::get<std::string>(record.content), format);
  document.line = record.number;
  return document;
}

bool DocumentReader::take_text(Record& record) {
  std::string text = lines_->rest();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return false;
  if (!text::is_valid_utf8(text)) {
    throw_hint(ErrorKind::corrupt, "convert it: iconv -f ISO-8859-1 -t UTF-8 in.txt > out.txt",
               "{}: the text is not UTF-8", path_.string());
  }
  format_ = Format::text;
  Document document;
  document.text = std::move(text);
  record = {std::move(document), 0};
  return true;
}

bool DocumentReader::take_line(Record& record) {
  std::string line;
  do {
    if (!lines_->next(line)) return false;
  } while (!lines_->too_long() && line.find_first_not_of(" \t\r") == std::string::npos);
  record.number = lines_->line_number();
  if (lines_->too_long()) {
    record.content = Error(ErrorKind::corrupt, fmt::format("is longer than {} MiB", LineReader::max_line_bytes >> 20));
  } else if (format_ != Format::automatic) {
    record.content = std::move(line);
  } else {
    try {
      Document document = parse_record(line, format_);
      document.line = record.number;
      record.content = std::move(document);
    } catch (const Error& error) {
      record.content = error;
    }
  }
  return true;
}

bool DocumentReader::take_row(Record& record) {
  format_ = Format::tokens;
  try {
    Document document;
    if (!rows_->next(document)) return false;
    record.content = std::move(document);
  } catch (const Error& error) {
    record.content = error;
  }
  record.number = rows_->row();
  return true;
}

bool DocumentReader::take_megatron(Record& record) {
  format_ = Format::tokens;
  if (num_taken_ == megatron_->num_documents()) return false;
  Document document;
  document.format = Format::tokens;
  document.line = num_taken_ + 1;
  for (int64_t s = megatron_->first_sequence(num_taken_); s < megatron_->first_sequence(num_taken_ + 1); ++s) {
    const size_t begin = document.ids.size();
    document.ids.resize(begin + static_cast<size_t>(megatron_->length(s)));
    megatron_->read(s, 0, std::span(document.ids).subspan(begin));
  }
  document.loss_mask.assign(document.ids.size(), 1);
  document.splittable = true;
  record = {std::move(document), num_taken_ + 1};
  return true;
}

bool DocumentReader::take_sample(Record& record) {
  format_ = mds_->format();
  if (!mds_->advance()) return false;
  try {
    record.content = mds_->read();
  } catch (const Error& error) {
    record.content = error;
  }
  record.number = mds_->row();
  return true;
}

const char* DocumentReader::part() const { return mds_ ? "sample" : rows_ ? "row" : megatron_ ? "document" : "line"; }

std::string DocumentReader::location(int64_t number) const {
  return number > 0 ? fmt::format("{} {} {}", path_.string(), part(), number) : path_.string();
}

void DocumentReader::refuse(const Error& error, int64_t number) {
  if (error.kind() != ErrorKind::corrupt) throw Error(error);
  const std::string where = location(number) + ": " + error.message();
  if (on_error_ == OnError::stop) {
    const std::string hint = fmt::format("fix the {0}, or skip bad {0}s with on_error: skip", part());
    throw Error(ErrorKind::corrupt, where, error.hint().empty() ? hint : error.hint());
  }
  if (num_skipped_++ == 0) first_skipped_ = where;
}

void DocumentReader::reset_skipped() {
  num_skipped_ = 0;
  first_skipped_.clear();
}

void DocumentReader::throw_empty() const {
  const std::string hint = "give a file with at least one document";
  if (num_skipped_ == 0) throw_hint(ErrorKind::corrupt, hint, "{}: holds no documents: it is empty", path_.string());
  throw_hint(ErrorKind::corrupt, hint, "{}: holds no documents: all {} {}s are bad, the first: {}", path_.string(),
             num_skipped_, part(), first_skipped_);
}

}  // namespace ingot::data
