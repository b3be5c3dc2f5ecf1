// Megatron-LM's indexed data sets: PREFIX.bin holds the tokens of all sequences, one behind the other, and PREFIX.idx
// says where each begins, how long it is, and which sequences make up a document.
// Format: megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM, version 1, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/file_cache.h"

namespace ingot::formats {

enum class MegatronDtype : uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, f64 = 6, f32 = 7, u16 = 8 };

const char* name(MegatronDtype dtype);   // as NumPy calls it: "uint16"
size_t item_size(MegatronDtype dtype);   // bytes
bool holds_tokens(MegatronDtype dtype);  // whole numbers, not real ones
// What Megatron's tools write for a vocabulary of this size.
MegatronDtype megatron_dtype(int64_t vocabulary);

// PREFIX and what a file's name has behind it, which comes before the query of an address.
std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix);
// PREFIX, PREFIX.idx or PREFIX.bin to PREFIX.
std::filesystem::path megatron_prefix(const std::filesystem::path& path);
// Whether `path` is one of these three and both files are there; also of addresses of remote files. Errors: as
// find_remote.
bool is_megatron(const std::filesystem::path& path);

// Both files, mapped read-only and checked as a whole: lengths and offsets lie one behind the other and fill the .bin,
// and documents are whole sequences. Immutable.
class MegatronFile {
 public:
  // `path`: as for megatron_prefix; remote files are brought here. Errors: `corrupt`, naming the file and the entry;
  // `unsupported` for the older format TNTIDX, other versions and multimodal data sets; those of MappedFile.
  explicit MegatronFile(const std::filesystem::path& path);
  // Reads bytes in memory, which must outlive this; `source` stands for the prefix in messages.
  MegatronFile(std::span<const std::byte> index, std::span<const std::byte> tokens, std::string source);

  const std::string& source() const { return source_; }  // the prefix
  MegatronDtype dtype() const { return dtype_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size() / item_); }
  std::span<const std::byte> index_bytes() const { return index_; }  // of the whole .idx
  std::span<const std::byte> token_bytes() const { return tokens_; }

  // These REQUIRE an index in range.
  int64_t length(int64_t sequence) const;          // tokens, 0 or more
  int64_t first_sequence(int64_t document) const;  // num_documents(): the number of sequences
  std::span<const std::byte> bytes(int64_t sequence) const;

  // Tokens begin .. begin + out.size() of a sequence. REQUIRES that they are there. Errors: `unsupported` for real
  // numbers; `corrupt` for a token below 0 or beyond an int32, naming its place.
  void read(int64_t sequence, int64_t begin, std::span<int32_t> out) const;

 private:
  void parse();
  void check_sequences() const;
  void check_documents() const;
  int64_t offset(int64_t sequence) const;  // in the .bin, bytes

  InputFile index_input_, token_input_;
  MappedFile index_file_, token_file_;
  std::string source_;
  std::span<const std::byte> index_, tokens_;
  MegatronDtype dtype_ = MegatronDtype::u16;
  size_t item_ = 1;
  int64_t num_sequences_ = 0, num_documents_ = 0;
  const std::byte* lengths_ = nullptr;    // i32 [num_sequences_], at any address
  const std::byte* offsets_ = nullptr;    // i64 [num_sequences_]
  const std::byte* documents_ = nullptr;  // i64 [num_documents_ + 1]
};

// Writes both files as Megatron's own builder does: complete or absent, the .idx last.
class MegatronWriter {
 public:
  // Errors: `internal` for real numbers; those of FileWriter.
  MegatronWriter(const std::filesystem::path& prefix, MegatronDtype dtype);
  // Goes on behind documents of one sequence each, of `lengths` tokens, that another writer left in PREFIX.bin.partial,
  // and leaves what it writes there unless it is finished. What lies behind them is cut off. Errors: also `corrupt`
  // when the file is shorter; `unavailable` when another process is writing it.
  MegatronWriter(const std::filesystem::path& prefix, MegatronDtype dtype, std::vector<int32_t> lengths);

  // Errors: `corrupt` for a token that the dtype does not hold; `resource` for more than 2^31 - 1 tokens.
  void add_sequence(std::span<const int32_t> tokens);
  void end_document();  // behind its last sequence
  // Publishes. Errors: `internal` for sequences without the end of their document.
  void finish();
  // The last half of `finish` alone: a process was killed between the two files. PREFIX.bin holds documents of one
  // sequence each, of `lengths` tokens. Errors: `corrupt` when it has another size.
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
