// Converts text files to a Megatron data set. A job that was stopped or killed resumes from its last saved progress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "data/source.h"
#include "text/tokenizer.h"

namespace ingot::data {

struct TokenizeJob {
  std::vector<std::filesystem::path> inputs;  // of text documents, or already tokenized ones
  Format format = Format::automatic;
  OnError on_error = OnError::stop;
  bool end_of_document = true;   // append EOS to each text
  std::filesystem::path prefix;  // PREFIX.bin and PREFIX.idx are written
  std::string tokenizer;         // identifies the tokenizer, for resuming
};

struct TokenizeTotals {
  int64_t num_files = 0;      // completely processed
  int64_t num_documents = 0;  // written so far
  int64_t num_tokens = 0;
  int64_t num_skipped = 0;  // bad lines skipped in this process (on_error skip)
  std::string first_skipped;
  int64_t resumed_at = 0;  // documents written by an earlier process
  bool finished = false;
};

// Each document becomes one sequence: BOS if the tokenizer adds it, its tokens, and EOS. The dtype is the one that
// Megatron uses for a vocabulary of this size. Records are parsed and tokenized on the pool's threads, which also take
// turns at reading and writing; the result does not depend on their number.
// `go_on` is called from time to time with the progress so far, on any of these threads but never concurrently. When it
// returns false, the progress is saved in PREFIX.bin.partial, PREFIX.lengths.partial and PREFIX.progress, from which
// the same job resumes. A job is the same when its settings and inputs are: local files of the same size, remote ones
// of the same size and version (ETag) where the server provides them.
// Errors: usage when the data set exists, or when progress files of another job exist; not_found for a remote input
// that does not exist, before anything is read; unsupported for chats and instructions, as a Megatron data set has no
// loss mask, and for a tokenizer without EOS; else as DocumentReader and MegatronWriter, with file and line.
TokenizeTotals tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool,
                              FunctionRef<bool(const TokenizeTotals&)> go_on);

}  // namespace ingot::data
