#include "data/source.h"

#include "base/error.h"
#include "base/uri.h"
#include "text/unicode.h"

namespace ingot::data {

namespace fs = std::filesystem;

namespace {

enum class Kind { lines, text, rows, unknown };

Kind kind_by_name(const fs::path& path) {
  fs::path bare = is_remote(path.string()) ? fs::path(parse_uri(path.string()).file_name) : path.filename();
  if (bare.extension() == ".npy") return Kind::rows;
  if (bare.extension() == ".gz" || bare.extension() == ".zst") bare = bare.stem();
  const std::string suffix = bare.extension().string();
  if (suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json") return Kind::lines;
  if (suffix == ".txt" || suffix == ".md") return Kind::text;
  return Kind::unknown;
}

}  // namespace

bool is_remote_file(const fs::path& path) { return is_remote(path.string()) && kind_by_name(path) != Kind::unknown; }

bool is_megatron(const fs::path& path) { return !is_remote_file(path) && formats::is_megatron(path); }

OnError parse_on_error(std::string_view word) {
  if (word == "stop") return OnError::stop;
  if (word == "skip") return OnError::skip;
  throw_error(ErrorKind::usage, "on_error '{}' is not known; it may be stop or skip", word);
}

DocumentReader::DocumentReader(const fs::path& path, Format format, OnError on_error)
    : path_(shown(path.string())), format_(format), on_error_(on_error) {
  Kind kind = kind_by_name(path);
  if (kind == Kind::rows) {
    if (format != Format::automatic && format != Format::tokens) {
      throw_hint(ErrorKind::usage, "give the format auto or tokens",
                 "{}: is an array of tokens, but the format asked for is {}", path_.string(), name(format));
    }
    rows_.emplace(path);
    return;
  }
  if (is_mds_folder(path)) {
    mds_.emplace(path, format);
    return;
  }
  if (kind == Kind::unknown && formats::is_megatron(path)) {
    if (format != Format::automatic && format != Format::tokens) {
      throw_hint(ErrorKind::usage, "give the format auto or tokens",
                 "{}: is a Megatron data set, but the format asked for is {}", path_.string(), name(format));
    }
    megatron_.emplace(path);
    return;
  }
  if (format == Format::tokens) {
    throw_hint(ErrorKind::usage, "give a .npy file, a folder of MDS shards or a Megatron data set",
               "{}: is no array of tokens, which is the format asked for", path_.string());
  }
  lines_.emplace(ByteStream(path));
  const char first = lines_->peek();
  if (kind == Kind::unknown && first == '{') kind = Kind::lines;
  if (kind == Kind::unknown && format == Format::text) kind = Kind::text;
  if (kind == Kind::unknown && first != '\0') {
    throw_hint(ErrorKind::usage, "name it .jsonl (one JSON object a line) or .txt, or give the format: text",
               "{}: neither its name nor its first byte tells what kind of data it is", path_.string());
  }
  plain_ = kind == Kind::text;
  if (plain_ && format != Format::automatic && format != Format::text) {
    throw_hint(ErrorKind::usage, "give the format auto or text, or a file of JSON lines",
               "{}: is plain text, but the format asked for is {}", path_.string(), name(format));
  }
  if (!plain_ && first == '[') {
    throw_hint(ErrorKind::unsupported, "make JSON lines of it: jq -c '.[]' in.json > out.jsonl",
               "{}: is one JSON array; JSON lines are read, one object a line", path_.string());
  }
}

bool DocumentReader::next(Document& document) {
  const bool found = plain_      ? next_text(document)
                     : rows_     ? next_row(document)
                     : mds_      ? next_sample(document)
                     : megatron_ ? next_megatron(document)
                                 : next_record(document);
  if (found) ++num_documents_;
  if (!found && num_documents_ == 0) throw_empty();
  return found;
}

bool DocumentReader::next_text(Document& document) {
  std::string text = lines_->rest();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return false;
  if (!text::is_valid_utf8(text)) {
    throw_hint(ErrorKind::corrupt, "convert it: iconv -f ISO-8859-1 -t UTF-8 in.txt > out.txt",
               "{}: the text is not UTF-8", path_.string());
  }
  format_ = Format::text;
  document = Document{};
  document.text = std::move(text);
  return true;
}

bool DocumentReader::next_record(Document& document) {
  while (lines_->next(line_)) {
    if (!lines_->too_long() && line_.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      if (lines_->too_long()) {
        throw_error(ErrorKind::corrupt, "is longer than {} MiB", LineReader::max_line_bytes >> 20);
      }
      document = parse_record(line_, format_);
      document.line = lines_->line_number();
      return true;
    } catch (const Error& error) {
      refuse(error, "line", lines_->line_number());
    }
  }
  return false;
}

bool DocumentReader::next_row(Document& document) {
  format_ = Format::tokens;
  for (;;) {
    try {
      return rows_->next(document);
    } catch (const Error& error) {
      refuse(error, "row", rows_->row());
    }
  }
}

bool DocumentReader::next_megatron(Document& document) {
  format_ = Format::tokens;
  const int64_t index = num_documents_;
  if (index == megatron_->num_documents()) return false;
  document = Document{};
  document.format = Format::tokens;
  document.line = index + 1;
  for (int64_t s = megatron_->first_sequence(index); s < megatron_->first_sequence(index + 1); ++s) {
    const size_t begin = document.ids.size();
    document.ids.resize(begin + static_cast<size_t>(megatron_->length(s)));
    megatron_->read(s, 0, std::span(document.ids).subspan(begin));
  }
  document.counted.assign(document.ids.size(), 1);
  document.splittable = true;
  return true;
}

bool DocumentReader::next_sample(Document& document) {
  format_ = mds_->format();
  while (mds_->advance()) {
    try {
      document = mds_->read();
      return true;
    } catch (const Error& error) {
      refuse(error, "sample", mds_->row());
    }
  }
  return false;
}

std::string DocumentReader::place(const Document& document) const {
  const char* part = mds_ ? "sample" : rows_ ? "row" : megatron_ ? "document" : "line";
  return document.line > 0 ? fmt::format("{} {} {}", path_.string(), part, document.line) : path_.string();
}

// What is wrong with a line or a row stops the reading, or is kept in mind.
void DocumentReader::refuse(const Error& error, const char* part, int64_t number) {
  if (error.kind() != ErrorKind::corrupt) throw Error(error);
  const std::string where = fmt::format("{} {} {}: {}", path_.string(), part, number, error.message());
  if (on_error_ == OnError::stop) {
    const std::string hint = fmt::format("mend the {0}, or leave bad {0}s out with on_error: skip", part);
    throw Error(ErrorKind::corrupt, where, error.hint().empty() ? hint : error.hint());
  }
  if (num_skipped_++ == 0) first_skipped_ = where;
}

void DocumentReader::throw_empty() const {
  const std::string hint = "give a file with at least one document";
  if (num_skipped_ == 0) throw_hint(ErrorKind::corrupt, hint, "{}: holds no documents: it is empty", path_.string());
  throw_hint(ErrorKind::corrupt, hint, "{}: holds no documents: all {} {} are bad, the first: {}", path_.string(),
             num_skipped_,
             rows_  ? "rows"
             : mds_ ? "samples"
                    : "lines",
             first_skipped_);
}

}  // namespace ingot::data
