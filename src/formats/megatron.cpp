#include "formats/megatron.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/path.h"
#include "formats/byte_reader.h"
#include "formats/printable.h"
#include "storage/uri.h"

namespace ingot::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_magic{"MMIDIDX\0\0", 9};
constexpr std::string_view old_magic{"TNTIDX\0\0", 8};
constexpr uint64_t version = 1;
constexpr int64_t small_vocabulary = 65500;  // from this size on Megatron's tools write int32

template <class T>
T load(const std::byte* from, int64_t index) {
  T value;
  std::memcpy(&value, from + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::string_view as_text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string_view as_text(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

// Calls `action` with a value of the C++ type of `dtype`.
template <class Action>
void visit(MegatronDtype dtype, Action action) {
  switch (dtype) {
    case MegatronDtype::u8: return action(uint8_t{});
    case MegatronDtype::i8: return action(int8_t{});
    case MegatronDtype::i16: return action(int16_t{});
    case MegatronDtype::i32: return action(int32_t{});
    case MegatronDtype::i64: return action(int64_t{});
    case MegatronDtype::u16: return action(uint16_t{});
    case MegatronDtype::f64:
    case MegatronDtype::f32: return;
  }
}

uint64_t sum(const std::vector<int32_t>& lengths) {
  uint64_t total = 0;
  for (const int32_t length : lengths) total += static_cast<uint64_t>(length);
  return total;
}

// The document entries when every document is one sequence.
std::vector<int64_t> one_each(size_t number) {
  std::vector<int64_t> documents(number + 1);
  std::iota(documents.begin(), documents.end(), int64_t{0});
  return documents;
}

void write_index(FileWriter& index, MegatronDtype dtype, const std::vector<int32_t>& lengths,
                 const std::vector<int64_t>& documents) {
  index.write(index_magic);
  index.write(as_text(version));
  index.write(as_text(static_cast<uint8_t>(dtype)));
  index.write(as_text(uint64_t{lengths.size()}));
  index.write(as_text(uint64_t{documents.size()}));
  index.write(as_text(lengths));
  std::vector<int64_t> offsets;
  offsets.reserve(lengths.size());
  int64_t end = 0;
  for (const int32_t length : lengths) {
    offsets.push_back(end);
    end += length * static_cast<int64_t>(item_size(dtype));
  }
  index.write(as_text(offsets));
  index.write(as_text(documents));
}

}  // namespace

fs::path with_suffix(const fs::path& prefix, const char* suffix) {
  const std::string text = prefix.string();
  const std::string_view path = without_query(text);
  return fmt::format("{}{}{}", path, suffix, text.substr(path.size()));
}

const char* name(MegatronDtype dtype) {
  static constexpr std::array names = {"uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
  return names.at(static_cast<size_t>(dtype) - 1);
}

size_t item_size(MegatronDtype dtype) {
  static constexpr std::array<size_t, 8> sizes = {1, 1, 2, 4, 8, 8, 4, 2};
  return sizes.at(static_cast<size_t>(dtype) - 1);
}

bool holds_tokens(MegatronDtype dtype) { return dtype != MegatronDtype::f64 && dtype != MegatronDtype::f32; }

MegatronDtype megatron_dtype(int64_t vocabulary) {
  return vocabulary < small_vocabulary ? MegatronDtype::u16 : MegatronDtype::i32;
}

fs::path megatron_prefix(const fs::path& path) {
  const std::string text = path.string();
  const std::string_view name = without_query(text);
  const fs::path suffix = fs::path(name).extension();
  if (suffix != ".idx" && suffix != ".bin") return path;
  return fmt::format("{}{}", name.substr(0, name.size() - 4), text.substr(name.size()));
}

bool is_megatron(const fs::path& path) {
  const fs::path prefix = megatron_prefix(path);
  return input_exists(with_suffix(prefix, ".idx")) && input_exists(with_suffix(prefix, ".bin"));
}

MegatronFile::MegatronFile(const fs::path& path)
    : index_input_(input_file(with_suffix(megatron_prefix(path), ".idx"))),
      token_input_(input_file(with_suffix(megatron_prefix(path), ".bin"))),
      index_file_(index_input_.path),
      token_file_(token_input_.path),
      source_(shown(megatron_prefix(path).string())),
      index_(index_file_.bytes()),
      tokens_(token_file_.bytes()) {
  parse();
}

MegatronFile::MegatronFile(std::span<const std::byte> index, std::span<const std::byte> tokens, std::string source)
    : source_(std::move(source)), index_(index), tokens_(tokens) {
  parse();
}

void MegatronFile::parse() {
  const std::string file = source_ + ".idx";
  ByteReader reader(index_, file);
  const std::string_view start{reinterpret_cast<const char*>(index_.data()),
                               std::min(index_.size(), index_magic.size())};
  if (start.starts_with(old_magic)) {
    throw_hint(ErrorKind::unsupported, "create it again with Megatron's tools/preprocess_data.py",
               "{}: has the old format TNTIDX; only MMIDIDX is supported", file);
  }
  if (start != index_magic) {
    throw_error(ErrorKind::corrupt, "{}: not a Megatron index: it begins with {}", file, printable(start));
  }
  reader.take(index_magic.size(), "the magic");
  if (const auto found = reader.number<uint64_t>("the version"); found != version) {
    throw_error(ErrorKind::unsupported, "{}: index version {} is not supported; expected version {}", file, found,
                version);
  }
  const auto code = reader.number<uint8_t>("the dtype");
  if (code < 1 || code > 8)
    throw_error(ErrorKind::corrupt, "{}: dtype code {} is invalid; expected 1 to 8", file, code);
  dtype_ = static_cast<MegatronDtype>(code);
  item_ = item_size(dtype_);
  const uint64_t sequences = reader.count(sizeof(int32_t) + sizeof(int64_t), "a number of sequences");
  const uint64_t entries = reader.count(sizeof(int64_t), "a number of document entries");
  if (entries == 0) throw_error(ErrorKind::corrupt, "{}: has no document entries; at least one, 0, is expected", file);
  lengths_ = reader.take(sequences * sizeof(int32_t), "the lengths").data();
  offsets_ = reader.take(sequences * sizeof(int64_t), "the offsets").data();
  documents_ = reader.take(entries * sizeof(int64_t), "the documents").data();
  if (reader.remaining() == sequences && sequences > 0) {
    throw_hint(ErrorKind::unsupported, "only text data is supported",
               "{}: is multimodal: it has a mode for each of its {} sequences", file, sequences);
  }
  if (reader.remaining() > 0) {
    throw_error(ErrorKind::corrupt, "{}: {} unexpected bytes after the documents", file, reader.remaining());
  }
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(entries) - 1;
  check_sequences();
  check_documents();
}

void MegatronFile::check_sequences() const {
  uint64_t end = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    if (length(i) < 0) {
      throw_error(ErrorKind::corrupt, "{}.idx: sequence {} has a length of {}", source_, i, length(i));
    }
    if (offset(i) < 0 || static_cast<uint64_t>(offset(i)) != end) {
      throw_error(ErrorKind::corrupt, "{}.idx: sequence {} begins at byte {}, but those before it end at {}", source_,
                  i, offset(i), end);
    }
    end += static_cast<uint64_t>(length(i)) * item_;
    if (end > tokens_.size()) {
      throw_hint(ErrorKind::corrupt, "fetch both files again: they do not belong together, or one is cut short",
                 "{}.bin: has {} bytes, but sequence {} ends at {}", source_, tokens_.size(), i, end);
    }
  }
  if (end != tokens_.size()) {
    throw_hint(ErrorKind::corrupt, "fetch both files again: they do not belong together",
               "{}.bin: has {} bytes, but the {} sequences of {} in the .idx need {}", source_, tokens_.size(),
               num_sequences_, name(dtype_), end);
  }
}

void MegatronFile::check_documents() const {
  int64_t last = 0;
  for (int64_t d = 0; d <= num_documents_; ++d) {
    const int64_t first = first_sequence(d);
    if (first < last || (d == 0 && first != 0)) {
      throw_error(ErrorKind::corrupt, "{}.idx: document entry {} is {} after {}; entries must ascend from 0", source_,
                  d, first, last);
    }
    last = first;
  }
  if (last != num_sequences_) {
    throw_error(ErrorKind::corrupt, "{}.idx: the documents have {} sequences, but there are {}", source_, last,
                num_sequences_);
  }
}

int64_t MegatronFile::length(int64_t sequence) const { return load<int32_t>(lengths_, sequence); }
int64_t MegatronFile::offset(int64_t sequence) const { return load<int64_t>(offsets_, sequence); }
int64_t MegatronFile::first_sequence(int64_t document) const { return load<int64_t>(documents_, document); }

std::span<const std::byte> MegatronFile::bytes(int64_t sequence) const {
  return tokens_.subspan(static_cast<size_t>(offset(sequence)), static_cast<size_t>(length(sequence)) * item_);
}

void MegatronFile::read(int64_t sequence, int64_t begin, std::span<int32_t> out) const {
  if (!holds_tokens(dtype_)) {
    throw_error(ErrorKind::unsupported, "{}.bin: holds {} values, which are not token ids", source_, name(dtype_));
  }
  const std::byte* from = bytes(sequence).data() + static_cast<size_t>(begin) * item_;
  visit(dtype_, [&]<class T>(T) {
    for (size_t i = 0; i < out.size(); ++i) {
      const T value = load<T>(from, static_cast<int64_t>(i));
      if (std::cmp_less(value, 0) || !std::in_range<int32_t>(value)) {
        throw_error(ErrorKind::corrupt, "{}.bin: token {} of sequence {} is {}, which is not a token id", source_,
                    begin + static_cast<int64_t>(i), sequence, value);
      }
      out[i] = static_cast<int32_t>(+value);
    }
  });
}

MegatronWriter::MegatronWriter(const fs::path& prefix, MegatronDtype dtype)
    : prefix_(prefix), dtype_(dtype), tokens_(with_suffix(prefix, ".bin")) {
  if (!holds_tokens(dtype))
    throw_error(ErrorKind::internal, "{}: cannot store tokens as {}", prefix.string(), name(dtype));
}

MegatronWriter::MegatronWriter(const fs::path& prefix, MegatronDtype dtype, std::vector<int32_t> lengths)
    : prefix_(prefix),
      dtype_(dtype),
      tokens_(with_suffix(prefix, ".bin"), WriteMode::resume),
      lengths_(std::move(lengths)) {
  if (!holds_tokens(dtype))
    throw_error(ErrorKind::internal, "{}: cannot store tokens as {}", prefix.string(), name(dtype));
  const uint64_t bytes = sum(lengths_) * item_size(dtype);
  if (tokens_.offset() < bytes) {
    throw_hint(ErrorKind::corrupt,
               "remove it and the other files of its job (.lengths.partial, .progress), and start over",
               "{}: has {} of the {} bytes that were written", partial().string(), tokens_.offset(), bytes);
  }
  tokens_.cut(bytes);
  documents_ = one_each(lengths_.size());
}

void MegatronWriter::add_sequence(std::span<const int32_t> tokens) {
  if (!std::in_range<int32_t>(tokens.size())) {
    throw_error(ErrorKind::resource, "{}: a sequence of {} tokens; at most {} can be written", prefix_.string(),
                tokens.size(), std::numeric_limits<int32_t>::max());
  }
  const size_t item = item_size(dtype_);
  buffer_.resize(tokens.size() * item);
  visit(dtype_, [&]<class T>(T) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!std::in_range<T>(tokens[i])) {
        throw_error(ErrorKind::corrupt, "{}: token {} of sequence {} is {}, which does not fit {}", prefix_.string(), i,
                    lengths_.size(), tokens[i], name(dtype_));
      }
      const T value = static_cast<T>(tokens[i]);
      std::memcpy(buffer_.data() + i * item, &value, item);
    }
  });
  tokens_.write(buffer_);
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
}

void MegatronWriter::end_document() { documents_.push_back(static_cast<int64_t>(lengths_.size())); }

void MegatronWriter::finish() {
  if (documents_.back() != static_cast<int64_t>(lengths_.size())) {
    throw_error(ErrorKind::internal, "{}: the last document was not ended", prefix_.string());
  }
  FileWriter index(with_suffix(prefix_, ".idx"));
  write_index(index, dtype_, lengths_, documents_);
  tokens_.publish();
  index.publish();
}

void MegatronWriter::finish_index(const fs::path& prefix, MegatronDtype dtype, const std::vector<int32_t>& lengths) {
  const fs::path tokens = with_suffix(prefix, ".bin");
  const uint64_t wanted = sum(lengths) * item_size(dtype), found = regular_file_bytes(tokens);
  if (found != wanted) {
    throw_hint(ErrorKind::corrupt,
               "remove it and the other files of its job (.lengths.partial, .progress), and start over",
               "{}: has {} bytes, not the {} that were written", tokens.string(), found, wanted);
  }
  FileWriter index(with_suffix(prefix, ".idx"));
  write_index(index, dtype, lengths, one_each(lengths.size()));
  index.publish();
}

}  // namespace ingot::formats
