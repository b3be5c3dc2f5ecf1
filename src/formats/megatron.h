// Megatron-LM's indexed data sets: PREFIX.bin has the tokens of all sequences, concatenated, and PREFIX.idx has the
// offset and length of each, and which sequences make up a document.
// Format: megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM, version 1, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "storage/file_cache.h"

namespace ingot::formats {

enum class MegatronDtype : uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, f64 = 6, f32 = 7, u16 = 8 };

const char* name(MegatronDtype dtype);   // NumPy's name: "uint16"
size_t item_size(MegatronDtype dtype);   // bytes
bool holds_tokens(MegatronDtype dtype);  // integers, not floating-point numbers
// The dtype that Megatron's tools write for a vocabulary of this size.
MegatronDtype megatron_dtype(int64_t vocabulary);

// PREFIX with a file name's suffix, inserted before the query of a remote address.
std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix);
// Reduces PREFIX, PREFIX.idx or PREFIX.bin to PREFIX.
std::filesystem::path megatron_prefix(const std::filesystem::path& path);
// Whether `path`, which may be remote, is one of these three and both files exist. Errors: as find_remote.
bool is_megatron(const std::filesystem::path& path);

// Both files, mapped read-only and completely validated: lengths and offsets are consecutive and fill the .bin, and
// documents are whole sequences. Immutable.
class MegatronFile {
 public:
  // `path`: as for megatron_prefix; remote files are downloaded. Errors: `corrupt`, naming the file and the entry;
  // `unsupported` for the older format TNTIDX, other versions and multimodal data sets; those of MappedFile.
  explicit MegatronFile(const std::filesystem::path& path);
  // Reads bytes in memory, which must outlive this; `source` replaces the prefix in messages.
  MegatronFile(std::span<const std::byte> index, std::span<const std::byte> tokens, std::string source);

  const std::string& source() const { return source_; }  // the prefix
  MegatronDtype dtype() const { return dtype_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size() / item_); }
  std::span<const std::byte> index_bytes() const { return index_; }  // the whole .idx
  std::span<const std::byte> token_bytes() const { return tokens_; }

  // These REQUIRE an index in range.
  int64_t length(int64_t sequence) const;          // tokens, 0 or more
  int64_t first_sequence(int64_t document) const;  // for document num_documents(): num_sequences()
  std::span<const std::byte> bytes(int64_t sequence) const;

  // Reads tokens begin .. begin + out.size() of a sequence. REQUIRES that they exist. Errors: `unsupported` for
  // floating-point values; `corrupt` for a token below 0 or beyond int32, naming its position.
  void read(int64_t sequence, int64_t begin, std::span<int32_t> out) const;

 private:
  void parse();
  void check_sequences() const;
  void check_documents() const;
  int64_t offset(int64_t sequence) const;  // bytes, in the .bin

  InputFile index_input_, token_input_;
  MappedFile index_file_, token_file_;
  std::string source_;
  std::span<const std::byte> index_, tokens_;
  MegatronDtype dtype_ = MegatronDtype::u16;
  size_t item_ = 1;
  int64_t num_sequences_ = 0, num_documents_ = 0;
  const std::byte* lengths_ = nullptr;    // i32 [num_sequences_], possibly unaligned
  const std::byte* offsets_ = nullptr;    // i64 [num_sequences_]
  const std::byte* documents_ = nullptr;  // i64 [num_documents_ + 1]
};

// Writes both files like Megatron's own builder: complete or absent, the .idx last.
class MegatronWriter {
 public:
  // Errors: `internal` for a floating-point dtype; those of FileWriter.
  MegatronWriter(const std::filesystem::path& prefix, MegatronDtype dtype);
  // Resumes PREFIX.bin.partial, which another writer left with documents of one sequence each, of `lengths` tokens;
  // anything after them is cut off. Unless finished, this writer leaves the file as well. Errors: also `corrupt` when
  // the file is shorter; `unavailable` when another process is writing it.
  MegatronWriter(const std::filesystem::path& prefix, MegatronDtype dtype, std::vector<int32_t> lengths);

  // Errors: `corrupt` for a token that does not fit the dtype; `resource` for a sequence of more than 2^31 - 1 tokens.
  void add_sequence(std::span<const int32_t> tokens);
  void end_document();  // to be called after the document's last sequence
  // Publishes the files. Errors: `internal` when the last document was not ended.
  void finish();
  // Performs only the last half of `finish`, after a process was killed between publishing the two files. PREFIX.bin
  // has documents of one sequence each, of `lengths` tokens. Errors: `corrupt` when it has another size.
  static void finish_index(const std::filesystem::path& prefix, MegatronDtype dtype,
                           const std::vector<int32_t>& lengths);

  const std::vector<int32_t>& lengths() const { return lengths_; }
  const std::filesystem::path& partial() const { return tokens_.partial(); }

 private:
  std::filesystem::path prefix_;
  MegatronDtype dtype_;
  FileWriter tokens_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_{0};
  std::vector<std::byte> buffer_;
};

}  // namespace ingot::formats
